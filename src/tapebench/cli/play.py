"""`tape play`: the tape as a game in the browser."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapebench.exam.bundle import Bundle

ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Play:
    """Play the tape yourself in the browser, under a law that you know or have to find out.

    A server on this machine alone, for whoever has the address that it prints; Ctrl-C ends it.
    """

    rule: int | None = None
    """The law; by default a hidden one."""
    length: int = 12
    """Cells on the ring, up to 32."""
    horizon: int | None = None
    """Moves at most; by default as many as there are cells."""
    split: str = "fps30"
    """Split that says which rules are held out."""
    results: Path | None = None
    """Directory with bundles of agents to compare with."""
    out: Path = Path(".")
    """Directory that results are saved to."""
    port: int = 0
    """Port on 127.0.0.1; 0 takes a free one."""
    browser: bool = False
    """Open the page in the browser."""

    def run(self) -> None:
        from tapebench import play
        from tapebench.report import contests
        from tapebench.tasks import splits

        splits.load(self.split)
        play.start(self.split, self.length, self.horizon, self.rule)
        if not self.out.is_dir():
            raise ValueError(f"cannot save to {self.out}: there is no such directory")
        known: list[Bundle] = []
        if self.results is not None:
            if not self.results.is_dir():
                raise ValueError(f"there is no results directory {self.results}")
            known, refused = contests.read_bundles(self.results)
            for sentence in refused:
                print(f"tape: {sentence}", file=sys.stderr)
        table = play.Table(self.split, self.length, self.horizon, self.rule, self.out, tuple(known))
        server = play.make_server(table, self.port)
        where = play.address(server)
        is_ending = False

        def end(number: int, frame: object) -> None:
            nonlocal is_ending
            is_ending = True
            for other in ENDING:  # once is enough
                signal.signal(other, signal.SIG_IGN)

        # A KeyboardInterrupt would be raised anywhere, also where it is lost; this only takes note.
        for number in ENDING:
            signal.signal(number, end)
        try:
            print(f"play at {where} (Ctrl-C ends it)", flush=True)
            table.worker.start()
            if self.browser:
                import webbrowser

                webbrowser.open(where)
            server.timeout = 0.1
            while not is_ending:
                server.handle_request()
            print("stopped", file=sys.stderr)
        finally:
            server.server_close()
