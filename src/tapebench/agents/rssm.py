"""The model of the world that `dreamer` learns, and what it expects of given sequences.

`dreamer` has the equations. A state is by place: a single one that holds the whole tape, or one for
every cell of the space, and then all of it commutes with shifts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Integer, PRNGKeyArray

from tapebench.agents import nn
from tapebench.agents.nn import Window
from tapebench.tasks.layout import Layout

# Places: P = 1 for `mlp`, a cell each for `conv`.


def arrange(x: Float32[Any, "*B N"], places: int) -> Float32[Any, "*B P N//P"]:
    """What belongs to cells, by place."""
    return x.reshape(*x.shape[:-1], places, -1)


def spread(x: Float32[Array, "*B N"], places: int) -> Float32[Array, "*B P N"]:
    """The same in every place."""
    return jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], places, x.shape[-1]))


def layer(
    weights: eqx.nn.Linear, x: Float32[Array, "*B F"], window: Window | None = None
) -> Float32[Array, "*B outputs"]:
    """A hidden layer in every place: linear, scaled to a mean square of one, then SiLU.

    With a `window` each place, a cell, sees the cells in it and the mean over all.
    """
    if window is not None:
        # The mean is the same everywhere, and so is what becomes of it.
        assert weights.bias is not None
        places, size = x.shape[-2:]
        near, far = jnp.split(weights.weight, [window.size * size], axis=-1)
        everywhere = x.mean(axis=-2) @ far.T + weights.bias
        x = window.around(x) @ near.T + spread(everywhere, places)
    else:
        x = nn.linear(weights, x)
    return jax.nn.silu(x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + 1e-4))


class Body(eqx.Module):
    """Hidden layers in every place, and a head in every place or one for all."""

    hidden: tuple[eqx.nn.Linear, ...]
    top: eqx.nn.Linear | None
    """For all: a layer on the mean and the maximum over all cells."""
    head: eqx.nn.Linear
    window: Window | None = eqx.field(static=True)
    """Cells that a layer sees; nothing where each place sees itself alone."""
    joins: bool = eqx.field(static=True)
    """Whether there is one head for all."""

    def __call__(self, x: Float32[Array, "*B P F"]) -> Float32[Array, "*outputs"]:
        """`[..., P, F]` -> `[..., P, N]`, or `[..., N]` if it `joins`."""
        for weights in self.hidden:
            x = layer(weights, x, self.window)
        if self.joins:
            x = x[..., 0, :] if self.top is None else self.join(x)
        return nn.linear(self.head, x)

    def join(self, x: Float32[Array, "*B P F"]) -> Float32[Array, "*B F"]:
        """What all places have in common."""
        assert self.top is not None
        pooled = jnp.concatenate([x.mean(axis=-2), x.max(axis=-2)], axis=-1)
        return layer(self.top, pooled)


# Categorical variables, by the logarithms of their probabilities.


def mix_uniform(logits: Float32[Array, "*B C"], share: float) -> Float32[Array, "*B C"]:
    """Log-probabilities, with a share of the uniform distribution in them."""
    return jnp.log((1.0 - share) * jax.nn.softmax(logits) + share / logits.shape[-1])


def sample_one_hot(
    number: Float32[Array, "*B K"], log_probs: Float32[Array, "*B K C"]
) -> Float32[Array, "*B K C"]:
    """One-hot draws, by a uniform number each.

    The gradient goes straight through to the probabilities.
    """
    probs = jnp.exp(log_probs)
    below = jnp.cumsum(probs, axis=-1)[..., :-1] <= number[..., None]
    drawn = jax.nn.one_hot(below.sum(axis=-1), probs.shape[-1])
    return drawn + probs - jax.lax.stop_gradient(probs)


def likeliest(log_probs: Float32[Array, "*B K C"]) -> Float32[Array, "*B K C"]:
    """The likeliest class of each, as one-hot."""
    return jax.nn.one_hot(log_probs.argmax(axis=-1), log_probs.shape[-1])


def kl_divergence(
    of: Float32[Array, "*B P K C"], from_: Float32[Array, "*B P K C"]
) -> Float32[Array, "*B"]:
    """KL in nats, summed over all variables of a state."""
    return (jnp.exp(of) * (of - from_)).sum(axis=(-3, -2, -1))


def symlog(x: Float32[Array, "*B"]) -> Float32[Array, "*B"]:
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Float32[Array, "*B"]) -> Float32[Array, "*B"]:
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


# The model.


class Latent(NamedTuple):
    """States of the model, by place."""

    hidden: Float32[Array, "*B P F"]
    """h."""
    z: Float32[Array, "*B P KC"]
    """One-hot for each variable."""
    context: Float32[Array, "*B P G"]
    """t/H, and the goal if it is observed."""

    @property
    def features(self) -> Float32[Array, "*B P F"]:
        """All of it."""
        return jnp.concatenate(self, axis=-1)

    @property
    def time(self) -> Float32[Array, "*B"]:
        """t/H."""
        return self.context[..., 0, 0]


class Filtered(NamedTuple):
    """The model's states along sequences, `[T, B, ...]`."""

    latent: Latent
    """Its states, after it has seen the observation."""
    posterior: Float32[Array, "T B P K C"]
    """Log-probabilities of z."""
    ahead: Float32[Array, "T B P F"]
    """h after the action."""


