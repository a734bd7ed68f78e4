"""Backwards from the goal: tapes known to reach it, listed layer by layer, up to 32 cells.

If the layers run out the ball is complete, and proves hopeless what has no way into it. Tapes
without a predecessor are left out, since nothing can be met there: under some rules that is nearly
all of them.

A rule may reach further than an elementary one: of `radius` r it is a number of 2^(2r+1) bits, and
bit k is what a cell becomes whose neighbourhood, read from left to right, is k. Tapes without a
predecessor then stay in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tapebench.base import seeding
from tapebench.physics import space
from tapebench.physics.families import elementary

MAX_LENGTH = 32
SMALL, LARGE = 1 << 14, 1 << 18
"""How many tapes a ball may hold: listed in no time, or in about a second."""

LAYERS = 12
"""Steps from the goal at which listing ends if not every tape could be kept until there."""

OUTSIDE = np.uint8(255)
"""In place of the steps home of a tape that is not in the ball."""


@dataclass(frozen=True)
class Ball:
    """Tapes from which one rule leads to the goal, and in how many steps.

    Only tapes that have a predecessor, and the goal: a search comes upon no others. Under some
    rules these are one in fifty, so that the same room reaches that much further.
    """

    rule: int
    length: int
    tapes: np.ndarray
    """uint32, ascending."""
    steps: np.ndarray
    """uint8, for each of them: the length of the way through the ball."""
    is_complete: bool
    """Whether no such tape is missing. Then a start tape can reach the goal only if one of its
    successors is here, and the steps are the fewest."""
    radius: int = 1
    """How many cells to each side the rule looks at."""

    def look_up(self, tapes: np.ndarray) -> np.ndarray:
        """Steps home of these tapes (any shape), `OUTSIDE` for those not in the ball."""
        home = np.full(tapes.shape, OUTSIDE)
        maybe = np.nonzero(self._slots[_slot(tapes, self._slots)])
        candidates = tapes[maybe]
        index = np.searchsorted(self.tapes, candidates).clip(max=len(self.tapes) - 1)
        home[maybe] = np.where(self.tapes[index] == candidates, self.steps[index], OUTSIDE)
        return home

    @cached_property
    def _slots(self) -> np.ndarray:
        """A table of booleans, true where a tape of the ball may be: most others are not."""
        slots = np.zeros(8 << (len(self.tapes) - 1).bit_length(), bool)
        slots[_slot(self.tapes, slots)] = True
        return slots

    def way_home(self, tape: int) -> list[int]:
        """The way through the ball from one of its tapes to the goal, cell by cell."""
        cells = []
        while left := int(self.look_up(np.array([tape], np.uint32))[0]):
            after = successors(np.array([tape], np.uint32), self.rule, self.length, self.radius)[0]
            cell = int(np.flatnonzero(self.look_up(after) == left - 1)[0])
            cells.append(cell)
            tape = int(after[cell])
        return cells


def _slot(tapes: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Where a tape belongs in a table whose size is a power of two."""
    return (tapes * np.uint32(0x9E3779B1)) >> np.uint32(33 - len(slots).bit_length())


def evolve_ring(tapes: np.ndarray, rule: int, length: int, radius: int = 1) -> np.ndarray:
    """One update of tapes, uint32 `[...]` of up to 32 cells, by a rule of any radius."""
    if radius == 1:
        return elementary.evolve(tapes[..., None], np.array([rule]), length)[..., 0]
    full = space.full(length)
    # The polynomial of the rule over the field of two elements: coefficients by their factors.
    values = [(rule >> index) & 1 for index in range(1 << (2 * radius + 1))]
    masks = [1 << bit for bit in range(2 * radius + 1)]
    for mask in masks:
        values = [value ^ (values[i ^ mask] if i & mask else 0) for i, value in enumerate(values)]
    # Bit j of an index is the cell radius - j to the right.
    factors = [_turned(tapes, radius - bit, length) for bit in range(2 * radius + 1)]

    def polynomial(values: list[int], factors: list[np.ndarray]) -> np.ndarray | None:
        """What these coefficients come to, None for nothing."""
        if not any(values):
            return None
        if not factors:
            return np.broadcast_to(full, tapes.shape)
        half = len(values) // 2
        without = polynomial(values[:half], factors[:-1])
        times = polynomial(values[half:], factors[:-1])
        if times is None:
            return without
        times = factors[-1] & times
        return times if without is None else without ^ times

    updated = polynomial(values, factors)
    return np.zeros_like(tapes) if updated is None else np.array(updated)


def _turned(tapes: np.ndarray, by: int, length: int) -> np.ndarray:
    """Tapes whose cell i is cell `i + by` of the given ones."""
    low = by % length
    if not low:
        return tapes
    turned = (tapes >> np.uint32(low)) | (tapes << np.uint32(length - low))
    return turned & space.full(length)


