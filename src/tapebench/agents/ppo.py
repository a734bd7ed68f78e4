"""PPO: proximal policy optimisation with the clipped objective (Schulman et al. 2017).

    ρ = π(a | s) / π_old(a | s)
    L = −mean min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) + c_v mean (V(s) − y)² / 2 − c_e mean H(π(· | s))

A are the advantages of `returns`, normalised over the steps that were played, y = A + V_old(s).
An episode ends by success or at the horizon; t/H is observed, so the horizon is a true end and
nothing is bootstrapped over it.

Deviations from Schulman et al.:

1. advantages are normalised over all steps of a round, not minibatch by minibatch, so that the
   objective does not depend on how the steps are shuffled;
2. the learning rate falls on a straight line, by environment steps, to a share that it keeps;
   gradients are clipped by their norm;
3. the policy starts close to uniform: the weights of its last layer are a hundredth of the usual.

The loop of play and learning is that of `rounds`. PPO + DR is this in an environment that varies
(`ppo_dr`); recurrent PPO has the same loss and a model of its own (`rppo`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float32, Int32, Integer, PRNGKeyArray, Scalar

from tapebench import env as envs
from tapebench.agents import nn, returns, rounds
from tapebench.agents.api import (
    Agent,
    Env,
    check_not_negative,
    check_positive,
    observation_size,
)
from tapebench.agents.context import inform, network_inputs
from tapebench.agents.rounds import Algorithm, Played, Segment
from tapebench.base.names import one_of
from tapebench.stats import CONTEXTS


@dataclass(frozen=True, kw_only=True)
class Options(rounds.Options):
    """What every agent with this loss may set; `Config` adds what plain PPO has alone."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        "width": 16,
        "channels": 8,
        "depth": 1,
        "num_envs": 8,
        "rollout": 5,
        "epochs": 2,
        "minibatches": 2,
        "chunk": 80,
        "total_steps": 160,
        "final_rate": 0.5,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "channels": (32, 64),
        "depth": (2, 3),
        "layer_norm": (False, True),
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 1.0),
        "trace": (0.5, 0.8, 0.95),
        "entropy_weight": (0.003, 0.01, 0.03),
        "value_weight": (0.1, 0.5),
        "epochs": (4, 10),
        "minibatches": (4, 8),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **rounds.Options.METRICS,
        "policy_loss": "The clipped surrogate, with its sign turned.",
        "value_loss": "Half the mean squared difference of values and targets.",
        "entropy": "Of the policy, in nats.",
        "kl": "Estimated divergence of the policy from the one that played, in nats.",
        "clipped": "Share of steps whose probability ratio has left the clipped range.",
    }
    """See `rounds.Options`."""

    clip: float = 0.2
    """ε: how far the probability of an action may move before it pays no more."""
    entropy_weight: float = 0.003
    """c_e, the weight of the entropy of the policy."""
    value_weight: float = 0.5
    """c_v, the weight of the error of the values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")
        check_not_negative(self, "entropy_weight", "value_weight")


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    LATER: ClassVar[Mapping[str, Any]] = {**Options.LATER, "context": "none"}
    """See `Options`."""

    context: str = "none"
    """What is given about the rule: `none`; `evidence`: the entries of its table that the episode
    has shown; `rule`: all of them, which is privileged. See `tapebench.agents.context`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("context", self.context, CONTEXTS)


class ActorCritic(eqx.Module):
    """A network for the policy, and a value on top of its features.

    With `conv` the logits are shifted with the tape and the value, taken from the mean over all
    cells, stays.
    """

    network: nn.Network
    value: eqx.nn.Linear

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> tuple[Float32[Array, "*B A"], Float32[Array, "*B"]]:
        """Logits and values."""
        features = self.network.features(obs, latent)
        return self.network(obs, latent), nn.linear(self.value, features)[..., 0]


class Targets(NamedTuple):
    """What the loss compares with."""

    log_prob: Float32[Array, "T B"]
    """Of the action, by the policy that took it."""
    advantage: Float32[Array, "T B"]
    """Normalised."""
    value: Float32[Array, "T B"]
    """What it should be."""


