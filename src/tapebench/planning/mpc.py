"""Random-shooting MPC with the true rule: the paper's budgeted planning reference.

At every step `candidates` random sequences of `plan` flips are rolled out with the true rule and
the first flip of the best one is made. What *best* means the paper leaves open, and success hangs
on it, so there are three objectives, and every number names its own:

- `final`: least distance at the end of the sequence;
- `sum`: least distance summed over it;
- `min`: least distance anywhere on it.

Under each of them a sequence that reaches the goal beats all that do not, a sooner one a later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import rollout
from tapebench.physics import space
from tapebench.tasks.task import Task

OBJECTIVES = ("final", "sum", "min")
PLAN, CANDIDATES = 8, 512
"""The paper's budget."""

_CHUNK = 64
"""Episodes planned for at a time: their candidates then fit into the second-level cache."""


@cache
def mpc(
    task: Task, objective: str = "min", plan: int = PLAN, candidates: int = CANDIDATES
) -> Policy:
    """The planner as a policy. It sees the rule, and plans on the tape it observes."""
    one_of("objective", objective, OBJECTIVES)
    for name, value in (("planning horizon", plan), ("number of candidates", candidates)):
        if value < 1:
            raise ValueError(f"the {name} must be at least 1, not {value}")
    if task.goal is None:
        raise ValueError("this planner needs a fixed goal")
    act = partial(_act, task, objective, plan, candidates)
    return Policy(f"mpc-{objective}", lambda rule, num: rule, act)


def _act(
    task: Task,
    objective: str,
    plan: int,
    candidates: int,
    memory: Any,
    obs: Any,
    stream: Any,
) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    family, length = task.family, task.length
    target = space.to_words(task.goal or 0, length)
    identity = seeding.draw(stream, np.zeros(1, np.uint32))[..., 0]
    numbers = np.arange(candidates, dtype=np.uint32)

    def choose(episode: tuple[Any, Any, Any]) -> Any:
        tape, rule, identity = episode
        law = family.compile(jnp.broadcast_to(rule, (candidates,)))
        # A counter hash: sampling by key would take longer than all the planning.
        shots = seeding.Stream(jnp.broadcast_to(identity, (candidates,)), jnp.asarray(numbers))

        def shoot(carry: Any, depth: Any) -> Any:
            tape, score, is_there = carry
            cell = seeding.below(np.uint32(length), seeding.draw(shots, depth[None])[:, 0])
            tape = family.update(space.flip(tape, cell), law, task.space)
            wrong = space.hamming(tape, target)
            better = {
                "final": wrong,
                "sum": score + wrong,
                "min": jnp.minimum(score, wrong),
            }[objective]
            # Arriving is worth more than any distance, and more the sooner it happens.
            arrived = depth.astype(jnp.int32) - plan - 1
            score = jnp.where(is_there, score, jnp.where(wrong == 0, arrived, better))
            return (tape, score, is_there | (wrong == 0)), cell

        worst = {"final": 0, "sum": 0, "min": length}[objective]
        start = (
            jnp.broadcast_to(tape, (candidates, *tape.shape)),
            jnp.full(candidates, worst, jnp.int32),
            jnp.zeros(candidates, bool),
        )
        (_, score, _), cells = jax.lax.scan(shoot, start, np.arange(plan, dtype=np.uint32))
        return cells[0, score.argmin()]

    tape = space.pack(task.layout.cells(obs))
    action = jax.lax.map(choose, (tape, memory, identity), batch_size=min(_CHUNK, len(obs)))
    return memory, action.astype(jnp.int32)


SWEEP_PLANS = (1, 2, 4, 8, 16)
SWEEP_CANDIDATES = (32, 128, 512, 2048)


def sweep(task: Task, episodes: int) -> Iterator[dict[str, Any]]:
    """Success over planning horizon × candidates × objective: how much hangs on the budget."""
    for objective, plan, candidates in product(OBJECTIVES, SWEEP_PLANS, SWEEP_CANDIDATES):
        run = rollout(mpc(task, objective, plan, candidates), task, episodes=episodes)
        yield {
            "objective": objective,
            "plan": plan,
            "candidates": candidates,
            "success": float(run.success.mean()),
            "final_distance": float(run.final_distance.mean()),
        }
