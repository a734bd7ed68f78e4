"""Six parts of the rules that can be solved, alike in what they take: five folds, one to tune on.

Each rule of the folds is held out once and trained on four times, so what an unseen rule costs is
paired by rule and covers them all. The sixth part is always trained on and never in results;
whoever tunes holds out pieces of it in turn. Impossible rules, on which every agent fails alike,
are neither trained on nor examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from tapebench.physics.strata import strata
from tapebench.tasks.universe import ELEMENTARY, Universe

Parts = tuple[tuple[int, ...], ...]

LENGTH, HORIZON = 8, 4
"""The size of the task that the strata are of: that of track `core`, see ADR 18."""

NUM = 5
"""Folds, and pieces of the part for tuning."""


@cache
def core_strata(universe: Universe = ELEMENTARY) -> dict[int, str]:
    """The stratum of every rule in the task of the folds."""
    return strata(universe.rules, LENGTH, HORIZON)


@cache
def parts(universe: Universe = ELEMENTARY) -> Parts:
    """The five folds and then the part for tuning, each ascending."""
    kinds = core_strata(universe)
    possible = [rule for rule in universe.rules if kinds[rule] != "impossible"]
    return deal(possible, NUM + 1, universe)


def pieces(universe: Universe = ELEMENTARY) -> Parts:
    """The part for tuning in pieces, each to be held out in turn."""
    return deal(parts(universe)[NUM], NUM, universe)


def deal(rules: Sequence[int], num: int, universe: Universe) -> Parts:
    """Rules in `num` parts, twins together, with strata and types spread as evenly as can be.

    Twins are dealt in the order of stratum, type, size and number, each to the part that has the
    fewest rules of their stratum and type, then of their stratum, then in all, then to the first.
    """
    kinds = core_strata(universe)

    def kind(rule: int) -> tuple[str, str]:
        return kinds[rule], universe.features[rule].type

    orbits = sorted(
        {universe.twins(rule) for rule in rules},
        key=lambda orbit: (kind(orbit[0]), -len(orbit), orbit),
    )
    hands: list[list[int]] = [[] for _ in range(num)]
    for orbit in orbits:
        mine = kind(orbit[0])

        def load(place: int, mine: tuple[str, str] = mine) -> tuple[int, int, int, int]:
            held = Counter(map(kind, hands[place]))
            of_stratum = sum(count for (stratum, _), count in held.items() if stratum == mine[0])
            return held[mine], of_stratum, len(hands[place]), place

        hands[min(range(num), key=load)].extend(orbit)
    return tuple(tuple(sorted(hand)) for hand in hands)


def _leave_out(every: Parts, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    kept = [rule for place, part in enumerate(every) if place != number for rule in part]
    return tuple(sorted(kept)), every[number]


GENERATORS: dict[str, Callable[[int], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "folds": lambda number: _leave_out(parts(), number),
    "folds-tuning": lambda number: _leave_out(pieces(), number),
}
"""What is trained on and what is held out, in each fold and each piece of the part to tune on."""
