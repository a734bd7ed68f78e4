"""The rules that a benchmark draws from: a finite list out of a family, and what is known of each.

Nothing outside asks how many rules a family has, or takes a rule's number for its place: splits,
exams and tracks ask the universe.

Elementary rules are listed in full. Of the larger families there is a universe for each horizon,
such as `ring2-H8`: rules drawn over the number of ones in their tables that can be solved from
every tape within that many steps, so that the ceiling is 1 and every failure is the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from tapebench.base.names import one_of
from tapebench.physics import exact, features, pools, tables
from tapebench.physics.families import FAMILIES
from tapebench.physics.family import Family
from tapebench.physics.space import Space

NUM_DRAWN = 1024
"""Rules of a universe that is drawn."""

HORIZONS = (4, 6, 8, 12, 16)
"""Those that drawn universes, and splits of them, are named for."""


@dataclass(frozen=True)
class Universe:
    """A finite list of rules of one family."""

    name: str
    family: Family
    rules: tuple[int, ...]
    """Ascending."""
    horizon: int | None = None
    """Of drawn rules: the steps within which all are solved from every tape of `space`."""

    @property
    def space(self) -> Space:
        """Where drawn rules are solved; a `ValueError` for others."""
        return self._pool.space

    @cached_property
    def tables(self) -> Mapping[int, tables.TableFeatures]:
        """What the table of each rule says by itself."""
        return tables.features(self.rules, self.family)

    @cached_property
    def counts(self) -> Mapping[int, exact.Reach]:
        """Exact reachability of the zero tape by rule, at the size that they were drawn for."""
        return {rule: self._pool.counts[rule] for rule in self.rules}

    @cached_property
    def features(self) -> Mapping[int, features.Rule]:
        """Features, type and relatives by rule, where they are known; else a `ValueError`."""
        self._check_known()
        return {row.rule: row for row in features.feature_table()}

    @cached_property
    def types(self) -> Mapping[int, str]:
        """What each rule is grouped by where results are broken down.

        The paper's operational type is known of elementary rules. Rules of other families go by
        the density of their tables, which is known of any rule.
        """
        if self.family == ELEMENTARY.family:
            return {rule: row.type for rule, row in self.features.items()}
        return {rule: tables.DENSITIES[tables.quarter(rule, self.family)] for rule in self.rules}

    @property
    def type_names(self) -> tuple[str, ...]:
        """All `types` that there may be, in the order in which they are shown."""
        return features.TYPES if self.family == ELEMENTARY.family else tables.DENSITIES

    def ceilings(self, length: int, horizon: int) -> Mapping[int, exact.Reach]:
        """Exact reachability of the zero tape by rule, where it is shipped; else a `ValueError`.

        Drawn rules are solved from every tape within the horizon of their pool, and what a shorter
        one leaves is the start of the same counts.
        """
        if self.horizon is not None and self.space.size == length:
            return {
                rule: exact.Reach(rule, length, reach.histogram[: horizon + 1])
                for rule, reach in self.counts.items()
            }
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
        """The rule and those that are the same task seen otherwise, see `Family.twins`."""
        return self.family.twins(rule)

    @property
    def _pool(self) -> pools.Pool:
        if self.horizon is None:
            raise ValueError(f"the rules of {self.name} were not drawn for any one size")
        return pools.load(self.family.name)

    def _check_known(self) -> None:
        if self.family != ELEMENTARY.family:
            raise ValueError(f"nothing has been published of {self.family.name} rules so far")


ELEMENTARY = Universe("elementary", FAMILIES["elementary"], tuple(range(256)))
"""All elementary rules, which is what everything published draws from."""


@cache
def drawn(family: str, horizon: int) -> Universe:
    """Rules of a family that can be solved from every tape within a horizon.

    Of those of its pool, the first drawn with each number of ones in their tables, then the second
    with each, and so on until there are enough.
    """
    pool = pools.load(family)
    ranked = [
        (rank, ones, rule)
        for ones, rules in pool.within(horizon).items()
        for rank, rule in enumerate(rules)
    ]
    if len(ranked) < NUM_DRAWN:
        raise ValueError(
            f"there is no universe of {family} rules for {horizon} steps: only {len(ranked)} of "
            f"those drawn are solved from every tape in as many, and {NUM_DRAWN} are needed"
        )
    rules = (rule for _, _, rule in sorted(ranked)[:NUM_DRAWN])
    return Universe(f"{family}-H{horizon}", pool.family, tuple(sorted(rules)), horizon)


@cache
def names() -> tuple[str, ...]:
    """All universes by name."""
    return (
        ELEMENTARY.name,
        *(f"{family}-H{horizon}" for family in pools.SPACES for horizon in HORIZONS),
    )


def get(name: str) -> Universe:
    """The universe of this name; an unknown one suggests the nearest."""
    if one_of("universe", name[:40], names()) == ELEMENTARY.name:
        return ELEMENTARY
    family, horizon = name.split("-H")
    return drawn(family, int(horizon))


def listed(family: Family, which: Any) -> tuple[Universe, tuple[int, ...]]:
    """A universe of nothing but these rules, given by number or label, and the rules in order.

    That is how rules of a family are used that are not of a split.
    """
    rules = read_rules(family, which)
    return Universe(family.name, family, tuple(sorted(rules))), rules


def read_rules(family: Family, which: Any) -> tuple[int, ...]:
    """One rule or several, by number or label, as a tuple in the order given."""
    given = [which] if isinstance(which, str) else np.atleast_1d(np.asarray(which, object)).tolist()
    rules = tuple(map(family.read_rule, given))
    if not rules:
        raise ValueError("rules is empty: give at least one rule")
    if len(set(rules)) != len(rules):
        raise ValueError("rules names a rule twice: list each once")
    return rules
