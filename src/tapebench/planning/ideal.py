"""Two reference policies that are not told the rule: the Bayes-optimal one and a memoryless one.

`bayes-optimal` plays what `physics.bayes` computes: it remembers which entries of the rule's table
it has seen, and chooses evenly among the moves that are optimal for its prior. `memoryless` plays
the best known policy of tape and time alone, and so never acts on the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.exam.policy import Policy, blind
from tapebench.physics import bayes, memoryless, space
from tapebench.planning.beam import read_time
from tapebench.tasks import splits
from tapebench.tasks.task import Task


@dataclass(frozen=True)
class _Memory:
    knowledge: np.ndarray
    """`[B]`."""
    tape: np.ndarray
    """The last observed tape, `[B]`."""
    cell: np.ndarray
    """The cell flipped in it, `[B]`."""
    t: np.ndarray
    """The step at which it was observed, `[B]`."""


def bayes_optimal(task: Task) -> Policy:
    """Bayes-optimal play with a uniform prior over all rules of the universe."""
    return _ideal(task, task.universe.rules, "bayes-optimal")


def bayes_optimal_of_split(task: Task, split: str | Path | splits.Split) -> Policy:
    """`bayes_optimal` with a uniform prior over the training rules of a split."""
    return _ideal(task, splits.load(split).train, "bayes-optimal-train")


def check_ideal(task: Task) -> None:
    """Refuse a task whose ideal player is not computed."""
    if task.noise or task.hidden:
        raise ValueError("ideal play is computed without noise and without hidden cells")
    if task.schedule.switches:
        raise ValueError("ideal play is computed for rules that do not switch")
    if task.goal is None:
        raise ValueError("ideal play is computed for a fixed goal")
    bayes.make_ring(task.length, task.goal)


@cache
def solution(rules: tuple[int, ...], length: int, horizon: int, goal: int) -> bayes.Solution:
    """Bayes-optimal play under a uniform prior over `rules`, cached."""
    return bayes.solve(bayes.parse_prior(rules), length, horizon, goal)


def _ideal(task: Task, rules: tuple[int, ...], name: str) -> Policy:
    check_ideal(task)

    def init(rule: None, num: int) -> _Memory:
        nothing = np.full(num, bayes.NOTHING)
        zeros = np.zeros(num, np.uint32)
        return _Memory(nothing, zeros, zeros, np.full(num, task.horizon))

    act = partial(_act, task, rules)
    return blind(Policy(name, init, act, backend="numpy"))


def _act(
    task: Task, rules: tuple[int, ...], memory: _Memory, obs: np.ndarray, stream: seeding.Stream
) -> tuple[_Memory, np.ndarray]:
    ideal = solution(rules, task.length, task.horizon, task.goal or 0)
    tape, t = space.pack(task.layout.cells(obs))[:, 0], read_time(obs, task)
    learned = bayes.learn(memory.knowledge, memory.tape, memory.cell, tape, task.length)
    # Where time has not advanced, a new trial has begun.
    memory = replace(memory, knowledge=np.where(t > memory.t, learned, memory.knowledge))
    tie_break = seeding.uniform(stream, task.length)
    cell = tie_break.argmax(axis=1)  # where the episode is over
    for now in np.unique(t[t < task.horizon]):
        rows = np.flatnonzero(t == now)
        left = task.horizon - int(now)
        is_best = ideal.optimal_cells(tape[rows], memory.knowledge[rows], left)
        cell[rows] = np.where(is_best, 1 + tie_break[rows], 0).argmax(axis=1)
    return replace(memory, tape=tape, cell=cell.astype(np.uint32), t=t), cell


def memoryless_player(task: Task) -> Policy:
    """The best known policy of tape and time alone, for all rules of the universe."""
    check_ideal(task)
    act = partial(_act_memoryless, task)
    return blind(Policy("memoryless", lambda rule, num: (), act, backend="numpy"))


@cache
def _table(rules: tuple[int, ...], length: int, horizon: int, goal: int) -> np.ndarray:
    return memoryless.search(bayes.parse_prior(rules), length, horizon, goal).cells


def _act_memoryless(task: Task, memory: Any, obs: np.ndarray, stream: Any) -> tuple[Any, Any]:
    table = _table(task.universe.rules, task.length, task.horizon, task.goal or 0)
    tape, t = space.pack(task.layout.cells(obs))[:, 0], read_time(obs, task)
    return memory, table[np.minimum(t, task.horizon - 1), tape]
