"""`tape play`: the tape as a game in the browser."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapebench.bundle import Bundle


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
        from tapebench import play, splits
        from tapebench.report import results

        splits.load(self.split)
        play.start(self.split, self.length, self.horizon, self.rule)
        if not self.out.is_dir():
            raise ValueError(f"cannot save to {self.out}: there is no such directory")
        known: list[Bundle] = []
        if self.results is not None:
            if not self.results.is_dir():
                raise ValueError(f"there is no results directory {self.results}")
            known, refused = results.read_bundles(self.results)
            for sentence in refused:
                print(f"tape: {sentence}", file=sys.stderr)
        table = play.Table(self.split, self.length, self.horizon, self.rule, self.out, tuple(known))
        server = play.make_server(table, self.port)
        where = play.address(server)
        try:
            print(f"play at {where} (Ctrl-C ends it)", flush=True)
            table.worker.start()
            if self.browser:
                import webbrowser

                webbrowser.open(where)
            server.serve_forever()
        except KeyboardInterrupt:
            # It takes a moment to end; a second Ctrl-C must not cut that short.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("stopped", file=sys.stderr)
        finally:
            server.server_close()
