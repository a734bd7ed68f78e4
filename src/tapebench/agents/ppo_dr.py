"""PPO + DR: PPO trained on tapes that vary in what is not the rule (Tobin et al. 2017).

The paper names domain randomisation and does not say of what. Here every training episode draws
for itself, uniformly from a range each,

- the share of ones that its tape starts with,
- its horizon, as a share of the task's; t/H is then a share of this one,
- how often a cell comes out wrong in a step.

The rule is drawn as ever: from the same rules, and the same one as without any variation. Only
training varies. The policy is that of `ppo`, and is examined in the task as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float32, Int32, Integer, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents import ppo
from tapebench.agents.api import Agent, check_shares
from tapebench.base import seeding
from tapebench.physics.space import Space


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Options):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "noise_high": (0.0, 0.001, 0.005),
        "horizon_high": (1.0, 1.5),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    density_low: float = 0.3
    """Least share of ones in a start tape."""
    density_high: float = 0.7
    """Greatest share of ones in a start tape."""
    horizon_low: float = 0.5
    """Shortest horizon, as a multiple of the task's."""
    horizon_high: float = 1.5
    """Longest horizon, as a multiple of the task's."""
    noise_high: float = 0.001
    """Greatest probability that a cell comes out wrong; the least is that of the task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "density_low", "density_high", "noise_high")
        for name in ("density", "horizon"):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if not 0 < low <= high:
                raise ValueError(f"{name}_low must be positive and at most {name}_high, {high}")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Variation:
    """What an episode has of its own, in place of the fields of `EnvParams`."""

    start_density: Float32[Array, "*B"]
    horizon: Int32[Array, "*B"]
    noise: Float32[Array, "*B"]

    def of(self, params: envs.EnvParams) -> envs.EnvParams:
        return replace(
            params, start_density=self.start_density, horizon=self.horizon, noise=self.noise
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VariedState:
    """An episode in progress, and how it varies."""

    inner: envs.EnvState
    variation: Variation


@dataclass(frozen=True)
class VariedEnv:
    """`tapebench.env.TapeEnv` with a variation of its own in every episode."""

    env: envs.TapeEnv
    density: tuple[float, float]
    horizon: tuple[float, float]
    noise_high: float

    @property
    def length(self) -> int:
        return self.env.length

    @property
    def space(self) -> Space:
        return self.env.space

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    def reset(self, key: PRNGKeyArray, params: envs.EnvParams) -> tuple[Any, VariedState]:
        state = self.start(seeding.stream(key), params)
        return self.observe(state, params), state

    def start(self, stream: seeding.Stream, params: envs.EnvParams) -> VariedState:
        """The first state of the episode that `stream` stands for."""
        variation = self.vary(stream, params)
        return VariedState(self.env.start(stream, variation.of(params)), variation)

    def vary(self, stream: seeding.Stream, params: envs.EnvParams) -> Variation:
        """The variation of the episode that `stream` stands for."""
        drawn = seeding.draw(stream, seeding.VARIATION + np.arange(3, dtype=np.uint32))
        density, horizon, noise = (drawn >> 8).astype(jnp.float32) * np.float32(2.0**-24)
        steps = jnp.round(params.horizon * between(horizon, *self.horizon)).astype(jnp.int32)
        return Variation(
            start_density=between(density, *self.density),
            horizon=jnp.maximum(steps, 1),
            noise=between(noise, params.noise, jnp.maximum(params.noise, self.noise_high)),
        )

    def observe(self, state: VariedState, params: envs.EnvParams) -> Any:
        return self.env.observe(state.inner, state.variation.of(params))

    def step(
        self,
        key: PRNGKeyArray | None,
        state: VariedState,
        action: Integer[ArrayLike, ""],
        params: envs.EnvParams,
    ) -> tuple[Any, VariedState, envs.Reward, envs.Flag, envs.Flag, dict[str, Any]]:
        """One step; an episode that ends is followed at once by the first state of the next."""
        final, inner, reward, terminated, truncated, info = self.env.step_env(
            key, state.inner, action, state.variation.of(params)
        )
        state = VariedState(inner, state.variation)
        fresh = self.start(seeding.advance(inner.stream), params)
        state = envs.renew(terminated | truncated, state, fresh)
        info["final_observation"] = final
        return self.observe(state, params), state, reward, terminated, truncated, info


def between(
    share: Float32[Array, ""], low: float | Float32[Array, ""], high: float | Float32[Array, ""]
) -> Float32[Array, ""]:
    """The point of a range that a share from 0 to 1 stands for."""
    return low + share * (high - low)


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build PPO with domain randomisation for this environment."""
    varied = VariedEnv(
        env=env,
        density=(config.density_low, config.density_high),
        horizon=(config.horizon_low, config.horizon_high),
        noise_high=config.noise_high,
    )
    return ppo.make_variant(config, varied, params, name="ppo-dr")
