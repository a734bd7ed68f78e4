"""PQN: Q-learning in parallel environments, without replay and without a target network
(Gallici et al. 2024).

    y_t = r_t + γ (1 − end_t) ((1 − λ) max_a Q(s_{t+1}, a) + λ y_{t+1})    L = mean (Q(s, a) − y)²

y are the λ-returns of a round, by the network that played it; a round is learned from and thrown
away, as in `rounds`. What stands for the target network is normalisation: a LayerNorm behind each
hidden layer. An episode ends by success or at the horizon; t/H is observed, so the horizon is a
true end and nothing is bootstrapped over it.

Deviations from Gallici et al.:

1. Adam instead of RAdam, at a rate that falls on a straight line to a share that it keeps;
2. the network is a dueling one, as in `dqn` (`dueling=False` undoes it).

The same with a memory of the episode is `rpqn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float32, Integer, Scalar

from tapebench import env as envs
from tapebench.agents import dqn, nn, returns, rounds
from tapebench.agents.api import Agent, Env, check_counts, check_shares, observation_size
from tapebench.agents.context import inform
from tapebench.agents.rounds import Algorithm, Played, Segment
from tapebench.base.names import one_of
from tapebench.stats import CONTEXTS


@dataclass(frozen=True, kw_only=True)
class Options(rounds.Options):
    """What PQN with and without a memory may set; `Config` adds what the latter has alone."""

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
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 1.0),
        "trace": (0.0, 0.5, 0.9),
        "epsilon_end": (0.02, 0.05, 0.2),
        "epochs": (2, 4),
        "minibatches": (4, 8),
    }
    """Values to search when tuning, see `tools/tune.py`."""
    LATER: ClassVar[Mapping[str, Any]] = {}
    """See `rounds.Options`: here all options were there from the beginning."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **rounds.Options.METRICS,
        "epsilon": "Share of random actions.",
        "loss": "Mean squared difference of values and targets.",
        "value": "Mean value of the actions taken.",
    }
    """See `rounds.Options`."""

    layer_norm: bool = True
    """Whether hidden layers are normalised (Ba et al. 2016), in place of a target network."""
    channels: int = 32
    """Units of a hidden layer of `conv` in each cell."""
    discount: float = 1.0
    """Per-step discount γ. The horizon is a true end, since the observation carries t/H."""
    trace: float = 0.9
    """λ of the returns: 0 looks one step ahead, 1 as far as was played."""
    learning_rate: float = 1e-3
    """Of Adam, at the start."""
    gradient_norm: float = 10.0
    """Longer gradients are cut to this length."""
    epsilon_start: float = 1.0
    """Share of random actions at the start."""
    epsilon_end: float = 0.2
    """Share of random actions in the end."""
    epsilon_steps: int = 20_000
    """Environment steps from the one to the other, on a straight line."""
    epochs: int = 2
    """Times that every step of a round is learned from."""
    dueling: bool = True
    """Learn what a state is worth apart from how actions differ in it (Wang et al. 2016)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "epsilon_steps")
        check_shares(self, "epsilon_start", "epsilon_end")


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    context: str = "none"
    """What is given about the rule: `none`; `evidence`: the entries of its table that the episode
    has shown; `rule`: all of them, which is privileged. See `tapebench.agents.context`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("context", self.context, CONTEXTS)


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build PQN for this environment."""

    def build(env: Env, params: envs.EnvParams) -> Agent:
        algorithm = _algorithm(config, env, observation_size(env, params))
        return rounds.build(config, env, params, algorithm)

    return inform(config.context, env, params, build)


def targets(
    config: Options,
    reward: Float32[Array, "T E"],
    ended: Float32[Array, "T E"],
    best: Float32[Array, "T E"],
    following: Float32[Array, " E"],
) -> Float32[Array, "T E"]:
    """λ-returns; `best` is the largest action value of each row, `following` that of what follows
    the last one."""
    goes_on = config.discount * (1.0 - ended)
    return returns.lambda_returns(reward, best, goes_on, following, config.trace)


def loss(
    values: Float32[Array, "T B A"], action: Integer[Array, "T B"], target: Float32[Array, "T B"]
) -> tuple[Float32[Array, ""], dict[str, Scalar]]:
    """The squared error of the values of the actions that were taken."""
    taken = jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
    squared = jnp.square(taken - target).mean()
    return squared, {"loss": squared, "value": taken.mean()}


def learning(config: Options) -> dict[str, Any]:
    """The parts of the algorithm that do not depend on the model: how it plays, aims and learns."""

    def choose(key: Array, says: tuple[Array], steps: Array) -> tuple[Array, Array]:
        (values,) = says
        return dqn.explore(key, values, dqn.epsilon(config, steps)), values.max(axis=-1)

    def aim(played: Played) -> Array:
        (following,) = played.following
        ended = played.ended.astype(jnp.float32)
        return targets(config, played.reward, ended, played.kept, following.max(axis=-1))

    def batch_loss(says: tuple[Array], batch: Segment) -> Any:
        return loss(*says, batch.action, batch.targets)

    return {
        "choose": choose,
        "aim": aim,
        "loss": batch_loss,
        "scalars": lambda steps: {"epsilon": dqn.epsilon(config, steps)},
    }


@cache
def _algorithm(config: Config, env: Env, size: int) -> Algorithm:
    def see(network: nn.Network, memory: tuple[()], obs: Array) -> tuple[tuple[()], Any]:
        return memory, (network(obs),)

    def note(memory: tuple[()], action: Array) -> tuple[()]:
        return memory

    return Algorithm(
        name="pqn",
        init=lambda key: dqn.make_network(key, config.network, config, env, size),
        begin=lambda num: (),
        see=see,
        note=note,
        unroll=lambda network, memory, obs, action: (network(obs),),
        act=rounds.greedy_act(see, note),
        is_recurrent=False,
        **learning(config),
    )
