"""`belief-planner`: find the rule out, then search with it. Blind, and near what is possible.

The posterior is that of `tapebench.planning.belief`. While no rule is sure the first flip of an
episode is one that shows the most of it, and so is any later one for which nothing is planned.
After the first the most probable rule is taken for the true one and
`tapebench.planning.beam` plans with it. A plan is kept while the tape does what it foresaw;
one surprise, after which the updated posterior is planned with again.

The posterior outlives the episode: a row whose time is back at zero is in another trial with the
same rule, and plans at once if it is sure of it.

Where the rule switches the posterior allows for that, see `belief.shift`: the surprise then speaks
for the rules that explain it, and a plan is made with one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tapebench.base import seeding
from tapebench.exam.policy import Policy, blind, flip_a_one
from tapebench.physics import space
from tapebench.planning import beam, belief
from tapebench.tasks import splits
from tapebench.tasks.task import Task

SURE = 0.9
"""Probability from which a rule counts as known. Rules that no transition has told apart share
theirs equally, so anything above a half means that a single one is left."""


@dataclass(frozen=True)
class _Memory:
    """What is believed and planned in B rows."""

    log_belief: np.ndarray
    """`[B, 256]`."""
    plan: np.ndarray
    """int `[B, H + 1]`: the cell to flip at each step; -1 where nothing is planned."""
    assumed: np.ndarray
    """int `[B]`: the rule the plan was made for; -1 for none."""
    foreseen: np.ndarray
    """uint32 `[B]`: what the tape should be now if that is the true one."""
    tape: np.ndarray
    """uint32 `[B, W]`: the tape before the last flip."""
    cell: np.ndarray
    """int `[B]`: the last flip."""
    t: np.ndarray
    """int `[B]`: the step it was made at. Where time does not grow no step was taken: it is a
    new trial, or the last one is over, and there is nothing to learn."""


@cache
def belief_planner(
    task: Task,
    candidates: tuple[int, ...] | None = None,
    name: str = "belief-planner",
) -> Policy:
    """The policy. `candidates` are the rules it thinks possible, by default all of them."""
    beam.check_plannable(task)
    if candidates is None:
        candidates = task.universe.rules
    if not candidates:
        raise ValueError("the candidate set is empty: give at least one rule")

    def init(rule: None, num: int) -> _Memory:
        prior = np.asarray(belief.log_prior(candidates))
        return _Memory(
            log_belief=np.tile(prior, (num, 1)),
            plan=np.full((num, task.horizon + 1), -1),
            assumed=np.full(num, -1),
            foreseen=np.zeros(num, np.uint32),
            tape=np.zeros((num, 1), np.uint32),
            cell=np.zeros(num, int),
            t=np.full(num, task.horizon),
        )

    act = partial(_act, task, candidates)
    return blind(Policy(name, init, act, backend="numpy", belief=posterior))


def belief_planner_of_split(task: Task, split: str | Path | splits.Split) -> Policy:
    """`belief_planner` that thinks only the training rules of a split possible."""
    return belief_planner(task, splits.load(split).train, "belief-planner-train")


def posterior(memory: _Memory) -> np.ndarray:
    """The planner's belief, `[B, rules]`: probabilities of the rules given all it has observed."""
    return np.exp(memory.log_belief)


def _act(
    task: Task,
    candidates: tuple[int, ...],
    memory: _Memory,
    obs: np.ndarray,
    stream: seeding.Stream,
) -> tuple[_Memory, np.ndarray]:
    cells, t = task.layout.cells(obs), beam.read_time(obs, task)
    tape = space.pack(cells)
    learned = _learn(memory.log_belief, memory.tape, memory.cell, tape, task.length)
    hazard = belief.expected_hazard(task)
    if hazard:
        possible = np.isfinite(belief.log_prior(candidates))
        learned = _shift(learned, possible, np.float32(hazard))
    log_belief = np.where((t > memory.t)[:, None], learned, memory.log_belief)
    # What may change at any time is never sure: a rule counts as known if it would be sure to stay.
    is_sure = log_belief.max(axis=1) > np.log(SURE * (1 - hazard))
    is_running = (tape[:, 0] != np.uint32(task.goal or 0)) & (t < task.horizon)

    memory = replace(memory, log_belief=log_belief)
    memory = _replan(task, memory, tape[:, 0], t, is_running & (is_sure | (t > 0)), stream)
    planned = memory.plan[np.arange(len(t)), t]
    action = np.where(planned >= 0, planned, flip_a_one(cells, stream))
    is_asking = is_running & (planned < 0) & ~is_sure
    if is_asking.any():
        tie = seeding.uniform(stream, task.length, lane=task.length)
        telling = _most_telling(log_belief, tape, tie, task)
        action = np.where(is_asking, telling, action)

    rule = np.where(memory.assumed >= 0, memory.assumed, 0)
    foreseen = task.family.step(tape, action, rule, task.space)[:, 0]
    return replace(memory, foreseen=foreseen, tape=tape, cell=action, t=t), action


def _replan(
    task: Task,
    memory: _Memory,
    tape: np.ndarray,
    t: np.ndarray,
    may_plan: np.ndarray,
    stream: seeding.Stream,
) -> _Memory:
    """Plan anew where there is no plan yet, or the tape is not what the plan foresaw."""
    goal = task.goal or 0
    is_new = t == 0
    plan = np.where(is_new[:, None], -1, memory.plan)
    assumed = np.where(is_new, -1, memory.assumed)
    likeliest = memory.log_belief.argmax(axis=1)
    is_surprised = (assumed < 0) | (memory.foreseen != tape)
    stale = np.flatnonzero(may_plan & is_surprised & (likeliest != assumed))
    for rule in np.unique(likeliest[stale]):
        rows = stale[likeliest[stale] == rule]
        left = (task.horizon - t[rows]).tolist()
        own = beam.of_rows(stream, rows)
        ways = beam.find_ways(tape[rows], left, int(rule), task.length, goal, own)
        assumed[rows], plan[rows] = rule, -1
        for row, way in zip(rows, ways, strict=True):
            if way is not None:
                plan[row, t[row] : t[row] + len(way)] = way
    return replace(memory, plan=plan, assumed=assumed)


@partial(jax.jit, static_argnames="length")
def _learn(log_belief: Any, before: Any, cell: Any, after: Any, length: int) -> jax.Array:
    """The belief after one transition."""
    return belief.update(log_belief, belief.mismatches(before, cell, after, length))


_shift = jax.jit(belief.shift)


@partial(jax.jit, static_argnames="task")
def _most_telling(log_belief: Any, tape: Any, tie: Any, task: Task) -> jax.Array:
    """The flip with the greatest information gain, ties by the random numbers `tie[B, L]`."""
    every_cell = jnp.arange(task.length)
    flipped = space.flip(tape[:, None], jnp.broadcast_to(every_cell, tie.shape))
    neighbourhoods = belief.neighbourhoods(flipped, task.length)
    gains = belief.information_gains(jnp.exp(log_belief), neighbourhoods)
    return (gains + 1e-3 * tie).argmax(axis=-1)