def log_prob(logits: Float32[Array, "*B A"], action: Integer[Array, "*B"]) -> Float32[Array, "*B"]:
    """The log-probability of actions."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def policy_entropy(logits: Float32[Array, "*B A"]) -> Float32[Array, "*B"]:
    """Of each policy, in nats."""
    return -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(axis=-1)


def sample(key: PRNGKeyArray, logits: Float32[Array, "B A"]) -> Int32[Array, " B"]:
    """An action of each policy.

    By one uniform number each: a Gumbel number for every action takes as long as all of play.
    """
    below = jnp.cumsum(jax.nn.softmax(logits), axis=-1)
    number = jax.random.uniform(key, (len(logits), 1))
    # Rounded, the last of them may stay below one.
    return jnp.minimum((below <= number).sum(axis=-1), logits.shape[-1] - 1)


def clipped(
    ratio: Float32[Array, "*B"], advantage: Float32[Array, "*B"], clip: float
) -> Float32[Array, "*B"]:
    """PPO's clipped surrogate objective, to be maximised."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def loss(
    config: Options,
    logits: Float32[Array, "T B A"],
    value: Float32[Array, "T B"],
    action: Integer[Array, "T B"],
    targets: Targets,
) -> tuple[Float32[Array, ""], dict[str, Scalar]]:
    """The clipped loss of PPO with those of value and entropy, and its parts."""
    change = log_prob(logits, action) - targets.log_prob
    ratio = jnp.exp(change)
    parts = {
        "policy_loss": -clipped(ratio, targets.advantage, config.clip).mean(),
        "value_loss": 0.5 * jnp.square(value - targets.value).mean(),
        "entropy": policy_entropy(logits).mean(),
    }
    total = (
        parts["policy_loss"]
        + config.value_weight * parts["value_loss"]
        - config.entropy_weight * parts["entropy"]
    )
    # The estimator of the divergence from the old policy that is never negative.
    parts["kl"] = (ratio - 1.0 - change).mean()
    parts["clipped"] = (jnp.abs(ratio - 1.0) > config.clip).mean()
    return total, parts


def normalise(advantage: Float32[Array, "*B"]) -> Float32[Array, "*B"]:
    """Scale to mean 0 and standard deviation 1; constant values become zeros."""
    centred = advantage - advantage.mean()
    return centred / (centred.std() + 1e-8)


def make_model(
    key: PRNGKeyArray,
    kind: str,
    config: Options,
    env: Env,
    size: int,
    **inputs: Any,
) -> ActorCritic:
    """Policy and value by a network of this kind; `inputs` as in `dqn.make_network`."""
    network_key, value_key = jax.random.split(key)
    network = nn.make(
        network_key,
        kind,
        space=env.space,
        num_actions=env.num_actions,
        width=config.width,
        channels=config.channels,
        depth=config.depth,
        kernel=config.kernel,
        layer_norm=config.layer_norm,
        **{"observation_size": size, **network_inputs(env), **inputs},
    )
    network = eqx.tree_at(lambda net: net.head, network, replace_fn=nn.fade)
    (value,) = nn.layers(value_key, (int(network.head.in_features), 1))
    return ActorCritic(network, value)


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build PPO for this environment."""
    return inform(config.context, env, params, partial(make_variant, config))


def make_variant(config: Options, env: Env, params: envs.EnvParams, *, name: str = "ppo") -> Agent:
    """Build PPO, or the same in another environment, under this name."""
    size = observation_size(env, params)
    return rounds.build(config, env, params, _algorithm(name, config, env, size))


@cache
def _algorithm(name: str, config: Options, env: Env, size: int) -> Algorithm:
    def init(key: Array) -> ActorCritic:
        return make_model(key, config.network, config, env, size)

    def see(model: ActorCritic, memory: tuple[()], obs: Array) -> tuple[tuple[()], Any]:
        return memory, model(obs)

    def unroll(model: ActorCritic, memory: tuple[()], obs: Array, action: Array) -> Any:
        return model(obs)

    return Algorithm(
        name=name,
        init=init,
        begin=lambda num: (),
        see=see,
        note=lambda memory, action: memory,
        unroll=unroll,
        act=rounds.greedy_act(see, lambda memory, action: memory),
        is_recurrent=False,
        **learning(config),
    )


def learning(config: Options) -> dict[str, Any]:
    """How PPO plays and learns: the fields of an `Algorithm` that do not depend on its model."""

    def choose(key: Array, says: tuple[Array, Array], steps: Array) -> Any:
        logits, value = says
        action = sample(key, logits)
        return action, (log_prob(logits, action), value)

    def aim(played: Played) -> Targets:
        log_probs, value = played.kept
        _, following = played.following
        advantage = returns.advantages(
            played.reward, value, played.ended, following, config.discount, config.trace
        )
        return Targets(log_probs, normalise(advantage), advantage + value)

    def batch_loss(says: tuple[Array, Array], batch: Segment) -> Any:
        return loss(config, *says, batch.action, batch.targets)

    return {"choose": choose, "aim": aim, "loss": batch_loss}
