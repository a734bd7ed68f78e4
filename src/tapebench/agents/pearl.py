"""PEARL-style DQN: Q conditioned on what the episode so far says about its rule
(after Rakelly et al. 2019).

Each transition c = (tape, action, next tape) of the present episode contributes a Gaussian factor
with mean μ(c) and precision ρ(c) ≥ 0. With the prior N(0, 1) their product is

    q(z | c_1..c_n) = N( Σ ρ_i μ_i / (1 + Σ ρ_i),  1 / (1 + Σ ρ_i) ),

which does not depend on their order and is the prior where there is none. With z drawn from it,

    y = r_1 + … + γⁿ⁻¹ r_n + γⁿ (1 − end) Q⁻(s', argmax_a Q(s', a, z'), z⁻)
    L = mean Huber(Q(s, a, z) − y) + λ KL( q(z | c) ‖ N(0, 1) ),

with s' as in `dqn` up to n steps after s.

The encoder learns from both terms, through z. z⁻ comes from a copy of the encoder that is as old as
Q⁻, which could not read what the present one writes.

Deviations from Rakelly et al.:

1. DQN in place of SAC, since actions are cells; Double DQN as in `dqn`;
2. the context is the last `context` transitions of the episode itself, in training as in use. So
   the values are those of an agent that finds its rule out as it goes, and z' and z⁻ know the
   transitions between s and s' too;
3. factors have no reward, which the evaluator does not show: here it follows from the next tape;
4. the encoder sees in how many cells each entry of the rule's table was read, after the flip, and
   what became of it: 16 shares under elementary rules, which shifted tapes have in common
   (`encoder=tapes` shows it both tapes and the action);
5. the prior is a factor of the product, so that no context and little context need no exception;
6. exploration acts on a z drawn anew in every step, the greedy policy on the mean.

The policy keeps its context from one episode to the next as long as its memory lasts, which is
right where the rule stays the same; a transition is never made across two episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float32, Int32, Integer, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents import dqn, nn, replay
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_not_negative,
    gradient_step,
    observation_size,
)
from tapebench.agents.replay import Replay
from tapebench.base.names import one_of
from tapebench.physics import evidence
from tapebench.physics.family import Family
from tapebench.physics.space import Space
from tapebench.tasks.layout import Layout

ENCODERS = ("cases", "tapes")


@dataclass(frozen=True, kw_only=True)
class Config(dqn.Options):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "context": (4, 8),
        "latent_size": (4, 8),
        "kl_weight": (3e-3, 1e-2, 3e-2),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **dqn.Options.METRICS,
        "kl": "Divergence of the posterior from the prior, in nats, before its weight.",
    }
    """See `dqn.Options`."""

    context: int = 8
    """Transitions of the present episode that are looked back on."""
    latent_size: int = 4
    """Entries of z."""
    encoder: str = "cases"
    """What the encoder sees of a transition. `cases`: in how many cells each entry of the rule's
    table became what; `tapes`: both tapes and the action."""
    encoder_width: int = 32
    """Units of the encoder's hidden layers."""
    kl_weight: float = 1e-2
    """λ, the weight of the divergence from the prior."""
    layer_norm: bool = True
    """Whether hidden layers are normalised (Ba et al. 2016). Without it, or with a tenth of
    `kl_weight`, some runs with `mlp` learn nothing or late, see ADR 25."""
    n_step: int = 1
    """Steps whose rewards a target adds up before it relies on the target network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("encoder", self.encoder, ENCODERS)
        check_counts(self, "context", "latent_size", "encoder_width")
        check_not_negative(self, "kl_weight")


class Gaussian(NamedTuple):
    """Factors or posteriors over z, diagonal."""

    precision: Float32[Array, "*B Z"]
    weighted: Float32[Array, "*B Z"]
    """The mean times the precision: what adds up in a product."""

    @property
    def mean(self) -> Float32[Array, "*B Z"]:
        return self.weighted / self.precision

    def draw(self, key: PRNGKeyArray) -> Float32[Array, "*B Z"]:
        """A sample of each."""
        return self.sample(jax.random.normal(key, self.precision.shape))

    def sample(self, deviations: Float32[Array, "*B Z"]) -> Float32[Array, "*B Z"]:
        """Samples by reparametrisation: `deviations` standard deviations from each mean."""
        return self.mean + deviations / jnp.sqrt(self.precision)


def latent_posterior(factors: Gaussian, is_real: Bool[Array, "B C"]) -> Gaussian:
    """The product of the prior and the real ones of factors `[B, C, Z]`."""
    real = is_real[..., None].astype(jnp.float32)
    return Gaussian(
        precision=1.0 + (real * factors.precision).sum(axis=-2),
        weighted=(real * factors.weighted).sum(axis=-2),
    )


def kl_from_prior(posterior: Gaussian) -> Float32[Array, "*B"]:
    """KL from the prior N(0, 1), summed over the entries of z."""
    variance = 1.0 / posterior.precision
    return 0.5 * (variance + posterior.mean**2 - 1.0 - jnp.log(variance)).sum(axis=-1)


class Encoder(eqx.Module):
    """A factor from each transition."""

    hidden: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear
    num_actions: int = eqx.field(static=True)
    family: Family | None = eqx.field(static=True)
    """Of the table whose entries it is shown; nothing where it is shown tapes and the action."""
    space: Space = eqx.field(static=True)

    def __call__(
        self,
        before: Float32[Array, "*B L"],
        action: Integer[Array, "*B"],
        after: Float32[Array, "*B L"],
    ) -> Gaussian:
        """Factors `[..., Z]`."""
        if self.family is not None:
            flipped = evidence.flip(before, action)
            became = evidence.shares(flipped, after, self.family, self.space)
            x = became.reshape(*became.shape[:-2], -1)
        else:
            one_hot_action = jax.nn.one_hot(action, self.num_actions)
            x = jnp.concatenate([before, one_hot_action, after], axis=-1)
        for layer in self.hidden:
            x = jax.nn.relu(nn.linear(layer, x))
        mean, certainty = jnp.split(nn.linear(self.head, x), 2, axis=-1)
        precision = jax.nn.softplus(certainty)
        return Gaussian(precision, precision * mean)


class Model(eqx.Module):
    """What is learned."""

    encoder: Encoder
    network: nn.Network

    def believe(self, past: replay.Past) -> Gaussian:
        """The posterior `[B, Z]` after transitions `[B, C]`."""
        return latent_posterior(self.encoder(past.before, past.action, past.after), past.is_real)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    model: Model
    target: Model
    optimiser: optax.OptState
    updates: Int32[Array, ""]


class Memory(NamedTuple):
    """What the policy of B episodes remembers."""

    model: Model
    factors: Gaussian
    """`[B, C, Z]`: of the last transitions, in no order; zeros where there is none yet."""
    number: Int32[Array, " B"]
    """Transitions seen."""
    obs: Float32[Array, "B D"]
    """The last observation. Its time is past any at the very beginning."""
    action: Int32[Array, " B"]
    """What was done there."""


def make_encoder(key: PRNGKeyArray, config: Config, env: Env) -> Encoder:
    """The encoder that a config asks for."""
    width, by_cell = config.encoder_width, config.encoder == "cases"
    if by_cell and env.num_actions != env.length:
        raise ValueError("encoder 'cases' needs one action per cell: use 'tapes'")
    family = env.family if by_cell else None
    inputs = 2 * family.entries if family else 2 * env.length + env.num_actions
    *hidden, head = nn.layers(key, (inputs, width), (width, width), (width, 2 * config.latent_size))
    return Encoder(tuple(hidden), head, env.num_actions, family, env.space)


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build PEARL for this environment."""
    algorithm = _algorithm(config, env, observation_size(env, params))
    return dqn.build(config, env, params, algorithm)


