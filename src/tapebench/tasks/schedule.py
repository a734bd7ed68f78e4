"""When the rule of an episode changes, and which rule follows.

All rules of an episode are fixed when it starts. Each is drawn uniformly from the others, so that
a change is always one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapebench.base import seeding


@dataclass(frozen=True)
class Schedule:
    """The steps at which the rule changes; never, without any. A value, static under `jit`."""

    switches: tuple[int, ...] = ()
    """Ascending. At 4, four updates are of the first rule, and the fifth is of the next one."""
    seen: tuple[int, ...] = ()
    """Rules that follow each other, as all others do: how an exam keeps the sides of its split
    apart. Without any, every rule of a task may follow every other."""

    def order(self, rules: Sequence[int]) -> tuple[int, ...]:
        """The rules of a task, those of each side together: `draw` numbers them so."""
        members = set(self.seen)
        return (*self.seen, *(rule for rule in rules if rule not in members))

    def draw(self, stream: seeding.Stream, place: Any, num_seen: Any, num_rules: Any) -> list[Any]:
        """The places in `order` of the rules that follow the one at `place[...]`, each `[...]`.

        Under any one stream, rules that are different are followed by different ones: over all
        rules of a side each comes equally often at every time.
        """
        xp = place.__array_namespace__()
        is_seen = place < num_seen
        first = xp.where(is_seen, np.uint32(0), num_seen)
        size = xp.where(is_seen, num_seen, num_rules - num_seen)
        lanes = seeding.SWITCH + np.arange(len(self.switches), dtype=np.uint32)
        words = seeding.draw(stream, lanes)
        places = []
        for number in range(len(lanes)):
            shift = np.uint32(1) + seeding.below(size - np.uint32(1), words[..., number])
            place = first + (place - first + shift) % size
            places.append(place)
        return places

    def later_rules(
        self, stream: seeding.Stream, rule: np.ndarray, rules: Sequence[int]
    ) -> np.ndarray:
        """The rules that follow `rule[...]` in a task of these `rules`, uint32 `[..., S]`."""
        order = np.array(self.order(rules), np.uint32)
        by_number = np.argsort(order)
        place = by_number[np.searchsorted(order, rule, sorter=by_number).clip(max=len(order) - 1)]
        if (strangers := order[place] != rule).any():
            raise ValueError(
                f"rule {rule[strangers][0]} is not one of the task's: say which rules follow it"
            )
        sizes = (np.uint32(size) for size in (len(self.seen), len(order)))
        return order[np.stack(self.draw(stream, place.astype(np.uint32), *sizes), axis=-1)]

    def rule_at(self, t: Any, rule: Any, later: Any) -> Any:
        """The rule that acts at the step after t: `rule` at first, then each of S `later` ones."""
        xp = t.__array_namespace__()
        for switch, follower in zip(self.switches, later, strict=True):
            rule = xp.where(t >= switch, follower, rule)
        return rule

    def within(self, train: tuple[int, ...], test: tuple[int, ...]) -> Schedule:
        """The same schedule, by which rules on one side are followed by rules of that side."""
        if not self.switches:
            return self
        for side, members in (("training", train), ("held-out", test)):
            if len(members) == 1:
                raise ValueError(
                    f"rule {members[0]} has no other {side} rule to switch to: name two or more"
                )
        return replace(self, seen=train if test else ())


NEVER = Schedule()


def parse_schedule(switch: Any, horizon: int, rules: Sequence[int]) -> Schedule:
    """A schedule from the option `switch`: None, a step, or several steps in order."""
    if switch is None:
        return NEVER
    steps = list(switch) if isinstance(switch, (list, tuple, np.ndarray)) else [switch]
    for step in steps:
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise ValueError(f"switch must be a step or a list of steps, not {switch!r}")
        if not 1 <= step < horizon:
            raise ValueError(
                f"the rule cannot switch at {step}: with a horizon of {horizon} choose steps "
                f"from 1 to {horizon - 1}"
            )
    if steps != sorted(set(steps)):
        raise ValueError(f"switch must name each step once and in order, not {steps}")
    if steps and len(rules) < 2:
        raise ValueError(f"rule {rules[0]} has no other to switch to: name two or more rules")
    return Schedule(tuple(int(step) for step in steps))
