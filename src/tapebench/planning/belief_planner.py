"""`belief-planner`: find the rule out, then search with it. Blind, and near what is possible.

It is told no rule, and what is best for such a player is not known for the larger families: it lies
between what this one reaches and the exact ceiling.

The posterior is that of `tapebench.planning.belief`. While no rule is sure the first flip of an
episode is one that shows the most of it, and so is any later one for which nothing is planned.
After the first the most probable rule is taken for the true one and
`tapebench.planning.beam` plans with it. A plan is kept while the tape does what it foresaw;
one surprise, after which the updated posterior is planned with again.

The posterior outlives the episode: a row whose time is back at zero is in another trial with the
same rule, and plans at once if it is sure of it.

Where the rule switches the posterior allows for that, see `belief.shift`: the surprise then speaks
for the rules that explain it, and a plan is made with one of them.

Of several rules that are as probable the lowest is taken for true. Where all rules of a family are
candidates that is the one with zeros in all entries that have not been read: a plan through them
is an experiment, and what does not become zero is a surprise.
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
from tapebench.physics.space import Space
from tapebench.planning import beam, belief
from tapebench.tasks import splits
from tapebench.tasks.task import Task
from tapebench.tasks.universe import ELEMENTARY

SURE = 0.9
"""Probability from which a rule counts as known. Rules that no transition has told apart share
theirs equally, so anything above a half means that a single one is left."""


@dataclass(frozen=True)
class _Memory:
    """What is believed and planned in B rows."""

    belief: Any
    """As the planner's `belief.Model` holds it."""
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
    """The policy. `candidates` are the rules it thinks possible, by default all of the family."""
    beam.check_plannable(task)
    if candidates is not None and not candidates:
        raise ValueError("the candidate set is empty: give at least one rule")
    hazard = belief.expected_hazard(task)
    model, prior, possible = belief.believe(task, candidates, hazard)

    def init(rule: None, num: int) -> _Memory:
        return _Memory(
            belief=jax.tree.map(np.asarray, belief.tile(prior, num)),
            plan=np.full((num, task.horizon + 1), -1),
            assumed=np.full(num, -1),
            foreseen=np.zeros(num, np.uint32),
            tape=np.zeros((num, 1), np.uint32),
            cell=np.zeros(num, int),
            t=np.full(num, task.horizon),
        )

    act = partial(_act, task, model, possible)
    watch = posterior if task.family == ELEMENTARY.family else None
    return blind(Policy(name, init, act, backend="numpy", belief=watch))


def belief_planner_of_split(task: Task, split: str | Path | splits.Split) -> Policy:
    """`belief_planner` that thinks only the training rules of a split possible."""
    rules = belief.candidate_rules(task, "train", split)
    return belief_planner(task, rules, "belief-planner-train")


def posterior(memory: _Memory) -> np.ndarray:
    """The planner's belief, `[B, rules]`: probabilities of the rules given all it has observed."""
    return np.exp(memory.belief)


def _act(
    task: Task,
    model: belief.Model,
    possible: Any,
    memory: _Memory,
    obs: np.ndarray,
    stream: seeding.Stream,
) -> tuple[_Memory, np.ndarray]:
    cells, t = task.layout.cells(obs), beam.read_time(obs, task)
    tape = space.pack(cells)
    learned = _learn(model, memory.belief, memory.tape, memory.cell, tape, task.space)
    hazard = belief.expected_hazard(task)
    if hazard:
        learned = _shift(model, learned, possible, np.float32(hazard))
    now = belief.choose(t > memory.t, jax.tree.map(np.asarray, learned), memory.belief)
    likeliest, log_mass = map(np.asarray, model.likeliest(now))
    # What may change at any time is never sure: a rule counts as known if it would be sure to stay.
    is_sure = log_mass > np.log(SURE * (1 - hazard))
    is_running = (tape[:, 0] != np.uint32(task.goal or 0)) & (t < task.horizon)

    memory = replace(memory, belief=now)
    may_plan = is_running & (is_sure | (t > 0))
    memory = _replan(task, memory, likeliest.astype(int), tape[:, 0], t, may_plan, stream)
    planned = memory.plan[np.arange(len(t)), t]
    action = np.where(planned >= 0, planned, flip_a_one(cells, stream))
    is_asking = is_running & (planned < 0) & ~is_sure
    if is_asking.any():
        tie = seeding.uniform(stream, task.length, lane=task.length)
        telling = _most_telling(model, now, tape, tie, task)
        action = np.where(is_asking, telling, action)

    rule = np.where(memory.assumed >= 0, memory.assumed, 0)
    foreseen = task.family.step(tape, action, rule, task.space)[:, 0]
    return replace(memory, foreseen=foreseen, tape=tape, cell=action, t=t), action


def _replan(
    task: Task,
    memory: _Memory,
    likeliest: np.ndarray,
    tape: np.ndarray,
    t: np.ndarray,
    may_plan: np.ndarray,
    stream: seeding.Stream,
) -> _Memory:
    """Plan anew where there is no plan yet, or the tape is not what the plan foresaw."""
    is_new = t == 0
    plan = np.where(is_new[:, None], -1, memory.plan)
    assumed = np.where(is_new, -1, memory.assumed)
    is_surprised = (assumed < 0) | (memory.foreseen != tape)
    stale = np.flatnonzero(may_plan & is_surprised & (likeliest != assumed))
    left, own = (task.horizon - t[stale]).tolist(), beam.of_rows(stream, stale)
    ways = beam.find_own_ways(task, likeliest[stale], tape[stale], left, own)
    assumed[stale], plan[stale] = likeliest[stale], -1
    for row, way in zip(stale, ways, strict=True):
        if way is not None:
            plan[row, t[row] : t[row] + len(way)] = way
    return replace(memory, plan=plan, assumed=assumed)


@partial(jax.jit, static_argnames=("model", "size"))
def _learn(
    model: belief.Model, now: Any, before: Any, cell: Any, after: Any, size: Space
) -> jax.Array:
    """The belief after one transition."""
    places = belief.neighbourhoods(space.flip(before, cell), size, model.family)
    every_cell = space.full(size.size)
    learned: Any = model.learn(now, places, after, every_cell, 0.0, belief.FLOOR)
    return learned


@partial(jax.jit, static_argnames="model")
def _shift(model: Any, now: Any, possible: Any, hazard: Any) -> Any:
    return model.shift(now, possible, hazard)


@partial(jax.jit, static_argnames=("model", "task"))
def _most_telling(model: Any, now: Any, tape: Any, tie: Any, task: Task) -> jax.Array:
    """The flip with the greatest information gain, ties by the random numbers `tie[B, L]`."""
    every_cell = jnp.arange(task.length)
    flipped = space.flip(tape[:, None], jnp.broadcast_to(every_cell, tie.shape))
    places = belief.neighbourhoods(flipped, task.space, task.family)
    gains = model.gains(now, places, space.full(task.length))
    return (gains + 1e-3 * tie).argmax(axis=-1)
