"""What bounds anyone on an exam who is not told the rule: blind ceiling and memoryless play.

Both are computed for small tasks alone, see `physics.bayes` and `physics.memoryless`, with the
exam's rules as the prior, and are means over the exam's own start tapes. They are the same for all
who sit the exam, so they are kept in the user's cache.

Over all rules they are bounds. On a part of the rules they are what these players reach there, and
a player that plays for that part alone may reach more.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tapebench.base import files
from tapebench.exam.exam import Exam
from tapebench.physics import bayes, memoryless

LONGEST = 12
"""Cells up to which ideal play is computed, which takes seconds."""

LONGEST_MEMORYLESS = 10
"""Cells up to which a memoryless policy is searched for, which takes seconds."""

VERSION = 1
"""Of the kept figures."""

NOT_COMPUTED = (
    f"Memoryless policies are computed up to {LONGEST_MEMORYLESS} cells and blind ceilings up to "
    f"{LONGEST}, without noise and hidden cells: else there is a dash."
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
        "cells are hidden": task.hidden,
        "updates are noisy": task.noise,
        "the rule switches": task.schedule.switches,
        "the goal is not all zeros": task.goal != 0,
        "memory is kept over several trials": exam.trials > 1,
        f"more than {LONGEST} cells": task.length > LONGEST,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def is_computed(exam: Exam) -> bool:
    """Whether ideal play on this exam is."""
    return not obstacle(exam)


def bounds(exam: Exam) -> Bounds:
    """What bounds anyone on this exam, computed or looked up."""
    unknown = np.full(len(exam.rules), np.nan)
    if not is_computed(exam):
        return Bounds(unknown, unknown)
    place = files.user_cache() / "bounds" / f"{exam.hash}-{VERSION}.json"
    with suppress(ValueError, KeyError, TypeError, OSError):
        kept = files.read_object(place)
        found = Bounds(*(np.array(kept[name], float) for name in ("blind_ceiling", "memoryless")))
        if found.blind_ceiling.shape == found.memoryless.shape == unknown.shape:
            return found
    found = Bounds(blind_ceilings(exam, ideal(exam)), _memoryless(exam))
    with suppress(ValueError, OSError):  # a cache that cannot be written costs time, no result
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(place, {name: _plain(values) for name, values in vars(found).items()})
    return found


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def ideal(exam: Exam) -> bayes.Solution:
    """Bayes-optimal play for an exam's rules."""
    task = exam.task
    prior = bayes.parse_prior([int(rule) for rule in exam.rules])
    return bayes.solve(prior, task.length, task.horizon, task.goal or 0)


def blind_ceilings(exam: Exam, solution: bayes.Solution) -> np.ndarray:
    """What Bayes-optimal play reaches under each rule from the exam's tapes, `[R]`."""
    starts = solution.ring.number[exam.tapes()[:, 0]]
    by_class = bayes.success_by_class(solution, [int(rule) for rule in exam.rules])
    return np.asarray(by_class[:, starts].mean(axis=1))


def _memoryless(exam: Exam) -> np.ndarray:
    """What the best memoryless policy found reaches under each rule from the exam's tapes."""
    task = exam.task
    if task.length > LONGEST_MEMORYLESS:
        return np.full(len(exam.rules), np.nan)
    prior = bayes.parse_prior([int(rule) for rule in exam.rules])
    cells = memoryless.find(prior, task.length, task.horizon, task.goal or 0).cells
    tape = np.tile(exam.tapes()[:, 0], (len(exam.rules), 1))
    is_solved = np.zeros(tape.shape, bool)
    rules = exam.rules.astype(np.uint32)[:, None]
    for chosen in cells:
        tape = task.family.step(tape[..., None], chosen[tape], rules, task.space)[..., 0]
        is_solved |= tape == task.goal
    return np.asarray(is_solved.mean(axis=1))
