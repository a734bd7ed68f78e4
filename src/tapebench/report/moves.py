"""The moves of the episodes on a page, beside the best ones of a player that is not told the rule.

The page's script finds by itself what is best with the rule known. Without it that takes the whole
of `physics.bayes`, so it is computed here, for the episodes that are shown and no others.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import numpy as np

from tapebench.exam import bounds, regret
from tapebench.exam.exam import Exam
from tapebench.physics import exact, quotient

SCALE = 10_000
"""Chances are stored as so many parts of one."""

IGNORED = 1 << 15
"""Set in a stored regret: the move would do for someone who had seen less of the law."""


def encode(exam: Exam, episodes: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Every move of some episodes `[R, E, H]` judged, by their name, in base 64.

    Little-endian uint16 `[R, E, H, 3]`: the optimal cells as a bit mask, what they are worth, and
    what the move lost of that, both in chances of success.
    """
    if not episodes or bounds.obstacle(exam):
        return {}
    solution = bounds.ideal(exam)
    encoded = {}
    for name, cells in episodes.items():
        judged = regret.judge(exam.rules, cells, exam, solution)
        lost = np.rint(judged.total * SCALE).astype(np.uint16)
        lost |= np.where(judged.ignored > 0, np.uint16(IGNORED), np.uint16(0))
        value = np.rint(judged.value * SCALE).astype(np.uint16)
        parts = np.stack([judged.best, value, lost], axis=-1).astype("<u2")
        encoded[name] = base64.b64encode(parts.tobytes()).decode()
    return encoded


def shortest_ways(exam: Exam, shown: int) -> np.ndarray:
    """A shortest way under each rule from the first tapes, `[R, shown, H]`; -1 after its end.

    At each step the lowest cell that will do, as the page's script chooses.
    """
    task = exam.task
    goal = task.goal or 0
    every_cell = np.arange(task.length, dtype=np.uint32)[None]
    cells = np.full((len(exam.rules), shown, task.horizon), -1)
    for row, rule in enumerate(exam.rules):
        steps = exact.steps_to_goal(int(rule), task.length, task.horizon, goal)
        tape = exam.tapes()[:shown, 0].copy()
        for step in range(task.horizon):
            ahead = task.family.step(tape[:, None, None], every_cell, rule, task.space)[..., 0]
            choice = steps[ahead].argmin(axis=1)
            going = (steps[tape] != exact.UNREACHED) & (tape != goal)
            cells[row, going, step] = choice[going]
            tape = np.where(going, ahead[np.arange(shown), choice], tape)
    return cells


def searched_ways(exam: Exam, shown: int) -> np.ndarray:
    """`shortest_ways` to zeros by the search over classes of tapes, for rules of other families."""
    task = exam.task
    rules = np.repeat(exam.rules, shown)
    tapes = np.tile(exam.tapes()[:shown, 0], len(exam.rules))
    ways = quotient.classes(task.family, task.space).ways(
        rules, tapes, np.full(len(rules), task.horizon)
    )
    cells = np.full((len(rules), task.horizon), -1)
    for row, way in enumerate(ways):
        cells[row, : len(way or ())] = way or ()
    return cells.reshape(len(exam.rules), shown, task.horizon)
