"""Elementary rules: 256 laws of a cell and its two neighbours on a ring, and their symmetries.

Under rule z a cell becomes bit `4l + 2c + r` of z: l is its left neighbour, c the cell itself and r
its right neighbour. The numbers are Wolfram's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench.base.shapes import Shaped, UInt8, UInt32
from tapebench.physics import symmetries
from tapebench.physics.family import Family
from tapebench.physics.space import (
    MAX_LENGTH,
    MIN_LENGTH,
    Numbers,
    Space,
    Tape,
    column,
    each,
    neighbours,
    trim,
)

NUM_RULES = 256

if TYPE_CHECKING:
    Law = tuple[Any, ...]
else:
    Law = tuple[(int | UInt32[Any, "*#B 1"],) * 8]
    """A rule made ready to apply: eight masks, one per monomial of its algebraic normal form."""


def law(rule: Numbers) -> Law:
    """The rule as eight masks, so that `evolve_by` needs fourteen bit operations per word.

    The next cell is a polynomial over the field of two elements in left, centre and right;
    mask `4l + 2c + r` is all ones where the monomial with those factors occurs. Computing them
    costs more than one update: keep the law where a rule lasts for an episode.
    """
    if not isinstance(rule, int):
        rule = column(rule)
    coefficients = rule ^ ((rule & 0x55) << 1)
    coefficients = coefficients ^ ((coefficients & 0x33) << 2)
    coefficients = coefficients ^ ((coefficients & 0x0F) << 4)
    return tuple(-((coefficients >> monomial) & 1) for monomial in range(8))


def evolve_by(tape: Tape, masks: Law, length: int) -> Tape:
    """`evolve` with the rule given as its `law`."""
    m0, m1, m2, m3, m4, m5, m6, m7 = masks

    def become(left: Any, centre: Any, right: Any) -> Any:
        without_left = (m0 ^ (m1 & right)) ^ (centre & (m2 ^ (m3 & right)))
        with_left = (m4 ^ (m5 & right)) ^ (centre & (m6 ^ (m7 & right)))
        return without_left ^ (left & with_left)

    left, right = neighbours(tape, length)
    return trim(each(become, left, tape, right), length)


WOLFRAM_SOURCE = (
    "S. Wolfram, A New Kind of Science (2002); the classes of the 88 representatives as listed in "
    "G. J. Martinez, A Note on Elementary Cellular Automata Classification, "
    "Journal of Cellular Automata 8 (2013) 233-259"
)
_WOLFRAM_CLASSES = {
    1: (0, 8, 32, 40, 128, 136, 160, 168),
    3: (18, 22, 30, 45, 60, 90, 105, 122, 126, 146, 150),
    4: (41, 54, 106, 110),
}
"""Representatives of classes 1, 3 and 4; every other rule is of class 2."""


def mirror(rule: int) -> int:
    """The rule seen in a mirror: left and right neighbours exchanged."""
    swapped = rule & 0b10100101
    for a, b in ((1, 4), (3, 6)):
        swapped |= ((rule >> a) & 1) << b | ((rule >> b) & 1) << a
    return swapped


def mirror_tape(tape: int, length: int) -> int:
    """The tape read backwards; under the mirrored rule it does what the tape does."""
    return int(f"{tape:0{length}b}"[::-1], 2)


def complement(rule: int) -> int:
    """The rule seen in the negative: zeros and ones exchanged. It does not keep the zero goal."""
    return sum((1 - ((rule >> (7 - bit)) & 1)) << bit for bit in range(8))


def mirror_orbit(rule: int) -> tuple[int, ...]:
    """A rule and its mirror image, ascending: one of 160 orbits."""
    return tuple(sorted({rule, mirror(rule)}))


def orbit(rule: int) -> tuple[int, ...]:
    """All rules equal to this one up to mirror and complement, ascending: one of 88 orbits."""
    return tuple(sorted({*mirror_orbit(rule), *mirror_orbit(complement(rule))}))


def wolfram_class(rule: int) -> int:
    """Wolfram's class, 1 to 4, which is the same for a whole orbit. See `WOLFRAM_SOURCE`."""
    representative = orbit(rule)[0]
    for number, representatives in _WOLFRAM_CLASSES.items():
        if representative in representatives:
            return number
    return 2


# The contract.


def update(tape: Tape, masks: Law, space: Space) -> Tape:
    """`evolve_by` on the ring that a space is."""
    return evolve_by(tape, masks, space.size)


def codes(cells: Shaped[Any, "*B L"], space: Space) -> Shaped[Any, "*B L"]:
    """The entry `4l + 2c + r` that each cell reads."""
    xp = cells.__array_namespace__()
    return 4 * xp.roll(cells, 1, axis=-1) + 2 * cells + xp.roll(cells, -1, axis=-1)


def table(rules: Numbers) -> UInt8[Any, "*B 8"]:
    """What each neighbourhood becomes: entry e is bit e of the rule."""
    return ((column(rules) >> np.arange(8, dtype=np.uint32)) & 1).astype(np.uint8)


def parse(text: str) -> int:
    """A rule from its number."""
    try:
        return check_rule(int(text))
    except ValueError:
        last = NUM_RULES - 1
        raise ValueError(f"an elementary rule is a number from 0 to {last}, not {text!r}") from None


def check_space(space: Space) -> Space:
    """A ring of a length that is supported."""
    if len(space.shape) != 1 or not MIN_LENGTH <= space.size <= MAX_LENGTH:
        wanted = f"a ring of {MIN_LENGTH} to {MAX_LENGTH} cells"
        raise ValueError(f"elementary rules need {wanted}, not {space.shape}")
    return space


ELEMENTARY = Family(
    name="elementary",
    version=1,
    dimensions=1,
    entries=8,
    codes=codes,
    table=table,
    compile=law,
    update=update,
    symmetries=(symmetries.mirror(mirror), symmetries.complement(complement)),
    parse=parse,
    label=str,
    check_space=check_space,
)


def evolve(tape: Tape, rule: Numbers, length: int) -> Tape:
    """One synchronous update on a ring: cell i becomes bit `4l + 2c + r` of `rule`."""
    return ELEMENTARY.evolve(tape, rule, Space((length,)))


def step(tape: Tape, cell: Numbers, rule: Numbers, length: int) -> Tape:
    """What one action does: flip `cell`, then `evolve` the flipped tape."""
    return ELEMENTARY.step(tape, cell, rule, Space((length,)))


check_rule = ELEMENTARY.check_rule
