"""Exact search for many rules of one family: tapes that no rule tells apart are searched as one.

Every rule of a family commutes with shifts, and some families with reflections too. Tapes that
these carry into each other need as many steps to the zero tape, so it is enough to search one of
each class: of the 2^25 tapes of a torus of 5 × 5 there are 172,112 classes under life-like rules.
Which class a flip leads to is the same for all rules and found out once, which takes a few
seconds; a rule then takes a twentieth of what `exact.reach` does and gives the same counts. Where
the steps from given tapes are asked for, 64 rules are searched together, a bit for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from tapebench.base.shapes import Integer, UInt16, UInt32
from tapebench.physics import exact
from tapebench.physics.family import Family, Symmetry
from tapebench.physics.space import Size, Space, as_space

TOGETHER = 64
"""Rules whose steps are searched for at a time: the bits of a word."""

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
        updated = self._updates(rule)
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

    def steps(
        self, rules: Sequence[int], tapes: UInt32[np.ndarray, " E"], horizon: int
    ) -> UInt16[np.ndarray, "R E"]:
        """Fewest steps from each tape to zeros under each rule, `exact.UNREACHED` if there is none.

        The search ends as soon as all these tapes are settled. At most `TOGETHER` rules are taken.
        """
        if len(rules) > TOGETHER:
            raise ValueError(f"at most {TOGETHER} rules are searched together, not {len(rules)}")
        start, bits = self._class_of[tapes], _bits(len(rules))[:, None]
        steps = np.full((len(rules), len(tapes)), exact.UNREACHED)
        for step, layer in enumerate(self._layers(rules, horizon)):
            steps[(layer[start] & bits) != 0] = step
            if (steps != exact.UNREACHED).all():
                break
        return steps

    def ways(
        self,
        rules: Integer[np.ndarray, " B"],
        tapes: UInt32[np.ndarray, " B"],
        budget: Integer[np.ndarray, " B"],
    ) -> list[list[int] | None]:
        """A shortest way to zeros for each tape under its rule; None if it takes more steps than
        the tape has."""
        ways: list[list[int] | None] = [None] * len(tapes)
        members, member = np.unique(rules, return_inverse=True)
        for first in range(0, len(members), TOGETHER):
            together = members[first : first + TOGETHER].tolist()
            rows = np.flatnonzero((member >= first) & (member < first + TOGETHER))
            bits = _bits(len(together))[member[rows] - first]
            found = self._ways(together, rules[rows], bits, tapes[rows], budget[rows])
            for row, way in zip(rows, found, strict=True):
                ways[row] = way
        return ways

    def _ways(
        self,
        together: Sequence[int],
        rules: np.ndarray,
        bits: np.ndarray,
        tapes: np.ndarray,
        budget: np.ndarray,
    ) -> list[list[int] | None]:
        """`ways` under rules that are searched together, each row's marked by a bit."""
        start, left = self._class_of[tapes], np.full(len(tapes), -1)
        layers = []
        for step, layer in enumerate(self._layers(together, int(budget.max()))):
            layers.append(layer)
            left[(layer[start] & bits) != 0] = step
            if ((left >= 0) | (budget <= step)).all():
                break
        left[left > budget] = -1
        ways: list[list[int] | None] = [[] if steps >= 0 else None for steps in left]
        by_step, every_cell = np.array(layers), np.arange(self.space.size, dtype=np.uint32)[None]
        while len(rows := np.flatnonzero(left > 0)):
            before = tapes[rows, None, None]
            after = self.family.step(before, every_cell, rules[rows, None], self.space)[..., 0]
            is_nearer = by_step[left[rows, None] - 1, self._class_of[after]] & bits[rows, None]
            cells = (is_nearer != 0).argmax(axis=1)
            tapes = tapes.copy()
            tapes[rows] = after[np.arange(len(rows)), cells]
            left[rows] -= 1
            for row, cell in zip(rows, cells.tolist(), strict=True):
                way = ways[row]
                assert way is not None
                way.append(cell)
        return ways

    def _layers(self, rules: Sequence[int], horizon: int) -> Iterator[np.ndarray]:
        """The classes that need 0, 1, 2, ... steps, a bit for each of these rules, uint64 `[N]`.

        Ends at the horizon, or with the last classes that can reach zeros under any of them.
        """
        bits = _bits(len(rules))
        updates = [self._updates(rule) for rule in rules]
        layer = np.zeros(len(self), np.uint64)
        layer[self._class_of[0]] = np.bitwise_or.reduce(bits)
        reached = layer
        for step in range(horizon + 1):
            yield layer
            if step == horizon:
                return
            hits = np.zeros_like(layer)
            for bit, updated in zip(bits, updates, strict=True):
                hits |= layer[updated] & bit
            layer = np.zeros_like(layer)
            for flipped in self._flipped:
                layer |= hits[flipped]
            layer &= ~reached
            if not layer.any():
                return
            reached = reached | layer

    def _updates(self, rule: int) -> np.ndarray:
        """The class that each class updates to."""
        law = self.family.compile(np.array([self.family.check_rule(rule)]))
        return self._class_of[self.family.update(self._first[:, None], law, self.space)[:, 0]]


@lru_cache(maxsize=2)
def classes(family: Family, where: Space) -> Quotient:
    """The classes of a family on a space, kept: finding them takes as long as many rules do."""
    return Quotient(family, where)


def _bits(num: int) -> np.ndarray:
    """A bit for each rule, uint64 `[num]`."""
    return np.uint64(1) << np.arange(num, dtype=np.uint64)


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
