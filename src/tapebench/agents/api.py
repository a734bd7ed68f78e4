"""What an agent is: three pure functions, and a state that is nothing but arrays.

Also what every agent's file needs and there is only one way to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float32, Num, PRNGKeyArray, Scalar, Shaped

from tapebench import env as envs
from tapebench.exam.policy import Policy, blind

Forecaster = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]
"""Observations `[T, B, D]`, the cells flipped after each `[T, B]`, whether a row is part of its
episode `[T, B]`, and a depth -> the probability that a cell is one, float32 `[depth, T, B, L]`.

Entry `[d - 1, t]` is about row t + d, given the rows up to t and the flips up to row t + d - 1.
"""


@dataclass(frozen=True)
class Agent:
    """How to begin, how to learn for a while, and how to act on what was learned.

    Nothing here knows seeds, files or progress: one run is `init` with its key, then `train`
    again and again. Two agents made of equal configs and environments share their compiled
    programs, whatever the rules they train on.
    """

    name: str
    chunk: int
    """Steps that one `train` takes: of environments, or labelled transitions of `data`."""
    init: Callable[[PRNGKeyArray], Any]
    """Key -> state: parameters, optimiser, replay, environments, keys and counters. Every leaf
    is an array; random keys are typed JAX keys, which `to_arrays` stores by their `key_data`."""
    train: Callable[[Any], tuple[Any, dict[str, Scalar]]]
    """State -> state after `chunk` more steps, and scalars to watch. One compiled program that
    works in place: the state given is used up."""
    policy: Callable[[Any], Policy]
    """State -> its greedy policy, blind to the rule. Holds a copy of the parameters in its
    memory, so that it outlives the state and `act` is the same function every time."""
    forecast: Callable[[Any], Forecaster] | None = None
    """State -> what it foresees, where there is a model of the world."""
    data: Callable[[], str] | None = None
    """The hash of the dataset that it learns from, where it learns from one. A run is not resumed
    with another."""


Env = Any
"""A `TapeEnv`, or another environment that has its length, space, num_actions, reset, step and
observe; with what reads tables of rules also its family."""

Make = Callable[[Any, Any, Any], Agent]
"""`make(config, env, params)` of an agent's module."""


def to_arrays(state: Any) -> dict[str, Shaped[np.ndarray, "*_"]]:
    """A state as named arrays, for storage: `learner.network.head.weight` and so on."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {_name(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


LEARNED = ("learner.network.", "learner.model.")
"""How the names of those arrays of a state begin that its policy is made of."""


def from_arrays(like: Any, arrays: Mapping[str, Shaped[np.ndarray, "*_"]]) -> Any:
    """The state whose `to_arrays` these are.

    `like` is a state of the same agent or its shape, `jax.eval_shape(agent.init, key)`.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(path) for path, _ in leaves]
    if differing := sorted(set(names) ^ set(arrays)):
        raise ValueError(f"not a state of this agent: {differing[0]!r} is only on one side")
    restored = [
        _restore(name, leaf, arrays[name]) for name, (_, leaf) in zip(names, leaves, strict=True)
    ]
    return jax.tree_util.tree_unflatten(tree, restored)


def learned(
    arrays: Mapping[str, Shaped[np.ndarray, "*_"]],
) -> dict[str, Shaped[np.ndarray, "*_"]]:
    """The arrays of a state that its policy needs. Training cannot resume from them."""
    return {name: array for name, array in arrays.items() if name.startswith(LEARNED)}


