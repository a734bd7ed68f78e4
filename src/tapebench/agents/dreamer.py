"""Dreamer: an agent that learns a model of the world and practises in it
(DreamerV3, Hafner et al. 2023).

The model is a recurrent state-space model. x is the tape, h what is remembered, z some categorical
variables that are drawn; the state is (h, z).

    h_{t+1} = GRU(h_t, z_t, a_t),  h = 0 at the start of an episode
    q(z_t | h_t, x_t)  posterior        p(z_t | h_t)  prior
    p(x_t | h_t, z_t)  tape        r(h_{t+1})  reward        e(h_{t+1})  whether that is success

    L = mean −log p(x_t) + (symlog r_t − r)² / 2 − log e
        + β_dyn max(free, KL(sg q ‖ p)) + β_rep max(free, KL(q ‖ sg p))

Policy and value learn from `imagination` steps that the model makes up, from states of replayed
sequences on, with a drawn by the policy and z by the prior. c is the chance that the episode goes
on, w the discount and the c up to there multiplied, V⁻ a slowly following copy of V.

    R_t = r_t + γ c_t ((1 − λ) V_{t+1} + λ R_{t+1})
    L_actor = −mean w (sg((R − V) / S) log π(a) + η H(π))
    L_critic = mean w ((V − sg R)² + (V − V⁻)²) / 2

S is the range from the 5th to the 95th percentile, averaged over updates.

Both networks are one program. `mlp` has a single place that holds the whole tape; `conv` has a
place for every cell, with an h and a z of its own. There all weights are shared, the GRU sees its
neighbours and the mean over all cells of what a layer makes of (h, z), and everything commutes with
shifts.

Deviations from Hafner et al.:

1. small: one layer of `width` units for each part of the model, h of as many entries, 32 variables
   of 4 classes instead of 32 of 32, larger learning rates. With
   `steps_per_update` and `starts` this makes 200,000 steps affordable on one core;
2. imagination starts from `starts` random states of a batch, not from all of them;
3. t/H and an observed goal are inputs of the model, not predicted. So the end at the horizon is
   known, also in imagination, and the continuation head only has to predict success;
4. reward and success are predicted from h_{t+1}, before z_{t+1} is known, since replay does not
   store the last observation of an episode: they are expectations over the next state;
5. the tape is reconstructed as bits; reward and value are single numbers instead of distributions
   over bins, as returns here are bounded by the horizon; the value is not symlog;
6. S is the range of R − V instead of that of R, and has no lower limit of 1. Returns differ far
   more by the hidden rule than by what is done, and by S = max(1, range of R) the policy would
   hardly move;
7. sequences start with h = 0 wherever they start; they do not keep a state in replay. The critic
   learns from imagination alone;
8. in use, z is the likeliest and so is the action.

The memory of the policy is the model and h, which is zero again where t/H is 0. The model is in
`rssm`, where `predict` says what it expects of given sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float32, Int32, Integer, Key, PRNGKeyArray, Scalar

from tapebench import env as envs
from tapebench.agents import loop, nn, ppo, replay, returns
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_not_negative,
    check_positive,
    check_shares,
    gradient_step,
    observation_size,
    snapshot,
)
from tapebench.agents.replay import Replay, Sequences
from tapebench.agents.rssm import (
    Body,
    Filtered,
    Latent,
    World,
    advance_time,
    flat,
    is_final_step,
    kl_divergence,
    mix_uniform,
    predict,
    sample_one_hot,
    symexp,
    symlog,
)
from tapebench.base import seeding
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy
from tapebench.tasks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Config:
    SMALL: ClassVar[Mapping[str, Any]] = {
        "network": "mlp",
        "width": 16,
        "channels": 8,
        "depth": 1,
        "latents": 4,
        "cell_latents": 1,
        "batch": 4,
        "sequence": 6,
        "steps_per_update": 8,
        "starts": 8,
        "imagination": 3,
        "replay_size": 400,
        "warmup": 48,
        "num_envs": 8,
        "chunk": 80,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "actor_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 0.95, 0.98),
        "trace": (0.5, 0.8, 0.95),
        "imagination": (5, 10),
        "entropy_weight": (0.001, 0.003, 0.01),
        "steps_per_update": (8, 40),
        "batch": (4, 8),
        "sequence": (16, 32),
        "starts": (32, 64),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""
    METRICS: ClassVar[Mapping[str, str]] = {
        **loop.METRICS,
        "tape_loss": "Cross-entropy of the cells read from a state, summed over cells.",
        "reward_loss": "Half the squared error of the reward, on the symlog scale.",
        "success_loss": "Cross-entropy of success, where the episode may go on.",
        "kl": "Divergence of the posterior from the prior, in nats.",
        "actor_loss": "Of the policy on imagined steps, with its entropy.",
        "critic_loss": "Half the squared difference of values and imagined returns.",
        "entropy": "Of the policy on imagined steps, in nats.",
        "value": "Mean value of imagined states.",
        "imagined_reward": "Mean reward of an imagined step.",
        "range": "The running range that advantages are divided by.",
    }
    """What training reports for every chunk; means over its updates, unless it says otherwise."""

    network: str = "conv"
    """`mlp`: fully connected; `conv`: a model in every cell, which commutes with shifts. Within
    the usual budget `mlp` does not learn to foresee the tape, and so learns nothing else."""
    width: int = 128
    """Entries of h, and units of every layer, of `mlp`."""
    channels: int = 24
    """Entries of h, and units of every layer, of `conv` in each cell."""
    depth: int = 2
    """Hidden layers of policy and value; the parts of the model have one."""
    kernel: int = 3
    """Cells that a layer of `conv` sees, along each side."""
    latents: int = 32
    """Categorical variables of z, of `mlp`."""
    cell_latents: int = 2
    """Categorical variables of z in each cell, of `conv`."""
    classes: int = 4
    """Classes of each."""
    unimix: float = 0.01
    """Share of the uniform distribution in every categorical one, the policy among them."""
    free_nats: float = 1.0
    """A divergence below this costs nothing."""
    dynamics_weight: float = 1.0
    """β_dyn: how much the prior learns from the posterior."""
    representation_weight: float = 0.1
    """β_rep: how much the posterior keeps to the prior."""
    learning_rate: float = 2e-3
    """Of Adam, for the model."""
    actor_rate: float = 5e-4
    """Of Adam, for policy and value."""
    gradient_norm: float = 10.0
    """Longer gradients are cut to this length."""
    batch: int = 8
    """Sequences in an update."""
    sequence: int = 32
    """Steps of each of them."""
    steps_per_update: int = 40
    """Environment steps for each update."""
    starts: int = 64
    """States of a batch from which imagination starts."""
    imagination: int = 5
    """Imagined steps."""
    discount: float = 0.98
    """Per-step discount γ. The horizon is a true end, since the observation carries t/H."""
    trace: float = 0.95
    """λ of the returns: 0 looks one step ahead, 1 as far as imagination goes."""
    entropy_weight: float = 0.001
    """η, the weight of the entropy of the policy."""
    slow_rate: float = 0.1
    """Share of the way that V⁻ goes towards V in an update."""
    range_rate: float = 0.01
    """Share of the present batch in the average S."""
    replay_size: int = 200_000
    """Transitions kept."""
    warmup: int = 1_000
    """Environment steps before the first update."""
    num_envs: int = 8
    """Environments that step together; each step of each one counts."""
    chunk: int = 1_000
    """Environment steps in one call of `train`."""

    def __post_init__(self) -> None:
        one_of("network", self.network, nn.NETWORKS)
        check_counts(
            self, "width", "channels", "depth", "kernel", "latents", "cell_latents", "classes"
        )
        check_counts(self, "batch", "sequence", "steps_per_update", "starts", "imagination")
        check_counts(self, "replay_size", "warmup", "num_envs", "chunk")
        check_shares(self, "unimix", "discount", "trace", "slow_rate", "range_rate")
        check_positive(self, "learning_rate", "actor_rate", "gradient_norm")
        check_not_negative(
            self, "free_nats", "dynamics_weight", "representation_weight", "entropy_weight"
        )
        if self.steps_per_update % self.num_envs:
            raise ValueError(
                f"steps_per_update must be a multiple of num_envs, {self.num_envs}, "
                f"not {self.steps_per_update}"
            )
        if self.chunk % self.steps_per_update:
            raise ValueError(
                f"chunk must be a multiple of steps_per_update, {self.steps_per_update}, "
                f"not {self.chunk}"
            )
        if self.starts > self.batch * self.sequence:
            raise ValueError(f"starts must be at most batch × sequence, not {self.starts}")
        for name in ("warmup", "replay_size"):
            if getattr(self, name) < self.num_envs * self.sequence:
                raise ValueError(
                    f"{name} must be at least num_envs × sequence, "
                    f"{self.num_envs * self.sequence}, not {getattr(self, name)}"
                )


# What is learned, and how.


class Model(eqx.Module):
    """What is learned."""

    world: World
    actor: Body
    critic: Body

    def policy(self, latent: Latent) -> Float32[Array, "*B A"]:
        """Log-probabilities of the actions."""
        logits = self.actor(latent.features)
        return mix_uniform(logits.reshape(*logits.shape[:-2], -1), self.world.unimix)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    model: Model
    slow: Body
    """V⁻."""
    range: Float32[Array, ""]
    """S."""
    optimisers: tuple[optax.OptState, optax.OptState]
    """Of the model, and of policy and value."""
    updates: Int32[Array, ""]


class Memory(NamedTuple):
    """What the policy of B episodes remembers."""

    model: Model
    hidden: Float32[Array, "B P F"]
    """h after its last action."""


def world_loss(
    config: Config,
    world: World,
    key: PRNGKeyArray,
    batch: Sequences,
    tick: Float32[Array, ""],
) -> tuple[Float32[Array, ""], tuple[dict[str, Scalar], Filtered]]:
    """Loss of the world model: reconstruction, reward, success, KL; its parts, and the states."""
    shape = (*batch.action.shape, world.places, *_num_variables(config))
    number = jax.random.uniform(key, shape)
    filtered = world.filter(batch.obs, batch.action, batch.is_first, number)
    prior, posterior = world.prior_log_probs(filtered.latent.hidden), filtered.posterior
    cells, tape = world.cells(*filtered.latent[:2]), Layout(world.length).cells(batch.obs)
    reward, success = world.outcome(filtered.ahead)
    # At the horizon an episode ends anyway, and replay does not say whether by success.
    may_go_on = ~is_final_step(filtered.latent.time, tick)
    wrong = optax.sigmoid_binary_cross_entropy(success, batch.ended.astype(jnp.float32))
    fixed = jax.lax.stop_gradient
    parts = {
        "tape_loss": optax.sigmoid_binary_cross_entropy(cells, tape).sum(axis=-1).mean(),
        "reward_loss": 0.5 * jnp.square(reward - symlog(batch.reward)).mean(),
        "success_loss": (may_go_on * wrong).mean(),
    }
    costs = {
        "dynamics": jnp.maximum(config.free_nats, kl_divergence(fixed(posterior), prior)).mean(),
        "representation": jnp.maximum(
            config.free_nats, kl_divergence(posterior, fixed(prior))
        ).mean(),
    }
    total = (
        jnp.stack([*parts.values()]).sum()
        + config.dynamics_weight * costs["dynamics"]
        + config.representation_weight * costs["representation"]
    )
    parts["kl"] = kl_divergence(posterior, prior).mean()
    return total, (parts, filtered)


class Dream(NamedTuple):
    """Imagined rollouts, `[N, S, ...]`."""

    latent: Latent
    """`[N + 1, S, ...]`: the state before each step, and the last one."""
    action: Int32[Array, "N S"]
    reward: Float32[Array, "N S"]
    goes_on: Float32[Array, "N S"]
    """Probability that the episode continues after the step."""


def imagine(
    config: Config, model: Model, key: PRNGKeyArray, start: Latent, tick: Float32[Array, ""]
) -> Dream:
    """`imagination` steps by the policy from states `[S, ...]`."""
    world = model.world

    def step(latent: Latent, key: Array) -> Any:
        action_key, z_key = jax.random.split(key)
        action = ppo.sample(action_key, model.policy(latent))
        hidden = world.advance(latent, action)
        log_probs = world.prior_log_probs(hidden)
        z = flat(sample_one_hot(jax.random.uniform(z_key, log_probs.shape[:-1]), log_probs))
        return Latent(hidden, z, advance_time(latent.context, tick)), (latent, action, hidden)

    keys = jax.random.split(key, config.imagination)
    last, (before, action, ahead) = jax.lax.scan(step, start, keys)
    reward, success = world.outcome(ahead)
    return Dream(
        latent=jax.tree.map(lambda rows, row: jnp.concatenate([rows, row[None]]), before, last),
        action=action,
        reward=symexp(reward),
        goes_on=jnp.where(is_final_step(before.time, tick), 0.0, jax.nn.sigmoid(-success)),
    )


def behaviour_loss(
    config: Config, model: Model, slow: Body, scale: Float32[Array, ""], dream: Dream
) -> tuple[Float32[Array, ""], tuple[dict[str, Scalar], Float32[Array, ""]]]:
    """Actor and critic losses on imagined rollouts, their parts, and the new advantage scale."""
    fixed = jax.lax.stop_gradient
    latent = jax.tree.map(lambda rows: rows[:-1], dream.latent)
    value = model.critic(dream.latent.features)[..., 0]
    decay = config.discount * dream.goes_on
    target = fixed(returns.lambda_returns(dream.reward, value[:-1], decay, value[-1], config.trace))
    before, target_slow = value[:-1], fixed(slow(latent.features)[..., 0])
    weight = jnp.cumprod(jnp.concatenate([jnp.ones_like(decay[:1]), decay[:-1]]), axis=0)
    advantage = fixed(target - before)
    low, high = jnp.percentile(advantage, jnp.array([5.0, 95.0]))
    scale = scale + config.range_rate * (high - low - scale)
    log_probs = model.policy(latent)
    entropy = ppo.policy_entropy(log_probs)
    gain = advantage / jnp.maximum(scale, 1e-3) * ppo.log_prob(log_probs, dream.action)
    parts = {
        "actor_loss": -(weight * (gain + config.entropy_weight * entropy)).mean(),
        "critic_loss": 0.5 * (weight * jnp.square(before - target)).mean(),
    }
    follow = 0.5 * (weight * jnp.square(before - target_slow)).mean()
    total = parts["actor_loss"] + parts["critic_loss"] + follow
    parts |= {
        "entropy": entropy.mean(),
        "value": before.mean(),
        "imagined_reward": dream.reward.mean(),
        "range": scale,
    }
    return total, (parts, scale)


def _num_variables(config: Config) -> tuple[int, ...]:
    return (config.latents if config.network == "mlp" else config.cell_latents,)


def make_model(key: PRNGKeyArray, config: Config, env: Env, size: int) -> Model:
    """The networks that a config asks for."""
    length, actions = env.length, env.num_actions
    is_plain = config.network == "mlp"
    if not is_plain and actions != length:
        raise ValueError("network 'conv' needs one action per cell: use 'mlp'")
    window = None if is_plain else nn.Window(env.space, config.kernel)
    places, width = (1, config.width) if is_plain else (length, config.channels)
    (variables,) = _num_variables(config)
    z = variables * config.classes
    context_size = 1 + (size - length - 1) // places
    features = width + z + context_size
    around = 1 if window is None else window.size
    everything = 0 if is_plain else width

    def body(inputs: int, outputs: int, depth: int, sees: nn.Window | None, joins: bool) -> Any:
        """Sizes of its layers, and how it is put together."""
        inputs_seen = 1 if sees is None else sees.size + 1
        units = [inputs, *[width] * depth]
        sizes = [(inputs_seen * before, after) for before, after in itertools.pairwise(units)]
        has_top = joins and not is_plain
        sizes += [(2 * width, width)] * has_top + [(width, outputs)]

        def build(layers: Sequence[eqx.nn.Linear]) -> Body:
            hidden, rest = tuple(layers[:depth]), layers[depth:]
            return Body(hidden, rest[0] if has_top else None, rest[-1], sees, joins)

        return sizes, build

    bodies = {
        "prior": body(width, z, 1, None, False),
        "posterior": body(width + length // places, z, 1, None, False),
        "tape": body(width + z, length // places, 1, None, False),
        "reward": body(width, 1, 1, None, True),
        "success": body(width, 1, 1, None, True),
        "actor": body(features, actions // places, config.depth, window, False),
        "critic": body(features, 1, config.depth, None, True),
    }
    own = [
        (width + z, width),
        (around * (z + actions // places + context_size) + everything, width),
        (width, 3 * width),
        (width, 3 * width),
    ]
    # All in one draw, see `nn.layers`.
    linears = nn.layers(key, *own, *itertools.chain(*(sizes for sizes, _ in bodies.values())))
    ends = itertools.accumulate((len(sizes) for sizes, _ in bodies.values()), initial=len(own))
    built = {
        name: build(linears[start : start + len(sizes)])
        for start, (name, (sizes, build)) in zip(ends, bodies.items(), strict=False)
    }
    for name in ("actor", "critic", "reward"):
        built[name] = eqx.tree_at(lambda body: body.head, built[name], replace_fn=nn.fade)
    evidence, entry, inputs, recurrent = linears[: len(own)]
    actor, critic = built.pop("actor"), built.pop("critic")
    world = World(
        evidence=None if is_plain else evidence,
        entry=entry,
        inputs=inputs,
        recurrent=recurrent,
        **built,
        length=length,
        num_actions=actions,
        places=places,
        classes=config.classes,
        window=window,
        unimix=config.unimix,
    )
    return Model(world, actor, critic)


def optimiser(config: Config, rate: float) -> optax.GradientTransformation:
    """Adam on clipped gradients, as one vector: it compiles in a fraction of the time."""
    clip = optax.clip_by_global_norm(config.gradient_norm)
    return optax.flatten(optax.chain(clip, optax.adam(rate)))


def train_step(
    config: Config, key: PRNGKeyArray, learner: Learner, stored: Replay
) -> tuple[Learner, dict[str, Scalar]]:
    """One update: the world model on replayed sequences, then actor and critic in imagination."""
    draw_key, model_key, start_key, dream_key = jax.random.split(key, 4)
    batch = replay.draw_sequences(draw_key, stored, config.batch, config.sequence)
    tick = 1.0 / stored.horizon.astype(jnp.float32)
    model, (world_state, behaviour_state) = learner.model, learner.optimisers

    def loss_of_world(world: World) -> Any:
        return world_loss(config, world, model_key, batch, tick)

    world, world_state, (parts, filtered) = gradient_step(
        optimiser(config, config.learning_rate), loss_of_world, model.world, world_state
    )
    model = eqx.tree_at(lambda model: model.world, model, world)

    num = config.batch * config.sequence
    indices = jax.random.bits(start_key, (config.starts,)) % num
    start = jax.tree.map(lambda rows: rows.reshape(num, *rows.shape[2:])[indices], filtered.latent)
    dream = imagine(config, model, dream_key, start, tick)

    def loss_of_behaviour(learned: tuple[Body, Body]) -> Any:
        present = Model(world, *learned)
        return behaviour_loss(config, present, learner.slow, learner.range, dream)

    (actor, critic), behaviour_state, (more, scale) = gradient_step(
        optimiser(config, config.actor_rate),
        loss_of_behaviour,
        (model.actor, model.critic),
        behaviour_state,
    )
    return Learner(
        model=Model(world, actor, critic),
        slow=optax.incremental_update(critic, learner.slow, config.slow_rate),
        range=scale,
        optimisers=(world_state, behaviour_state),
        updates=learner.updates + 1,
    ), parts | more


def begin(model: Model, num: int) -> Memory:
    """The memory of the policy of `num` episodes."""
    return Memory(model, model.world.begin(num))


def observe(
    model: Model,
    hidden: Float32[Array, "B P F"],
    obs: Float32[Array, "B D"],
    number: Float32[Array, "B P K"] | None,
) -> Latent:
    """The state after observations, with t/H back at 0 as the sign of a new episode."""
    is_first = Layout(model.world.length).time(obs) == 0
    return model.world.observe(hidden, obs, is_first, number)[0]


def act(memory: Memory, obs: Float32[Array, "B D"], key: Any) -> tuple[Memory, Int32[Array, " B"]]:
    """The `act` of the policy: the likeliest state, and the likeliest action in it."""
    latent = observe(memory.model, memory.hidden, obs, None)
    action = memory.model.policy(latent).argmax(axis=-1)
    return memory._replace(hidden=memory.model.world.advance(latent, action)), action


# The loop.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Learner
    replay: Replay
    hidden: Float32[Array, "E P F"]
    """h of the environments before their present observations."""
    env: Any
    """The environments' states, `[E]`."""
    key: Key[Array, ""]
    steps: Int32[Array, ""]
    """Environment steps so far."""


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build Dreamer for this environment."""
    size = observation_size(env, params)

    def policy(state: State) -> Policy:
        return snapshot("dreamer", state.learner.model, begin, act)

    return Agent(
        name="dreamer",
        chunk=config.chunk,
        init=partial(_init, config, env, size, params),
        train=partial(_train, config, env, params),
        policy=policy,
        forecast=lambda state: partial(forecast, state.learner.model.world),
    )


def forecast(
    world: World,
    obs: Float32[np.ndarray, "T B D"],
    action: Integer[np.ndarray, "T B"],
    is_real: Bool[np.ndarray, "T B"],
    depth: int,
) -> Float32[np.ndarray, "depth T B L"]:
    """A `Forecaster`: predictions of the world model, averaged over latent samples."""
    key = seeding.key(0, "credibility")
    rows = max(1, 2**15 // len(obs))  # what bounds memory
    parts = [
        _foresee(world, key, obs[:, start : start + rows], action[:, start : start + rows], depth)
        for start in range(0, obs.shape[1], rows)
    ]
    return np.concatenate(parts, axis=2)


@partial(jax.jit, static_argnums=4)
def _foresee(world: World, key: Array, obs: Array, action: Array, depth: int) -> Array:
    return predict(world, key, obs, action, depth).cells


@partial(jax.jit, static_argnums=(0, 1, 2))
def _init(
    config: Config, env: envs.TapeEnv, size: int, params: envs.EnvParams, key: Array
) -> State:
    model_key, env_key, key = jax.random.split(key, 3)
    keys = jax.random.split(env_key, config.num_envs)
    obs, running = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    model = make_model(model_key, config, env, size)
    learner = Learner(
        model=model,
        slow=jax.tree.map(jnp.copy, model.critic),
        range=jnp.float32(1.0),
        optimisers=(
            optimiser(config, config.learning_rate).init(model.world),
            optimiser(config, config.actor_rate).init((model.actor, model.critic)),
        ),
        updates=jnp.int32(0),
    )
    return State(
        learner=learner,
        replay=replay.empty(obs, config.replay_size, env.length, jnp.copy(params.horizon)),
        hidden=model.world.begin(config.num_envs),
        env=running,
        key=key,
        steps=jnp.int32(0),
    )


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _train(
    config: Config, env: envs.TapeEnv, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """`chunk` environment steps, and an update after every `steps_per_update` of them."""
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))

    def play(carry: tuple[State, Array], _: None) -> Any:
        """One step of every environment."""
        state, obs = carry
        model = state.learner.model
        key, z_key, action_key = jax.random.split(state.key, 3)
        shape = config.num_envs, model.world.places, *_num_variables(config)
        latent = observe(model, state.hidden, obs, jax.random.uniform(z_key, shape))
        action = ppo.sample(action_key, model.policy(latent))
        obs, running, reward, terminated, truncated, _info = step(None, state.env, action, params)
        state = replace(
            state,
            replay=replay.append(state.replay, action, reward, obs),
            hidden=model.world.advance(latent, action),
            env=running,
            key=key,
            steps=state.steps + config.num_envs,
        )
        return (state, obs), loop.step_metrics(reward, terminated, truncated)

    state, outcomes, means = loop.replay_loop(
        state,
        jax.vmap(env.observe, in_axes=(0, None))(state.env, params),
        play,
        partial(train_step, config),
        lambda state: (state.steps >= config.warmup).astype(jnp.int32),
        plays=config.steps_per_update // config.num_envs,
        rounds=config.chunk // config.steps_per_update,
    )
    return state, loop.totals(outcomes, config.chunk) | means
