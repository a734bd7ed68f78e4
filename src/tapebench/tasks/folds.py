"""Six parts of the rules that can be solved, alike in what they take: five folds, one to tune on.

Each rule of the folds is held out once and trained on four times, so what an unseen rule costs is
paired by rule and covers them all. The sixth part is always trained on and never in results;
whoever tunes holds out pieces of it in turn. Impossible rules, on which every agent fails alike,
are neither trained on nor examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

from tapebench.physics.strata import Measure, measure
from tapebench.tasks.universe import ELEMENTARY, Universe

Parts = tuple[tuple[int, ...], ...]

LENGTH, HORIZON = 9, 4
"""The size of the task that the strata are of: where evidence is worth most, see ADR 18."""

NUM = 5
"""Folds, and pieces of the part for tuning."""

NAMES = tuple(f"folds-{number}" for number in range(NUM))
"""The splits that hold out one fold each."""


@cache
def core_measures(universe: Universe = ELEMENTARY) -> dict[int, Measure]:
    """What is reached under every rule in the task of the folds, exactly."""
    return measure(universe.rules, LENGTH, HORIZON)


@cache
def core_strata(universe: Universe = ELEMENTARY) -> dict[int, str]:
    """The stratum of every rule in the task of the folds."""
    return {rule: numbers.stratum for rule, numbers in core_measures(universe).items()}


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
    After that twins of a kind change places as long as it makes the mean ceilings more alike. All
    of it is counted in whole numbers.
    """
    kinds = core_strata(universe)

    def kind(orbit: tuple[int, ...]) -> tuple[str, str, int]:
        return kinds[orbit[0]], universe.features[orbit[0]].type, -len(orbit)

    orbits = sorted(
        {universe.twins(rule) for rule in rules}, key=lambda orbit: (kind(orbit), orbit)
    )
    hands: list[list[tuple[int, ...]]] = [[] for _ in range(num)]
    for orbit in sorted(orbits, key=lambda orbit: (kind(orbit), orbit)):
        stratum, type_, _ = kind(orbit)

        def load(place: int, stratum: str = stratum, type_: str = type_) -> tuple[int, ...]:
            held: Counter[tuple[str, ...]] = Counter()
            for other in hands[place]:
                names = kind(other)[:2]
                for part in (names, names[:1], ()):
                    held[part] += len(other)
            return held[stratum, type_], held[(stratum,)], held[()], place

        hands[min(range(num), key=load)].append(orbit)
    _even_out(hands, kind, core_measures(universe))
    return tuple(tuple(sorted(rule for orbit in hand for rule in orbit)) for hand in hands)


def _even_out(
    hands: list[list[tuple[int, ...]]],
    kind: Callable[[tuple[int, ...]], Any],
    measures: Mapping[int, Measure],
) -> None:
    """Exchange orbits of one kind between hands while that makes their ceilings more alike."""
    tapes = 2**LENGTH - 1
    sizes = [sum(map(len, hand)) for hand in hands]

    def worth(orbit: tuple[int, ...]) -> int:
        return sum(round(tapes * measures[rule].ceiling) for rule in orbit)

    everyone = sum(sum(map(worth, hand)) for hand in hands)
    while True:
        # How far each hand is above what its size would have, times the number of rules.
        above = [
            sum(map(worth, hand)) * sum(sizes) - everyone * size
            for hand, size in zip(hands, sizes, strict=True)
        ]
        best = (0, 0, 0, 0, 0)
        for a, b in combinations(range(len(hands)), 2):
            for (i, orbit_a), (j, orbit_b) in product(enumerate(hands[a]), enumerate(hands[b])):
                if kind(orbit_a) == kind(orbit_b):
                    moved = (worth(orbit_b) - worth(orbit_a)) * sum(sizes)
                    gain = above[a] ** 2 + above[b] ** 2
                    gain -= (above[a] + moved) ** 2 + (above[b] - moved) ** 2
                    best = max(best, (gain, a, b, i, j))
        gain, a, b, i, j = best
        if not gain:
            return
        hands[a][i], hands[b][j] = hands[b][j], hands[a][i]


def _leave_out(every: Parts, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    train = [rule for place, part in enumerate(every) if place != number for rule in part]
    return tuple(sorted(train)), every[number]


GENERATORS: dict[str, Callable[[int], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "folds": lambda number: _leave_out(parts(), number),
    "folds-tuning": lambda number: _leave_out(pieces(), number),
}
"""What is trained on and what is held out, in each fold and each piece of the part to tune on."""
