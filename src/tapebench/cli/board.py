"""`tape board`: a leaderboard from bundles."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tapebench.cli.console import make_table, progress, screen


@dataclass(frozen=True)
class Board:
    """Make a leaderboard of the bundles below a directory, every action of them replayed.

    Rows are sorted by success on unseen beyond-reflex rules. A bundle is refused that is damaged, a
    duplicate or of an old exam; the page, board.json and the output say why, and then the exit code
    is 1. What was replayed once is not replayed again.

    For example:
      tape board submissions
      tape board submissions --out site --json
    """

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Directory with bundles, *.tape; those of a row lie in one directory and have one name."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory to write index.html and board.json to, instead of DIR/board."""
    json: bool = False
    """Print the content of board.json."""

    def run(self) -> None:
        from tapebench import report
        from tapebench.report.board import table
        from tapebench.runs import board as boards

        with progress() as show:
            board = boards.read(self.directory, show)
        document = board.as_dict()
        if self.json:
            print(json.dumps(document), flush=True)
        else:
            console = screen()
            for standing in board.standings:
                shown = table(standing).select(range(4))
                columns = (column.name for column in shown.columns)
                drawn = make_table(*columns, title=f"{standing.title}: {shown.title}")
                for texts in shown.texts():
                    drawn.add_row(*texts)
                console.print(drawn)
        for refusal in board.refused:
            print(f"refused: {refusal.file}: {refusal.reason}", file=sys.stderr)
        index = report.write_board(board, self.out or self.directory / "board")
        print(f"board: {index}", file=sys.stderr if self.json else sys.stdout)
        if board.refused:
            raise SystemExit(1)
