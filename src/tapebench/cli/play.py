"""`tape play`: the tape as a game in the browser."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from tapebench.exam.bundle import Bundle

ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Play:
    """Play the tape yourself in the browser, under a rule that is hidden or shown.

    Starts a server on this machine alone and prints its secret address; Ctrl-C ends it. Boards of
    life and the rule of the day are on the page, too. With --static the game is written to a file
    that needs no server.

    For example:
      tape play --browser
      tape play --static game
    """

    rule: Annotated[int | None, tyro.conf.arg(metavar="RULE")] = None
    """The rule; by default a hidden one."""
    length: Annotated[int, tyro.conf.arg(metavar="CELLS")] = 12
    """Cells on the ring, up to 32."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Most flips; by default as many as there are cells."""
    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split that says which rules are held out."""
    results: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory with bundles of agents to compare with."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path(".")
    """Directory that results are saved to."""
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = 0
    """Port on 127.0.0.1; 0 takes a free one."""
    browser: bool = False
    """Open the page in the browser."""
    static: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Start no server: write the game to DIR/index.html, to be opened from disk or put on the web.
    It keeps no secrets and saves no results."""

    def run(self) -> None:
        from tapebench import play
        from tapebench.report import contests
        from tapebench.tasks import splits

        if self.static is not None:
            print(f"wrote {play.write_static(self.static)}")
            return
        splits.load(self.split)
        play.start(self.split, self.length, self.horizon, self.rule)
        if not self.out.is_dir():
            raise ValueError(f"cannot save to {self.out}: there is no such directory")
        bundles: list[Bundle] = []
        if self.results is not None:
            if not self.results.is_dir():
                raise ValueError(f"there is no results directory {self.results}")
            bundles, refused = contests.read_bundles(self.results)
            for sentence in refused:
                print(f"tape: {sentence}", file=sys.stderr)
        session = play.Session(
            self.split, self.length, self.horizon, self.rule, self.out, tuple(bundles)
        )
        server = play.make_server(session, self.port)
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
            session.worker.start()
            if self.browser:
                import webbrowser

                webbrowser.open(where)
            server.timeout = 0.1
            while not is_ending:
                server.handle_request()
            print("stopped", file=sys.stderr)
        finally:
            server.server_close()
