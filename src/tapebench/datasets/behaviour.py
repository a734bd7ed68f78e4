"""Who plays the episodes of a dataset.

`random`, `flip-ones` and `bayes-optimal` are the policies of those names, the last with the
training rules as its prior. `optimal` knows the rule, and chooses evenly among the cells with which
a shortest way begins; where there is no way it flips ones.

Two play *histories*, so many episodes in a row under one rule. `learning` is the record of a
learner, tabular Q-learning from scratch in each history. `mixed` is a cheap stand-in
for one: optimal play in which a cell is a random one with a probability that falls from one in the
first episode to zero in the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.shapes import Bool, Float32, Int64, Integer, UInt32
from tapebench.datasets import answers
from tapebench.exam import policy as policies
from tapebench.exam.policy import Policy, flip_a_one
from tapebench.physics import bayes, space
from tapebench.planning import ideal
from tapebench.tasks.splits import Split
from tapebench.tasks.task import Task

Learn = Callable[[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray], Any]
"""`(memory, tape, cell, next_tape, is_running) -> memory` after each step of a batch."""


@dataclass(frozen=True)
class Behaviour:
    """A policy that keeps its memory over the episodes of a history."""

    about: str
    make: Callable[[Task, Split], Policy]
    is_searched: bool = False
    """Whether it needs the exact answers of every tape."""
    history: int = 1
    """Episodes under one rule."""
    learn: Learn = lambda memory, tape, cell, next_tape, is_running: memory


NOISY_HISTORY = 64
"""Episodes in which the noise of `mixed` falls from one to zero."""


@dataclass(frozen=True)
class _Noisy:
    """What `mixed` remembers of each row."""

    rule: UInt32[np.ndarray, " B"]
    trial: Int64[np.ndarray, " B"]
    """Episodes of the history before this one; -1 before the first."""


def optimal(task: Task, split: Split) -> Policy:
    """The cells that are optimal for who knows the rule."""
    act = partial(_act_optimal, task)
    return Policy("optimal", lambda rule, num: np.asarray(rule), act, backend="numpy")


def _act_optimal(task: Task, rule: Any, obs: np.ndarray, stream: seeding.Stream) -> Any:
    cells = task.layout.cells(obs)
    known = answers.solve(task.rules, task.length)
    is_best = known.optimal_cells(rule, space.pack(cells)[:, 0])
    # Ones where there is no way, so that one of these is drawn instead.
    is_wanted = np.where(is_best.any(axis=1, keepdims=True), is_best, cells > 0)
    return rule, flip_a_one(is_wanted.astype(np.float32), stream)


def mixed(task: Task, split: Split) -> Policy:
    """Optimal play with noise that falls from episode to episode."""

    def init(rule: Any, num: int) -> _Noisy:
        return _Noisy(np.asarray(rule), np.full(num, -1))

    return Policy("mixed", init, partial(_act_mixed, task), backend="numpy")


def _act_mixed(task: Task, memory: _Noisy, obs: np.ndarray, stream: seeding.Stream) -> Any:
    trial = memory.trial + (task.layout.time(obs) == 0)
    noise = 1 - trial / np.float32(NOISY_HISTORY - 1)
    _, best = _act_optimal(task, memory.rule, obs, seeding.fork(stream, 0))
    words = seeding.draw(seeding.fork(stream, 1), np.arange(2, dtype=np.uint32))
    anywhere = seeding.below(np.uint32(task.length), words[:, 0])
    cell = np.where(seeding.unit(words[:, 1]) < noise, anywhere, best)
    return _Noisy(memory.rule, trial), cell


LEARNING_HISTORY = 512
"""Episodes of `learning`: from random play to about as good as it gets."""

EXPLORING = 256
"""Episodes until it explores as little as it ever will."""

LEAST_EXPLORATION = np.float32(0.05)
DISCOUNT = np.float32(0.9)


@dataclass(frozen=True)
class _Learner:
    """Q-learning on tapes up to rotation: what a flip is worth in each class of tapes."""

    values: Float32[np.ndarray, "B classes L"]
    trial: Int64[np.ndarray, " B"]


def learning(task: Task, split: Split) -> Policy:
    """Tabular Q-learning, epsilon-greedy, from scratch in each history."""
    ring = bayes.make_ring(task.length)

    def init(rule: None, num: int) -> _Learner:
        values = np.zeros((num, len(ring.tapes), task.length), np.float32)
        return _Learner(values, np.full(num, -1))

    policy = Policy("learning", init, partial(_act_learning, task), backend="numpy")
    return policies.blind(policy)


def _act_learning(task: Task, memory: _Learner, obs: np.ndarray, stream: seeding.Stream) -> Any:
    ring = bayes.make_ring(task.length)
    trial = memory.trial + (task.layout.time(obs) == 0)
    tape = space.pack(task.layout.cells(obs))[:, 0]
    values = memory.values[np.arange(len(tape)), ring.number[tape]]
    values = np.take_along_axis(values, _turned(ring, tape), axis=1)
    is_best = values == values.max(axis=1, keepdims=True)
    exploration = np.maximum(1 - trial / np.float32(EXPLORING), LEAST_EXPLORATION)
    draws = seeding.uniform(stream, task.length + 1)
    is_wanted = is_best | (draws[:, -1:] < exploration[:, None])
    return _Learner(memory.values, trial), np.where(is_wanted, 1 + draws[:, :-1], 0).argmax(axis=1)


def _learn(
    memory: _Learner,
    tape: UInt32[np.ndarray, " B"],
    cell: Integer[np.ndarray, " B"],
    next_tape: UInt32[np.ndarray, " B"],
    is_running: Bool[np.ndarray, " B"],
) -> _Learner:
    """A success is worth one, later ones less. The world is deterministic, so each update replaces
    what was there."""
    rows, length = np.flatnonzero(is_running), memory.values.shape[2]
    ring = bayes.make_ring(length)
    tape, cell, next_tape = tape[rows], cell[rows], next_tape[rows]
    follows = DISCOUNT * memory.values[rows, ring.number[next_tape]].max(axis=1)
    place = (cell + ring.turns[tape]) % length
    target = np.where(next_tape == ring.goal, np.float32(1), follows)
    memory.values[rows, ring.number[tape], place] = target
    return memory


def _turned(ring: bayes.Ring, tape: np.ndarray) -> np.ndarray:
    """Where each cell of a tape is on the tape that stands for its class, `[B, L]`."""
    turned: np.ndarray = (np.arange(ring.length) + ring.turns[tape][:, None]) % ring.length
    return turned


BEHAVIOURS = {
    "random": Behaviour("a cell drawn evenly", lambda task, split: policies.random(task)),
    "flip-ones": Behaviour(
        "a random cell among those that are one", lambda task, split: policies.flip_ones(task)
    ),
    "mixed": Behaviour(
        f"optimal play with noise that falls from one to zero over {NOISY_HISTORY} episodes",
        mixed,
        is_searched=True,
        history=NOISY_HISTORY,
    ),
    "learning": Behaviour(
        f"tabular Q-learning from scratch, {LEARNING_HISTORY} episodes under each rule",
        learning,
        is_searched=True,
        history=LEARNING_HISTORY,
        learn=_learn,
    ),
    "optimal": Behaviour("shortest ways to the goal, the rule known", optimal, is_searched=True),
    "bayes-optimal": Behaviour(
        "exact Bayes-optimal play, the rule unknown",
        ideal.bayes_optimal_of_split,
        is_searched=True,
    ),
}
"""How the episodes of a dataset are played, by name."""
