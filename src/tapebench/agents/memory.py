"""Memory of the episode so far: a GRU on what the last step says, in three kinds.

    h_t = GRU(h_{t−1}, e_t),  h = 0 before an episode

What e_t is, and who reads h, is the network:

- `gru`: a layer on the observation, the previous action and the previous reward, for a fully
  connected body;
- `cells`: what the last step says about the rule. Every cell looks up the entry of the rule's table
  that it read after the flip and what became of it, one of 16 cases under elementary rules, in a
  table that is learned; e_t is the mean and the maximum over all cells. The body is one of periodic
  convolutions with h in every cell, so that all of it commutes with shifts. The reward is left out:
  it is the share of ones among the new cells;
- `entries`: an h for every entry of the rule's table, all by one GRU. The e_t of an entry is what
  the last step says about it: in what share of cells it was read and became zero or one, and
  whether in any. In the body, which is one of periodic convolutions, every cell looks up the h of
  the entry that it reads and of those that it would read after a flip, as it looks up a table that
  is given (`context=evidence`, see `context`). What is remembered of an entry is learned; that a
  law is a table of neighbourhoods is not. It commutes with shifts too.

The reward is worked out from the observation, since the evaluator shows none: minus the share of
observed cells that differ from the goal, which is that of zeros unless observed. Training does the
same, so a bonus or another kind of reward is paid but not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Int32, Integer, PRNGKeyArray

from tapebench.agents import nn
from tapebench.agents.api import Env
from tapebench.physics import evidence
from tapebench.physics.family import Family
from tapebench.physics.space import Space
from tapebench.tasks.layout import Layout

BODIES = {"gru": "mlp", "cells": "conv", "entries": "conv"}
"""The network of the body for each kind of memory."""

COUNTED = 8
"""Entries of a table that a `memory_size` is counted for: those of elementary rules."""

SAID = 2
"""What a step says of an entry: its shares of `evidence.shares`."""


class Memory(NamedTuple):
    """What is remembered of B episodes before their present observations."""

    hidden: Float32[Array, "B Z"]
    obs: Float32[Array, "B D"]
    """The last observation."""
    action: Int32[Array, " B"]
    """What was done there."""


class Gru(eqx.Module):
    """A gated recurrent unit whose input layer is applied to all rows at once."""

    inputs: eqx.nn.Linear
    recurrent: eqx.nn.Linear

    def __call__(
        self,
        hidden: Float32[Array, "B Z"],
        inputs: Float32[Array, "T B F"],
        forgets: Bool[Array, "T B"],
    ) -> Float32[Array, "T B Z"]:
        """The states after each row of the inputs, from `hidden`.

        Where it `forgets`, the state is reset to zero before the row. A row may hold several states
        of an episode, one behind the other, which have inputs of their own.
        """

        def advance(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            gates, forgets = row
            hidden = jnp.where(forgets[:, None], 0.0, hidden)
            hidden = nn.gru(self.recurrent, hidden, gates)
            return hidden, hidden

        return jax.lax.scan(advance, hidden, (nn.linear(self.inputs, inputs), forgets))[1]


class Plain(eqx.Module):
    """The e_t of `gru`."""

    layer: eqx.nn.Linear
    length: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __call__(
        self,
        before: Float32[Array, "*B D"],
        action: Integer[Array, "*B"],
        obs: Float32[Array, "*B D"],
        is_first: Bool[Array, "*B"],
    ) -> Float32[Array, "*B F"]:
        """Of the last observation, what was done there, and the present one."""
        done = jax.nn.one_hot(action, self.num_actions)
        paid = -observed_distance(obs, self.length)[..., None]
        last = jnp.where(is_first[..., None], 0.0, jnp.concatenate([done, paid], axis=-1))
        return jax.nn.relu(nn.linear(self.layer, jnp.concatenate([obs, last], axis=-1)))


class Cells(eqx.Module):
    """The e_t of `cells`."""

    table: eqx.nn.Linear
    family: Family = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __call__(
        self,
        before: Float32[Array, "*B D"],
        action: Integer[Array, "*B"],
        obs: Float32[Array, "*B D"],
        is_first: Bool[Array, "*B"],
    ) -> Float32[Array, "*B F"]:
        """Of the last observation, what was done there, and the present one."""
        shares = what_became(before, action, obs, self.family, self.space)
        shares = shares.reshape(*shares.shape[:-2], -1)
        # Cells of the same case look up the same entry, so counting the cases is enough.
        entries = jax.nn.relu(nn.linear(self.table, jnp.eye(shares.shape[-1])))
        largest = jnp.where(shares[..., None] > 0.0, entries, 0.0).max(axis=-2)
        pooled = jnp.concatenate([shares @ entries, largest], axis=-1)
        return jnp.where(is_first[..., None], 0.0, pooled)


class Entries(eqx.Module):
    """The e_t of `entries`."""

    layer: eqx.nn.Linear
    family: Family = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __call__(
        self,
        before: Float32[Array, "*B D"],
        action: Integer[Array, "*B"],
        obs: Float32[Array, "*B D"],
        is_first: Bool[Array, "*B"],
    ) -> Float32[Array, "*B N F"]:
        """Of the last observation, what was done there, and the present one; for each entry."""
        became = what_became(before, action, obs, self.family, self.space)
        said = jnp.concatenate([became, jnp.sign(became)], axis=-1)
        features = jax.nn.relu(nn.linear(self.layer, said))
        return jnp.where(is_first[..., None, None], 0.0, features)


def what_became(
    before: Float32[Array, "*B D"],
    action: Integer[Array, "*B"],
    obs: Float32[Array, "*B D"],
    family: Family,
    space: Space,
) -> Float32[Array, "*B N 2"]:
    """The `evidence.shares` of the step from one observation to the next."""
    layout = Layout(space.size)
    flipped = evidence.flip(layout.cells(before), action)
    return evidence.shares(flipped, layout.cells(obs), family, space)


def observed_distance(obs: Float32[Array, "*B D"], length: int) -> Float32[Array, "*B"]:
    """The share of cells that differ from the goal, as far as observed."""
    layout = Layout(length)
    goal = layout.goal(obs)
    return jnp.abs(layout.cells(obs) - (goal if goal.shape[-1] else 0.0)).mean(axis=-1)


class Model(eqx.Module):
    """A body that is given, with every observation, the state of a GRU as what it remembers."""

    encoder: Plain | Cells | Entries
    gru: Gru
    body: Any
    """Observations and states -> what it says of them."""
    length: int = eqx.field(static=True)
    entries: int = eqx.field(static=True)
    """Of a table with a state for each; 0 if there is one state for all."""

    def run(
        self,
        memory: Memory,
        obs: Float32[Array, "T B D"],
        action: Integer[Array, "T-1 B"],
        reset: bool = True,
    ) -> tuple[Any, Float32[Array, "T B Z"]]:
        """What the body says, and the states, along observations between which the actions were
        taken."""
        before = jnp.concatenate([memory.obs[None], obs[:-1]])
        done = jnp.concatenate([memory.action[None], action])
        is_first = Layout(self.length).time(obs) == 0
        features = self.encoder(before, done, obs, is_first)
        forgets = is_first & reset
        rows, states = len(obs), obs.shape[1] * max(self.entries, 1)
        hidden = self.gru(
            memory.hidden.reshape(states, -1),
            features.reshape(rows, states, -1),
            jnp.repeat(forgets, states // obs.shape[1], axis=-1),
        ).reshape(*obs.shape[:2], -1)
        return self.read(obs, hidden), hidden

    def read(self, obs: Float32[Array, "*B D"], hidden: Float32[Array, "*B Z"]) -> Any:
        """What the body says of observations, with these states."""
        if not self.entries:
            return self.body(obs, hidden)
        by_entry = hidden.reshape(*hidden.shape[:-1], self.entries, -1)
        table = by_entry.swapaxes(-1, -2).reshape(hidden.shape)
        return self.body(jnp.concatenate([obs, table], axis=-1))


def make(
    key: PRNGKeyArray, config: Any, env: Env, size: int, make_network: Callable[..., Any]
) -> Model:
    """A model that remembers in the way that a config asks for, one of `BODIES`.

    `size` is that of an observation. The body is made by `make_network`, of a key, the kind of its
    network, the config, the environment, that size and options of `nn.make`.
    """
    own_key, body_key = jax.random.split(key)
    kind, width, hidden = config.network, config.encoder_width, hidden_size(config, env)
    entries = env.family.entries if kind == "entries" else 0
    own = hidden // entries if entries else hidden
    sizes = {
        "gru": (size + env.num_actions + 1, width, width),
        "cells": (2 * env.family.entries, width, 2 * width),
        "entries": (2 * SAID, width, width),
    }
    inputs, outputs, features = sizes[kind]
    layer, gates, recurrent = nn.layers(
        own_key, (inputs, outputs), (features, 3 * own), (own, 3 * own)
    )
    encoders: dict[str, Callable[[], Plain | Cells | Entries]] = {
        "gru": lambda: Plain(layer, env.length, env.num_actions),
        "cells": lambda: Cells(layer, env.family, env.space),
        "entries": lambda: Entries(layer, env.family, env.space),
    }
    reads = (
        {"observation_size": size + hidden, "family": env.family, "numbers": own}
        if entries
        else {"latent_size": hidden}
    )
    return Model(
        encoder=encoders[kind](),
        gru=Gru(gates, recurrent),
        body=make_network(body_key, BODIES[kind], config, env, size, **reads),
        length=env.length,
        entries=entries,
    )


def hidden_size(config: Any, env: Env) -> int:
    """How many numbers h has in this environment.

    With `entries` every entry of a table has an eighth of `memory_size`, however many there are:
    what is to be remembered of one does not depend on the others.
    """
    if config.network != "entries":
        return int(config.memory_size)
    own, rest = divmod(config.memory_size, COUNTED)
    if rest:
        raise ValueError(
            f"memory_size must be a multiple of the {COUNTED} entries of an elementary table, "
            f"not {config.memory_size}"
        )
    return int(own * env.family.entries)


def begin(num: int, size: int, hidden: int) -> Memory:
    """The memory before any observation."""
    return Memory(
        hidden=jnp.zeros((num, hidden)),
        obs=jnp.zeros((num, size)),
        action=jnp.zeros(num, jnp.int32),
    )


def see(model: Model, memory: Memory, obs: Array, reset: bool = True) -> tuple[Memory, Any]:
    """The memory after observations `[B, D]`, and what the body says of them.

    Without `reset` an episode goes on from the state that the last one ended with.
    """
    nothing = jnp.zeros((0, len(obs)), jnp.int32)
    says, hidden = model.run(memory, obs[None], nothing, reset)
    return memory._replace(hidden=hidden[0], obs=obs), jax.tree.map(lambda leaf: leaf[0], says)


def note(memory: Memory, action: Array) -> Memory:
    """The memory with what was done at its last observation."""
    return memory._replace(action=action)


def unroll(model: Model, memory: Memory, obs: Array, action: Array) -> Any:
    """What the body says along a piece, as `see` and `note` would in turn."""
    return model.run(memory, obs, action[:-1])[0]


def recall(memory: tuple[Model, Memory]) -> Float32[Array, "B Z"]:
    """The `recall` of a policy that remembers so: h."""
    return memory[1].hidden
