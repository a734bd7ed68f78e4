"""Recurrent PPO: a policy that remembers the episode so far (RL², Duan et al. 2016), in two kinds.

    h_t = GRU(h_{t−1}, e_t),  h = 0 before an episode        π(· | s_t, h_t),  V(s_t, h_t)

Learning is the loop of `ppo`, on pieces of `rollout` steps instead of single ones: the network is
run through a piece again, from the memory that it had at the start of it, and is reset where an
episode starts. So nothing leaks over an end, and gradients reach back to the start of the piece.

What e_t is, is the network:

- `gru`: a layer on the observation, the previous action and the previous reward. Policy and value
  are a fully connected network on the observation and h.
- `cells`: what the last step says about the rule. Every cell looks up its neighbourhood after the
  flip and what became of it, one of 16 cases, in a table that is learned; e_t is the mean and the
  maximum over the ring. Policy and value are circular convolutions with h in every cell. All of
  it commutes with rotation. The reward is left out: it is the share of ones among the new cells.

Deviations from Duan et al.:

1. PPO instead of TRPO, pieces of `rollout` steps instead of whole trials;
2. the reward is worked out from the observation, since the evaluator shows none: minus the share
   of observed cells that differ from the goal, which is that of zeros unless observed. Training
   does the same, so a bonus or another kind of reward is paid but not shown;
3. in training a memory lasts for one episode, as rules change with it. In use it lasts for as long
   as the rule does, over trials under the same one, unless `reset_memory` says otherwise; a step
   is never seen across episodes;
4. the memory at the start of a piece is the one that play left there. After the first update of
   a round a slightly different network would have left another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Int32, Integer

from tapebench import env as envs
from tapebench.agents import nn, ppo
from tapebench.agents.api import Agent, Env, check_counts, observation_size
from tapebench.physics import space
from tapebench.tasks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "memory_size": (16, 32, 64),
        "encoder_width": (32, 64),
        "epochs": (4, 10),
        "minibatches": (4, 8),
    }
    """Its rounds of learning are others than those of `ppo`, hence `epochs` and `minibatches`."""

    network: str = "gru"
    """`gru`: fully connected; `cells`: made for rules, commutes with rotation. See the module."""
    memory_size: int = 32
    """Entries of h."""
    encoder_width: int = 32
    """Entries of e_t, or half of them for `cells`: the mean, and as many for the maximum."""
    reset_memory: bool = False
    """Whether the policy forgets at the start of every episode, as it does in training. Matters
    only in trials: otherwise it goes on with h from one to the next."""
    minibatches: int = 8
    """Updates in an epoch. Each is on other environments, so they have to divide `num_envs`."""

    networks: ClassVar[tuple[str, ...]] = ("gru", "cells")
    """What `network` may be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "memory_size", "encoder_width")
        if not isinstance(self.reset_memory, bool):
            raise ValueError(f"reset_memory must be true or false, not {self.reset_memory!r}")

    def check_minibatches(self) -> None:
        if self.num_envs % self.minibatches:
            raise ValueError(
                f"minibatches must divide num_envs, {self.num_envs}, not {self.minibatches}"
            )


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

        Where it `forgets`, the state is reset to zero before the row.
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
    length: int = eqx.field(static=True)

    def __call__(
        self,
        before: Float32[Array, "*B D"],
        action: Integer[Array, "*B"],
        obs: Float32[Array, "*B D"],
        is_first: Bool[Array, "*B"],
    ) -> Float32[Array, "*B F"]:
        """Of the last observation, what was done there, and the present one."""
        flipped = space.flip(space.pack(Layout(self.length).cells(before)), action)
        after = space.pack(Layout(self.length).cells(obs))
        shares = nn.case_shares(flipped, after, self.length)
        # Cells of the same case look up the same entry, so counting the cases is enough.
        entries = jax.nn.relu(nn.linear(self.table, jnp.eye(nn.CASES)))
        largest = jnp.where(shares[..., None] > 0.0, entries, 0.0).max(axis=-2)
        pooled = jnp.concatenate([shares @ entries, largest], axis=-1)
        return jnp.where(is_first[..., None], 0.0, pooled)


def observed_distance(obs: Float32[Array, "*B D"], length: int) -> Float32[Array, "*B"]:
    """The share of cells that differ from the goal, as far as observed."""
    layout = Layout(length)
    goal = layout.goal(obs)
    return jnp.abs(layout.cells(obs) - (goal if goal.shape[-1] else 0.0)).mean(axis=-1)


class Model(eqx.Module):
    """What is learned."""

    encoder: Plain | Cells
    gru: Gru
    body: ppo.ActorCritic
    length: int = eqx.field(static=True)

    def run(
        self,
        memory: Memory,
        obs: Float32[Array, "T B D"],
        action: Integer[Array, "T-1 B"],
        reset: bool = True,
    ) -> tuple[Float32[Array, "T B A"], Float32[Array, "T B"], Float32[Array, "T B Z"]]:
        """Logits, values and hidden states along observations, between which the actions were
        taken."""
        before = jnp.concatenate([memory.obs[None], obs[:-1]])
        done = jnp.concatenate([memory.action[None], action])
        is_first = Layout(self.length).time(obs) == 0
        features = self.encoder(before, done, obs, is_first)
        hidden = self.gru(memory.hidden, features, is_first & reset)
        return *self.body(obs, hidden), hidden


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build recurrent PPO for this environment."""
    algorithm = _algorithm(config, env, observation_size(env, params))
    return ppo.build(config, env, params, algorithm)


def recall(memory: tuple[Model, Memory]) -> Float32[Array, "B Z"]:
    """The `recall` of the policy: h."""
    return memory[1].hidden


@cache
def _algorithm(config: Config, env: Env, size: int) -> ppo.Algorithm:
    def init(key: Array) -> Model:
        own_key, body_key = jax.random.split(key)
        is_plain = config.network == "gru"
        width, hidden = config.encoder_width, config.memory_size
        table, inputs, recurrent = nn.layers(
            own_key,
            (size + env.num_actions + 1 if is_plain else nn.CASES, width),
            (width if is_plain else 2 * width, 3 * hidden),
            (hidden, 3 * hidden),
        )
        plain = Plain(table, env.length, env.num_actions)
        return Model(
            encoder=plain if is_plain else Cells(table, env.length),
            gru=Gru(inputs, recurrent),
            body=ppo.make_model(body_key, "mlp" if is_plain else "conv", config, env, size, hidden),
            length=env.length,
        )

    def begin(num: int) -> Memory:
        return Memory(
            hidden=jnp.zeros((num, config.memory_size)),
            obs=jnp.zeros((num, size)),
            action=jnp.zeros(num, jnp.int32),
        )

    def see(
        model: Model, memory: Memory, obs: Array, reset: bool = True
    ) -> tuple[Memory, Array, Array]:
        nothing = jnp.zeros((0, len(obs)), jnp.int32)
        logits, value, hidden = model.run(memory, obs[None], nothing, reset)
        return memory._replace(hidden=hidden[0], obs=obs), logits[0], value[0]

    def note(memory: Memory, action: Array) -> Memory:
        return memory._replace(action=action)

    def unroll(model: Model, memory: Memory, obs: Array, action: Array) -> tuple[Array, Array]:
        return model.run(memory, obs, action[:-1])[:2]

    return ppo.Algorithm(
        name="rppo",
        init=init,
        begin=begin,
        see=see,
        note=note,
        unroll=unroll,
        act=ppo.greedy_act(partial(see, reset=config.reset_memory), note),
        is_recurrent=True,
        recall=recall,
    )
