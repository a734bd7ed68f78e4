"""Backward search over all 2^L tapes for 18 to 32 cells (extra `exact`: it needs numba).

The same layers as in `tapebench.exact`, but 2^32 tapes ask for three ways to make one:

- *sparse*: while few tapes have been reached, their predecessors are listed one by one;
- *dense*: one pass over all tapes asks which of them update into the last layer, and a second one
  spreads that set along the 32 axes of the hypercube, 64 tapes at a time;
- *late*: when few tapes are left, each is asked whether one of its flips leads into what has
  been reached.

At 32 cells this takes 4 GiB for the steps of every tape and 1.5 GiB for three bitsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, prange, uint8, uint32, uint64

from tapebench.base import seeding
from tapebench.base.shapes import UInt8
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.physics.starts import exam_tapes

EXAM_EPISODES = 20
MIN_LENGTH, MAX_LENGTH = 18, 32
UNREACHED = 255
LOW = 16
"""Cells whose updates are looked up in one table; the rest are looked up once per block."""

SPARSE = 1 << 22
"""Most predecessors that are listed one by one."""

LATE = 1 << 25
"""Most unreached tapes that are asked one by one."""

_BLOCK = 1 << 14
"""Words per block of the spreading pass: 128 KiB, which the second-level cache holds."""


class Search:
    """Room for one search at a time; reused from rule to rule, since zeroing it is not free."""

    def __init__(self, length: int) -> None:
        if not MIN_LENGTH <= length <= MAX_LENGTH:
            raise ValueError(f"this search takes {MIN_LENGTH} to {MAX_LENGTH} cells, not {length}")
        self.length = length
        words = 2 ** (length - 6)
        self.steps = np.empty(2**length, np.uint8)
        """After `solve`: the optimal steps of every tape, `UNREACHED` if there are none."""
        self._reached = np.empty(words, np.uint64)
        self._layer = np.empty(words, np.uint64)
        self._before_update = np.empty(words, np.uint64)
        self._listed = np.empty(SPARSE, np.uint32)

    def solve(
        self,
        rule: int,
        horizon: int,
        goal: int = 0,
        progress: Callable[[int, int], Any] = lambda step, count: None,
    ) -> tuple[int, ...]:
        """How many tapes need how many steps; `steps` holds them tape by tape."""
        if horizon >= UNREACHED:
            raise ValueError(f"horizon must be below {UNREACHED}, not {horizon}")
        table = np.array([(rule >> index) & 1 for index in range(8)], np.uint8)
        self.steps.fill(UNREACHED)
        self._reached.fill(0)
        self.steps[goal] = 0
        self._reached[goal >> 6] |= np.uint64(1 << (goal & 63))
        counts = [1]
        listed: np.ndarray | None = np.array([goal], np.uint32)
        for step in range(1, horizon + 1):
            left = 2**self.length - sum(counts)
            if left == 0 or counts[-1] == 0:
                break
            listed, count = self._next_layer(table, step, listed, counts[-1], left)
            counts.append(count)
            progress(step, count)
        while counts[-1] == 0:
            counts.pop()
        return tuple(counts)

    def _next_layer(
        self, table: np.ndarray, step: int, listed: np.ndarray | None, count: int, left: int
    ) -> tuple[np.ndarray | None, int]:
        """Find the next layer; it is listed (if that was the way) or left in `_layer`."""
        if listed is None and count <= SPARSE:
            listed = _list_tapes(self._layer, count)
        if listed is not None:
            count_before = _list_predecessors(listed, table, self.length, self._listed)
            if count_before >= 0:
                fresh = _reach_flips(
                    self._listed[:count_before], step, self.length, self.steps, self._reached
                )
                return fresh, len(fresh)
            self._layer.fill(0)
            _set_tapes(self._layer, listed)
        if left <= LATE:
            new = _ask_the_rest(table, self.length, self._reached, self._before_update)
            self._layer, self._before_update = self._before_update, self._layer
        else:
            tables = _update_tables(table, self.length)
            _look_up_updates(self._layer, *tables, self.length, self._before_update)
            _spread(self._before_update, self.length, self._layer)
            new = 0
        new += _keep_new(self._layer, step, self._reached, self.steps)
        return None, new


def witness(
    steps: UInt8[np.ndarray, " tapes"], tape: int, rule: int, length: int
) -> list[int] | None:
    """A shortest sequence of cells from `tape` to the goal; `None` if there is none."""
    if steps[tape] == UNREACHED:
        return None
    cells = []
    while steps[tape]:
        after = [elementary.step(tape, cell, rule, length) for cell in range(length)]
        cell = min(range(length), key=lambda cell: int(steps[after[cell]]))
        cells.append(cell)
        tape = after[cell]
    return cells


def solve_for_exam(search: Search, rule: int, horizon: int) -> list[dict[str, Any]]:
    """The records of a rule and of its mirror image (one if they are the same), zero goal.

    A record holds the rule's counts and, for each tape of the standard exam, its optimal steps
    and a shortest sequence of cells, or `None` for both where the goal is out of reach.
    """
    length = search.length
    histogram = search.solve(rule, horizon)
    tapes = [space.to_int(tape) for tape in exam_tapes(length, EXAM_EPISODES)]
    records = []
    for twin in sorted({rule, elementary.mirror(rule)}):
        is_mirrored = twin != rule
        witnesses = []
        for tape in tapes:
            seen = elementary.mirror_tape(tape, length) if is_mirrored else tape
            cells = witness(search.steps, seen, rule, length)
            if cells is not None and is_mirrored:
                cells = [length - 1 - cell for cell in cells]
            witnesses.append(cells)
        records.append(
            {
                "rule": twin,
                "length": length,
                "horizon": horizon,
                "goal": "zeros",
                "histogram": list(histogram),
                "exam_version": seeding.EXAM_VERSION,
                "exam_steps": [None if cells is None else len(cells) for cells in witnesses],
                "exam_witnesses": witnesses,
            }
        )
    return records


@njit(cache=True)
def _list_predecessors(tapes: np.ndarray, table: np.ndarray, length: int, out: np.ndarray) -> int:
    """List every tape that updates to one of `tapes`; -1 if there are more than fit.

    Walks along the ring from each choice of the first two cells, branching on the next one.
    """
    count = 0
    cell_at = np.zeros(40, np.uint32)
    choice = np.zeros(40, np.uint8)
    for target in tapes:
        for first in range(4):
            cell_at[0], cell_at[1] = first & 1, first >> 1
            position = 2
            choice[position] = 0
            while position >= 2:
                if position == length:
                    last, before = cell_at[length - 1], cell_at[length - 2]
                    closes = (
                        table[4 * before + 2 * last + cell_at[0]] == (target >> (length - 1)) & 1
                        and table[4 * last + 2 * cell_at[0] + cell_at[1]] == target & 1
                    )
                    if closes:
                        if count == len(out):
                            return -1
                        tape = uint32(0)
                        for cell in range(length):
                            tape |= uint32(cell_at[cell]) << uint32(cell)
                        out[count] = tape
                        count += 1
                    position -= 1
                    continue
                if choice[position] == 2:
                    position -= 1
                    continue
                bit = choice[position]
                choice[position] += 1
                index = 4 * cell_at[position - 2] + 2 * cell_at[position - 1] + bit
                if table[index] == (target >> (position - 1)) & 1:
                    cell_at[position] = bit
                    position += 1
                    choice[position] = 0
    return count


@njit(cache=True)
def _reach_flips(
    tapes: np.ndarray, step: int, length: int, steps: np.ndarray, reached: np.ndarray
) -> np.ndarray:
    """Mark what is one flip away from `tapes` and was not reached before; list it."""
    fresh = np.empty(min(len(tapes) * length, len(steps)), np.uint32)
    count = 0
    for tape in tapes:
        for cell in range(length):
            flipped = tape ^ (uint32(1) << uint32(cell))
            bit = uint64(1) << uint64(flipped & 63)
            if not reached[flipped >> 6] & bit:
                reached[flipped >> 6] |= bit
                steps[flipped] = step
                fresh[count] = flipped
                count += 1
    return fresh[:count].copy()


@njit(cache=True)
def _list_tapes(layer: np.ndarray, count: int) -> np.ndarray:
    out = np.empty(count, np.uint32)
    position = 0
    for word in range(len(layer)):
        bits = layer[word]
        if bits:
            for bit in range(64):
                if (bits >> uint64(bit)) & uint64(1):
                    out[position] = uint32(word * 64 + bit)
                    position += 1
    return out


@njit(cache=True)
def _set_tapes(layer: np.ndarray, tapes: np.ndarray) -> None:
    for tape in tapes:
        layer[tape >> 6] |= uint64(1) << uint64(tape & 63)


@njit(cache=True)
def _update_cells(tape: int, table: np.ndarray, length: int, first: int, last: int) -> int:
    """Cells `first` to `last - 1` of the updated tape, moved down to bit 0."""
    out = 0
    for cell in range(first, last):
        left = (tape >> ((cell - 1) % length)) & 1
        right = (tape >> ((cell + 1) % length)) & 1
        out |= int(table[4 * left + 2 * ((tape >> cell) & 1) + right]) << (cell - first)
    return out


@njit(cache=True)
def _update_tables(table: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The update in two look-ups.

    `low[b, x]` are cells 0 to 15 after the update, with x those before it and b the cells on
    either side (bit 1 the last cell of the tape, bit 0 cell 16). `high[y, b]` are the cells from
    16 on, with y those before it and b cells 15 (bit 1) and 0 (bit 0).
    """
    low = np.empty((4, 1 << LOW), np.uint16)
    for neighbours in range(4):
        around = (neighbours >> 1) << (length - 1) | (neighbours & 1) << LOW
        for cells in range(1 << LOW):
            low[neighbours, cells] = _update_cells(around | cells, table, length, 0, LOW)
    high = np.empty((1 << (length - LOW), 4), np.uint32)
    for cells in range(1 << (length - LOW)):
        for neighbours in range(4):
            tape = cells << LOW | (neighbours >> 1) << (LOW - 1) | (neighbours & 1)
            high[cells, neighbours] = _update_cells(tape, table, length, LOW, length)
    return low, high


