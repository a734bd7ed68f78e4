"""DRQN: double DQN with a memory of the episode (Hausknecht and Stone 2015).

    y_t = r_{t+1} + … + γⁿ⁻¹ r_{t+n} + γⁿ (1 − end) Q⁻(h_{t+n}, argmax_a Q(h_{t+n}, a))

h_t is what is remembered of the episode up to its observation at t, see `memory`: `entries` and
`cells`, which commute with shifts, or `gru`. Learned from are pieces of replay that begin with an
episode, so h is worked out from its true beginning by the networks of today: nothing stored is
stale, and nothing has to be burnt in. A piece has as many steps as the horizon; where its first
episode ends by success, the next ones fill it.

Deviations from Hausknecht and Stone:

1. a GRU of what the last step says, beside the body instead of on top of it, see `memory`;
2. pieces from the start of an episode instead of from anywhere in it, and all of their steps are
   learned from; an episode is drawn as often as it has steps;
3. what makes our DQN differ from theirs (`dqn`): double targets, n steps ahead, a dueling network,
   Adam at a falling rate, parallel environments, and the horizon as an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float32

from tapebench import env as envs
from tapebench.agents import dqn, memory, replay, rounds
from tapebench.agents.api import Agent, Env, check_counts, gradient_step, observation_size
from tapebench.agents.dqn import Learner
from tapebench.agents.replay import Episodes, Replay


@dataclass(frozen=True, kw_only=True)
class Config(dqn.Options):
    SMALL: ClassVar[Mapping[str, Any]] = {
        **dqn.Options.SMALL,
        "channels": 8,
        "batch": 8,
        "memory_size": 8,
        "encoder_width": 8,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **dqn.Options.SEARCH,
        "batch": (32, 64),
        "memory_size": (32, 64),
    }
    """Values to search when tuning, see `tools/tune.py`."""
    LATER: ClassVar[Mapping[str, Any]] = {}
    """See `dqn.Options`: here all options were there from the beginning."""

    network: str = "entries"
    """`entries` and `cells`: made for rules, commute with shifts; `gru`: fully connected. See
    `memory`."""
    memory_size: int = 32
    """Numbers of h; with `entries` an eighth of it for each entry of the rule's table."""
    encoder_width: int = 32
    """Entries of what the last step says to `gru`, or half of them for `cells`."""
    batch: int = 64
    """Pieces in an update, each as long as the horizon."""

    networks: ClassVar[tuple[str, ...]] = tuple(memory.BODIES)
    """What `network` may be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "memory_size", "encoder_width")


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build DRQN for this environment."""
    size, horizon = observation_size(env, params), int(params.horizon)
    return dqn.build(config, env, params, _algorithm(config, env, size, horizon))


def targets(
    config: Config,
    reward: Float32[Array, "T B"],
    ended: Bool[Array, "T B"],
    is_known: Bool[Array, "T B"],
    ahead: Float32[Array, "T+1 B"],
) -> Float32[Array, "T B"]:
    """Returns over `n_step` steps, or fewer up to the first that is not known; `ahead` is what is
    expected from each observation on."""
    target = ahead
    for _ in range(config.n_step):
        later = reward + config.discount * jnp.where(ended, 0.0, target[1:])
        target = ahead.at[:-1].set(jnp.where(is_known, later, ahead[:-1]))
    return target[:-1]


def td_loss(
    config: Config, model: memory.Model, target: memory.Model, start: Any, batch: Episodes
) -> Float32[Array, ""]:
    """The Huber loss of the temporal-difference errors of the steps that are known."""
    values, _ = model.run(start, batch.obs, batch.action)
    judge, _ = target.run(start, batch.obs, batch.action)
    best = (values if config.double else judge).argmax(axis=-1)
    ahead = jnp.take_along_axis(judge, best[..., None], axis=-1)[..., 0]
    y = targets(config, batch.reward, batch.ended, batch.is_known, ahead)
    taken = jnp.take_along_axis(values[:-1], batch.action[..., None], axis=-1)[..., 0]
    error = optax.huber_loss(taken, jax.lax.stop_gradient(y))
    return jnp.where(batch.is_known, error, 0.0).sum() / jnp.maximum(batch.is_known.sum(), 1)


@cache
def _algorithm(config: Config, env: Env, size: int, horizon: int) -> dqn.Algorithm:
    def start(num: int) -> memory.Memory:
        return memory.begin(num, size, memory.hidden_size(config, env))

    def init(key: Array) -> Learner:
        model = memory.make(key, config, env, size, dqn.make_network)
        return Learner(
            network=model,
            target=jax.tree.map(jnp.copy, model),
            extra=(),
            slow=(),
            optimiser=dqn.optimiser(config, 0).init(model),
            updates=jnp.int32(0),
        )

    def values(
        key: Array, learner: Learner, stored: Replay, before: memory.Memory, obs: Array
    ) -> tuple[memory.Memory, Array]:
        return memory.see(learner.network, before, obs)

    def update(key: Array, learner: Learner, stored: Replay) -> tuple[Learner, dict[str, Array]]:
        batch = replay.draw_episodes(key, stored, config.batch, horizon)

        def loss(model: memory.Model) -> tuple[Array, dict[str, Array]]:
            parts = {"loss": td_loss(config, model, learner.target, start(config.batch), batch)}
            return parts["loss"], parts

        updates = learner.updates + 1
        model, optimiser_state, parts = gradient_step(
            dqn.optimiser(config, updates), loss, learner.network, learner.optimiser
        )
        return Learner(
            network=model,
            target=optax.periodic_update(model, learner.target, updates, config.target_every),
            extra=(),
            slow=(),
            optimiser=optimiser_state,
            updates=updates,
        ), parts

    def begin(learner: Learner, num: int) -> tuple[memory.Model, memory.Memory]:
        return learner.network, start(num)

    def lasting(model: memory.Model, before: memory.Memory, obs: Array) -> Any:
        after, says = memory.see(model, before, obs, reset=False)
        return after, (says,)

    return dqn.Algorithm(
        "drqn",
        init,
        values,
        update,
        begin,
        act=rounds.greedy_act(lasting, memory.note),
        note=rounds.noted(memory.note),
        recall=memory.recall,
        start=start,
        mark=memory.note,
    )
