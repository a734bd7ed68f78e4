"""What bounds anyone on an exam who is not told the rule: blind ceiling and memoryless play.

Both are computed for small tasks alone, see `physics.bayes` and `physics.memoryless`, and are means
over the exam's own start tapes. They are the same for all who sit the exam, so they are kept in the
user's cache.

They bound what is reached on the rules that these players play for: all rules of the exam, or those
of one stratum, on both sides. On a part of these rules, such as a side, they are what the same
players reach there, and a player that plays for that part alone may reach more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.base import files
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import Exam
from tapebench.physics import bayes, memoryless
from tapebench.tasks.universe import ELEMENTARY

LONGEST = 12
"""Cells up to which ideal play is computed, which takes seconds."""

LONGEST_MEMORYLESS = 10
"""Cells up to which a memoryless policy is searched for, which takes seconds."""

VERSION = 2
"""Of the kept figures."""

ABOUT = (
    "Memoryless is the best policy of tape and time alone that was found, the blind ceiling what "
    "an ideal player reaches that is not told the rule; both play for the rules of a column, on "
    "both sides, so a player that plays for one side alone may be above them there."
)

NOT_COMPUTED = (
    f"Memoryless policies are computed up to {LONGEST_MEMORYLESS} cells and blind ceilings up to "
    f"{LONGEST}, without noise and hidden cells: else there is a dash."
)

BRACKETED = (
    "The blind ceiling, the best that is possible without knowing the rule, is not computed for "
    "rules of this family: it lies between belief-planner and the exact ceiling."
)


@dataclass(frozen=True)
class Bounds:
    """Success under each rule of an exam, `[R]`; nan where it is not computed."""

    blind_ceiling: np.ndarray
    """Of Bayes-optimal play."""
    memoryless: np.ndarray
    """Of the best policy of tape and time alone that was found: a lower bound on the best."""


def obstacle(exam: Exam) -> str:
    """Why ideal play on this exam is not computed, in a few words; empty if it is."""
    task = exam.task
    reasons = {
        f"the rules are of {task.family.name}": task.family != ELEMENTARY.family,
        "cells are hidden": task.hidden,
        "updates are noisy": task.noise,
        "the rule switches": task.schedule.switches,
        "the goal is not all zeros": task.goal != 0,
        "memory is kept over several trials": exam.trials > 1,
        f"more than {LONGEST} cells": task.length > LONGEST,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def is_bracketed(exam: Exam) -> bool:
    """Whether there is no blind ceiling for any rules of the family, but what bounds it."""
    return exam.task.family != ELEMENTARY.family


def is_computed(exam: Exam) -> bool:
    """Whether ideal play on this exam is."""
    return not obstacle(exam)


def bounds(exam: Exam) -> Bounds:
    """Of players that play for all rules of the exam, computed or looked up."""
    every = np.arange(len(exam.rules))
    return _looked_up(exam, "all", lambda: _play_for(exam, every))


def bounds_by_stratum(exam: Exam) -> Bounds:
    """For each rule of players that play for its stratum alone, computed or looked up."""

    def compute() -> Bounds:
        strata = np.array([*strata_by_rule(exam).values()])
        joined = _nothing(exam)
        for stratum in np.unique(strata):
            rows = np.flatnonzero(strata == stratum)
            part = _play_for(exam, rows)
            joined.blind_ceiling[rows] = part.blind_ceiling
            joined.memoryless[rows] = part.memoryless
        return joined

    return _looked_up(exam, "strata", compute)


def _nothing(exam: Exam) -> Bounds:
    return Bounds(*np.full((2, len(exam.rules)), np.nan))


def _looked_up(exam: Exam, name: str, compute: Callable[[], Bounds]) -> Bounds:
    """What the cache holds under a name; else it is computed, and kept there."""
    if not is_computed(exam):
        return _nothing(exam)

    def parse(document: dict[str, Any]) -> Bounds:
        names = ("blind_ceiling", "memoryless")
        stored = Bounds(*(np.array(document[name], float) for name in names))
        if not stored.blind_ceiling.shape == stored.memoryless.shape == exam.rules.shape:
            raise ValueError("these are bounds of another exam")
        return stored

    return files.remember(
        f"bounds/{exam.hash}-{name}-{VERSION}.json",
        lambda: {name: _plain(part) for name, part in vars(compute()).items()},
        parse,
    )


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def ideal(exam: Exam) -> bayes.Solution:
    """Bayes-optimal play for an exam's rules."""
    return _solve(exam, exam.rules)


def _solve(exam: Exam, rules: np.ndarray) -> bayes.Solution:
    task = exam.task
    return bayes.solve(bayes.parse_prior(rules.tolist()), task.length, task.horizon, task.goal or 0)


def blind_ceilings(exam: Exam, solution: bayes.Solution, rules: np.ndarray) -> np.ndarray:
    """What Bayes-optimal play reaches under some rules from the exam's tapes, `[R]`."""
    starts = solution.ring.number[exam.tapes()[:, 0]]
    by_class = bayes.success_by_class(solution, rules.tolist())
    return np.asarray(by_class[:, starts].mean(axis=1))


def _play_for(exam: Exam, rows: np.ndarray) -> Bounds:
    """What is reached under some rules of an exam by players that play for these alone."""
    rules = exam.rules[rows]
    blind = blind_ceilings(exam, _solve(exam, rules), rules)
    return Bounds(blind, _memoryless(exam, rules))


def _memoryless(exam: Exam, rules: np.ndarray) -> np.ndarray:
    """What the best memoryless policy found reaches under each rule from the exam's tapes."""
    task = exam.task
    if task.length > LONGEST_MEMORYLESS:
        return np.full(len(rules), np.nan)
    prior = bayes.parse_prior(rules.tolist())
    cells = memoryless.search(prior, task.length, task.horizon, task.goal or 0).cells
    tape = np.tile(exam.tapes()[:, 0], (len(rules), 1))
    is_solved = np.zeros(tape.shape, bool)
    for flips in cells:
        tape = task.family.step(
            tape[..., None], flips[tape], rules.astype(np.uint32)[:, None], task.space
        )[..., 0]
        is_solved |= tape == task.goal
    return np.asarray(is_solved.mean(axis=1))
