"""The page of the game, and the worlds that it plays by itself.

With a server the tapes of the exam are played there, where their rule is hidden. The rule of the
day, boards of life and everything of a page without a server are played in the page, whose reader
could look: nothing of them is a result.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.physics import exact, space, starts
from tapebench.report.page import assemble
from tapebench.tasks import splits

LENGTHS = (8, 12, 16)
"""Cells of the rings that a page without a server has: it solves those itself."""

TAPES = 50
"""Start tapes of each size, the first of the exam."""

DAY_LENGTH = 12
"""Cells of the rule of the day."""

LIFE = "life-H4-matched-64"
"""The split whose training rules boards are played with: each solvable from every tape."""

SPARE = 4
"""Moves on a board beyond those that are always enough."""


def start_tapes(length: int) -> list[str]:
    """Start tapes of the exam, cell by cell."""
    tapes = starts.exam_tapes(length, TAPES)
    return [f"{space.to_int(tape):0{length}b}"[::-1] for tape in tapes]


@cache
def local_worlds() -> dict[str, Any]:
    """What the page needs to draw games of its own: rules and start tapes."""
    solved = exact.shipped_ceilings(16, 16)
    worth_playing = [
        rule for rule, reach in solved.items() if reach.solvable > 0.9 and reach.mean_steps > 2
    ]
    split = splits.load(LIFE)
    board = split.universe.space
    return {
        "day": {
            "length": DAY_LENGTH,
            "horizon": DAY_LENGTH,
            "rules": worth_playing,
            "tapes": start_tapes(DAY_LENGTH),
        },
        "life": {
            "shape": list(board.shape),
            "horizon": int(split.universe.horizon or 0) + SPARE,
            "rules": list(split.train),
            "tapes": start_tapes(board.size),
        },
    }


def render(settings: dict[str, Any]) -> str:
    """The page, as one file."""
    return assemble("TAPE: play", BODY, settings, "games.js", "play.js")


def write_static(folder: Path) -> Path:
    """Write the game as a page that needs no server; returns the file to open."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "length": DAY_LENGTH,
        "rule": None,
        "longest": max(LENGTHS),
        "is_static": True,
        "tapes": {str(length): start_tapes(length) for length in LENGTHS},
    }
    path = folder / "index.html"
    files.write_text(path, render(settings | local_worlds()))
    return path


BODY = """<h1>TAPE</h1>
<p class=lead>Empty every cell. Each move flips one cell; then a rule that you may not know updates
all cells at once, each by what it and its neighbours are. The tape is a ring, a board goes on at
its opposite side.</p>
<div id=game></div>
<p class=note>The notebook fills in as you play: an entry says what becomes of the cell in the
middle, or on a board of a cell with so many ones around it. Guess what you have not seen, and name
the rule. Par is the fewest moves from the start, computed exactly. Keys: arrows choose a cell,
Enter or space flips it, h asks for the best move, n takes the next tape under the same rule. On the
exam's tapes, which need <code>tape play</code>, results count as blind as long as the rule is
hidden: best moves, Compare, naming the rule and Save result show it.</p>"""