class World(eqx.Module):
    """The model of the world."""

    evidence: eqx.nn.Linear | None
    """A layer on (h, z) whose mean over all cells goes into every GRU; `conv` has it."""
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
    window: Window | None = eqx.field(static=True)
    """Cells that the GRU of each sees; `conv` has it."""
    unimix: float = eqx.field(static=True)

    def context(self, obs: Float32[Array, "*B D"]) -> Float32[Array, "*B P G"]:
        """What is observed but not predicted, by place: t/H and the goal."""
        layout = Layout(self.length)
        time, goal = layout.time_column(obs), layout.goal(obs)
        shared = spread(time, self.places)
        if not goal.shape[-1]:
            return shared
        return jnp.concatenate([shared, arrange(goal, self.places)], axis=-1)

    def begin(self, num: int) -> Float32[Array, "B P F"]:
        """h before `num` episodes."""
        return jnp.zeros((num, self.places, int(self.recurrent.in_features)))

    def advance(self, latent: Latent, action: Integer[Array, "*B"]) -> Float32[Array, "*B P F"]:
        """h after the actions."""
        one_hot_action = arrange(jax.nn.one_hot(action, self.num_actions), self.places)
        x = jnp.concatenate([latent.z, one_hot_action, latent.context], axis=-1)
        if self.evidence is not None and self.window is not None:
            state = jnp.concatenate([latent.hidden, latent.z], axis=-1)
            about = layer(self.evidence, state).mean(axis=-2)
            around = self.window.around(x)
            x = jnp.concatenate([around, spread(about, self.places)], axis=-1)
        x = nn.linear(self.inputs, layer(self.entry, x))
        return nn.gru(self.recurrent, latent.hidden, x)

    def prior_log_probs(self, hidden: Float32[Array, "*B P F"]) -> Float32[Array, "*B P K C"]:
        """The prior: log-probabilities."""
        return self._variables(self.prior(hidden))

    def posterior_log_probs(
        self, hidden: Float32[Array, "*B P F"], obs: Float32[Array, "*B D"]
    ) -> Float32[Array, "*B P K C"]:
        """The posterior: log-probabilities."""
        cells = arrange(Layout(self.length).cells(obs), self.places)
        return self._variables(self.posterior(jnp.concatenate([hidden, cells], axis=-1)))

    def cells(
        self, hidden: Float32[Array, "*B P F"], z: Float32[Array, "*B P KC"]
    ) -> Float32[Array, "*B L"]:
        """Logits of the tape's cells."""
        logits = self.tape(jnp.concatenate([hidden, z], axis=-1))
        return logits.reshape(*logits.shape[:-2], self.length)

    def outcome(
        self, ahead: Float32[Array, "*B P F"]
    ) -> tuple[Float32[Array, "*B"], Float32[Array, "*B"]]:
        """Of h after an action: the reward, as symlog, and the logit of success."""
        return self.reward(ahead)[..., 0], self.success(ahead)[..., 0]

    def observe(
        self,
        ahead: Float32[Array, "B P F"],
        obs: Float32[Array, "B D"],
        is_first: Bool[Array, " B"],
        number: Float32[Array, "B P K"] | None,
    ) -> tuple[Latent, Float32[Array, "B P K C"]]:
        """States and posteriors after observations, from the h of the action before.

        For `number` see `filter`.
        """
        hidden = jnp.where(is_first[:, None, None], 0.0, ahead)
        posterior = self.posterior_log_probs(hidden, obs)
        z = likeliest(posterior) if number is None else sample_one_hot(number, posterior)
        return Latent(hidden, flat(z), self.context(obs)), posterior

    def filter(
        self,
        obs: Float32[Array, "T B D"],
        action: Integer[Array, "T B"],
        is_first: Bool[Array, "T B"],
        number: Float32[Array, "T B P K"] | None,
    ) -> Filtered:
        """Along observations and the actions taken there.

        h is zero where `is_first`, and at the first row. z is drawn by a uniform `number`, or is
        the likeliest.
        """

        def step(ahead: Array, row: Any) -> Any:
            obs, action, is_first, number = row
            latent, posterior = self.observe(ahead, obs, is_first, number)
            ahead = self.advance(latent, action)
            return ahead, Filtered(latent, posterior, ahead)

        rows = obs, action, is_first, number
        return jax.lax.scan(step, self.begin(obs.shape[1]), rows)[1]

    def _variables(self, logits: Array) -> Array:
        apart = logits.reshape(*logits.shape[:-1], -1, self.classes)
        return mix_uniform(apart, self.unimix)


