"""RAD: DQN on observations that are transformed at random (Laskin et al. 2020).

A transform acts on a whole batch in each update, never when acting. The tape's own are a rotation
and the inversion of cells:

- `shift-with-action`, the default with `mlp`: both observations of a transition are rotated by the
  same random amount, and the action with them. Rules commute with rotation, so the result is a
  transition that might have happened: this changes no label;
- `shift`: the action is left alone. Action a names a place, so this changes what the label means;
- `flip`, the default with `conv`: every cell of either observation is inverted with a small
  probability. A tape with another cell is another tape, so this changes what the label means;
- `shift+flip`: the narrowest reading of the paper, which names "bit shifts and bit flips" and says
  neither whether actions are rotated nor how far and how often. It is the ablation
  `rad-label-shift`, see ADR 23.

A network that commutes with rotation learns the same from a transition and from the rotated one:
`shift-with-action` changes nothing there but rounding, and a flip is all that is left. So whether
the shift helps is asked of `mlp`, of `rad-mlp` beside `dqn-mlp`.

Deviations from Laskin et al.:

1. the transforms, since theirs are for images;
2. without `max_shift` a `shift-with-action` is by any number of cells, and a `shift` by one at
   most, because it is the labels that pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float32, Integer, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents import dqn
from tapebench.agents.api import Agent, check_counts, check_shares
from tapebench.agents.replay import Batch
from tapebench.base.names import one_of
from tapebench.tasks.layout import Layout

TRANSFORMS = ("shift", "shift-with-action", "flip", "shift+flip", "shift-with-action+flip")


@dataclass(frozen=True, kw_only=True)
class Config(dqn.Options):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "augment": ("shift-with-action", "shift-with-action+flip"),
        "max_shift": (1, 4, None),
        "flip_probability": (0.01, 0.03),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    augment: str | None = None
    """`shift-with-action`, `shift`, `flip`, or one of the former `+flip`; by default the first with
    `mlp` and `flip` with `conv`."""
    max_shift: int | None = None
    """Cells to rotate by at most, either way; by default any if the action goes along, else 1."""
    flip_probability: float = 0.01
    """Of a cell to be inverted by a `flip`: one in three tapes of 32 cells, on average."""

    usual: ClassVar[str] = "shift-with-action"
    """`augment` by default, on a network that does not commute with rotation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment is None:
            usual = "flip" if self.network == "conv" else self.usual
            object.__setattr__(self, "augment", usual)
        one_of("augment", str(self.augment), TRANSFORMS)
        check_shares(self, "flip_probability")
        if self.max_shift is not None:
            check_counts(self, "max_shift")


def rotate(
    obs: Float32[Array, "B D"], by: Integer[Array, " B"], length: int
) -> Float32[Array, "B D"]:
    """Observations with cell i moved to cell i + `by`; the goal moves along."""
    layout = Layout(length)
    parts = [layout.cells(obs), layout.time_column(obs)]
    source = (jnp.arange(length) - by[:, None]) % length
    parts[0] = jnp.take_along_axis(parts[0], source, axis=-1)
    if layout.has_goal(obs):
        parts.append(jnp.take_along_axis(layout.goal(obs), source, axis=-1))
    return jnp.concatenate(parts, axis=-1)


def flip_at_random(
    key: PRNGKeyArray,
    obs: Float32[Array, "B D"],
    probability: float | Float32[Array, ""],
    length: int,
) -> Float32[Array, "B D"]:
    """Observations with each cell of the tape inverted with this probability."""
    is_flipped = jax.random.bernoulli(key, probability, obs.shape)
    is_cell = jnp.arange(obs.shape[-1]) < length
    return jnp.where(is_flipped & is_cell, 1.0 - obs, obs)


@cache
def augmentation(
    name: str | None, length: int, max_shift: int | None, flip_probability: float
) -> dqn.Augment:
    """A transform by name. Cached, so that programs are compiled once."""
    assert name is not None, "a config has chosen"
    moves, with_action, flips = "shift" in name, "with-action" in name, "flip" in name
    if max_shift is None:
        max_shift = length // 2 if with_action else 1

    def augment(key: Array, batch: Batch) -> Batch:
        shift_key, flip_key, next_key = jax.random.split(key, 3)
        obs, action, next_obs = batch.obs, batch.action, batch.next_obs
        if moves:
            if 2 * max_shift >= length:
                by = jax.random.randint(shift_key, action.shape, 0, length)
            else:
                by = jax.random.randint(shift_key, action.shape, -max_shift, max_shift + 1)
            obs, next_obs = rotate(obs, by, length), rotate(next_obs, by, length)
            action = (action + by) % length if with_action else action
        if flips:
            obs = flip_at_random(flip_key, obs, flip_probability, length)
            next_obs = flip_at_random(next_key, next_obs, flip_probability, length)
        return batch._replace(obs=obs, action=action, next_obs=next_obs)

    return augment


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build RAD for this environment: DQN on augmented observations."""
    if env.num_actions != env.length and "with-action" in str(config.augment):
        raise ValueError("shift-with-action needs one action per cell: use another augment")
    augment = augmentation(config.augment, env.length, config.max_shift, config.flip_probability)
    return dqn.make_variant(config, env, params, name="rad", augment=augment)
