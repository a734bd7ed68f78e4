"""Splits of a drawn universe: sides that are alike, rules to tune on, and nested training sets.

Of 1,024 rules 128 are never seen in training, 64 are for tuning and on neither side, and the other
832 are trained on: all of them, or 256, 64 or 16, each set a part of the next larger, which asks
how many laws it takes until new ones come free. Every part has the strata of what it is taken
from, so that the sides differ in nothing but having been seen.

No two rules of a universe are the same task seen otherwise, so a split cuts no pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np

from tapebench.base import seeding
from tapebench.tasks import universe as universes
from tapebench.tasks.universe import ELEMENTARY, Universe

NUM_TEST = 128
NUM_TUNING = 64
TRAINING_SETS = (256, 64, 16)
"""Sizes of the training sets besides that of all."""

TUNING_SET = 256
"""Rules trained on where agents are tuned."""

KINDS = ("matched", *(f"matched-{size}" for size in TRAINING_SETS), "tuning")
"""The splits of each universe."""


@cache
def names() -> tuple[str, ...]:
    """Every split of every universe that is drawn, such as `ring2-H8-matched-64`."""
    drawn = (name for name in universes.names() if name != ELEMENTARY.name)
    return tuple(f"{universe}-{kind}" for universe in drawn for kind in KINDS)


def sides(name: str) -> tuple[Universe, tuple[int, ...], tuple[int, ...]]:
    """The universe of a split, what is trained on, and what is held out."""
    kind = next(kind for kind in KINDS if name.endswith(f"-{kind}"))
    universe = universes.get(name.removesuffix(f"-{kind}"))
    test, tuning, seen = parts(universe)
    if kind == "tuning":
        return universe, training_set(universe, TUNING_SET), tuning
    size = kind.removeprefix("matched").removeprefix("-")
    return universe, training_set(universe, int(size)) if size else seen, test


@cache
def parts(universe: Universe) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """What is never seen in training, what is for tuning, and what is trained on."""
    test = take(universe, universe.rules, NUM_TEST, "test")
    rest = _without(universe.rules, test)
    tuning = take(universe, rest, NUM_TUNING, "tuning")
    return test, tuning, _without(rest, tuning)


@cache
def training_set(universe: Universe, size: int) -> tuple[int, ...]:
    """A smaller training set, out of the next larger."""
    rules = parts(universe)[2]
    for smaller in TRAINING_SETS:
        if smaller >= size:
            rules = take(universe, rules, smaller, "train")
    return rules


@cache
def strata(universe: Universe) -> dict[int, str]:
    """What makes drawn rules alike: the worst case, and the quarter that the density is in."""
    return {
        rule: f"worst {reach.max_steps:2}, density from {_quarter(universe, rule) / 4:.2f}"
        for rule, reach in universe.counts.items()
    }


def _quarter(universe: Universe, rule: int) -> int:
    return 4 * rule.bit_count() // universe.family.entries


def take(universe: Universe, rules: Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """So many of these rules, at even distances in the order of stratum and mean optimal steps.

    So every stratum gives its share, but for less than a rule. The hash of the name, the family
    and the rule breaks ties, and that of the first two says where to begin.
    """
    words = (zlib.crc32(name.encode()), zlib.crc32(universe.family.name.encode()))
    priority = seeding.hash32(*words, np.array(rules, np.uint32)).tolist()
    kinds, counts = strata(universe), universe.counts

    def key(place: int) -> tuple[str, int, int, int]:
        rule = rules[place]
        in_all = sum(steps * tapes for steps, tapes in enumerate(counts[rule].histogram))
        return kinds[rule], in_all, priority[place], rule

    order = sorted(range(len(rules)), key=key)
    first = int(seeding.hash32(*words)[0]) % len(rules)
    chosen = (order[(number * len(rules) + first) // count] for number in range(count))
    return tuple(sorted(rules[place] for place in chosen))


def _without(rules: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    left_out = set(others)
    return tuple(rule for rule in rules if rule not in left_out)
