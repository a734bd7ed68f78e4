"""The rules that a benchmark draws from: a finite list out of a family, and what is known of each.

Nothing outside asks how many rules a family has, or takes a rule's number for its place: splits,
exams and tracks ask the universe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tapebench.physics import exact, features
from tapebench.physics.families import FAMILIES
from tapebench.physics.family import Family, Symmetry


@dataclass(frozen=True)
class Universe:
    """A finite list of rules of one family."""

    name: str
    family: Family
    rules: tuple[int, ...]
    """Ascending."""

    @cached_property
    def features(self) -> Mapping[int, features.Rule]:
        """Features, type and relatives by rule, where they are known; else a `ValueError`."""
        self._check_known()
        return {row.rule: row for row in features.feature_table()}

    def ceilings(self, length: int, horizon: int) -> Mapping[int, exact.Reach]:
        """Exact reachability of the zero tape by rule, where it is shipped; else a `ValueError`."""
        self._check_known()
        return exact.shipped_ceilings(length, horizon)

    def chances(self, length: int, horizon: int) -> Mapping[str, Mapping[int, float]]:
        """Exact success of what learns nothing, by policy and rule, where it is shipped."""
        self._check_known()
        return exact.shipped_chances(length, horizon)

    def count_types(self, rules: tuple[int, ...]) -> dict[str, int]:
        """How many of these rules are stable, periodic and chaotic."""
        return {
            name: sum(self.features[rule].type == name for rule in rules) for name in features.TYPES
        }

    def twins(self, rule: int) -> tuple[int, ...]:
        """The rule and those that are the same task seen otherwise, ascending.

        They are its images under the symmetries that keep the goal of zeros.
        """
        orbit, waiting = {rule}, [rule]
        while waiting:
            images = {symmetry.on_rule(waiting[-1]) for symmetry in self._keeping_zeros}
            waiting = [*waiting[:-1], *(images - orbit)]
            orbit |= images
        return tuple(sorted(orbit))

    def _check_known(self) -> None:
        if self.family != ELEMENTARY.family:
            raise ValueError(f"nothing has been published of {self.family.name} rules so far")

    @cached_property
    def _keeping_zeros(self) -> tuple[Symmetry, ...]:
        return tuple(symmetry for symmetry in self.family.symmetries if symmetry.keeps_zeros)


ELEMENTARY = Universe("elementary", FAMILIES["elementary"], tuple(range(256)))
"""All elementary rules, which is what everything published draws from."""


def listed(family: Family, which: Any) -> tuple[Universe, tuple[int, ...]]:
    """A universe of nothing but these rules, given by number or label, and the rules in order.

    That is how a family is used of which no list of rules has been published.
    """
    if isinstance(which, str) and which in ("train", "test", "all"):
        raise ValueError(
            f"there is no split of {family.name} rules yet: list those to draw from in rules=, by "
            f"number or label, like {family.label(224)}"
        )
    given = [which] if isinstance(which, str) else np.atleast_1d(np.asarray(which, object)).tolist()
    rules = tuple(map(family.read_rule, given))
    if not rules:
        raise ValueError("rules is empty: give at least one rule")
    if len(set(rules)) != len(rules):
        raise ValueError("rules names a rule twice: list each once")
    return Universe(family.name, family, tuple(sorted(rules))), rules
