"""Exact search for many rules of one family: tapes that no rule tells apart are searched as one.

Every rule of a family commutes with shifts, and some families with reflections too. Tapes that
these carry into each other need as many steps to the zero tape, so it is enough to search one of
each class: of the 2^25 tapes of a torus of 5 × 5 there are 172,112 classes under life-like rules.
Which class a flip leads to is the same for all rules and found out once, which takes a few
seconds; a rule then takes a twentieth of what `exact.reach` does and gives the same counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tapebench.physics import exact
from tapebench.physics.family import Family, Symmetry
from tapebench.physics.space import Size, Space, as_space

_LOW = 13
"""Low cells of a tape that are moved by one look-up, and the rest by another."""


class Quotient:
    """The classes of all tapes of a space under the symmetries of every rule of a family."""

    def __init__(self, family: Family, size: Size) -> None:
        self.family, self.space = family, family.check_space(as_space(size))
        cells = exact.check_reach(self.space, exact.NUMPY_CELLS)
        moves = [_Move(order) for order in _orders(family, self.space)]
        blocks = (
            np.arange(first, min(first + exact.BLOCK, 2**cells), dtype=np.uint32)
            for first in range(0, 2**cells, exact.BLOCK)
        )
        self._first = np.concatenate([_keep_first(block, moves) for block in blocks])
        """The lowest tape of each class."""
        self._class_of = np.empty(2**cells, np.int32)
        for move in moves:
            self._class_of[move(self._first)] = np.arange(len(self._first), dtype=np.int32)
        self._sizes = np.bincount(self._class_of)
        self._flipped = [self._class_of[self._first ^ np.uint32(1 << i)] for i in range(cells)]

    def __len__(self) -> int:
        return len(self._first)

    def reach(self, rule: int, horizon: int) -> exact.Reach:
        """What `exact.reach` counts, for the zero goal."""
        law = self.family.compile(np.array([self.family.check_rule(rule)]))
        updated = self._class_of[self.family.update(self._first[:, None], law, self.space)[:, 0]]
        layer = np.zeros(len(self), bool)
        layer[self._class_of[0]] = True
        reached, counts = layer, [1]
        for _ in range(horizon):
            hits = layer[updated]
            layer = np.zeros(len(self), bool)
            for flipped in self._flipped:
                layer |= hits[flipped]
            layer &= ~reached
            if not layer.any():
                break
            reached = reached | layer
            counts.append(int(self._sizes[layer].sum()))
        return exact.Reach(rule, self.space.size, tuple(counts))


class _Move:
    """A permutation of the cells, applied to packed tapes of up to 25 cells."""

    def __init__(self, order: tuple[int, ...]) -> None:
        """Cell i of what comes out is cell `order[i]` of the tape."""
        self._low = self._table(order, 0, min(_LOW, len(order)))
        self._high = self._table(order, _LOW, max(len(order) - _LOW, 0))

    @staticmethod
    def _table(order: tuple[int, ...], first: int, num: int) -> np.ndarray:
        parts = np.arange(1 << num, dtype=np.uint32)
        table = np.zeros_like(parts)
        for cell, source in enumerate(order):
            if first <= source < first + num:
                table |= ((parts >> np.uint32(source - first)) & np.uint32(1)) << np.uint32(cell)
        return table

    def __call__(self, tapes: np.ndarray) -> np.ndarray:
        return self._low[tapes & np.uint32((1 << _LOW) - 1)] | self._high[tapes >> np.uint32(_LOW)]


def _keep_first(tapes: np.ndarray, moves: list[_Move]) -> np.ndarray:
    """Those tapes of a block that are the lowest of their class."""
    for move in moves:
        tapes = tapes[move(tapes) >= tapes]
    return tapes


def _orders(family: Family, where: Space) -> list[tuple[int, ...]]:
    """All ways to rearrange the cells that leave every rule and the zero tape as they are."""
    cells = np.arange(where.size).reshape(where.shape)
    shifts = [np.roll(cells, 1, axis) for axis in range(len(where.shape))]
    reflections = [
        symmetry.on_cells(cells, where)
        for symmetry in family.symmetries
        if symmetry.keeps_zeros and symmetry.is_of(where) and _keeps_rules(symmetry, family)
    ]
    generators = [np.ravel(order) for order in (*shifts, *reflections)]
    return [*_generated(np.ravel(cells), generators)]


def _generated(identity: np.ndarray, generators: list[np.ndarray]) -> Iterator[tuple[int, ...]]:
    """Every product of permutations, once."""
    waiting = [tuple(identity.tolist())]
    known = set(waiting)
    while waiting:
        order = waiting.pop()
        yield order
        products = {tuple(np.array(order)[generator].tolist()) for generator in generators}
        waiting += products - known
        known |= products


def _keeps_rules(symmetry: Symmetry, family: Family) -> bool:
    """Whether a symmetry is one of every single rule.

    It rearranges the entries of a table, so tables with a single one tell.
    """
    return all(symmetry.on_rule(1 << entry) == 1 << entry for entry in range(family.entries))