@njit(cache=True, parallel=True)
def _look_up_updates(
    layer: np.ndarray, low: np.ndarray, high: np.ndarray, length: int, out: np.ndarray
) -> None:
    """Mark the tapes whose update is in `layer`.

    All look-ups of a block of 2^16 tapes fall into four stretches of 8 KiB.
    """
    words = 1 << (LOW - 6)
    for block in prange(1 << (length - LOW)):
        neighbours = ((block >> (length - LOW - 1)) & 1) << 1 | (block & 1)
        lows = low[neighbours]
        starts = high[block].astype(np.uint64) << uint64(LOW - 6)
        for word in range(words):
            half = uint64((word >> (LOW - 7)) << 1)
            even, odd = starts[half], starts[half | uint64(1)]
            bits = uint64(0)
            for bit in range(0, 64, 2):
                first, second = uint64(lows[word * 64 + bit]), uint64(lows[word * 64 + bit + 1])
                hit = (layer[even + (first >> uint64(6))] >> (first & uint64(63))) & uint64(1)
                bits |= hit << uint64(bit)
                hit = (layer[odd + (second >> uint64(6))] >> (second & uint64(63))) & uint64(1)
                bits |= hit << uint64(bit + 1)
            out[block * words + word] = bits


@njit(cache=True, parallel=True)
def _spread(tapes: np.ndarray, length: int, out: np.ndarray) -> None:
    """Mark everything exactly one flip away: low axes block by block, high ones line by line."""
    words = len(tapes)
    block = min(_BLOCK, words)
    for number in prange(words // block):
        start = number * block
        for word in range(start, start + block):
            bits = tapes[word]
            near = (bits & uint64(0x5555555555555555)) << uint64(1)
            near |= (bits >> uint64(1)) & uint64(0x5555555555555555)
            near |= (bits & uint64(0x3333333333333333)) << uint64(2)
            near |= (bits >> uint64(2)) & uint64(0x3333333333333333)
            near |= (bits & uint64(0x0F0F0F0F0F0F0F0F)) << uint64(4)
            near |= (bits >> uint64(4)) & uint64(0x0F0F0F0F0F0F0F0F)
            near |= (bits & uint64(0x00FF00FF00FF00FF)) << uint64(8)
            near |= (bits >> uint64(8)) & uint64(0x00FF00FF00FF00FF)
            near |= (bits & uint64(0x0000FFFF0000FFFF)) << uint64(16)
            near |= (bits >> uint64(16)) & uint64(0x0000FFFF0000FFFF)
            out[word] = near | (bits << uint64(32)) | (bits >> uint64(32))
        axis = 1
        while axis < block:
            for word in range(start, start + block):
                out[word] |= tapes[word ^ axis]
            axis *= 2
    rows = words // block
    line = 8
    for column in prange(block // line):
        for row in range(rows):
            axis = 1
            while axis < rows:
                here, there = row * block + column * line, (row ^ axis) * block + column * line
                for word in range(line):
                    out[here + word] |= tapes[there + word]
                axis *= 2


@njit(cache=True, parallel=True)
def _ask_the_rest(table: np.ndarray, length: int, reached: np.ndarray, out: np.ndarray) -> int:
    """Mark the unreached tapes one of whose flips leads into what has been reached."""
    low, high = _update_tables(table, length)
    for word in prange(len(reached)):
        rest = ~reached[word]
        bits = uint64(0)
        if rest:
            for bit in range(64):
                if not (rest >> uint64(bit)) & uint64(1):
                    continue
                tape = uint64(word * 64 + bit)
                for cell in range(length):
                    flipped = tape ^ (uint64(1) << uint64(cell))
                    cells, high_cells = flipped & uint64(0xFFFF), flipped >> uint64(LOW)
                    low_neighbours = ((flipped >> uint64(length - 1)) & uint64(1)) << uint64(1)
                    low_neighbours |= high_cells & uint64(1)
                    high_neighbours = ((cells >> uint64(LOW - 1)) & uint64(1)) << uint64(1)
                    high_neighbours |= cells & uint64(1)
                    after = uint64(high[high_cells, high_neighbours]) << uint64(LOW)
                    after |= uint64(low[low_neighbours, cells])
                    if (reached[after >> uint64(6)] >> (after & uint64(63))) & uint64(1):
                        bits |= uint64(1) << uint64(bit)
                        break
        out[word] = bits
    return 0


@njit(cache=True, parallel=True)
def _keep_new(layer: np.ndarray, step: int, reached: np.ndarray, steps: np.ndarray) -> int:
    """Reduce `layer` to what was not reached before; record it; count it."""
    count = 0
    for word in prange(len(layer)):
        new = layer[word] & ~reached[word]
        layer[word] = new
        reached[word] |= new
        if new == uint64(0xFFFFFFFFFFFFFFFF):
            steps[word * 64 : word * 64 + 64] = uint8(step)
            count += 64
        elif new:
            for bit in range(64):
                if (new >> uint64(bit)) & uint64(1):
                    steps[word * 64 + bit] = step
                    count += 1
    return count


def set_threads(threads: int) -> None:
    """Use so many cores."""
    numba.set_num_threads(threads)
