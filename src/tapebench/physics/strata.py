"""What solving a rule takes: strata of rules, by task, from exact figures.

`impossible` where hardly any start tape can be solved at all, `reflex` where flipping ones is half
of what can be had, `beyond-reflex` where more than that is needed. Success on the last is what the
benchmark is about: the first no agent can pass, and the second says nothing about the law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapebench.physics import exact

IMPOSSIBLE_BELOW = 0.05
REFLEX_FROM = 0.5

STRATA = ("beyond-reflex", "reflex", "impossible")


def stratum(ceiling: float, flip_ones: float) -> str:
    """The stratum of a rule from what can be reached and what flipping ones reaches."""
    if ceiling < IMPOSSIBLE_BELOW:
        return "impossible"
    return "reflex" if flip_ones >= REFLEX_FROM * ceiling else "beyond-reflex"


def strata(
    rules: Sequence[int],
    length: int,
    horizon: int,
    progress: Callable[[int], Any] = lambda rule: None,
) -> dict[int, str]:
    """The stratum of each rule, exactly, for the zero goal and up to 16 cells."""
    solved = exact.reach_all(rules, length, horizon)
    found: dict[int, str] = {}
    for rule in rules:
        ceiling = solved[rule].solvable_excluding_goal
        is_open = ceiling >= IMPOSSIBLE_BELOW
        chance = exact.chance_of_success(rule, length, horizon, "flip-ones") if is_open else 0.0
        found[rule] = stratum(ceiling, chance)
        progress(rule)
    return found
