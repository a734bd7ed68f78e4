"""What solving a rule takes: strata of rules, by task, from exact figures.

`impossible` where hardly any start tape can be solved at all, `reflex` where flipping ones is half
of what can be had, `beyond-reflex` where more than that is needed. Success on the last is what the
benchmark is about: the first no agent can pass, and the second says nothing about the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tapebench.physics import exact

IMPOSSIBLE_BELOW = 0.05
REFLEX_FROM = 0.5

STRATA = ("beyond-reflex", "reflex", "impossible")


def stratum(ceiling: float, flip_ones: float) -> str:
    """The stratum of a rule from what can be reached and what flipping ones reaches."""
    if ceiling < IMPOSSIBLE_BELOW:
        return "impossible"
    return "reflex" if flip_ones >= REFLEX_FROM * ceiling else "beyond-reflex"


@dataclass(frozen=True)
class Measure:
    """What can be reached under a rule and what flipping ones reaches, both exact."""

    ceiling: float
    flip_ones: float

    @property
    def stratum(self) -> str:
        return stratum(self.ceiling, self.flip_ones)


def measure(rules: Sequence[int], length: int, horizon: int) -> dict[int, Measure]:
    """Exact figures of each rule, for the zero goal: up to 16 cells it takes less than a minute."""
    solved = exact.reach_all(rules, length, horizon)
    return {
        rule: Measure(
            solved[rule].solvable_excluding_goal,
            exact.chance_of_success(rule, length, horizon, "flip-ones"),
        )
        for rule in rules
    }


def strata(rules: Sequence[int], length: int, horizon: int) -> dict[int, str]:
    """The stratum of each rule, see `measure`."""
    return {rule: found.stratum for rule, found in measure(rules, length, horizon).items()}
