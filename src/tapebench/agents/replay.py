"""Replay, packed: twelve bytes a transition for tapes of up to 32 cells.

Rows are steps, columns are environments, `[T, E]`, and the rows go round in a ring. A row holds
an observation and what was done and paid there, so the observation after it is that of the next
row, and an episode's past is the rows before. Where the next row has t = 0 the episode ended; what
the last step led to is not kept, since no agent looks past an end.

`position` is the row of the present observation, whose action is still to come.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tapebench.physics import space
from tapebench.tasks.layout import Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Replay:
    """The last T - 1 transitions of E environments, and their present observations."""

    bits: Array
    """uint32 `[T, E, W]`: the tape, then the goal if it is observed."""
    t: Array
    """uint16 `[T, E]`. A horizon of 65,536 is the largest there is, and t = H is never stored."""
    action: Array
    """uint16 `[T, E]`."""
    reward: Array
    """float32 `[T, E]`."""
    position: Array
    """int32: the row of the present observation."""
    filled: Array
    """int32: complete transitions per environment."""
    horizon: Array
    """int32: what t is a share of."""
    length: int = field(metadata={"static": True})
    observation_size: int = field(metadata={"static": True})


class Batch(NamedTuple):
    """Transitions to learn from, unpacked."""

    obs: Array
    """float32 `[B, D]`."""
    action: Array
    """int32 `[B]`."""
    reward: Array
    """float32 `[B]`: what all steps paid, discounted."""
    next_obs: Array
    """float32 `[B, D]`; arbitrary where `ended`."""
    ended: Array
    """bool `[B]`: by success or at the horizon."""
    steps: Array
    """int32 `[B]`: how many steps lie between the two observations."""


class Sequences(NamedTuple):
    """B pieces of what happened, T steps in a row each; an episode may end inside and the next
    one follow."""

    obs: Array
    """float32 `[T, B, D]`."""
    action: Array
    """int32 `[T, B]`."""
    reward: Array
    """float32 `[T, B]`: what the action paid."""
    is_first: Array
    """bool `[T, B]`: whether an episode starts here."""
    ended: Array
    """bool `[T, B]`: whether the action ended the episode, by success or at the horizon."""


class Places(NamedTuple):
    """Where some transitions are."""

    ago: Array
    """int32 `[B]`: how many steps before the present one."""
    env: Array
    """int32 `[B]`."""


class Past(NamedTuple):
    """What happened in an episode before a place, the latest first."""

    before: Array
    """float32 `[B, C, L]`: tapes."""
    action: Array
    """int32 `[B, C]`."""
    after: Array
    """float32 `[B, C, L]`."""
    is_real: Array
    """bool `[B, C]`: whether the episode is that long, and still kept."""


def empty(obs: Array, capacity: int, length: int, horizon: Array) -> Replay:
    """Room for at least `capacity` transitions, at the first observations `[E, D]`."""
    num, size = obs.shape
    rows = -(-capacity // num) + 1
    words = space.num_words(size - 1)
    replay = Replay(
        bits=jnp.zeros((rows, num, words), jnp.uint32),
        t=jnp.zeros((rows, num), jnp.uint16),
        action=jnp.zeros((rows, num), jnp.uint16),
        reward=jnp.zeros((rows, num), jnp.float32),
        position=jnp.int32(0),
        filled=jnp.int32(0),
        horizon=horizon,
        length=length,
        observation_size=size,
    )
    return _observe(replay, obs)


def append(replay: Replay, action: Array, reward: Array, obs: Array) -> Replay:
    """Complete the present row by what was done in it, and open the next with `obs`."""
    rows = replay.t.shape[0]
    here = replay.position
    replay = replace(
        replay,
        action=replay.action.at[here].set(action.astype(jnp.uint16)),
        reward=replay.reward.at[here].set(reward),
        position=(here + 1) % rows,
        filled=jnp.minimum(replay.filled + 1, rows - 1),
    )
    return _observe(replay, obs)


def draw(key: Array, replay: Replay, num: int) -> Places:
    """Uniformly chosen complete transitions, with repetition. There must be one."""
    envs = replay.t.shape[1]
    there = (replay.filled * envs).astype(jnp.uint32)
    # Some are more likely than others by one in 2^32 / there: much cheaper than `randint`.
    drawn = (jax.random.bits(key, (num,)) % there).astype(jnp.int32)
    return Places(ago=1 + drawn // envs, env=drawn % envs)


def draw_sequences(key: Array, replay: Replay, num: int, length: int) -> Sequences:
    """Uniformly chosen pieces of `length` complete transitions in a row, with repetition.

    There must be that many rows.
    """
    envs = replay.t.shape[1]
    there = ((replay.filled - length + 1) * envs).astype(jnp.uint32)
    drawn = (jax.random.bits(key, (num,)) % there).astype(jnp.int32)
    ago, env = length + drawn // envs - jnp.arange(length)[:, None], drawn % envs
    row, after = _rows(replay, ago), _rows(replay, ago - 1)
    return Sequences(
        obs=_observation(replay, row, env),
        action=_get(replay.action, row, env).astype(jnp.int32),
        reward=_get(replay.reward, row, env),
        is_first=_get(replay.t, row, env) == 0,
        ended=_get(replay.t, after, env) == 0,
    )


def present(replay: Replay) -> Places:
    """The place where each environment is now."""
    envs = jnp.arange(replay.t.shape[1])
    return Places(ago=jnp.zeros_like(envs), env=envs)


def take(replay: Replay, places: Places, steps: int = 1, discount: float = 1.0) -> Batch:
    """The transitions at these places, each with up to `steps` - 1 that followed it as one.

    Fewer followed where the episode ended before, or the present is reached.
    """
    row, env = _rows(replay, places.ago), places.env
    ago = places.ago - jnp.arange(steps)[:, None]
    ends = _get(replay.t, _rows(replay, ago - 1), env) == 0
    over = jnp.cumsum(ends, axis=0) - ends > 0
    is_part = (ago > 0) & ~over
    taken = is_part.sum(axis=0)
    worth = np.float32(discount) ** np.arange(steps, dtype=np.float32)[:, None]
    paid = worth * _get(replay.reward, _rows(replay, ago), env)
    return Batch(
        obs=_observation(replay, row, env),
        action=_get(replay.action, row, env).astype(jnp.int32),
        reward=jnp.where(is_part, paid, 0.0).sum(axis=0),
        next_obs=_observation(replay, _rows(replay, places.ago - taken), env),
        ended=(ends & is_part).any(axis=0),
        steps=taken,
    )


def past(replay: Replay, places: Places, length: int) -> Past:
    """Up to `length` transitions that led, within the episode, to each place."""
    back = jnp.arange(length + 1)
    ago, env = places.ago[:, None] + back, places.env[:, None]
    row = _rows(replay, ago)
    bits = _get(replay.bits, row, env)
    tapes = space.unpack(bits, replay.length).astype(jnp.float32)
    t = _get(replay.t, row[:, :1], env)
    return Past(
        before=tapes[:, 1:],
        action=_get(replay.action, row[:, 1:], env).astype(jnp.int32),
        after=tapes[:, :-1],
        is_real=(back[1:] <= t) & (ago[:, 1:] <= replay.filled),
    )


def _observe(replay: Replay, obs: Array) -> Replay:
    """Write observations `[E, D]` into the present row."""
    length, here = replay.length, replay.position
    layout = Layout(length)
    cells = jnp.concatenate([layout.cells(obs), layout.goal(obs)], axis=-1)
    t = jnp.rint(layout.time(obs) * replay.horizon).astype(jnp.uint16)
    return replace(
        replay,
        bits=replay.bits.at[here].set(space.pack(cells)),
        t=replay.t.at[here].set(t),
    )


def _observation(replay: Replay, row: Array, env: Array) -> Array:
    """The float observations at these rows, as the environment gave them."""
    length, size = replay.length, replay.observation_size
    cells = space.unpack(_get(replay.bits, row, env), size - 1).astype(jnp.float32)
    time = space.share(_get(replay.t, row, env), replay.horizon)
    return jnp.concatenate([cells[..., :length], time[..., None], cells[..., length:]], axis=-1)


def _rows(replay: Replay, ago: Array) -> Array:
    return (replay.position - ago) % replay.t.shape[0]


def _get(array: Array, row: Array, env: Array) -> Array:
    return array.at[row, env].get(mode="promise_in_bounds")
