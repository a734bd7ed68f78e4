"""Environments so small that the right action values are known.

One environment in four kinds. The kind is a parameter, so that an agent's program is compiled
once for all of them. Three cells, three actions; the interface is that of `tapebench.env`.

- `ONE_STATE`: a single step from the zero tape pays 1, 0 or -0.5.
- `DELAYED`: action 1 in the first of three steps sets every cell; the last step pays 1 if so.
- `POINTER`: one random cell is set, a single step pays 1 for naming it.
- `HIDDEN`: a random tape of equal cells is left as it is or inverted, which is the hidden task;
  the second step pays 1 for action 0 or 1 accordingly, else -1. The tape after the first step
  says nothing by itself, only together with the tape before.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from tapebench.base import seeding
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.space import Space

ONE_STATE, DELAYED, POINTER, HIDDEN = range(4)
HORIZONS = (1, 3, 1, 2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    kind: jax.Array
    horizon: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    cells: jax.Array
    task: jax.Array
    t: jax.Array
    stream: seeding.Stream


@dataclass(frozen=True)
class Probe:
    length: int = 3
    family = ELEMENTARY
    space = Space((3,))
    num_actions: int = 3

    def reset(self, key, params):
        state = self.start(seeding.stream(key), params)
        return self.observe(state, params), state

    def start(self, stream, params):
        bit, task, place = seeding.draw(stream, np.arange(3, dtype=np.uint32)) >> 16
        cells = jnp.select(
            [params.kind == POINTER, params.kind == HIDDEN],
            [jnp.arange(3) == place % 3, jnp.full(3, bit % 2 == 1)],
            jnp.zeros(3, bool),
        )
        return State(cells, task % 2, jnp.int32(0), stream)

    def observe(self, state, params):
        return jnp.append(state.cells.astype(jnp.float32), state.t / params.horizon)

    def step_env(self, key, state, action, params):
        is_first, is_last = state.t == 0, state.t == params.horizon - 1
        reward = jnp.select(
            [params.kind == kind for kind in range(4)],
            [
                jnp.array([1.0, 0.0, -0.5])[action],
                jnp.where(is_last & state.cells[0], 1.0, 0.0),
                state.cells[action].astype(jnp.float32),
                jnp.where(is_last, jnp.where(action == state.task, 1.0, -1.0), 0.0),
            ],
        )
        is_set = (params.kind == DELAYED) & is_first & (action == 1)
        is_inverted = (params.kind == HIDDEN) & is_first & (state.task == 1)
        cells = (state.cells | is_set) ^ is_inverted
        state = replace(state, cells=cells, t=state.t + 1)
        return self.observe(state, params), state, reward, jnp.bool_(False), is_last, {}

    def step(self, key, state, action, params):
        final, state, reward, terminated, truncated, info = self.step_env(
            key, state, action, params
        )
        fresh = self.start(seeding.advance(state.stream), params)
        state = jax.tree.map(lambda new, old: jnp.where(truncated, new, old), fresh, state)
        info["final_observation"] = final
        return self.observe(state, params), state, reward, terminated, truncated, info


def make(kind):
    return Probe(), Params(jnp.int32(kind), jnp.int32(HORIZONS[kind]))


@dataclass(frozen=True)
class Recall(Probe):
    """A memory probe: the first tape, all zeros or all ones, is cleared at once, and the last of
    three steps pays 1 for action 0 or 1 accordingly, else -1. Nothing in between tells."""

    def start(self, stream, params):
        bit = seeding.draw(stream, np.arange(1, dtype=np.uint32))[0] >> 16
        return State(jnp.full(3, bit % 2 == 1), bit % 2, jnp.int32(0), stream)

    def step_env(self, key, state, action, params):
        is_last = state.t == params.horizon - 1
        reward = jnp.where(is_last, jnp.where(action == state.task, 1.0, -1.0), 0.0)
        state = replace(state, cells=jnp.zeros(3, bool), t=state.t + 1)
        return self.observe(state, params), state, reward, jnp.bool_(False), is_last, {}


def make_recall():
    return Recall(), Params(jnp.int32(0), jnp.int32(3))


@dataclass(frozen=True)
class Marked(Probe):
    """A hidden task for networks that commute with rotation: one cell differs from the others.
    The first of two steps leaves the tape as it is or inverts it, which is the task; the second
    pays 1 for that cell or the one to its right accordingly, else -1."""

    def start(self, stream, params):
        bit, task, place = seeding.draw(stream, np.arange(3, dtype=np.uint32)) >> 16
        cells = (jnp.arange(3) == place % 3) ^ (bit % 2 == 1)
        return State(cells, task % 2, jnp.int32(0), stream)

    def step_env(self, key, state, action, params):
        is_last = state.t == params.horizon - 1
        is_odd = state.cells == (state.cells.sum() == 1)
        wanted = (jnp.argmax(is_odd) + state.task) % 3
        reward = jnp.where(is_last, jnp.where(action == wanted, 1.0, -1.0), 0.0)
        cells = state.cells ^ (~is_last & (state.task == 1))
        state = replace(state, cells=cells, t=state.t + 1)
        return self.observe(state, params), state, reward, jnp.bool_(False), is_last, {}


def make_marked():
    return Marked(), Params(jnp.int32(0), jnp.int32(2))
