"""Space-time diagrams: time runs down, a cell is dark when it is one, flips are marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WHITE, BLACK, ORANGE = (255, 255, 255), (26, 26, 26), (230, 159, 0)
"""Zero, one, and the mark on a flipped cell: told apart by lightness, so by every eye."""

ZERO, ONE, FLIPPED_ZERO, FLIPPED_ONE = "·", "█", "○", "◙"


def text_rows(tapes: Any, cells: Sequence[int]) -> list[str]:
    """One line per tape `[T + 1, L]`; `cells[t]` is marked in row t, where it was flipped."""
    rows = []
    for t, tape in enumerate(np.asarray(tapes)):
        row = [ONE if cell else ZERO for cell in tape]
        if t < len(cells) and cells[t] >= 0:
            row[cells[t]] = FLIPPED_ONE if tape[cells[t]] else FLIPPED_ZERO
        rows.append("".join(row))
    return rows


def picture(tapes: Any, cells: Sequence[int], scale: int = 8) -> np.ndarray:
    """The diagram as pixels, uint8 `[rows * scale, L * scale, 3]`, flips with an orange core."""
    tapes = np.asarray(tapes)
    colours = np.array([WHITE, BLACK], np.uint8)[tapes.astype(np.intp)]
    pixels = colours.repeat(scale, axis=0).repeat(scale, axis=1)
    inset = max(1, scale // 4)
    for t, cell in enumerate(cells[: len(tapes)]):
        if cell >= 0:
            top, left = t * scale, cell * scale
            core = (slice(top + inset, top + scale - inset), slice(left + inset, left + scale - inset))
            pixels[core] = ORANGE
    return pixels
