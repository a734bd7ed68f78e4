"""The model of the world that `dreamer` learns, and what it expects of given sequences.

`dreamer` has the equations. A state is by place: a single one that holds the whole tape, or one for
every cell of the ring, and then all of it commutes with rotation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tapebench.agents import nn
from tapebench.tasks.layout import Layout

# Places: P = 1 for `mlp`, a cell each for `conv`.


def arrange(x: Array, places: int) -> Array:
    """What belongs to cells, `[..., N]`, by place: `[..., P, N / P]`."""
    return x.reshape(*x.shape[:-1], places, -1)


def spread(x: Array, places: int) -> Array:
    """The same in every place: `[..., N]` -> `[..., P, N]`."""
    return jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], places, x.shape[-1]))


def layer(weights: eqx.nn.Linear, x: Array, kernel: int = 0) -> Array:
    """A hidden layer in every place: linear, scaled to a mean square of one, then SiLU.

    With a `kernel` each place sees its neighbourhood and the mean over the ring. A single place is
    all there is.
    """
    places, size = x.shape[-2:]
    if kernel and places > 1:
        # The mean is the same everywhere, and so is what becomes of it.
        assert weights.bias is not None
        near, far = jnp.split(weights.weight, [kernel * size], axis=-1)
        everywhere = x.mean(axis=-2) @ far.T + weights.bias
        x = nn.windows(x, kernel) @ near.T + spread(everywhere, places)
    else:
        x = nn.linear(weights, x)
    return jax.nn.silu(x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + 1e-4))


class Body(eqx.Module):
    """Hidden layers in every place, and a head in every place or one for all."""

    hidden: tuple[eqx.nn.Linear, ...]
    top: eqx.nn.Linear | None
    """For all: a layer on the mean and the maximum over the ring."""
    head: eqx.nn.Linear
    kernel: int = eqx.field(static=True)
    """Places that a layer sees; 0 for its own alone."""
    joins: bool = eqx.field(static=True)
    """Whether there is one head for all."""

    def __call__(self, x: Array) -> Array:
        """`[..., P, F]` -> `[..., P, N]`, or `[..., N]` if it `joins`."""
        for weights in self.hidden:
            x = layer(weights, x, self.kernel)
        if self.joins:
            x = x[..., 0, :] if self.top is None else self.join(x)
        return nn.linear(self.head, x)

    def join(self, x: Array) -> Array:
        """`[..., P, F]` -> `[..., F]`."""
        assert self.top is not None
        pooled = jnp.concatenate([x.mean(axis=-2), x.max(axis=-2)], axis=-1)
        return layer(self.top, pooled)


# Categorical variables, by the logarithms of their probabilities.


def mix(logits: Array, share: float) -> Array:
    """Log-probabilities `[..., C]`, with a share of the uniform distribution in them."""
    return jnp.log((1.0 - share) * jax.nn.softmax(logits) + share / logits.shape[-1])


def pick(number: Array, log_probs: Array) -> Array:
    """One-hot draws `[..., K, C]`, by a uniform number `[..., K]` each.

    The gradient goes straight through to the probabilities.
    """
    probs = jnp.exp(log_probs)
    below = jnp.cumsum(probs, axis=-1)[..., :-1] <= number[..., None]
    drawn = jax.nn.one_hot(below.sum(axis=-1), probs.shape[-1])
    return drawn + probs - jax.lax.stop_gradient(probs)


def likeliest(log_probs: Array) -> Array:
    """The likeliest class of each `[..., K, C]`, as one-hot."""
    return jax.nn.one_hot(log_probs.argmax(axis=-1), log_probs.shape[-1])


def divergence(of: Array, from_: Array) -> Array:
    """KL in nats, summed over all variables of a state: `[..., P, K, C]` -> `[...]`."""
    return (jnp.exp(of) * (of - from_)).sum(axis=(-3, -2, -1))


def symlog(x: Array) -> Array:
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


# The model.


class Latent(NamedTuple):
    """States of the model, by place."""

    hidden: Array
    """h, `[..., P, W]`."""
    z: Array
    """`[..., P, K C]`: one-hot for each variable."""
    given: Array
    """`[..., P, G]`: t/H, and the goal if it is observed."""

    @property
    def features(self) -> Array:
        """All of it: `[..., P, F]`."""
        return jnp.concatenate(self, axis=-1)

    @property
    def time(self) -> Array:
        """t/H, `[...]`."""
        return self.given[..., 0, 0]


class Filtered(NamedTuple):
    """What the model makes of sequences, `[T, B, ...]`."""

    latent: Latent
    """Its states, after it has seen the observation."""
    posterior: Array
    """Log-probabilities of z, `[T, B, P, K, C]`."""
    ahead: Array
    """h after the action, `[T, B, P, W]`."""


class World(eqx.Module):
    """The model of the world."""

    evidence: eqx.nn.Linear | None
    """A layer on (h, z) whose mean over the ring goes into every GRU; `conv` has it."""
    entry: eqx.nn.Linear
    inputs: eqx.nn.Linear
    recurrent: eqx.nn.Linear
    prior: Body
    posterior: Body
    tape: Body
    reward: Body
    success: Body
    length: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    places: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    kernel: int = eqx.field(static=True)
    unimix: float = eqx.field(static=True)

    def given(self, obs: Array) -> Array:
        """What is not predicted of observations `[..., D]`, by place."""
        layout = Layout(self.length)
        time, goal = layout.time_column(obs), layout.goal(obs)
        shared = spread(time, self.places)
        if not goal.shape[-1]:
            return shared
        return jnp.concatenate([shared, arrange(goal, self.places)], axis=-1)

    def begin(self, num: int) -> Array:
        """h before `num` episodes."""
        return jnp.zeros((num, self.places, int(self.recurrent.in_features)))

    def advance(self, latent: Latent, action: Array) -> Array:
        """h after `action[...]`."""
        chosen = arrange(jax.nn.one_hot(action, self.num_actions), self.places)
        x = jnp.concatenate([latent.z, chosen, latent.given], axis=-1)
        if self.evidence is not None:
            seen = jnp.concatenate([latent.hidden, latent.z], axis=-1)
            about = layer(self.evidence, seen).mean(axis=-2)
            around = nn.windows(x, self.kernel)
            x = jnp.concatenate([around, spread(about, self.places)], axis=-1)
        x = nn.linear(self.inputs, layer(self.entry, x))
        return nn.gru(self.recurrent, latent.hidden, x)

    def expect(self, hidden: Array) -> Array:
        """The prior: log-probabilities `[..., P, K, C]`."""
        return self._variables(self.prior(hidden))

    def recognise(self, hidden: Array, obs: Array) -> Array:
        """The posterior: log-probabilities `[..., P, K, C]`."""
        cells = arrange(Layout(self.length).cells(obs), self.places)
        return self._variables(self.posterior(jnp.concatenate([hidden, cells], axis=-1)))

    def cells(self, hidden: Array, z: Array) -> Array:
        """Logits of the tape's cells, `[..., L]`."""
        found = self.tape(jnp.concatenate([hidden, z], axis=-1))
        return found.reshape(*found.shape[:-2], self.length)

    def outcome(self, ahead: Array) -> tuple[Array, Array]:
        """Of h after an action: the reward, as symlog, and the logit of success, `[...]`."""
        return self.reward(ahead)[..., 0], self.success(ahead)[..., 0]

    def see(
        self, ahead: Array, obs: Array, is_first: Array, number: Array | None
    ) -> tuple[Latent, Array]:
        """States and posteriors after observations `[B, D]`, from the h of the action before.

        For `number` see `filter`.
        """
        hidden = jnp.where(is_first[:, None, None], 0.0, ahead)
        posterior = self.recognise(hidden, obs)
        z = likeliest(posterior) if number is None else pick(number, posterior)
        return Latent(hidden, flat(z), self.given(obs)), posterior

    def filter(self, obs: Array, action: Array, is_first: Array, number: Array | None) -> Filtered:
        """Along observations `[T, B, D]` and the actions taken there.

        h is zero where `is_first`, and at the first row. z is drawn by a uniform `number`
        `[T, B, P, K]`, or is the likeliest.
        """

        def step(ahead: Array, row: Any) -> Any:
            obs, action, is_first, number = row
            latent, posterior = self.see(ahead, obs, is_first, number)
            ahead = self.advance(latent, action)
            return ahead, Filtered(latent, posterior, ahead)

        rows = obs, action, is_first, number
        return jax.lax.scan(step, self.begin(obs.shape[1]), rows)[1]

    def _variables(self, logits: Array) -> Array:
        apart = logits.reshape(*logits.shape[:-1], -1, self.classes)
        return mix(apart, self.unimix)


