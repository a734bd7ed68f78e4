"""RAD: DQN on observations that are transformed at random (Laskin et al. 2020).

A transform acts on a whole batch in each update, never when acting. The tape's own are a shift, on
a ring a rotation, and the inversion of cells:

- `shift-with-action`, the default with `mlp`: both observations of a transition are shifted by the
  same random amounts along each side, and the action with them. Rules commute with shifts, so the
  result is a transition that might have happened: this changes no label;
- `shift`: the action is left alone. Action a names a place, so this changes what the label means;
- `flip`, the default with `conv`: every cell of either observation is inverted with a small
  probability. A tape with another cell is another tape, so this changes what the label means;
- `shift+flip`: the narrowest reading of the paper, which names "bit shifts and bit flips" and says
  neither whether actions are shifted nor how far and how often. It is the ablation
  `rad-label-shift`, see ADR 23.

A network that commutes with shifts learns the same from a transition and from the shifted one:
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
from tapebench.physics.space import Size, Space, as_space
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
    """Cells to shift by at most, either way along each side; by default any if the action goes
    along, else 1."""
    flip_probability: float = 0.01
    """Of a cell to be inverted by a `flip`: one in three tapes of 32 cells, on average."""

    usual: ClassVar[str] = "shift-with-action"
    """`augment` by default, on a network that does not commute with shifts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment is None:
            usual = "flip" if self.network == "conv" else self.usual
            object.__setattr__(self, "augment", usual)
        one_of("augment", str(self.augment), TRANSFORMS)
        check_shares(self, "flip_probability")
        if self.max_shift is not None:
            check_counts(self, "max_shift")


Shift = tuple[Integer[Array, " B"], ...]
"""How many cells along each side, for each of a batch."""


def draw_shift(key: PRNGKeyArray, num: int, space: Space, max_shift: int | None) -> Shift:
    """Uniformly chosen shifts: by `max_shift` at most, either way along each side."""
    # On a ring the key is used as it is.
    keys = jax.random.split(key, len(space.shape)) if space.is_torus else (key,)

    def draw(key: Array, side: int) -> Array:
        most = side // 2 if max_shift is None else max_shift
        low, high = (0, side) if 2 * most >= side else (-most, most + 1)
        return jax.random.randint(key, (num,), low, high)

    return tuple(draw(key, side) for key, side in zip(keys, space.shape, strict=True))


def shift(obs: Float32[Array, "B D"], by: Shift, space: Space) -> Float32[Array, "B D"]:
    """Observations with every cell moved so far; the goal moves along."""
    layout = Layout(space.size)
    parts = [layout.cells(obs), layout.time_column(obs)]
    source = space.shift(jnp.arange(space.size), [-offset[:, None] for offset in by])
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
    name: str | None, size: Size, max_shift: int | None, flip_probability: float
) -> dqn.Augment:
    """A transform by name. Cached, so that programs are compiled once."""
    assert name is not None, "a config has chosen"
    moves, with_action, flips = "shift" in name, "with-action" in name, "flip" in name
    space = as_space(size)
    most = 1 if max_shift is None and not with_action else max_shift

    def augment(key: Array, batch: Batch) -> Batch:
        shift_key, flip_key, next_key = jax.random.split(key, 3)
        obs, action, next_obs = batch.obs, batch.action, batch.next_obs
        if moves:
            by = draw_shift(shift_key, len(action), space, most)
            obs, next_obs = shift(obs, by, space), shift(next_obs, by, space)
            action = space.shift(action, by) if with_action else action
        if flips:
            obs = flip_at_random(flip_key, obs, flip_probability, space.size)
            next_obs = flip_at_random(next_key, next_obs, flip_probability, space.size)
        return batch._replace(obs=obs, action=action, next_obs=next_obs)

    return augment


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build RAD for this environment: DQN on augmented observations."""
    if env.num_actions != env.length and "with-action" in str(config.augment):
        raise ValueError("shift-with-action needs one action per cell: use another augment")
    augment = augmentation(config.augment, env.space, config.max_shift, config.flip_probability)
    return dqn.make_variant(config, env, params, name="rad", augment=augment)