def flat(z: Float32[Array, "*B K C"]) -> Float32[Array, "*B K*C"]:
    """All variables one after the other."""
    return z.reshape(*z.shape[:-2], -1)


def advance_time(
    context: Float32[Array, "*B P G"], tick: Float32[Array, ""]
) -> Float32[Array, "*B P G"]:
    """The context one step later; `tick` is 1/H."""
    return context.at[..., 0].add(tick)


def is_final_step(time: Float32[Array, "*B"], tick: Float32[Array, ""]) -> Bool[Array, "*B"]:
    """Whether a step at `time` is the last that the horizon allows."""
    return time + 1.5 * tick > 1.0


class Prediction(NamedTuple):
    """Open-loop predictions, `[depth, T, B, ...]`: entry `[d - 1, t]` is of row t + d, from the
    rows up to t and from the actions up to row t + d - 1."""

    cells: Float32[Array, "depth T B L"]
    """Probabilities that the tape's cells are one."""
    reward: Float32[Array, "depth T B"]
    """Of the step that leads there."""
    success: Float32[Array, "depth T B"]
    """Probability that it is the goal."""
    is_real: Bool[Array, "depth T B"]
    """Whether row t + d is there and of the same episode: where not, the rest means nothing."""


def predict(
    world: World,
    key: PRNGKeyArray,
    obs: Float32[Array, "T B D"],
    action: Integer[Array, "T B"],
    depth: int,
    samples: int = 8,
) -> Prediction:
    """One step ahead and open-loop up to `depth` steps, at every row of sequences.

    Of the actions taken there, the last are not looked at. An episode starts where t/H is 0. Open-
    loop the model goes on with z drawn from its prior, and probabilities are means over so many
    draws. States are those that the policy would have.
    """
    is_first = Layout(world.length).time(obs) == 0
    rows = len(obs)
    latent = world.filter(obs, action, is_first, None).latent
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (samples, *leaf.shape)), latent)
    episode = is_first.cumsum(axis=0)

    def step(latent: Latent, row: tuple[Array, Array]) -> tuple[Latent, Prediction]:
        number, key = row
        now = jnp.minimum(jnp.arange(rows) + number, rows - 1)
        next_row = jnp.minimum(now + 1, rows - 1)
        actions = jnp.broadcast_to(action[now], (samples, *action.shape))
        hidden = world.advance(latent, actions)
        log_probs = world.prior_log_probs(hidden)
        z = flat(sample_one_hot(jax.random.uniform(key, log_probs.shape[:-1]), log_probs))
        reward, success = world.outcome(hidden)
        is_there = jnp.arange(rows) + number + 1 < rows
        context = jnp.broadcast_to(world.context(obs)[next_row], latent.context.shape)
        return Latent(hidden, z, context), Prediction(
            cells=jax.nn.sigmoid(world.cells(hidden, z)).mean(axis=0),
            reward=symexp(reward).mean(axis=0),
            success=jax.nn.sigmoid(success).mean(axis=0),
            is_real=is_there[:, None] & (episode[next_row] == episode),
        )

    steps = jnp.arange(depth), jax.random.split(key, depth)
    return jax.lax.scan(step, many, steps)[1]
