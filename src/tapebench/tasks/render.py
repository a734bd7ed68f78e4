"""Space-time diagrams: time runs down, a cell is dark when it is one, flips are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WHITE, BLACK, ORANGE = (255, 255, 255), (26, 26, 26), (230, 159, 0)
"""Zero, one, and the mark on a flipped cell: told apart by lightness, so by every eye."""

GREY = (224, 224, 224)
"""Steps that have not been taken yet."""

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
    scale = min(8, max(1, MAX_PIXELS // max(rows, tapes.shape[1])))
    colours = np.full((rows, tapes.shape[1], 3), GREY, np.uint8)
    colours[: len(tapes)] = np.array([WHITE, BLACK], np.uint8)[tapes.astype(np.intp)]
    pixels = colours.repeat(scale, axis=0).repeat(scale, axis=1)
    inset = scale // 4
    for t, cell in enumerate(cells[: len(tapes)]):
        if cell >= 0:
            top, left = t * scale, cell * scale
            pixels[top + inset : top + scale - inset, left + inset : left + scale - inset] = ORANGE
    return pixels


def print_panels(panels: Sequence[Spacetime]) -> None:
    """Print the diagrams to the terminal, side by side where they fit."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    width = max(len(panels[0].tapes[0]), 20)
    console.width = max(console.width, width)
    per_row = (console.width + 3) // (width + 3)
    for first in range(0, len(panels), max(1, per_row)):
        row = panels[first : first + max(1, per_row)]
        grid = Table.grid(padding=(0, 3))
        bodies = []
        for panel in row:
            grid.add_column(width=width)
            body = Text("\n".join(text_rows(panel.tapes, panel.cells)))
            body.highlight_regex(f"[{FLIPPED_ZERO}{FLIPPED_ONE}]", "bold orange1")
            bodies.append(body)
        grid.add_row(*(Text(panel.title, style="bold") for panel in row))
        grid.add_row(*(Text(panel.subtitle, style="dim") for panel in row))
        grid.add_row(*bodies)
        console.print(grid)
    if any(panel.cells for panel in panels):
        legend = f"{ONE} one  {ZERO} zero  {FLIPPED_ONE} flipped one  {FLIPPED_ZERO} flipped zero"
        console.print(legend, style="dim", highlight=False)