def flat(z: Array) -> Array:
    """`[..., K, C]` -> `[..., K C]`."""
    return z.reshape(*z.shape[:-2], -1)


def advance_time(given: Array, tick: Array) -> Array:
    """What is given, a step later; `tick` is 1/H."""
    return given.at[..., 0].add(tick)


def is_final_step(time: Array, tick: Array) -> Array:
    """Whether a step at `time` is the last that the horizon allows."""
    return time + 1.5 * tick > 1.0


class Prediction(NamedTuple):
    """What the model expected, `[depth, T, B, ...]`: entry `[d - 1, t]` is of row t + d, from the
    rows up to t and from the actions up to row t + d - 1."""

    cells: Array
    """Probabilities that the tape's cells are one, `[depth, T, B, L]`."""
    reward: Array
    """Of the step that leads there, `[depth, T, B]`."""
    success: Array
    """Probability that it is the goal, `[depth, T, B]`."""
    is_real: Array
    """Whether row t + d is there and of the same episode: where not, the rest means nothing."""


def predict(
    world: World, key: Array, obs: Array, action: Array, depth: int, samples: int = 8
) -> Prediction:
    """One step ahead and open-loop up to `depth` steps, at every row of sequences.

    Observations `[T, B, D]` and the actions `[T, B]` taken there; the last of them are not looked
    at. An episode starts where t/H is 0. Open-loop the model goes on with z drawn from its prior,
    and probabilities are means over so many draws. States are those that the policy would have.
    """
    is_first = Layout(world.length).time(obs) == 0
    rows = len(obs)
    found = world.filter(obs, action, is_first, None).latent
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (samples, *leaf.shape)), found)
    episode = is_first.cumsum(axis=0)

    def step(latent: Latent, row: tuple[Array, Array]) -> tuple[Latent, Prediction]:
        number, key = row
        here = jnp.minimum(jnp.arange(rows) + number, rows - 1)
        there = jnp.minimum(here + 1, rows - 1)
        chosen = jnp.broadcast_to(action[here], (samples, *action.shape))
        hidden = world.advance(latent, chosen)
        log_probs = world.expect(hidden)
        z = flat(pick(jax.random.uniform(key, log_probs.shape[:-1]), log_probs))
        reward, success = world.outcome(hidden)
        is_there = jnp.arange(rows) + number + 1 < rows
        given = jnp.broadcast_to(world.given(obs)[there], latent.given.shape)
        return Latent(hidden, z, given), Prediction(
            cells=jax.nn.sigmoid(world.cells(hidden, z)).mean(axis=0),
            reward=symexp(reward).mean(axis=0),
            success=jax.nn.sigmoid(success).mean(axis=0),
            is_real=is_there[:, None] & (episode[there] == episode),
        )

    steps = jnp.arange(depth), jax.random.split(key, depth)
    return jax.lax.scan(step, many, steps)[1]