@cache
def _algorithm(config: Config, env: envs.TapeEnv, size: int) -> dqn.Algorithm:
    length = env.length

    def init(key: Array) -> Learner:
        encoder_key, network_key = jax.random.split(key)
        model = Model(
            encoder=make_encoder(encoder_key, config, env),
            network=dqn.make_network(
                network_key, config.network, config, env, size, latent_size=config.latent_size
            ),
        )
        return Learner(
            model=model,
            target=jax.tree.map(jnp.copy, model),
            optimiser=dqn.optimiser(config, 0).init(model),
            updates=jnp.int32(0),
        )

    def values(
        key: Array, learner: Learner, stored: Replay, memory: Any, obs: Array
    ) -> tuple[Any, Array]:
        past = replay.past(stored, replay.present(stored), config.context)
        return memory, learner.model.network(obs, learner.model.believe(past).draw(key))

    def update(key: Array, learner: Learner, stored: Replay) -> tuple[Learner, dict[str, Array]]:
        draw_key, z_key, next_key = jax.random.split(key, 3)
        places = replay.sample_transitions(draw_key, stored, config.batch)
        batch = replay.take(stored, places, config.n_step, config.discount)
        past = replay.past(stored, places, config.context)
        later = places._replace(ago=places.ago - batch.steps)
        next_past = replay.past(stored, later, config.context)
        noise = jax.random.normal(next_key, (config.batch, config.latent_size))

        def ahead(model: Model) -> Array:
            return model.network(batch.next_obs, model.believe(next_past).sample(noise))

        def loss(model: Model) -> tuple[Array, dict[str, Array]]:
            chooser, judge = ahead(jax.lax.stop_gradient(model)), ahead(learner.target)
            y = dqn.bellman(config, batch, chooser, judge)
            now = model.believe(past)
            taken = dqn.action_values(model.network(batch.obs, now.draw(z_key)), batch.action)
            parts = {
                "loss": optax.huber_loss(taken, y).mean(),
                "kl": kl_from_prior(now).mean(),
            }
            return parts["loss"] + config.kl_weight * parts["kl"], parts

        updates = learner.updates + 1
        model, optimiser_state, parts = gradient_step(
            dqn.optimiser(config, updates), loss, learner.model, learner.optimiser
        )
        target = optax.periodic_update(model, learner.target, updates, config.target_every)
        return Learner(model, target, optimiser_state, updates), parts

    def begin(learner: Learner, num: int) -> Memory:
        nothing = jnp.zeros((num, config.context, config.latent_size))
        return Memory(
            model=learner.model,
            factors=Gaussian(nothing, nothing),
            number=jnp.zeros(num, jnp.int32),
            obs=jnp.full((num, size), 2.0),
            action=jnp.zeros(num, jnp.int32),
        )

    def act(memory: Memory, obs: Array, key: Array) -> tuple[Memory, Array]:
        memory = remember(memory, obs, length)
        action = memory.model.network(obs, recall(memory)).argmax(axis=-1)
        return note(memory._replace(obs=obs), action), action

    return dqn.Algorithm("pearl", init, values, update, begin, act, note, recall)


def recall(memory: Memory) -> Float32[Array, "B Z"]:
    """The posterior mean of z."""
    everything = jnp.ones(memory.factors.precision.shape[:2], bool)
    return latent_posterior(memory.factors, everything).mean


def note(memory: Memory, action: Integer[Array, " B"]) -> Memory:
    """The memory with the action taken at its last observation."""
    return memory._replace(action=action)


def remember(memory: Memory, obs: Float32[Array, "B D"], length: int) -> Memory:
    """The memory with the transition that led to `obs`, where there was one.

    There was none if time did not go on: at the start of an episode, whether the first or a
    later one, and in an episode that stands still because it is over.
    """
    layout = Layout(length)
    happened = layout.time(obs) > layout.time(memory.obs)
    before, after = layout.cells(memory.obs), layout.cells(obs)
    factor = memory.model.encoder(before, memory.action, after)
    slots = memory.factors.precision.shape[1]
    is_slot = jnp.arange(slots) == (memory.number % slots)[:, None]
    write = (is_slot & happened[:, None])[..., None]
    return memory._replace(
        factors=Gaussian(
            *(
                jnp.where(write, new[:, None], old)
                for new, old in zip(factor, memory.factors, strict=True)
            )
        ),
        number=memory.number + happened,
    )
