"""What the table of a rule says by itself, for the rules of any family.

Families share no features of behaviour: the paper's are of elementary rules on 32 cells. These are
read off the table alone, hence exact, and mean the same for every family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tapebench.base.shapes import UInt8
from tapebench.physics.family import Family
from tapebench.physics.space import Space

ON_ZEROS = ("stay", "flash", "fill")
"""What the tape of zeros does if left alone: nothing; be all ones every other time; be all ones
from then on."""

DENSITIES = tuple(f"density from {low:.2f}" for low in (0, 0.25, 0.5, 0.75))
"""Rules by the quarter that the share of ones in their tables is in."""


@dataclass(frozen=True)
class TableFeatures:
    """What is known of one rule from its table."""

    rule: int
    label: str
    density: float
    """Share of ones among the entries."""
    zeros: str
    """One of `ON_ZEROS`."""
    additive: bool
    """Whether a cell becomes the parity of some of those around it, or the opposite of that."""
    totalistic: bool
    """Whether only the number of ones in the neighbourhood counts, the cell itself included."""
    sensitivity: float
    """How many cells of a neighbourhood, on average over all, change the outcome if flipped."""

    def as_dict(self) -> dict[str, Any]:
        """The features as they are printed."""
        return vars(self).copy()


def quarter(rule: int, family: Family) -> int:
    """The quarter that the density of a table is in, from 0 to 3."""
    return min(4 * rule.bit_count() // family.entries, 3)


def features(rules: Iterable[int], family: Family) -> dict[int, TableFeatures]:
    """The features of each of these rules."""
    members = list(rules)
    tables = family.table(np.array(members, np.uint32))
    outcomes = tables[:, _codes(family)]
    cells = outcomes.shape[1].bit_length() - 1
    neighbourhoods = np.arange(1 << cells)
    sums, origin = np.bitwise_count(neighbourhoods), outcomes[:, :1]
    parity = np.zeros_like(outcomes)
    sensitivity = np.zeros(len(members))
    for cell in range(cells):
        sensitivity += (outcomes != outcomes[:, neighbourhoods ^ (1 << cell)]).mean(axis=1)
        has_weight = outcomes[:, [1 << cell]] ^ origin
        parity ^= has_weight & ((neighbourhoods >> cell) & 1).astype(np.uint8)
    # The lowest neighbourhoods with 0, 1, 2, ... ones stand for all with as many.
    of_as_many = outcomes[:, (1 << sums.astype(int)) - 1]
    additive = (outcomes == parity ^ origin).all(axis=1)
    totalistic = (outcomes == of_as_many).all(axis=1)
    return {
        rule: TableFeatures(
            rule=rule,
            label=family.label(rule),
            density=rule.bit_count() / family.entries,
            zeros=("stay", "stay", "flash", "fill")[2 * int(table[0]) + int(table[-1])],
            additive=bool(additive[row]),
            totalistic=bool(totalistic[row]),
            sensitivity=float(sensitivity[row]),
        )
        for row, (rule, table) in enumerate(zip(members, tables, strict=True))
    }


@cache
def _codes(family: Family) -> UInt8[np.ndarray, " neighbourhoods"]:
    """The entry that a cell reads in each of its neighbourhoods.

    On the smallest space that a family takes, all the cells there are make up one neighbourhood.
    """
    where = _smallest_space(family)
    tapes = np.arange(1 << where.size)[:, None]
    cells = ((tapes >> np.arange(where.size)) & 1).astype(np.uint8).reshape(-1, *where.shape)
    return family.codes(cells, where).reshape(len(tapes), -1)[:, 0].astype(np.uint8)


def _smallest_space(family: Family) -> Space:
    side = 1
    while True:
        try:
            return family.check_space(Space((side,) * family.dimensions))
        except ValueError:
            side += 1
