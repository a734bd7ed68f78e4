"""Policies: what chooses cells, for the one evaluator that everything goes through.

A policy is two functions on batches. `init(rule, num)` gives the memory of `num` episodes, whose
rules are `rule[num]`; `act(memory, obs, stream)` gives the memory after and one cell per episode.
What is privileged enters by `init` alone: `blind` shuts that door, and a policy that did not
pass through it says `sees_rule`.

Randomness is per row: `stream` is a `seeding.Stream` with one element for each episode, and
`seeding.uniform` and `seeding.draw` make numbers of it, in NumPy and in JAX. So what happens in a
row depends on nobody who sits beside it, nor on where it sits.

`act` must be a function that stays the same from call to call (parameters belong into the
memory), since the evaluator compiles it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.names import one_of
from tapebench.base.shapes import Integer, Real
from tapebench.physics import space
from tapebench.tasks.layout import Layout
from tapebench.tasks.task import Task


@dataclass(frozen=True)
class Policy:
    """How to start and how to act. See the module for the contract."""

    name: str
    init: Callable[[Any, int], Any]
    act: Callable[[Any, Any, Any], tuple[Any, Any]]
    backend: str = "jax"
    """`"jax"`: pure and traceable. `"numpy"`: called step by step with NumPy arrays."""
    sees_rule: bool = True
    belief: Callable[[Any], Any] | None = None
    """Optional: the posterior over all rules that a memory holds, `[B, rules]`, to be measured."""
    recall: Callable[[Any], Any] | None = None
    """Optional: numbers `[B, F]` in which a memory holds what it has seen, to be measured. Like
    `act` it must stay the same function."""
    note: Callable[[Any, Any], Any] | None = None
    """Optional: the memory that `act` just gave, had it chosen these cells `[B]`. With it a policy
    can be told of flips that are not its own; like `act` it must stay the same function."""

    def __post_init__(self) -> None:
        if self.backend not in ("jax", "numpy"):
            raise ValueError(f"unknown backend {self.backend!r}: use jax or numpy")


def blind(policy: Policy) -> Policy:
    """The same policy without the rule: its `init` is given None instead."""

    def init(rule: Any, num: int) -> Any:
        return policy.init(None, num)

    return replace(policy, init=init, sees_rule=False)


def guided(policy: Policy, guide: Policy, steps: int, task: Task) -> Policy:
    """`policy`, with the first `steps` flips of every episode made by `guide`.

    Both see every tape, and both remember the flips that were made instead of those that they
    would have made: from then on `policy` acts on the context that the guide has brought about.
    How many steps is a part of the memory, so other numbers compile nothing.
    """
    for player in (policy, guide):
        if player.note is None or player.backend != "jax":
            raise ValueError(f"{player.name} cannot be told of flips that are not its own")
    if not 0 <= steps <= task.horizon:
        raise ValueError(f"a guide makes from 0 to {task.horizon} flips, not {steps}")

    def init(rule: Any, num: int) -> Any:
        until = np.float32((steps - 0.5) / task.horizon)
        return policy.init(rule, num), guide.init(rule, num), until

    return Policy(
        name=f"{policy.name} after {steps} flips by {guide.name}",
        init=init,
        act=_guided_actor(policy.act, policy.note, guide.act, guide.note, task.length),
        sees_rule=policy.sees_rule or guide.sees_rule,
    )


@cache
def _guided_actor(act: Any, note: Any, guide_act: Any, guide_note: Any, length: int) -> Any:
    """The one `act` of these two together, so that the evaluator compiles it once."""

    def act_both(memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
        import jax.numpy as jnp

        own, other, until = memory
        own, own_cell = act(own, obs, seeding.fork(stream, 0))
        other, guide_cell = guide_act(other, obs, seeding.fork(stream, 1))
        cell = jnp.where(Layout(length).time(obs) < until, guide_cell, own_cell)
        return (note(own, cell), guide_note(other, cell), until), cell

    return act_both


def check_privilege(policy: Policy, task: Task) -> None:
    """Refuse a policy that is told one rule where the rule switches: it would plan with a lie."""
    if policy.sees_rule and task.schedule.switches:
        raise ValueError(f"{policy.name} is told one rule, and in this task the rule switches")


@cache
def random(task: Task) -> Policy:
    """A uniformly random cell."""
    act = partial(_act_random, task.length)
    return blind(Policy("random", _no_memory, act, note=_no_note))


@cache
def flip_ones(task: Task) -> Policy:
    """A random cell among those observed as one; any cell if there is none."""
    return blind(Policy("flip-ones", _no_memory, partial(_act_flip_ones, task.length)))


@cache
def greedy(task: Task) -> Policy:
    """The cell after whose flip the true rule leaves the fewest wrong cells; ties at random.

    Plans on what it observes, so hidden cells count as zeros.
    """
    if task.goal is None and not task.observe_goal:
        raise ValueError("greedy needs to know a random goal: set observe_goal=True")
    return Policy("greedy", lambda rule, num: rule, partial(_act_greedy, task))


NAMED = {
    "random": "tapebench.exam.policy:random",
    "flip-ones": "tapebench.exam.policy:flip_ones",
    "greedy": "tapebench.exam.policy:greedy",
    "mpc": "tapebench.planning.mpc:mpc",
    "beam": "tapebench.planning.beam:beam",
    "optimal": "tapebench.planning.beam:optimal",
    "bayes": "tapebench.planning.belief:bayes_filter",
    "bayes-train": "tapebench.planning.belief:bayes_filter_of_split",
    "belief-planner": "tapebench.planning.belief_planner:belief_planner",
    "belief-planner-train": "tapebench.planning.belief_planner:belief_planner_of_split",
    "bayes-optimal": "tapebench.planning.ideal:bayes_optimal",
    "bayes-optimal-train": "tapebench.planning.ideal:bayes_optimal_of_split",
    "memoryless": "tapebench.planning.ideal:memoryless_player",
}
"""Every policy that needs no training, by name, and where it is made of a task. An exam knows
planners by their names alone, and imports one when it is asked for. `mpc`, `beam` and `optimal` are
told the true rule."""

OF_SPLIT = ("bayes-train", "belief-planner-train", "bayes-optimal-train")
"""Those that think only the training rules of a split possible, and are made of that as well."""


OF_ELEMENTARY = ("bayes-optimal", "bayes-optimal-train", "memoryless")
"""Those that are computed of elementary rules alone: of 32 entries there are 3^32 states of
knowledge."""


def make(name: str, task: Task, split: Any = "fps30") -> Policy:
    """A policy by name; an unknown name suggests the nearest."""
    module, _, function = NAMED[one_of("policy", name, NAMED)].partition(":")
    if task.family.name != "elementary" and name in OF_ELEMENTARY:
        raise ValueError(
            f"{name} is computed of elementary rules alone: what is best without knowing "
            f"{task.family.name} rules lies between belief-planner and the exact ceiling"
        )
    factory = getattr(import_module(module), function)
    made: Policy = factory(task, split) if name in OF_SPLIT else factory(task)
    check_privilege(made, task)
    return made


def _no_memory(rule: Any, num: int) -> tuple[()]:
    return ()


def _no_note(memory: Any, cell: Any) -> Any:
    return memory


def flip_a_one(cells: Real[Any, "B L"], stream: seeding.Stream) -> Integer[Any, " B"]:
    """A random cell that is one in each row; any cell where there is none."""
    return (cells + seeding.uniform(stream, cells.shape[-1])).argmax(axis=-1)


def _act_random(length: int, memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
    word = seeding.draw(stream, np.zeros(1, np.uint32))[..., 0]
    return memory, seeding.below(np.uint32(length), word).astype(np.int32)


def _act_flip_ones(length: int, memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
    return memory, flip_a_one(Layout(length).cells(obs), stream)


def _act_greedy(task: Task, memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
    tape = space.pack(task.layout.cells(obs))[:, None]
    if task.goal is None:
        target = space.pack(task.layout.goal(obs))[:, None]
    else:
        target = space.to_words(task.goal, task.length)
    every_cell = np.arange(task.length, dtype=np.uint32)[None]
    after = task.family.step(tape, every_cell, memory[:, None], task.space)
    wrong = space.hamming(after, target).astype(np.float32)
    return memory, (wrong + seeding.uniform(stream, task.length)).argmin(axis=-1)