def learned_shapes(agent: Agent, key: PRNGKeyArray) -> dict[str, tuple[int, ...]]:
    """The shapes of what the agent's policy is made of, by name."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(agent.init, key))
    named = {_name(path): leaf.shape for path, leaf in leaves}
    return {name: shape for name, shape in named.items() if name.startswith(LEARNED)}


def from_learned(like: Any, arrays: Mapping[str, Shaped[np.ndarray, "*_"]]) -> Any:
    """A state to make a policy from, of all of its arrays or of those that were `learned`."""
    leaves = jax.tree_util.tree_leaves_with_path(like)
    missing = {_name(path): leaf for path, leaf in leaves if not _name(path).startswith(LEARNED)}
    zeros = {
        name: np.zeros(plain.shape, plain.dtype)
        for name, leaf in missing.items()
        for plain in [jax.eval_shape(_plain, leaf)]
    }
    return from_arrays(like, zeros | dict(arrays))


def stack(states: Sequence[Any]) -> Any:
    """States of the same agent as one, to be mapped over."""

    def join(*leaves: Array) -> Array:
        joined = jax.numpy.stack([_plain(leaf) for leaf in leaves])
        return jax.random.wrap_key_data(joined) if _is_key(leaves[0]) else joined

    return jax.tree.map(join, *states)


def unstack(states: Any, number: int) -> Any:
    """One of the states of a `stack`."""

    def take(leaf: Array) -> Array:
        row = _plain(leaf)[number]
        return jax.random.wrap_key_data(row) if _is_key(leaf) else row

    return jax.tree.map(take, states)


def snapshot(
    name: str,
    learned: Any,
    begin: Callable[[Any, int], Any],
    act: Callable[[Any, Array, Array], tuple[Any, Array]],
    note: Callable[[Any, Array], Any] | None = None,
    recall: Callable[[Any], Array] | None = None,
) -> Policy:
    """A blind policy with its own copy of what was learned, since the next `train` works in place.

    `begin(learned, num)` is the memory of so many episodes; `note` and `recall` are as in `Policy`.
    """
    parameters = jax.tree.map(jax.numpy.copy, learned)
    return blind(
        Policy(name, lambda rule, num: begin(parameters, num), act, note=note, recall=recall)
    )


def gradient_step(
    optimiser: optax.GradientTransformation,
    loss: Callable[[Any], tuple[Array, Any]],
    learned: Any,
    optimiser_state: optax.OptState,
) -> tuple[Any, optax.OptState, Any]:
    """One step of the optimiser: parameters, its state, and the auxiliary output of `loss`."""
    slope, parts = jax.grad(loss, has_aux=True)(learned)
    change, optimiser_state = optimiser.update(slope, optimiser_state)
    return optax.apply_updates(learned, change), optimiser_state, parts


def learning_rate(config: Any, steps: Num[Array, ""]) -> Float32[Array, ""]:
    """The learning rate after `steps` environment steps: linear decay to a share of itself."""
    done = jnp.clip(steps / config.total_steps, 0.0, 1.0)
    return config.learning_rate * (1.0 + done * (config.final_rate - 1.0))


def observation_size(env: envs.TapeEnv, params: envs.EnvParams) -> int:
    """Entries of an observation of this environment."""
    obs = jax.eval_shape(env.reset, jax.random.key(0), params)[0]
    if isinstance(obs, dict):
        raise ValueError("agents take float observations: make the environment without packed")
    return int(obs.shape[-1])


def check_counts(config: Any, *names: str) -> None:
    """Raise a `ValueError` unless these fields are positive integers."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, not {value!r}")


def check_shares(config: Any, *names: str) -> None:
    """Raise a `ValueError` unless these fields are numbers from 0 to 1."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, not {value!r}")


def check_positive(config: Any, *names: str) -> None:
    """Raise a `ValueError` unless these fields are above zero."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} must be positive, not {getattr(config, name)}")


def check_not_negative(config: Any, *names: str) -> None:
    """Raise a `ValueError` unless these fields are zero or above."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise ValueError(f"{name} must not be negative, not {getattr(config, name)}")


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _restore(name: str, like: Any, array: np.ndarray) -> Array:
    plain = jax.eval_shape(_plain, like)
    # Before JAX sees it, which would make float64 float32 without a word.
    if array.shape != plain.shape or array.dtype != plain.dtype:
        expected, got = f"{plain.dtype}{list(plain.shape)}", f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"not a state of this agent: {name!r} is {got}, not {expected}")
    restored = jax.numpy.asarray(array)
    return jax.random.wrap_key_data(restored) if _is_key(like) else restored
