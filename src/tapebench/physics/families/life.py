"""Life-like rules on a torus: 2^18 laws that look at a cell and count its eight neighbours.

A cell that is zero becomes one if as many of its neighbours are ones as B lists, and a cell that
is one stays so if as many are as S lists: Conway's Game of Life is B3/S23. With n ones around a
cell c, entry `2n + c` of the table says what it becomes, and the number of a rule is Wolfram's code
of outer totalistic rules, whose bit `2n + c` that entry is: Life is 224.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench.base.shapes import Shaped, UInt8, UInt32
from tapebench.physics import polynomials, symmetries
from tapebench.physics.family import Family
from tapebench.physics.space import (
    MAX_LENGTH,
    Numbers,
    Space,
    Tape,
    column,
    each,
    join,
    rotate,
    split,
    to_words,
    trim,
)

ENTRIES = 18
NUM_RULES = 1 << ENTRIES

MIN_SIDE = 3
"""On a narrower torus a neighbour would be counted twice, or a cell be its own."""

if TYPE_CHECKING:
    Law = tuple[Any, ...]
else:
    Law = tuple[(int | UInt32[Any, "*#B 1"],) * ENTRIES]
    """A mask for each product of the cell and the three low bits of the count, see `polynomials`,
    and two for what is different where all eight neighbours are ones."""


def law(rule: Numbers) -> Law:
    """The rule made ready to apply. Keep it where a rule lasts for an episode."""
    if not isinstance(rule, int):
        rule = column(rule)
    crowded = (rule ^ (rule >> 16)) & 3  # a count of eight has the low bits of zero
    return *polynomials.masks(rule & 0xFFFF, 4), *polynomials.masks(crowded, 1)


def update(tape: Tape, masks: Law, space: Space) -> Tape:
    """One update of every cell at once.

    Neighbours are counted for all cells of a word together: a number is a word for each of its
    bits, first of a row's cells, then of three rows.
    """
    if not isinstance(tape, int | tuple) and tape.shape[-1] > 1:
        return join(update(split(tape), masks, space))
    width, size = space.shape[1], space.size
    left, right = _beside(tape, space)
    two_low, two_high = each(operator.xor, left, right), each(operator.and_, left, right)
    three_low = each(operator.xor, two_low, tape)
    three_high = each(lambda high, low, cell: high | (low & cell), two_high, two_low, tape)
    above_low, above_high = rotate(three_low, width, size), rotate(three_high, width, size)
    below_low, below_high = rotate(three_low, -width, size), rotate(three_high, -width, size)

    def become(cell: Any, low: tuple[Any, ...], high: tuple[Any, ...]) -> Any:
        ones, carried = _add(*low)
        twos, fours = _add(*high)
        twos, carried = twos ^ carried, twos & carried
        fours, eights = fours ^ carried, fours & carried
        usual = polynomials.evaluate(masks[:16], (fours, twos, ones, cell))
        return usual ^ (eights & polynomials.evaluate(masks[16:], (cell,)))

    low, high = (above_low, below_low, two_low), (above_high, below_high, two_high)
    return trim(each(lambda cell, *sums: become(cell, sums[:3], sums[3:]), tape, *low, *high), size)


def _add(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """The sum of three bits, as its low and its high bit."""
    some = a ^ b
    return some ^ c, (a & b) | (some & c)


def _beside(tape: Tape, space: Space) -> tuple[Tape, Tape]:
    """Two tapes whose cells are the left, and the right, neighbours in the row of this one's."""
    width, size = space.shape[1], space.size

    def choose(usual: Any, at_the_edge: Any, edge: Any) -> Any:
        return usual ^ ((usual ^ at_the_edge) & edge)

    first, last = _edges(space)
    if not isinstance(tape, int):
        first, last = (split(to_words(edge, size)) for edge in (first, last))
    return (
        each(choose, rotate(tape, 1, size), rotate(tape, 1 - width, size), first),
        each(choose, rotate(tape, -1, size), rotate(tape, width - 1, size), last),
    )


