"""The environment for gymnax and its clients (extra `gymnax`): `TapeEnv` in gymnax 1.0's interface.

    env, params = tapebench.gymnax.make(rules="train")
    obs, state = env.reset(key, params)
    obs, state, reward, terminated, truncated, info = env.step(key, state, action, params)

`LegacyTapeEnv` is the same in five values, as gymnax had it before and as PureJaxRL, rejax,
purejaxql and Stoa still call it: `make(legacy=True)`. Programs that name their environment find
it as `Tape-v1`, or with options and in the older interface by a name of yours:

    gymnax.register("MyTape", lambda: tapebench.gymnax.make(rules="train", legacy=True)[0])

Before 1.0 gymnax had no such register; there a program has to be handed the environment.

Unlike that of `tapebench.env`, a step here draws from its own key, as gymnax wants it: the noise of
the step, and the episode that follows one that ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gymnasium_spaces
from jax import Array

from tapebench import env as envs
from tapebench.base import seeding
from tapebench.tasks.task import VERSIONS

try:
    import gymnax
    from gymnax.environments import environment, spaces
except ImportError as error:
    raise ImportError("tapebench.gymnax needs gymnax: pip install 'tapebench[gymnax]'") from error


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvParams(envs.EnvParams):
    """`tapebench.env.EnvParams` with gymnax's name for the horizon."""

    @property
    def max_steps_in_episode(self) -> Array:
        return self.horizon

    def replace(self, **changes: Any) -> EnvParams:
        """A copy with some fields changed; each keeps its dtype, so nothing is compiled again."""
        if "max_steps_in_episode" in changes:
            changes["horizon"] = changes.pop("max_steps_in_episode")
        changes = {
            name: jnp.asarray(value, getattr(self, name).dtype) for name, value in changes.items()
        }
        return replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState(envs.EnvState):
    """`tapebench.env.EnvState` with gymnax's name for the steps taken."""

    @property
    def time(self) -> Array:
        return self.t

    def replace(self, **changes: Any) -> EnvState:
        """A copy with some fields changed."""
        if "time" in changes:
            changes["t"] = changes.pop("time")
        return replace(self, **changes)


class TapeEnv(environment.Environment):  # type: ignore[misc]
    """`tapebench.env.TapeEnv` as an environment of gymnax 1.0.

    Takes the options of `tapebench.gym.TapeEnv`, and `packed`. It is that of `Tape-v1` unless
    `version=0` is given: the horizon terminates the episode, and nothing is truncated.

    `info` has `distance`, `success`, `discount`, and from `step` also gymnax's `terminated`,
    `truncated` and `final_observation`.
    """

    def __init__(self, *, version: int = 1, **options: Any) -> None:
        super().__init__()
        self.env, params = envs.make(version=version, **options)
        self._default_params = EnvParams(**vars(params))

    @property
    def default_params(self) -> EnvParams:
        """Those of the options that this environment was made with."""
        return self._default_params

    @property
    def name(self) -> str:
        return self.env.name

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.env.observation_space().shape or ()

    def action_space(self, params: EnvParams | None = None) -> Any:
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        return _space(self.env.observation_space())

    @partial(jax.jit, static_argnames=("self",))
    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Any, EnvState]:
        return self.reset_env(key, self.default_params if params is None else params)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Any, EnvState]:
        obs, state = self.env.reset(key, params)
        return obs, EnvState(**vars(state))

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, EnvState, Array, Array, Array, dict[str, Any]]:
        """One step; an episode that ends is followed at once by the first state of the next."""
        params = self.default_params if params is None else params
        obs, after, paid, terminated, truncated, info = self.env.step(
            None, _drawing_from(key, state), action, params
        )
        info |= {"terminated": terminated, "truncated": truncated}
        info["discount"] = jnp.where(terminated, 0.0, 1.0)
        return obs, EnvState(**vars(after)), paid, terminated, truncated, info

    def step_env(
        self, key: Array, state: EnvState, action: Any, params: EnvParams
    ) -> tuple[Any, EnvState, Array, Array, dict[str, Any]]:
        """One step without auto-reset; `is_truncated` says of its state whether it truncates."""
        obs, after, paid, terminated, _, info = self.env.step_env(
            None, _drawing_from(key, state), action, params
        )
        info["discount"] = jnp.where(terminated, 0.0, 1.0)
        return obs, EnvState(**vars(after)), paid, terminated, info

    def observe(self, key: Array, state: EnvState, action: Any, params: EnvParams) -> Any:
        return self.env.observe(state, params)

    def get_obs(
        self, state: EnvState, params: EnvParams | None = None, key: Array | None = None
    ) -> Any:
        return self.env.observe(state, self.default_params if params is None else params)

    def is_terminated(self, state: EnvState, params: EnvParams) -> Array:
        return self.env.ending(state, params)[0]

    def is_truncated(self, state: EnvState, params: EnvParams) -> Array:
        return self.env.ending(state, params)[1]


class LegacyTapeEnv(TapeEnv):
    """`TapeEnv` in five values, of which the fourth says that the episode has ended.

    Its info holds numbers alone, one of each: clients average what they find there.
    """

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, EnvState, Array, Array, dict[str, Any]]:
        obs, after, paid, terminated, truncated, info = super().step(key, state, action, params)
        del info["final_observation"]
        return obs, after, paid, terminated | truncated, info

    def step_env(
        self, key: Array, state: EnvState, action: Any, params: EnvParams
    ) -> tuple[Any, EnvState, Array, Array, dict[str, Any]]:
        obs, after, paid, terminated, info = super().step_env(key, state, action, params)
        return obs, after, paid, terminated | self.is_truncated(after, params), info

    def is_terminal(self, state: EnvState, params: EnvParams) -> Array:
        terminated, truncated = self.env.ending(state, params)
        return terminated | truncated


def make(*, legacy: bool = False, **options: Any) -> tuple[TapeEnv, EnvParams]:
    """An environment for gymnax, or for clients of its older interface, and its parameters.

    `options` are those of `TapeEnv`.
    """
    env = (LegacyTapeEnv if legacy else TapeEnv)(**options)
    return env, env.default_params


if hasattr(gymnax, "register"):  # since 1.0
    for _version in VERSIONS:
        if (_name := f"Tape-v{_version}") not in gymnax.registered_envs:
            gymnax.register(_name, partial(TapeEnv, version=_version))


def _drawing_from(key: Array, state: EnvState) -> envs.EnvState:
    """The state with a stream of its own for this step, of the class that `tapebench.env` has."""
    return envs.EnvState(**vars(state) | {"stream": seeding.stream(key)})


def _space(space: Any) -> Any:
    """A space of Gymnasium's as one of gymnax's."""
    if isinstance(space, gymnasium_spaces.Dict):
        return spaces.Dict({name: _space(part) for name, part in space.spaces.items()})
    low, high = (_bound(bound) for bound in (space.low, space.high))
    return spaces.Box(low, high, space.shape, space.dtype)


def _bound(bound: np.ndarray) -> Any:
    """One number for all, where it is."""
    return bound.flat[0].item() if (bound == bound.flat[0]).all() else jnp.asarray(bound)