def successors(tapes: np.ndarray, rule: int, length: int, radius: int = 1) -> np.ndarray:
    """Where each flip leads: tapes uint32 `[...]` -> `[..., L]`."""
    every_cell = np.arange(length, dtype=np.uint32)
    flipped = tapes[..., None] ^ (np.uint32(1) << every_cell)
    return evolve_ring(flipped, rule, length, radius)


def predecessors(
    tapes: np.ndarray,
    rule: int,
    length: int,
    limit: int,
    rng: np.random.Generator,
    radius: int = 1,
) -> tuple[np.ndarray, bool]:
    """Tapes that update to one of `tapes`, and whether these are all.

    Grows all of them at once around the ring, a cell at a time from each choice of the first two
    (or 2 r); where more than `limit` are growing, a random part goes on.
    """
    are_all = True
    first = min(2 * radius, length)
    # Cells grow upwards and a neighbourhood is read downwards, hence the reversal.
    before = [int(f"{last:0{first}b}"[::-1], 2) for last in range(1 << first)]
    values = [[(rule >> (2 * index + bit)) & 1 for bit in (0, 1)] for index in before]
    table = np.array(values, np.uint32)
    target = np.tile(tapes, 1 << first)
    grown = np.arange(1 << first, dtype=np.uint32).repeat(len(tapes))
    for cell in range(first, length):
        last = (grown >> np.uint32(cell - first)) & np.uint32((1 << first) - 1)
        target_cell = (target >> np.uint32(cell - radius)) & np.uint32(1)
        fits = [np.flatnonzero(table[last, bit] == target_cell) for bit in (0, 1)]
        with_one = grown[fits[1]] | np.uint32(1 << cell)
        grown = np.concatenate([grown[fits[0]], with_one])
        target = np.concatenate([target[fits[0]], target[fits[1]]])
        if len(grown) > limit:
            part = rng.choice(len(grown), limit, replace=False)
            grown, target, are_all = grown[part], target[part], False
    closes = evolve_ring(grown, rule, length, radius) == target
    return grown[closes], are_all


@lru_cache(maxsize=1024)
def ball(rule: int, length: int, goal: int = 0, limit: int = LARGE, radius: int = 1) -> Ball:
    """List backwards from the goal until `limit` tapes are known, or there are no more."""
    if length > MAX_LENGTH:
        raise ValueError(f"search takes tapes up to {MAX_LENGTH} cells, not {length}")
    rng = seeding.generator(rule, "ball", length, goal)
    ball_tapes = layer = np.array([goal], np.uint32)
    steps = np.zeros(1, np.uint8)
    is_thinned = False

    def thin(tapes: np.ndarray, most: int) -> np.ndarray:
        nonlocal is_thinned
        if len(tapes) <= most:
            return tapes
        is_thinned = True
        return rng.choice(tapes, most, replace=False)

    every_cell = np.uint32(1) << np.arange(length, dtype=np.uint32)
    is_live = _live_tapes(rule, length) if radius == 1 else _any_tape
    for number in range(1, int(OUTSIDE)):
        room = limit - len(ball_tapes)
        if room <= 0 or (is_thinned and number > LAYERS):
            break
        before, are_all = predecessors(thin(layer, room), rule, length, 2 * limit, rng, radius)
        is_thinned |= not are_all
        reached = (thin(before, limit // 2)[:, None] ^ every_cell).ravel()
        reached = np.unique(reached[is_live(reached)])
        layer = thin(reached[~np.isin(reached, ball_tapes, assume_unique=True)], room)
        if not len(layer):
            break
        order = np.argsort(np.concatenate([ball_tapes, layer]), kind="stable")
        ball_tapes = np.concatenate([ball_tapes, layer])[order]
        steps = np.concatenate([steps, np.full(len(layer), number, np.uint8)])[order]
    is_complete = not len(layer) and not is_thinned
    return Ball(rule, length, ball_tapes, steps, is_complete, radius)


def _any_tape(tapes: np.ndarray) -> np.ndarray:
    return np.ones(tapes.shape, bool)


def _live_tapes(rule: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
    """A test whether tapes have a predecessor.

    For half a tape a table says from which two cells of a predecessor around its first cell's
    left edge to which two around its last cell's right edge one can run: 4 x 4 bits. A tape has
    a predecessor if runs of its halves close to a ring.
    """
    middle = length // 2
    tables = []
    bits = (1 << np.arange(16, dtype=np.uint16)).reshape(4, 4)
    for cells, order in ((middle, bits), (length - middle, bits.T)):
        runs = np.eye(4, dtype=bool)[None]
        for _ in range(cells):
            longer = np.zeros((2, *runs.shape), bool)
            for index in range(8):
                longer[(rule >> index) & 1, :, :, index & 3] |= runs[:, :, index >> 1]
            runs = longer.reshape(-1, 4, 4)
        tables.append((runs * order).sum(axis=(1, 2), dtype=np.uint16))
    low, high = tables
    mask, shift = np.uint32((1 << middle) - 1), np.uint32(middle)
    return lambda tapes: (low[tapes & mask] & high[tapes >> shift]) != 0
