"""A score taken apart against exact play: what not knowing costs anyone, and what each move lost.

For tasks whose ideal player is computed (see `physics.bayes`). The prior is the exam's rules, each
as likely as another. A move's regret is V*(tape, knowledge) - Q*(tape, knowledge, move), a chance
of success, with the knowledge that everything seen in the episode gives. Over all rules of the exam
the regrets of an episode add up to blind ceiling minus success: in the mean, as a policy may draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.rollout import Episodes
from tapebench.physics import bayes
from tapebench.physics.strata import STRATA, strata

_SETS = np.arange(2**bayes.ENTRIES)


LONGEST = 12
"""Cells up to which a score is taken apart, which takes seconds."""


def is_computed(exam: Exam) -> bool:
    """Whether a score on this exam can be taken apart."""
    task = exam.task
    is_plain = not task.noise and not task.hidden and task.goal == 0
    return is_plain and exam.trials == 1 and task.length <= LONGEST


def take_apart(runs: Sequence[Episodes], exam: Exam, optimal_steps: np.ndarray) -> dict[str, Any]:
    """Ceiling, blind ceiling and success by side and stratum, on the exam's own tapes.

    `ceiling` is of who knows the rule, `blind_ceiling` of the ideal player who does not;
    `not_knowing` and `shortfall` lie between the three. What the moves lost, `evidence_ignored` and
    `control`, is given over all rules alone: a move is judged by all rules that are still possible,
    so only over all of them does it add up to the shortfall.
    """
    task, rules = exam.task, [int(rule) for rule in exam.rules]
    solution = ideal(exam)
    starts = solution.ring.number[exam.tapes()[:, 0]]
    known = (optimal_steps >= 0).mean(axis=1)
    blind = bayes.success_by_class(solution, rules)[:, starts].mean(axis=1)
    success = np.mean([run.success.mean(axis=1) for run in runs], axis=0)
    figures = {
        "success": success,
        "ceiling": known,
        "blind_ceiling": blind,
        "not_knowing": known - blind,
        "shortfall": blind - success,
    }
    lost = [regrets(run, exam, solution) for run in runs]
    document: dict[str, Any] = {
        "prior": "the rules of the exam, each as likely as another",
        "evidence_ignored": float(np.mean([one.ignored.sum(axis=-1).mean() for one in lost])),
        "control": float(np.mean([one.control.sum(axis=-1).mean() for one in lost])),
    }
    kinds = strata(rules, task.length, task.horizon)
    of_kind = np.array([kinds[rule] for rule in rules])
    for side in SUBSETS:
        rows = exam.rows(side)
        groups = {"all": rows} | {kind: rows[of_kind[rows] == kind] for kind in STRATA}
        document[side] = {
            kind: {"rules": len(members)}
            | {name: float(values[members].mean()) for name, values in figures.items()}
            for kind, members in groups.items()
            if len(members)
        }
    return document


def ideal(exam: Exam) -> bayes.Solution:
    """Bayes-optimal play for an exam's rules."""
    task = exam.task
    prior = bayes.parse_prior([int(rule) for rule in exam.rules])
    return bayes.solve(prior, task.length, task.horizon, task.goal or 0)


@dataclass(frozen=True)
class Regret:
    """What the moves of some episodes lost, each `[R, E, H]` in chance of success."""

    total: np.ndarray
    """Zero or more; zero after the end."""
    ignored: np.ndarray
    """The part of moves that would be optimal for someone who had seen less of the law."""

    @property
    def control(self) -> np.ndarray:
        """The part of moves that are optimal for nobody who had seen a part of what was seen."""
        return self.total - self.ignored


def regrets(episodes: Episodes, exam: Exam, solution: bayes.Solution) -> Regret:
    """The regret of every move, by playing the episodes again."""
    task, ring = exam.task, solution.ring
    rules = np.repeat(episodes.rules, episodes.cells.shape[1]).astype(np.uint32)
    cells = episodes.cells.reshape(len(rules), -1)
    tape = np.tile(exam.tapes()[: episodes.cells.shape[1], 0], len(episodes.rules))
    knowledge = np.full(len(rules), bayes.NOTHING)
    total, ignored = np.zeros((2, *cells.shape))
    for step in range(task.horizon):
        rows = np.flatnonzero(cells[:, step] >= 0)
        if not len(rows):
            break
        left, chosen = task.horizon - step, cells[rows, step].astype(np.int64)
        number = ring.number[tape[rows]]
        move = (chosen + ring.turns[tape[rows]]) % task.length
        mass = solution.mass[knowledge[rows]]
        lost = _lost(solution, number, knowledge[rows], move, left)
        total[rows, step] = lost / mass
        losing = np.flatnonzero(lost)
        if len(losing):
            excused = _would_do(
                solution, number[losing], knowledge[rows][losing], move[losing], left
            )
            ignored[rows[losing], step] = np.where(excused, (lost / mass)[losing], 0.0)
        before, own = tape[rows], rules[rows]
        after = task.family.step(before[:, None], chosen, own, task.space)[:, 0]
        knowledge[rows] = bayes.learn(knowledge[rows], before, chosen, after, task.length)
        tape[rows] = after
    return Regret(total.reshape(episodes.cells.shape), ignored.reshape(episodes.cells.shape))


def _lost(
    solution: bayes.Solution, number: np.ndarray, knowledge: np.ndarray, move: np.ndarray, left: int
) -> np.ndarray:
    """The weight that each move gives away, `[N]`."""
    kinds, kind = np.unique(number * bayes.STATES + knowledge, return_inverse=True)
    worth = solution.weights(*np.divmod(kinds, bayes.STATES), left)
    return (worth.max(axis=1, keepdims=True) - worth)[kind, move]


def _would_do(
    solution: bayes.Solution, number: np.ndarray, knowledge: np.ndarray, move: np.ndarray, left: int
) -> np.ndarray:
    """Whether each move is optimal for some state of less knowledge, bool `[N]`."""
    less = bayes.forget(knowledge, _SETS)
    states, state = np.unique(number[:, None] * bayes.STATES + less, return_inverse=True)
    worth = solution.weights(*np.divmod(states, bayes.STATES), left)
    is_best = worth == worth.max(axis=1, keepdims=True)
    is_less = less != knowledge[:, None]
    found: np.ndarray = (is_best[state.reshape(less.shape), move[:, None]] & is_less).any(axis=1)
    return found
