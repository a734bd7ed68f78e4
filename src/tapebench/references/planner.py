"""`belief-planner`: find the rule out, then search with it. Blind, and near what is possible.

The posterior is that of `tapebench.references.belief`. The first flip is one that shows the most
of the rule; from then on the most probable rule is taken for the true one and
`tapebench.references.search` plans with it. A plan is kept while the tape does what it foresaw;
one surprise, and the posterior, which the surprise has changed, is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tapebench import dynamics
from tapebench.policy import Policy, blind
from tapebench.references import belief, search
from tapebench.task import Task


@dataclass
class _Memory:
    """What is believed and planned in B episodes. Belongs to one run of the exam."""

    log_belief: np.ndarray
    """`[B, 256]`."""
    plan: np.ndarray
    """int `[B, H]`: the cell to flip at each step; -1 where nothing is planned."""
    foreseen: np.ndarray
    """uint32 `[B]`: what the tape should be now if the plan's rule is the true one."""
    assumed: np.ndarray
    """int `[B]`: the rule the plan was made for; -1 for none."""
    tape: np.ndarray
    """uint32 `[B, W]`: the tape before the last flip."""
    cell: np.ndarray
    """int `[B]`: the last flip."""
    t: int


@cache
def belief_planner(
    task: Task,
    candidates: tuple[int, ...] = tuple(range(dynamics.NUM_RULES)),
    name: str = "belief-planner",
) -> Policy:
    """The policy. `candidates` are the rules it thinks possible, by default all of them."""
    search.check_plannable(task)
    if not candidates:
        raise ValueError("the candidate set is empty: give at least one rule")

    def init(rule: None, num: int) -> _Memory:
        prior = np.asarray(belief.log_prior(candidates))
        return _Memory(
            log_belief=np.tile(prior, (num, 1)),
            plan=np.full((num, task.horizon), -1),
            foreseen=np.zeros(num, np.uint32),
            assumed=np.full(num, -1),
            tape=np.zeros((num, 1), np.uint32),
            cell=np.zeros(num, int),
            t=0,
        )

    return blind(Policy(name, init, partial(_act, task), backend="numpy"))


def _act(
    task: Task, memory: _Memory, obs: np.ndarray, rng: np.random.Generator
) -> tuple[_Memory, np.ndarray]:
    cells = obs[:, : task.length]
    tape = dynamics.pack(cells)
    if memory.t == 0:
        action = np.asarray(_most_telling(memory.log_belief, tape, rng.random(cells.shape), task))
    else:
        last = memory.log_belief, memory.tape, memory.cell, tape
        memory.log_belief = np.asarray(_learn(*last, task.length))
        _replan(task, memory, tape[:, 0], rng)
        planned = memory.plan[:, memory.t]
        flip_ones = (cells + rng.random(cells.shape)).argmax(axis=1)
        action = np.where(planned >= 0, planned, flip_ones)
    rule = np.where(memory.assumed >= 0, memory.assumed, 0)
    memory.foreseen = dynamics.step(tape, action, rule, task.length)[:, 0]
    memory.tape, memory.cell, memory.t = tape, action, memory.t + 1
    return memory, action


def _replan(task: Task, memory: _Memory, tape: np.ndarray, rng: np.random.Generator) -> None:
    """Plan anew where there is no plan yet, or the tape is not what the plan foresaw."""
    goal = task.goal or 0
    likeliest = memory.log_belief.argmax(axis=1)
    is_surprised = (memory.assumed < 0) | (memory.foreseen != tape)
    is_running = tape != np.uint32(goal)
    stale = np.flatnonzero(is_surprised & is_running & (likeliest != memory.assumed))
    left = task.horizon - memory.t
    for rule in np.unique(likeliest[stale]):
        rows = stale[likeliest[stale] == rule]
        around = search.ball(int(rule), task.length, goal)
        ways = search.find_ways(tape[rows], [left] * len(rows), around, goal, rng)
        memory.assumed[rows] = rule
        memory.plan[rows] = -1
        for row, way in zip(rows, ways, strict=True):
            if way is not None:
                memory.plan[row, memory.t : memory.t + len(way)] = way


@partial(jax.jit, static_argnames="length")
def _learn(log_belief: Any, before: Any, cell: Any, after: Any, length: int) -> jax.Array:
    """The belief after one transition."""
    return belief.update(log_belief, belief.mismatches(before, cell, after, length))


@partial(jax.jit, static_argnames="task")
def _most_telling(log_belief: Any, tape: Any, tie: Any, task: Task) -> jax.Array:
    """The flip with the greatest information gain, ties by the random numbers `tie[B, L]`."""
    every_cell = jnp.arange(task.length)
    flipped = dynamics.flip(tape[:, None], jnp.broadcast_to(every_cell, tie.shape))
    found = belief.neighbourhoods(flipped, task.length)
    gains = belief.information_gains(jnp.exp(log_belief), found)
    return (gains + 1e-3 * tie).argmax(axis=-1)
