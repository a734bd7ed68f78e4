"""Rules of five cells on a ring: 2^32 laws of a cell and two neighbours on either side.

Under rule n a cell becomes bit `16a + 8b + 4c + 2d + e` of n: c is the cell itself, a and b are to
its left with a the farther one, d and e to its right. The numbers are Wolfram's, who writes
{n, 2, 2} for rule n of two colours and range 2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench.base.shapes import Shaped, UInt8, UInt32
from tapebench.physics import polynomials, symmetries
from tapebench.physics.family import Family
from tapebench.physics.space import MAX_LENGTH, Numbers, Space, Tape, column, each, rotate, trim

MIN_LENGTH = 5
"""On a shorter ring the two cells on the left are also those on the right."""

REACH = (2, 1, 0, -1, -2)
"""By how many cells the tape is turned to bring each of the five to the one they decide."""

if TYPE_CHECKING:
    Law = tuple[Any, ...]
else:
    Law = tuple[(int | UInt32[Any, "*#B 1"],) * 32]
    """A mask for each product of the five cells; see `polynomials`."""


def law(rule: Numbers) -> Law:
    """The rule made ready to apply. Keep it where a rule lasts for an episode."""
    return polynomials.masks(rule if isinstance(rule, int) else column(rule), 5)


def update(tape: Tape, masks: Law, space: Space) -> Tape:
    """One update of every cell at once, in 62 operations and four turns of the ring."""

    def become(*cells: Any) -> Any:
        return polynomials.evaluate(masks, cells)

    cells = (rotate(tape, by, space.size) if by else tape for by in REACH)
    return trim(each(become, *cells), space.size)


def codes(cells: Shaped[Any, "*B L"], space: Space) -> Shaped[Any, "*B L"]:
    """The entry `16a + 8b + 4c + 2d + e` that each cell reads."""
    xp = cells.__array_namespace__()
    return sum(2 ** (2 + by) * xp.roll(cells, by, axis=-1) for by in REACH)


def table(rules: Numbers) -> UInt8[Any, "*B 32"]:
    """What each neighbourhood becomes: entry e is bit e of the rule."""
    return ((column(rules) >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8)


def mirror(rule: int) -> int:
    """The rule seen in a mirror: left and right neighbours exchanged."""
    return sum(((rule >> int(f"{entry:05b}"[::-1], 2)) & 1) << entry for entry in range(32))


def complement(rule: int) -> int:
    """The rule seen in the negative: zeros and ones exchanged."""
    return sum((1 - ((rule >> (31 - entry)) & 1)) << entry for entry in range(32))


def parse(text: str) -> int:
    """A rule from `R2:n`, from Wolfram's `{n,2,2}`, or from its number alone."""
    compact = "".join(text.split())
    match = re.fullmatch(r"R2:(\d{1,10})|\{(\d{1,10}),2,2\}|(\d{1,10})", compact, re.ASCII | re.I)
    number = int(match[match.lastindex or 0]) if match else -1
    if not 0 <= number < 2**32:
        raise ValueError(
            f"a ring2 rule is a number from 0 to {2**32 - 1}, written R2:n or {{n,2,2}}, "
            f"not {text[:40]!r}"
        )
    return number


def label(rule: int) -> str:
    """Such as `R2:2283010756`."""
    return f"R2:{rule}"


def check_space(space: Space) -> Space:
    """A ring on which the five cells are different ones."""
    if len(space.shape) != 1 or not MIN_LENGTH <= space.size <= MAX_LENGTH:
        raise ValueError(
            f"ring2 rules read five different cells: they need a ring of {MIN_LENGTH} to "
            f"{MAX_LENGTH} cells, not {space.shape}"
        )
    return space


RING2 = Family(
    name="ring2",
    version=1,
    dimensions=1,
    entries=32,
    codes=codes,
    table=table,
    compile=law,
    update=update,
    symmetries=(symmetries.mirror(mirror), symmetries.complement(complement)),
    parse=parse,
    label=label,
    check_space=check_space,
)