@cache
def _edges(space: Space) -> tuple[Any, Any]:
    """The first and the last column, as tapes of ones."""
    height, width = space.shape
    first = sum(1 << (row * width) for row in range(height))
    return first, first << (width - 1)


def codes(cells: Shaped[Any, "*B h w"], space: Space) -> Shaped[Any, "*B h w"]:
    """The entry `2n + c` that each cell reads."""
    xp = cells.__array_namespace__()
    rows = cells + xp.roll(cells, 1, axis=-1) + xp.roll(cells, -1, axis=-1)
    count = rows + xp.roll(rows, 1, axis=-2) + xp.roll(rows, -1, axis=-2) - cells
    return 2 * count + cells


def table(rules: Numbers) -> UInt8[Any, "*B 18"]:
    """What each cell with so many neighbours becomes: entry e is bit e of the rule."""
    return ((column(rules) >> np.arange(ENTRIES, dtype=np.uint32)) & 1).astype(np.uint8)


def complement(rule: int) -> int:
    """The rule seen in the negative: zeros and ones exchanged."""
    return sum((1 - ((rule >> (ENTRIES - 1 - entry)) & 1)) << entry for entry in range(ENTRIES))


_NOTATIONS = (
    r"B(?P<born>[0-8]*)/?S(?P<stays>[0-8]*)",
    r"S(?P<stays>[0-8]*)/?B(?P<born>[0-8]*)",
    r"(?P<stays>[0-8]*)/(?P<born>[0-8]*)",
    r"\{(?P<number>\d+),\{2,\{\{2,2,2\},\{2,1,2\},\{2,2,2\}\}\},\{1,1\}\}",
    r"(?P<number>\d+)",
)
"""Golly's, in which letters may be small and the slash left out where there are letters, the older
one, which has S before B and no letters, Wolfram's, and the number alone."""


def parse(text: str) -> int:
    """A rule from `B3/S23` (also `b3s23`), `23/3`, Wolfram's notation, or its number alone."""
    compact = "".join(text.split())
    for notation in _NOTATIONS:
        if not (match := re.fullmatch(notation, compact, re.ASCII | re.IGNORECASE)):
            continue
        parts = match.groupdict()
        if "number" not in parts:
            return sum(
                1 << (2 * int(count) + cell)
                for cell, counts in enumerate((parts["born"], parts["stays"]))
                for count in set(counts)
            )
        if len(parts["number"]) < 10 and int(parts["number"]) < NUM_RULES:
            return int(parts["number"])
    raise ValueError(
        "a life rule is written like B3/S23, or 23/3 with S first, in counts from 0 to 8 of the "
        f"eight neighbours, or is a number from 0 to {NUM_RULES - 1}, not {text[:40]!r}"
    )


def label(rule: int) -> str:
    """Such as `B3/S23`."""
    born, stays = (
        "".join(str(count) for count in range(9) if rule >> (2 * count + cell) & 1)
        for cell in (0, 1)
    )
    return f"B{born}/S{stays}"


def check_space(space: Space) -> Space:
    """A torus on which the eight neighbours are different cells."""
    if len(space.shape) != 2 or min(space.shape) < MIN_SIDE or space.size > MAX_LENGTH:
        raise ValueError(
            f"life rules count eight different neighbours: they need a torus of at least "
            f"{MIN_SIDE} by {MIN_SIDE} and at most {MAX_LENGTH} cells, not {space.shape}"
        )
    return space


def _same(rule: int) -> int:
    return rule


LIFE = Family(
    name="life",
    version=1,
    dimensions=2,
    entries=ENTRIES,
    codes=codes,
    table=table,
    compile=law,
    update=update,
    symmetries=(
        symmetries.mirror(_same),
        symmetries.upside_down(_same),
        symmetries.transpose(_same),
        symmetries.complement(complement),
    ),
    parse=parse,
    label=label,
    check_space=check_space,
)
