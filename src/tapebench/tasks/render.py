"""Space-time diagrams: time runs down, a cell is dark when it is one, flips are marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WHITE, BLACK, ORANGE = (255, 255, 255), (26, 26, 26), (230, 159, 0)
"""Zero, one, and the mark on a flipped cell: told apart by lightness, so by every eye."""

GREY = (224, 224, 224)
"""Steps that have not been taken yet."""

_PALETTE = np.array([WHITE, BLACK], np.uint8)

STRIP, GAP = 79, "  "
"""Columns of a strip of boards, and what is between two of them."""

MAX_PIXELS = 1024
"""Longest side of a rendered frame, where a cell can be less than eight pixels wide."""

ZERO, ONE, FLIPPED_ZERO, FLIPPED_ONE = "·", "█", "○", "◙"


@dataclass(frozen=True)
class Spacetime:
    """One episode to draw."""

    title: str
    subtitle: str
    tapes: Sequence[Sequence[int]]
    """Cells `[T + 1, L]`."""
    cells: Sequence[int]
    """Cell t is the one flipped in row t; -1 for none."""
    shape: tuple[int, ...] = ()
    """Of a torus: its tapes are drawn as boards. Nothing, or one side, for a ring."""

    def text(self) -> list[str]:
        """The lines of the diagram."""
        if len(self.shape) < 2:
            return text_rows(self.tapes, self.cells)
        return text_boards(np.reshape(self.tapes, (-1, *self.shape)), self.cells)


def text_rows(tapes: Any, cells: Sequence[int]) -> list[str]:
    """One line per tape `[T + 1, L]`; `cells[t]` is marked in row t, where it was flipped."""
    rows = []
    for t, tape in enumerate(np.asarray(tapes)):
        row = [ONE if cell else ZERO for cell in tape]
        if t < len(cells) and cells[t] >= 0:
            row[cells[t]] = FLIPPED_ONE if tape[cells[t]] else FLIPPED_ZERO
        rows.append("".join(row))
    return rows


def picture(tapes: Any, cells: Sequence[int], rows: int) -> np.ndarray:
    """The diagram as pixels, uint8 `[rows * scale, L * scale, 3]`, flips with an orange core.

    All frames of an episode have the same size: steps to come are grey.
    """
    tapes = np.asarray(tapes)
    colours = np.full((rows, tapes.shape[1], 3), GREY, np.uint8)
    colours[: len(tapes)] = _PALETTE[tapes.astype(np.intp)]
    flips = [(t, cell) for t, cell in enumerate(cells[: len(tapes)]) if cell >= 0]
    return _enlarge(colours, flips)


def text_boards(boards: Any, cells: Sequence[int]) -> list[str]:
    """A strip of boards `[T + 1, h, w]` in reading order, as many to a line as `STRIP` takes."""
    boards = np.asarray(boards)
    height, width = boards.shape[1:]
    across = max(1, (STRIP + len(GAP)) // (width + len(GAP)))
    drawn = []
    for t, board in enumerate(boards):
        row, column = divmod(cells[t], width) if t < len(cells) and cells[t] >= 0 else (-1, -1)
        drawn.append(text_rows(board, [column if y == row else -1 for y in range(height)]))
    lines: list[str] = []
    for first in range(0, len(drawn), across):
        lines += [""] * bool(lines)
        lines += map(GAP.join, zip(*drawn[first : first + across], strict=True))
    return lines


def board_picture(boards: Any, cells: Sequence[int], places: int) -> np.ndarray:
    """A strip of boards `[T + 1, h, w]` as pixels, uint8, flips with an orange core.

    There is room for so many `places`, in lines that make the picture about a square.
    """
    boards = np.asarray(boards)
    height, width = (side + 1 for side in boards.shape[1:])
    across = min(places, math.ceil((places * height / width) ** 0.5))
    colours = np.full((-(-places // across) * height - 1, across * width - 1, 3), GREY, np.uint8)
    flips = []
    for t, board in enumerate(boards):
        top, left = t // across * height, t % across * width
        colours[top : top + height - 1, left : left + width - 1] = _PALETTE[board.astype(np.intp)]
        if t < len(cells) and cells[t] >= 0:
            row, column = divmod(cells[t], width - 1)
            flips.append((top + row, left + column))
    return _enlarge(colours, flips)


def _enlarge(colours: np.ndarray, flips: Sequence[tuple[int, int]]) -> np.ndarray:
    """A square of pixels for each colour `[rows, columns, 3]`; those flipped have a core."""
    scale = min(8, max(1, MAX_PIXELS // max(colours.shape[:2])))
    pixels = colours.repeat(scale, axis=0).repeat(scale, axis=1)
    inset = scale // 4
    for row, column in flips:
        top, left = row * scale, column * scale
        pixels[top + inset : top + scale - inset, left + inset : left + scale - inset] = ORANGE
    return pixels


def print_panels(panels: Sequence[Spacetime]) -> None:
    """Print the diagrams to the terminal, side by side where they fit."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    texts = [panel.text() for panel in panels]
    width = max(20, *(len(line) for text in texts for line in text))
    console.width = max(console.width, width)
    per_row = (console.width + 3) // (width + 3)
    for first in range(0, len(panels), max(1, per_row)):
        shown = slice(first, first + max(1, per_row))
        row = panels[shown]
        grid = Table.grid(padding=(0, 3))
        bodies = []
        for text in texts[shown]:
            grid.add_column(width=width)
            body = Text("\n".join(text))
            body.highlight_regex(f"[{FLIPPED_ZERO}{FLIPPED_ONE}]", "bold orange1")
            bodies.append(body)
        grid.add_row(*(Text(panel.title, style="bold") for panel in row))
        grid.add_row(*(Text(panel.subtitle, style="dim") for panel in row))
        grid.add_row(*bodies)
        console.print(grid)
    if any(panel.cells for panel in panels):
        legend = f"{ONE} one  {ZERO} zero  {FLIPPED_ONE} flipped one  {FLIPPED_ZERO} flipped zero"
        console.print(legend, style="dim", highlight=False)
