"""What transitions show of a law: which entries of its table cells have read, and what they became.

For binary laws without noise this is all that a transition says, so the entries seen and their
values are a sufficient statistic of an episode so far, whatever the prior over rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tapebench.base.shapes import Bool, Float32, Integer, Shaped
from tapebench.physics.family import Family
from tapebench.physics.space import Space


class Evidence(NamedTuple):
    """Entries of a table, as far as they are known. For arrays of NumPy and JAX alike."""

    seen: Bool[Any, "*B N"]
    value: Bool[Any, "*B N"]
    """False where nothing was seen."""

    def numbers(self) -> Float32[Any, "*B numbers"]:
        """As the inputs of a network: what was seen, then the values."""
        xp = self.seen.__array_namespace__()
        return xp.concatenate([self.seen, self.value], axis=-1).astype(np.float32)


def nothing(family: Family, *batch: int) -> Evidence:
    """Before any transition."""
    empty = np.zeros((*batch, family.entries), bool)
    return Evidence(empty, empty)


def everything(family: Family, rule: Integer[Any, "*B"]) -> Evidence:
    """The whole table of each rule."""
    value = family.table(rule) == 1
    return Evidence(value | True, value)


def flip(cells: Shaped[Any, "*B L"], cell: Integer[Any, "*B"]) -> Shaped[Any, "*B L"]:
    """Unpacked cells of 0 and 1 with one of them inverted, which is what an update then reads."""
    xp = cells.__array_namespace__()
    is_flipped = xp.arange(cells.shape[-1]) == xp.asarray(cell)[..., None]
    return xp.where(is_flipped, 1 - cells, cells)


def show(
    evidence: Evidence,
    flipped: Shaped[Any, "*B L"],
    after: Shaped[Any, "*B L"],
    family: Family,
    space: Space,
) -> Evidence:
    """The evidence after one more update of cells, in reading order, from `flipped` to `after`.

    An entry that is read again has the value seen last, which differs only under noise, or where
    the rule has switched.
    """
    xp = flipped.__array_namespace__()
    codes = family.codes(flipped.reshape(*flipped.shape[:-1], *space.shape), space)
    read = codes.reshape(*flipped.shape, 1) == np.arange(family.entries)
    became = (read & (after[..., None] != 0)).any(axis=-2)
    read = read.any(axis=-2)
    return Evidence(evidence.seen | read, xp.where(read, became, evidence.value))


def shares(
    flipped: Shaped[Any, "*B L"],
    after: Shaped[Any, "*B L"],
    family: Family,
    space: Space,
) -> Float32[Any, "*B N 2"]:
    """In what share of the cells an update read each entry and became zero, and one.

    Shifted tapes have the same.
    """
    xp = flipped.__array_namespace__()
    codes = family.codes(flipped.reshape(*flipped.shape[:-1], *space.shape), space)
    codes, became = codes.reshape(flipped.shape), after != 0
    counts = [
        xp.stack([(is_read & ~became).sum(axis=-1), (is_read & became).sum(axis=-1)], axis=-1)
        for is_read in (codes == entry for entry in range(family.entries))
    ]
    return xp.stack(counts, axis=-2).astype(np.float32) / np.float32(space.size)
