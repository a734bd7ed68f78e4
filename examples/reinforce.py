"""An agent of one's own in one file, trained, resumed and reported like those of the package:

    tape train examples.reinforce --steps 20480

REINFORCE (Williams, 1992): after whole episodes, a step up the gradient of

    mean over steps of (return - mean return at that time) · log π(action | observation)

with a perceptron of one hidden layer. All that `tape train` asks of the module is a frozen
dataclass `Config` and `make(config, env, params) -> Agent`; see `tapebench.agents.api`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from tapebench import env as envs
from tapebench.agents.api import Agent, gradient_step, observation_size, snapshot
from tapebench.exam.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Config:
    width: int = 64
    """Units of the hidden layer."""
    learning_rate: float = 3e-3
    """Adam's step size."""
    num_envs: int = 64
    """Environments that play side by side."""
    chunk: int = 2048
    """Environment steps between two reports, a multiple of num_envs."""

    def __post_init__(self) -> None:
        if self.chunk % self.num_envs:
            raise ValueError(f"chunk must be a multiple of num_envs, {self.num_envs}")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    network: dict[str, Array]
    optimiser: Any
    env: Any
    key: Array
    steps: Array


def logits(network: dict[str, Array], obs: Array) -> Array:
    """Preferences for each cell, `[..., D]` -> `[..., A]`."""
    hidden = jax.nn.relu(obs @ network["hidden"] + network["bias"])
    return hidden @ network["head"]


def begin(network: dict[str, Array], num: int) -> dict[str, Array]:
    """The memory of so many episodes that begin: nothing but the network."""
    return network


def act(memory: dict[str, Array], obs: Array, stream: Array) -> tuple[dict[str, Array], Array]:
    """The cells that are preferred most, `[B, D]` -> `[B]`."""
    return memory, logits(memory, obs).argmax(axis=-1)


def policy(state: State) -> Policy:
    """The greedy policy of what was learned."""
    return snapshot("examples.reinforce", state.network, begin, act)


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """REINFORCE for this environment."""
    return Agent(
        name="examples.reinforce",
        chunk=config.chunk,
        init=partial(init, config, env, params),
        train=partial(train, config, env, params),
        policy=policy,
    )


@partial(jax.jit, static_argnums=(0, 1))
def init(config: Config, env: envs.TapeEnv, params: envs.EnvParams, key: Array) -> State:
    """A network drawn at random, and environments that begin."""
    hidden_key, head_key, env_key, key = jax.random.split(key, 4)
    inputs, scaled = observation_size(env, params), jax.nn.initializers.he_normal()
    network = {
        "hidden": scaled(hidden_key, (inputs, config.width)),
        "bias": jnp.zeros(config.width),
        "head": 0.01 * scaled(head_key, (config.width, env.length)),
    }
    keys = jax.random.split(env_key, config.num_envs)
    _, running = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    optimiser = optax.adam(config.learning_rate).init(network)
    return State(network, optimiser, running, key, jnp.int32(0))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def train(
    config: Config, env: envs.TapeEnv, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """Play for a chunk, then one step up the gradient."""
    key, play_key = jax.random.split(state.key)
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))

    def move(carry: Any, key: Array) -> Any:
        running, obs = carry
        cell = jax.random.categorical(key, logits(state.network, obs))
        after, running, reward, terminated, truncated, _ = step(None, running, cell, params)
        return (running, after), (obs, cell, reward, terminated, terminated | truncated)

    start = state.env, jax.vmap(env.observe, in_axes=(0, None))(state.env, params)
    keys = jax.random.split(play_key, config.chunk // config.num_envs)
    (running, _), (obs, cell, reward, success, ended) = jax.lax.scan(move, start, keys)

    def add(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        total = row[0] + jnp.where(row[1], 0.0, following)
        return total, total

    _, total = jax.lax.scan(add, jnp.zeros(config.num_envs), (reward, ended), reverse=True)
    advantage = total - total.mean(axis=1, keepdims=True)

    def loss(network: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        chosen = jax.nn.log_softmax(logits(network, obs))
        log_prob = jnp.take_along_axis(chosen, cell[..., None], axis=-1)[..., 0]
        value = -(advantage * log_prob).mean()
        return value, {"loss": value}

    network, optimiser, parts = gradient_step(
        optax.adam(config.learning_rate), loss, state.network, state.optimiser
    )
    watched = {"episodes": ended.sum(), "successes": success.sum(), "reward": reward.mean()}
    state = State(network, optimiser, running, key, state.steps + config.chunk)
    return state, watched | parts
