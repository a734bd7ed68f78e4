"""A score taken apart against exact play: what not knowing costs an ideal player, and what each
move lost.

For tasks whose ideal player is computed (see `exam.bounds`). The prior is the exam's rules, each
as likely as another. A move's regret is V*(tape, knowledge) - Q*(tape, knowledge, move), a chance
of success, with the knowledge that everything seen in the episode gives. Over all rules of the exam
the regrets of an episode add up to blind ceiling minus success: in the mean, as a policy may draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.base.shapes import Float64, Integer
from tapebench.exam import bounds
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.rollout import Episodes
from tapebench.physics import bayes
from tapebench.physics.strata import STRATA

_SETS = np.arange(2**bayes.ENTRIES)


def take_apart(
    runs: Sequence[Episodes], exam: Exam, optimal_steps: Integer[np.ndarray, "R E"]
) -> dict[str, Any]:
    """Ceiling, blind ceiling and success by side and stratum, on the exam's own tapes.

    `ceiling` is of who knows the rule, `blind_ceiling` of the ideal player who does not;
    `not_knowing` and `shortfall` lie between the three. What the moves lost, `evidence_ignored` and
    `control`, is given over all rules alone: a move is judged by all rules that are still possible,
    so only over all of them does it add up to the shortfall. `evidence_ignored_by_chance` is what
    the first would be if each losing move had been drawn from the losing moves of its state.
    """
    known = (optimal_steps >= 0).mean(axis=1)
    success = np.mean([run.success.mean(axis=1) for run in runs], axis=0)
    solution = bounds.ideal(exam)

    def figures(blind: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "success": success,
            "ceiling": known,
            "blind_ceiling": blind,
            "not_knowing": known - blind,
            "shortfall": blind - success,
        }

    overall = figures(bounds.bounds(exam).blind_ceiling)
    within = figures(bounds.bounds_by_stratum(exam).blind_ceiling)
    document: dict[str, Any] = {
        "prior": "the rules of the exam, each as likely as another; by stratum, only those of it",
        **_lost(runs, exam, solution),
    }
    strata = np.array([*strata_by_rule(exam).values()])
    for side in SUBSETS:
        rows = exam.rows(side)
        groups = {"all": rows} | {kind: rows[strata[rows] == kind] for kind in STRATA}
        document[side] = {
            kind: {"rules": len(members)}
            | {
                name: float(by_rule[members].mean())
                for name, by_rule in (overall if kind == "all" else within).items()
            }
            for kind, members in groups.items()
            if len(members)
        }
    return document


def _lost(runs: Sequence[Episodes], exam: Exam, solution: bayes.Solution) -> dict[str, float]:
    """What the moves of some runs lost of success, in the mean over all episodes."""
    moves = [regrets(run, exam, solution) for run in runs]
    return {
        "evidence_ignored": float(np.mean([move.ignored.sum(axis=-1).mean() for move in moves])),
        "evidence_ignored_by_chance": float(
            np.mean([move.by_chance.sum(axis=-1).mean() for move in moves])
        ),
        "control": float(np.mean([move.control.sum(axis=-1).mean() for move in moves])),
    }


@dataclass(frozen=True)
class Regret:
    """The moves of some episodes against Bayes-optimal play; zero after the end.

    In chances of success, given what the episode has shown so far.
    """

    value: Float64[np.ndarray, "R E H"]
    """What the best move is worth."""
    total: Float64[np.ndarray, "R E H"]
    """What the move lost of it, zero or more."""
    ignored: Float64[np.ndarray, "R E H"]
    """The part of moves that would be optimal for someone who had seen less of the law."""
    by_chance: Float64[np.ndarray, "R E H"]
    """What that part would be in the mean if losing moves were drawn evenly from those there are: a
    move may be optimal for someone who has seen less without any evidence being ignored."""
    best: np.ndarray
    """The optimal cells as a bit mask, uint16."""

    @property
    def control(self) -> Float64[np.ndarray, "R E H"]:
        """The part of moves that are optimal for nobody who had seen a part of what was seen."""
        return self.total - self.ignored


def regrets(episodes: Episodes, exam: Exam, solution: bayes.Solution) -> Regret:
    """The regret of every move, by playing the episodes again."""
    return judge(episodes.rules, episodes.cells, exam, solution)


def judge(rules: np.ndarray, cells: np.ndarray, exam: Exam, solution: bayes.Solution) -> Regret:
    """The same for moves `[R, E, H]` under rules `[R]` from the first E tapes of an exam.

    Moves are cells, -1 after the end of an episode.
    """
    task, ring, shape = exam.task, solution.ring, cells.shape
    rule = np.repeat(rules, shape[1]).astype(np.uint32)
    cells = cells.reshape(len(rule), -1)
    tape = np.tile(exam.tapes()[: shape[1], 0], len(rules))
    knowledge = np.full(len(rule), bayes.NOTHING)
    value, total, ignored, by_chance = np.zeros((4, *cells.shape))
    best = np.zeros(cells.shape, np.uint16)
    bits = np.uint16(1) << np.arange(task.length, dtype=np.uint16)
    for step in range(task.horizon):
        rows = np.flatnonzero(cells[:, step] >= 0)
        if not len(rows):
            break
        left, chosen = task.horizon - step, cells[rows, step].astype(np.int64)
        number, turns = ring.number[tape[rows]], ring.turns[tape[rows]]
        move = (chosen + turns) % task.length
        mass = solution.mass[knowledge[rows]]
        worth = _worth(solution, number, knowledge[rows], left)
        highest = worth.max(axis=1)
        lost = highest - worth[np.arange(len(rows)), move]
        value[rows, step] = highest / mass
        total[rows, step] = lost / mass
        turned = (np.arange(task.length) + turns[:, None]) % task.length
        is_best = np.take_along_axis(worth == highest[:, None], turned, axis=1)
        best[rows, step] = is_best @ bits
        losing = np.flatnonzero(lost)
        if len(losing):
            is_excused = _would_do(solution, number[losing], knowledge[rows][losing], left)
            is_losing = worth[losing] < highest[losing, None]
            share = (is_excused & is_losing).sum(axis=1) / is_losing.sum(axis=1)
            own = is_excused[np.arange(len(losing)), move[losing]]
            ignored[rows[losing], step] = (lost / mass)[losing] * own
            by_chance[rows[losing], step] = (lost / mass)[losing] * share
        before = tape[rows]
        after = task.family.step(before[:, None], chosen, rule[rows], task.space)[:, 0]
        knowledge[rows] = bayes.learn(knowledge[rows], before, chosen, after, task.length)
        tape[rows] = after
    return Regret(*(part.reshape(shape) for part in (value, total, ignored, by_chance, best)))


def _worth(
    solution: bayes.Solution, number: np.ndarray, knowledge: np.ndarray, left: int
) -> np.ndarray:
    """The weight that each flip will see solved, `[N, cells]`; many rows are alike."""
    kinds, kind = np.unique(number * bayes.STATES + knowledge, return_inverse=True)
    worth: np.ndarray = solution.weights(*np.divmod(kinds, bayes.STATES), left)[kind]
    return worth


def _would_do(
    solution: bayes.Solution, number: np.ndarray, knowledge: np.ndarray, left: int
) -> np.ndarray:
    """Which moves are optimal for some state of less knowledge, bool `[N, cells]`."""
    less = bayes.forget(knowledge, _SETS)
    states, state = np.unique(number[:, None] * bayes.STATES + less, return_inverse=True)
    worth = solution.weights(*np.divmod(states, bayes.STATES), left)
    is_best = worth == worth.max(axis=1, keepdims=True)
    is_less = less != knowledge[:, None]
    return np.asarray((is_best[state.reshape(less.shape)] & is_less[:, :, None]).any(axis=1))
