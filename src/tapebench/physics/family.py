"""A rule is a number, a law is a table, and a family says which entry of the table a cell reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.physics.space import Numbers, Space, Tape, flip

Law = Any
"""A rule made ready to apply, a pytree of integers or arrays."""


def _every_space(space: Space) -> bool:
    return True


@dataclass(frozen=True)
class Symmetry:
    """What acts on rules, cells and places alike, so that updates do not notice it.

    `on_cells(update(cells, rule)) == update(on_cells(cells), on_rule(rule))`, and a flip of cell i
    becomes one of `on_site(i)`. Shifts by a cell are not listed: every rule of every family
    commutes with them.
    """

    name: str
    on_rule: Callable[[int], int]
    on_cells: Callable[[Any, Space], Any]
    """Cells `[..., *shape]` -> the same."""
    on_site: Callable[[int, Space], int]
    keeps_zeros: bool
    """Whether the tape of all zeros, which is mostly the goal, stays what it is."""
    is_of: Callable[[Space], bool] = _every_space
    """Whether the space has it: only a square torus can be transposed."""


@dataclass(frozen=True)
class Family:
    """Laws under one contract: the next value of a cell is the entry of a table that it reads.

    `codes` and `table` are the definition. `update` is how it is done fast, and tests hold it to
    them. A value, static under `jit`.
    """

    name: str
    version: int
    dimensions: int
    """Of the spaces that it lives in: 1 for rings, 2 for tori."""
    entries: int
    """Of a table."""
    codes: Callable[[Any, Space], Any]
    """Cells `[..., *shape]` of 0 and 1 -> the entry that each reads."""
    table: Callable[[Any], Any]
    """Rules `[...]` -> bits `[..., entries]`."""
    compile: Callable[[Any], Law]
    """Rules `[...]`, or a Python int -> their laws."""
    update: Callable[[Tape, Law, Space], Tape]
    """One update of every cell at once, of packed cells."""
    symmetries: tuple[Symmetry, ...]
    parse: Callable[[str], int]
    """A rule from its label; a `ValueError` says what would be one."""
    label: Callable[[int], str]
    check_space: Callable[[Space], Space]
    """The space if the family lives there, else a `ValueError` that says where it does."""

    @property
    def num_rules(self) -> int:
        """Every table is a rule."""
        return 1 << self.entries

    @property
    def radius(self) -> int:
        """Of rules on rings: how many cells to each side a cell reads."""
        return (self.entries.bit_length() - 2) // 2

    def evolve(self, tape: Tape, rule: Numbers, space: Space) -> Tape:
        """One update under a rule, or under a rule per tape. Keep the law where a rule lasts."""
        if isinstance(tape, int):
            rule = int(rule)
        elif isinstance(rule, int):
            rule = np.asarray(rule)
        return self.update(tape, self.compile(rule), space)

    def step(self, tape: Tape, cell: Numbers, rule: Numbers, space: Space) -> Tape:
        """What one action does: flip `cell`, then update the flipped tape."""
        return self.evolve(flip(tape, cell), rule, space)

    def twins(self, rule: int) -> tuple[int, ...]:
        """The rule and those that are the same task seen otherwise, ascending.

        They are its images under the symmetries that keep the goal of zeros.
        """
        orbit, waiting = {rule}, [rule]
        while waiting:
            images = {s.on_rule(waiting[-1]) for s in self.symmetries if s.keeps_zeros}
            waiting = [*waiting[:-1], *(images - orbit)]
            orbit |= images
        return tuple(sorted(orbit))

    def check_rule(self, rule: Any) -> int:
        """The rule if it numbers a law of the family, else a `ValueError` that gives the range."""
        is_integer = hasattr(rule, "__index__") and not isinstance(rule, bool)
        if not is_integer or not 0 <= rule < self.num_rules:
            shown = rule if is_integer else repr(str(rule)[:40])
            raise ValueError(f"a rule is an integer from 0 to {self.num_rules - 1}, not {shown}")
        return int(rule)

    def read_rule(self, rule: Any) -> int:
        """The rule from its number or its label."""
        return self.parse(rule) if isinstance(rule, str) else self.check_rule(rule)
