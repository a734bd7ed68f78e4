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
from jaxtyping import Bool, Float32, Int32, Integer, PRNGKeyArray, UInt16, UInt32

from tapebench.physics import space
from tapebench.tasks.layout import Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Replay:
    """The last T - 1 transitions of E environments, and their present observations."""

    bits: UInt32[Array, "T E W"]
    """The tape, then the goal if it is observed."""
    t: UInt16[Array, "T E"]
    """A horizon of 65,536 is the largest there is, and t = H is never stored."""
    action: UInt16[Array, "T E"]
    reward: Float32[Array, "T E"]
    position: Int32[Array, ""]
    """The row of the present observation."""
    filled: Int32[Array, ""]
    """Complete transitions per environment."""
    horizon: Int32[Array, ""]
    """What t is a share of."""
    length: int = field(metadata={"static": True})
    observation_size: int = field(metadata={"static": True})


class Batch(NamedTuple):
    """Transitions to learn from, unpacked."""

    obs: Float32[Array, "B D"]
    action: Int32[Array, " B"]
    reward: Float32[Array, " B"]
    """What all steps paid, discounted."""
    next_obs: Float32[Array, "B D"]
    """Arbitrary where `ended`."""
    ended: Bool[Array, " B"]
    """By success or at the horizon."""
    steps: Int32[Array, " B"]
    """How many steps lie between the two observations."""


class Sequences(NamedTuple):
    """B pieces of what happened, T steps in a row each; an episode may end inside and the next
    one follow."""

    obs: Float32[Array, "T B D"]
    action: Int32[Array, "T B"]
    reward: Float32[Array, "T B"]
    """What the action paid."""
    is_first: Bool[Array, "T B"]
    """Whether an episode starts here."""
    ended: Bool[Array, "T B"]
    """Whether the action ended the episode, by success or at the horizon."""


class Episodes(NamedTuple):
    """B pieces of T steps in a row each, from the start of an episode on; others may follow it."""

    obs: Float32[Array, "T+1 B D"]
    """Before and after every step."""
    action: Int32[Array, "T B"]
    reward: Float32[Array, "T B"]
    """What the action paid."""
    ended: Bool[Array, "T B"]
    """Whether the action ended the episode, by success or at the horizon."""
    is_known: Bool[Array, "T B"]
    """Whether the step was made by now, and all of its episode before it is still kept."""


class Places(NamedTuple):
    """Where some transitions are."""

    ago: Int32[Array, " B"]
    """How many steps before the present one."""
    env: Int32[Array, " B"]


class Past(NamedTuple):
    """What happened in an episode before a place, the latest first."""

    before: Float32[Array, "B C L"]
    """Tapes."""
    action: Int32[Array, "B C"]
    after: Float32[Array, "B C L"]
    is_real: Bool[Array, "B C"]
    """Whether the episode is that long, and still kept."""


def empty(
    obs: Float32[Array, "E D"], capacity: int, length: int, horizon: Int32[Array, ""]
) -> Replay:
    """An empty buffer for at least `capacity` transitions, with the first observations."""
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


def append(
    replay: Replay,
    action: Integer[Array, " E"],
    reward: Float32[Array, " E"],
    obs: Float32[Array, "E D"],
) -> Replay:
    """Complete the present row with its action and reward, and open the next with `obs`."""
    rows = replay.t.shape[0]
    row = replay.position
    replay = replace(
        replay,
        action=replay.action.at[row].set(action.astype(jnp.uint16)),
        reward=replay.reward.at[row].set(reward),
        position=(row + 1) % rows,
        filled=jnp.minimum(replay.filled + 1, rows - 1),
    )
    return _observe(replay, obs)


def sample_transitions(key: PRNGKeyArray, replay: Replay, num: int) -> Places:
    """Uniformly chosen complete transitions, with repetition. There must be one."""
    envs = replay.t.shape[1]
    num_stored = (replay.filled * envs).astype(jnp.uint32)
    # Some rows are likelier than others by num_stored in 2^32: much cheaper than `randint`.
    drawn = (jax.random.bits(key, (num,)) % num_stored).astype(jnp.int32)
    return Places(ago=1 + drawn // envs, env=drawn % envs)


def draw_sequences(key: PRNGKeyArray, replay: Replay, num: int, length: int) -> Sequences:
    """Uniformly chosen pieces of `length` complete transitions in a row, with repetition.

    There must be that many rows.
    """
    envs = replay.t.shape[1]
    num_starts = ((replay.filled - length + 1) * envs).astype(jnp.uint32)
    drawn = (jax.random.bits(key, (num,)) % num_starts).astype(jnp.int32)
    ago, env = length + drawn // envs - jnp.arange(length)[:, None], drawn % envs
    row, after = _rows(replay, ago), _rows(replay, ago - 1)
    return Sequences(
        obs=_observation(replay, row, env),
        action=_get(replay.action, row, env).astype(jnp.int32),
        reward=_get(replay.reward, row, env),
        is_first=_get(replay.t, row, env) == 0,
        ended=_get(replay.t, after, env) == 0,
    )


def draw_episodes(key: PRNGKeyArray, replay: Replay, num: int, length: int) -> Episodes:
    """The episodes of uniformly chosen complete transitions, and what followed them, as pieces of
    `length` steps, with repetition. There must be a transition."""
    chosen = sample_transitions(key, replay, num)
    t = _get(replay.t, _rows(replay, chosen.ago), chosen.env).astype(jnp.int32)
    first = jnp.minimum(chosen.ago + t, replay.filled)
    ago, env = first - jnp.arange(length + 1)[:, None], chosen.env
    # What comes after the present is shown as the present again: rows go round in a ring.
    row = _rows(replay, jnp.maximum(ago, 0))
    starts = _get(replay.t, row, env) == 0
    return Episodes(
        obs=_observation(replay, row, env),
        action=_get(replay.action, row[:-1], env).astype(jnp.int32),
        reward=_get(replay.reward, row[:-1], env),
        ended=starts[1:],
        is_known=(ago[:-1] > 0) & (jnp.cumsum(starts[:-1], axis=0) > 0),
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
    length, row = replay.length, replay.position
    layout = Layout(length)
    cells = jnp.concatenate([layout.cells(obs), layout.goal(obs)], axis=-1)
    t = jnp.rint(layout.time(obs) * replay.horizon).astype(jnp.uint16)
    return replace(
        replay,
        bits=replay.bits.at[row].set(space.pack(cells)),
        t=replay.t.at[row].set(t),
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
