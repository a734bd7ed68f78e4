"""Success by stratum: the rules of an exam by what they take, each side apart.

Success on beyond-reflex rules, seen and unseen, is what the benchmark is about: everywhere it comes
first, then reflex, then impossible rules. The strata are those of `physics.strata`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.exam.exam import SUBSETS, Exam
from tapebench.physics import strata
from tapebench.stats import Interval

FEWEST = 2
"""Rules of a stratum on a side from which their mean is shown: a single rule is no stratum."""

ABOUT = (
    "Strata say what a rule takes: impossible if less than 0.05 of the start tapes can be solved, "
    "reflex if flipping ones reaches half of the exact ceiling, else beyond-reflex. Success on "
    "beyond-reflex rules, seen (ID) and unseen (OOD), is what the benchmark is about."
)


@dataclass(frozen=True)
class Group:
    """The rules of one stratum on one side of an exam."""

    stratum: str
    side: str
    """`id` or `ood`."""
    rows: np.ndarray
    """Positions of its rules in the exam."""

    @property
    def label(self) -> str:
        """As a column is headed, with the number of its rules."""
        return f"{self.stratum} {self.side.upper()} ({len(self.rows)})"

    @property
    def is_shown(self) -> bool:
        """Whether there are rules enough for a mean."""
        return len(self.rows) >= FEWEST


@dataclass(frozen=True)
class GroupScore:
    """What was reached on a group; nothing if it has too few rules to say."""

    group: Group
    success: Interval | None


def why_unknown(exam: Exam) -> str:
    """Why the rules of an exam are in no strata, as half a sentence; empty if they are."""
    task = exam.task
    if task.family.name != "elementary":
        return f"strata are known for elementary rules, not for {task.family.name}"
    if task.noise:
        return "strata are known without noise"
    if task.schedule.switches:
        return "strata are known for rules that do not switch"
    if task.goal != 0:
        return "strata are known for the goal of zeros"
    if not strata.is_known(task.length, task.horizon):
        return (
            f"strata are known up to {strata.EXACT_LENGTH} cells, and at {strata.SAMPLED_LENGTH} "
            f"cells up to {strata.SAMPLED_HORIZON} steps"
        )
    return ""


def about(exam: Exam) -> str:
    """What strata are, and what has to be said of those of this exam."""
    sentences = [ABOUT]
    if exam.task.hidden:
        sentences.append("They are those of the same size with all cells shown.")
    if exam.task.length > strata.EXACT_LENGTH:
        sentences.append(
            f"What flipping ones reaches is a mean over {strata.SAMPLE_TAPES:,} start tapes here."
        )
    return " ".join(sentences)


def strata_by_rule(exam: Exam) -> dict[int, str]:
    """The stratum of each rule of an exam; empty where `why_unknown` says why."""
    if why_unknown(exam):
        return {}
    return strata.strata(exam.rules.tolist(), exam.task.length, exam.task.horizon)


def groups(exam: Exam) -> list[Group]:
    """The strata of an exam by side, beyond-reflex seen and unseen first, those without rules left
    out; none at all where `why_unknown` says why."""
    of_rule = np.array([*strata_by_rule(exam).values()])
    if not len(of_rule):
        return []
    every = [
        Group(kind, side, np.flatnonzero((of_rule == kind) & (exam.subsets == side)))
        for kind in strata.STRATA
        for side in SUBSETS
    ]
    return [group for group in every if len(group.rows)]


def success_by_stratum(
    success: np.ndarray, exam: Exam, interval: Callable[[np.ndarray, Group], Interval]
) -> list[GroupScore]:
    """What is reached on each of `groups`, from `success[S, R, ...]`: seeds by rules.

    `interval` is given the part of a group, and is the one that the same page gives to success on a
    side.
    """
    return [
        GroupScore(group, interval(success[:, group.rows], group) if group.is_shown else None)
        for group in groups(exam)
    ]


def mean_by_stratum(by_rule: np.ndarray, exam: Exam) -> list[float | None]:
    """The mean on each of `groups` of a figure `[R]` that has no interval: a baseline, a ceiling.

    None where a group has too few rules, or a rule of it has no figure.
    """

    def mean(group: Group) -> float | None:
        success = float(by_rule[group.rows].mean())
        return success if group.is_shown and np.isfinite(success) else None

    return [mean(group) for group in groups(exam)]


def as_dict(
    scores: list[GroupScore], exam: Exam, beside: dict[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Scores by stratum and side as a document, with the means of what stands `beside` them."""
    means = {name: mean_by_stratum(by_rule, exam) for name, by_rule in beside.items()}
    document: dict[str, dict[str, Any]] = {}
    for place, score in enumerate(scores):
        group, reached = score.group, score.success
        document.setdefault(group.stratum, {})[group.side] = {
            "rules": len(group.rows),
            "success": reached and reached.mean,
            "interval": reached and [reached.low, reached.high],
        } | {name: values[place] for name, values in means.items()}
    return document
