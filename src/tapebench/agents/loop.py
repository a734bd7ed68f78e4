"""The loop of agents that learn from replay: play for a while, then make the due updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Scalar, Shaped

PlayStep = Callable[[tuple[Any, Array], None], tuple[tuple[Any, Array], dict[str, Array]]]
"""One step of every environment: (state, observations) -> the same after it, and `step_metrics`."""

Update = Callable[[Array, Any, Any], tuple[Any, dict[str, Array]]]
"""Key, learner and replay -> the learner after one update, and scalars to watch."""


def replay_loop(
    state: Any,
    obs: Float32[Array, "E D"],
    play: PlayStep,
    update: Update,
    due: Callable[[Any], Array],
    *,
    plays: int,
    rounds: int,
) -> tuple[Any, dict[str, Shaped[Array, "rounds plays"]], dict[str, Scalar]]:
    """`rounds` times: `plays` steps of every environment, then `due(state)` updates.

    `state` is a dataclass with `learner`, `replay` and `key`. Returns the state after it, all
    `step_metrics`, and the mean of each scalar that updates report.
    """
    watched = jax.eval_shape(update, state.key, state.learner, state.replay)[1]

    def iterate(carry: tuple[Any, Array], _: None) -> Any:
        (state, obs), outcomes = jax.lax.scan(play, carry, length=plays)
        key, update_key = jax.random.split(state.key)

        def learn(number: Any, carry: Any) -> Any:
            learner, sums = carry
            now = jax.random.fold_in(update_key, number)
            learner, scalars = update(now, learner, state.replay)
            return learner, jax.tree.map(jnp.add, sums, scalars)

        # A count that is zero at first is a loop that is not entered. A branch would copy all
        # parameters.
        count = due(state)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), watched)
        learner, sums = jax.lax.fori_loop(0, count, learn, (state.learner, zeros))
        return (replace(state, learner=learner, key=key), obs), (outcomes, sums, count)

    (state, _), (outcomes, sums, counts) = jax.lax.scan(iterate, (state, obs), length=rounds)
    updates = jnp.maximum(counts.sum(), 1)
    means = {name: total.sum() / updates for name, total in sums.items()}
    return state, outcomes, means


def step_metrics(
    reward: Float32[Array, " E"], terminated: Bool[Array, " E"], truncated: Bool[Array, " E"]
) -> dict[str, Scalar]:
    """What a step of several environments adds to the metrics of a chunk."""
    return {
        "episodes": (terminated | truncated).sum(),
        "successes": terminated.sum(),
        "reward": reward.sum(),
    }


METRICS = {
    "episodes": "Episodes that ended in the chunk.",
    "successes": "Those of them that ended at the goal.",
    "reward": "Mean reward of an environment step, with the bonus of success.",
}
"""What `totals` reports."""


def totals(outcomes: Mapping[str, Shaped[Array, "*T"]], chunk: int) -> dict[str, Scalar]:
    """Metrics of a chunk from its `step_metrics`: sums, but the mean of the reward."""
    metrics = {name: values.sum() for name, values in outcomes.items()}
    metrics["reward"] = metrics["reward"] / chunk
    return metrics
