"""Splits of a drawn universe: sides that are alike, rules to tune on, and nested training sets.

Of 1,024 rules 128 are never seen in training, 64 are for tuning and on neither side, and the other
832 are trained on: all of them, or 256, 64 or 16, each set a part of the next larger, which asks
how many laws it takes until new ones come free. Every part has the strata of what it is taken
from, so that the sides differ in nothing but having been seen.

No two rules of a universe are the same task seen otherwise, so a split cuts no pairs. Universes for
other horizons have many of the same rules. Whether a rule may be unseen or for tuning is therefore
of the rule alone: what is tuned on for one horizon is not unseen for any.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

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
    lots = dict(zip(universe.rules, _hash("lot", universe, universe.rules), strict=True))
    test = take(universe, universe.rules, NUM_TEST, "test", lambda rule: lots[rule] % 8 < 3)
    rest = _without(universe.rules, test)
    tuning = take(universe, rest, NUM_TUNING, "tuning", lambda rule: lots[rule] % 8 in (3, 4))
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
        rule: f"worst {reach.max_steps:2}, {universe.types[rule]}"
        for rule, reach in universe.counts.items()
    }


def take(
    universe: Universe,
    rules: Sequence[int],
    count: int,
    name: str,
    may_be: Callable[[int], bool] = lambda rule: True,
) -> tuple[int, ...]:
    """So many of these rules, at even distances in the order of stratum and mean optimal steps.

    So every stratum gives its share, but for less than a rule. The hash of the name, the family
    and the rule breaks ties, and that of the first two says where to begin. Where a rule may not
    be taken, the nearest that may stands in, of the same stratum if there is one.
    """
    kinds, counts = strata(universe), universe.counts
    priority = dict(zip(rules, _hash(name, universe, rules), strict=True))

    def key(rule: int) -> tuple[str, int, int, int]:
        in_all = sum(steps * tapes for steps, tapes in enumerate(counts[rule].histogram))
        return kinds[rule], in_all, priority[rule], rule

    order = sorted(rules, key=key)
    kinds_in_order = [kinds[rule] for rule in order]
    free = {place for place, rule in enumerate(order) if may_be(rule)}
    first = _hash(name, universe)[0] % len(order)
    taken = []
    for number in range(count):
        place = _nearest(free, (number * len(order) + first) // count, kinds_in_order)
        free.remove(place)
        taken.append(order[place])
    return tuple(sorted(taken))


def _nearest(free: set[int], wanted: int, kinds: Sequence[str]) -> int:
    """The free place nearest to one, of its kind if there is one."""
    return min(free, key=lambda place: (kinds[place] != kinds[wanted], abs(place - wanted), place))


def _hash(name: str, universe: Universe, *words: Any) -> list[int]:
    """One number for each rule, of the name and the family, or one of these alone."""
    head = (zlib.crc32(name.encode()), zlib.crc32(universe.family.name.encode()))
    return seeding.hash32(*head, *(np.array(word, np.uint32) for word in words)).tolist()


def _without(rules: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    left_out = set(others)
    return tuple(rule for rule in rules if rule not in left_out)
