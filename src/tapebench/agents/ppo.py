"""PPO: proximal policy optimisation with the clipped objective (Schulman et al. 2017).

    ρ = π(a | s) / π_old(a | s)
    L = −mean min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) + c_v mean (V(s) − y)² / 2 − c_e mean H(π(· | s))

A are the advantages of `returns`, normalised over the steps that were played, y = A + V_old(s).
An episode ends by success or at the horizon; t/H is observed, so the horizon is a true end and
nothing is bootstrapped over it.

Deviations from Schulman et al.:

1. advantages are normalised over all steps of a round, not minibatch by minibatch, so that the
   objective does not depend on how the steps are shuffled;
2. the learning rate falls on a straight line, by environment steps, to a share that it keeps;
   gradients are clipped by their norm;
3. the policy starts close to uniform: the weights of its last layer are a hundredth of the usual.

PPO + DR is this in an environment that varies (`ppo_dr`); recurrent PPO brings an `Algorithm` of
its own into the same loop (`rppo`), which is the second half of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float32, Int32, Integer, Key, PRNGKeyArray, Scalar, UInt32

from tapebench import env as envs
from tapebench.agents import nn, returns
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_not_negative,
    check_positive,
    check_shares,
    gradient_step,
    learning_rate,
    observation_size,
    snapshot,
)
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Config:
    SMALL: ClassVar[Mapping[str, Any]] = {
        "width": 16,
        "depth": 1,
        "num_envs": 8,
        "rollout": 5,
        "epochs": 2,
        "minibatches": 2,
        "chunk": 80,
        "total_steps": 160,
        "final_rate": 0.5,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 0.98, 1.0),
        "trace": (0.5, 0.8, 0.95),
        "entropy_weight": (0.003, 0.01, 0.03),
        "value_weight": (0.1, 0.5),
        "epochs": (4, 10),
        "minibatches": (4, 8),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    network: str = "mlp"
    """`mlp`: fully connected; `conv`: circular convolutions, which commute with rotation."""
    width: int = 128
    """Units of a hidden layer of `mlp`."""
    channels: int = 16
    """Units of a hidden layer of `conv` in each cell."""
    depth: int = 2
    """Hidden layers."""
    kernel: int = 3
    """Cells that a convolution of `conv` sees."""
    discount: float = 0.9
    """Per-step discount γ. The horizon is a true end, since the observation carries t/H."""
    trace: float = 0.5
    """λ of the advantages: 0 looks one step ahead, 1 as far as was played. What comes later says
    more about the hidden rule than about the action, hence not much."""
    learning_rate: float = 2e-3
    """Of Adam, at the start."""
    final_rate: float = 0.3
    """Share of the learning rate that is left after `total_steps`."""
    total_steps: int = 200_000
    """Environment steps over which the learning rate falls; a run sets them to its budget. Training
    may go on beyond them, at the rate reached by then."""
    clip: float = 0.2
    """ε: how far the probability of an action may move before it pays no more."""
    entropy_weight: float = 0.003
    """c_e, the weight of the entropy of the policy."""
    value_weight: float = 0.5
    """c_v, the weight of the error of the values."""
    gradient_norm: float = 0.5
    """Longer gradients are cut to this length."""
    num_envs: int = 40
    """Environments that step together; each step of each one counts."""
    rollout: int = 25
    """Steps of each environment in a round of play; learning from all of them follows."""
    epochs: int = 10
    """Times that every step of a round is learned from."""
    minibatches: int = 8
    """Updates in an epoch."""
    chunk: int = 1_000
    """Environment steps in one call of `train`."""

    networks: ClassVar[tuple[str, ...]] = nn.NETWORKS
    """What `network` may be."""

    def __post_init__(self) -> None:
        one_of("network", self.network, self.networks)
        check_counts(self, "width", "channels", "depth", "kernel", "total_steps", "num_envs")
        check_counts(self, "rollout", "epochs", "minibatches", "chunk")
        check_shares(self, "discount", "trace", "final_rate")
        check_positive(self, "learning_rate", "clip", "gradient_norm")
        check_not_negative(self, "entropy_weight", "value_weight")
        if self.chunk % self.round:
            raise ValueError(
                f"chunk must be a multiple of num_envs × rollout, {self.round}, not {self.chunk}"
            )
        self.check_minibatches()

    def check_minibatches(self) -> None:
        """Raise a `ValueError` unless a round falls into minibatches of equal size."""
        if self.round % self.minibatches:
            raise ValueError(
                f"minibatches must divide num_envs × rollout, {self.round}, not {self.minibatches}"
            )

    @property
    def round(self) -> int:
        """Environment steps between two phases of learning."""
        return self.num_envs * self.rollout


class ActorCritic(eqx.Module):
    """A network for the policy, and a value on top of its features.

    With `conv` the logits turn with the tape and the value, taken from the mean over the ring,
    stays.
    """

    network: nn.Network
    value: eqx.nn.Linear

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> tuple[Float32[Array, "*B A"], Float32[Array, "*B"]]:
        """Logits and values."""
        features = self.network.features(obs, latent)
        return self.network(obs, latent), nn.linear(self.value, features)[..., 0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    model: Any
    optimiser: optax.OptState
    updates: Int32[Array, ""]


class Segment(NamedTuple):
    """A rollout to learn from: B sequences of T steps."""

    obs: Float32[Array, "T B D"]
    action: Int32[Array, "T B"]
    log_prob: Float32[Array, "T B"]
    """Of the action, by the policy that took it."""
    advantage: Float32[Array, "T B"]
    """Normalised."""
    target: Float32[Array, "T B"]
    """What the value should be."""


def optimiser(config: Config, rate: float | Float32[Array, ""]) -> optax.GradientTransformation:
    """Adam on clipped gradients. Its state does not depend on the rate."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_norm),
        optax.scale_by_adam(eps=1e-5),
        optax.scale(-rate),
    )


def log_prob(logits: Float32[Array, "*B A"], action: Integer[Array, "*B"]) -> Float32[Array, "*B"]:
    """The log-probability of actions."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def policy_entropy(logits: Float32[Array, "*B A"]) -> Float32[Array, "*B"]:
    """Of each policy, in nats."""
    return -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(axis=-1)


def sample(key: PRNGKeyArray, logits: Float32[Array, "B A"]) -> Int32[Array, " B"]:
    """An action of each policy.

    By one uniform number each: a Gumbel number for every action takes as long as all of play.
    """
    below = jnp.cumsum(jax.nn.softmax(logits), axis=-1)
    number = jax.random.uniform(key, (len(logits), 1))
    # Rounded, the last of them may stay below one.
    return jnp.minimum((below <= number).sum(axis=-1), logits.shape[-1] - 1)


def shuffle(key: PRNGKeyArray, times: int, num: int) -> UInt32[Array, "times num"]:
    """`times` random permutations of `num` indices.

    Random bits above the number of the thing, sorted. That is ten times faster than to sort pairs;
    where the bits above are equal, which is rare, the smaller number comes first.
    """
    number = jnp.arange(num, dtype=jnp.uint32)
    is_number = jnp.uint32((1 << (num - 1).bit_length()) - 1)
    drawn = jax.random.bits(key, (times, num))
    return jnp.sort(drawn & ~is_number | number) & is_number


def clipped(
    ratio: Float32[Array, "*B"], advantage: Float32[Array, "*B"], clip: float
) -> Float32[Array, "*B"]:
    """PPO's clipped surrogate objective, to be maximised."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def loss(
    config: Config,
    logits: Float32[Array, "T B A"],
    value: Float32[Array, "T B"],
    batch: Segment,
) -> tuple[Float32[Array, ""], dict[str, Scalar]]:
    """The clipped loss of PPO with those of value and entropy, and its parts."""
    change = log_prob(logits, batch.action) - batch.log_prob
    ratio = jnp.exp(change)
    parts = {
        "policy_loss": -clipped(ratio, batch.advantage, config.clip).mean(),
        "value_loss": 0.5 * jnp.square(value - batch.target).mean(),
        "entropy": policy_entropy(logits).mean(),
    }
    total = (
        parts["policy_loss"]
        + config.value_weight * parts["value_loss"]
        - config.entropy_weight * parts["entropy"]
    )
    # The estimator of the divergence from the old policy that is never negative.
    parts["kl"] = (ratio - 1.0 - change).mean()
    parts["clipped"] = (jnp.abs(ratio - 1.0) > config.clip).mean()
    return total, parts


def normalise(advantage: Float32[Array, "*B"]) -> Float32[Array, "*B"]:
    """Scale to mean 0 and standard deviation 1; constant values become zeros."""
    centred = advantage - advantage.mean()
    return centred / (centred.std() + 1e-8)


def make_model(
    key: PRNGKeyArray,
    kind: str,
    config: Config,
    env: Env,
    size: int,
    latent_size: int = 0,
) -> ActorCritic:
    """Policy and value by a network of this kind."""
    network_key, value_key = jax.random.split(key)
    network = nn.make(
        network_key,
        kind,
        length=env.length,
        observation_size=size,
        num_actions=env.num_actions,
        width=config.width,
        channels=config.channels,
        depth=config.depth,
        kernel=config.kernel,
        latent_size=latent_size,
    )
    network = eqx.tree_at(lambda net: net.head, network, replace_fn=nn.fade)
    (value,) = nn.layers(value_key, (int(network.head.in_features), 1))
    return ActorCritic(network, value)


def make(config: Config, env: Env, params: envs.EnvParams, *, name: str = "ppo") -> Agent:
    """Build PPO for this environment."""
    size = observation_size(env, params)
    return build(config, env, params, _algorithm(name, config, env, size))


@cache
def _algorithm(name: str, config: Config, env: Env, size: int) -> Algorithm:
    def init(key: Array) -> ActorCritic:
        return make_model(key, config.network, config, env, size)

    def see(model: ActorCritic, memory: tuple[()], obs: Array) -> tuple[tuple[()], Array, Array]:
        return memory, *model(obs)

    def unroll(model: ActorCritic, memory: tuple[()], obs: Array, action: Array) -> Any:
        return model(obs)

    return Algorithm(
        name=name,
        init=init,
        begin=lambda num: (),
        see=see,
        note=lambda memory, action: memory,
        unroll=unroll,
        act=greedy_act(see, lambda memory, action: memory),
        is_recurrent=False,
    )


# What the policy-gradient agents share: the loop of play and learning.

See = Callable[[Any, Any, Array], tuple[Any, Array, Array]]
"""Model, memory and observations `[B, D]` -> memory after, logits `[B, A]`, values `[B]`."""
Note = Callable[[Any, Array], Any]
"""Memory and the actions `[B]` that were taken -> memory."""


@dataclass(frozen=True)
class Algorithm:
    """The parts of the loop that differ between agents.

    To be made once for a config (`functools.cache`): the compiled programs belong to it.
    """

    name: str
    init: Callable[[Array], Any]
    """Key -> model, a pytree of arrays."""
    begin: Callable[[int], Any]
    """Number of episodes -> the memory before any observation, every leaf `[B, ...]`."""
    see: See
    note: Note
    unroll: Callable[[Any, Any, Array, Array], tuple[Array, Array]]
    """Model, memory before the first row, observations `[T, B, D]` and actions `[T, B]` -> the
    logits `[T, B, A]` and values `[T, B]` that `see` and `note` would give in turn."""
    act: Callable[[Any, Array, Array], tuple[Any, Array]]
    """The `act` of its policy, made by `greedy_act`."""
    is_recurrent: bool
    """Whether play has to be learned from in pieces of `rollout` steps; else step by step."""
    recall: Callable[[Any], Array] | None = None
    """The `recall` of its policy, where it remembers anything."""


def greedy_act(see: See, note: Note) -> Callable[[Any, Array, Array], tuple[Any, Array]]:
    """The `act` that takes the likeliest action. Its memory is `(model, memory)`."""

    def act(memory: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        model, inner = memory
        inner, logits, _ = see(model, inner, obs)
        action = logits.argmax(axis=-1)
        return (model, note(inner, action)), action

    return act


@cache
def noted(note: Note) -> Note:
    """The `note` of the policy whose `act` is made by `greedy_act` of it."""
    return lambda memory, action: (memory[0], note(memory[1], action))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Learner
    memory: Any
    """What the policy remembers of the environments, before their present observations."""
    env: Any
    """The environments' states, `[E]`."""
    key: Key[Array, ""]
    steps: Int32[Array, ""]
    """Environment steps so far."""


def build(config: Config, env: Env, params: envs.EnvParams, algorithm: Algorithm) -> Agent:
    """The agent that runs `algorithm` in the loop below."""

    def begin(model: Any, num: int) -> Any:
        return model, algorithm.begin(num)

    def policy(state: State) -> Policy:
        return snapshot(
            algorithm.name,
            state.learner.model,
            begin,
            algorithm.act,
            noted(algorithm.note),
            algorithm.recall,
        )

    return Agent(
        name=algorithm.name,
        chunk=config.chunk,
        init=partial(_init, config, env, algorithm, params),
        train=partial(_train, config, env, algorithm, params),
        policy=policy,
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _init(
    config: Config, env: Env, algorithm: Algorithm, params: envs.EnvParams, key: Array
) -> State:
    model_key, env_key, key = jax.random.split(key, 3)
    keys = jax.random.split(env_key, config.num_envs)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    model = algorithm.init(model_key)
    return State(
        learner=Learner(model, optimiser(config, jnp.float32(0)).init(model), jnp.int32(0)),
        memory=algorithm.begin(config.num_envs),
        env=state,
        key=key,
        steps=jnp.int32(0),
    )


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _train(
    config: Config, env: Env, algorithm: Algorithm, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """`chunk` environment steps in rounds: play, then learn from what was played."""

    def iterate(carry: tuple[State, Array], _: None) -> Any:
        state, obs = carry
        key, play_key, learn_key = jax.random.split(state.key, 3)
        rate = learning_rate(config, state.steps)
        model, before = state.learner.model, state.memory
        (memory, running, obs), segment, outcomes = play(
            play_key, config, env, algorithm, params, model, (before, state.env, obs)
        )
        learner, parts = learn(learn_key, config, algorithm, rate, state.learner, before, segment)
        state = State(learner, memory, running, key, state.steps + config.round)
        return (state, obs), (outcomes, parts | {"learning_rate": rate})

    carry = (state, jax.vmap(env.observe, in_axes=(0, None))(state.env, params))
    rounds = config.chunk // config.round
    (state, _), (outcomes, parts) = jax.lax.scan(iterate, carry, length=rounds)
    metrics = {name: values.sum() for name, values in outcomes.items()}
    metrics["reward"] = metrics["reward"] / config.chunk
    return state, metrics | {name: values.mean() for name, values in parts.items()}


def play(
    key: PRNGKeyArray,
    config: Config,
    env: Env,
    algorithm: Algorithm,
    params: Any,
    model: Any,
    start: tuple[Any, Any, Float32[Array, "E D"]],
) -> tuple[tuple[Any, Any, Float32[Array, "E D"]], Segment, dict[str, Scalar]]:
    """Collect `rollout` steps of every environment, from (memory, states, observations).

    Returns these after the last step, the segment to learn from, and sums for the metrics.
    """
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))

    def move(carry: tuple[Any, Any, Array], key: Array) -> Any:
        memory, running, obs = carry
        memory, logits, value = algorithm.see(model, memory, obs)
        action = sample(key, logits)
        memory = algorithm.note(memory, action)
        after, running, reward, terminated, truncated, _ = step(None, running, action, params)
        row = obs, action, log_prob(logits, action), value, reward, terminated, truncated
        return (memory, running, after), row

    keys = jax.random.split(key, config.rollout)
    last, rows = jax.lax.scan(move, start, keys)
    obs, action, log_probs, value, reward, terminated, truncated = rows
    ended = terminated | truncated
    _, _, following = algorithm.see(model, last[0], last[2])
    advantage = returns.advantages(reward, value, ended, following, config.discount, config.trace)
    segment = Segment(obs, action, log_probs, normalise(advantage), advantage + value)
    outcomes = {"episodes": ended.sum(), "successes": terminated.sum(), "reward": reward.sum()}
    return last, segment, outcomes


def learn(
    key: PRNGKeyArray,
    config: Config,
    algorithm: Algorithm,
    rate: Float32[Array, ""],
    learner: Learner,
    memory: Any,
    segment: Segment,
) -> tuple[Learner, dict[str, Scalar]]:
    """`epochs` passes over a segment in minibatches; the learner, and means of its metrics."""
    if not algorithm.is_recurrent:
        # Without memory, every step is a piece of its own.
        segment = jax.tree.map(lambda rows: rows.reshape(1, -1, *rows.shape[2:]), segment)
    num = segment.action.shape[1]
    orders = shuffle(key, config.epochs, num)
    descent = optimiser(config, rate)

    def update(learner: Learner, indices: Array) -> Any:
        batch = jax.tree.map(lambda rows: rows[:, indices], segment)
        start = jax.tree.map(lambda rows: rows[indices], memory)

        def batch_loss(model: Any) -> tuple[Array, dict[str, Array]]:
            logits, value = algorithm.unroll(model, start, batch.obs, batch.action)
            return loss(config, logits, value, batch)

        model, state, parts = gradient_step(descent, batch_loss, learner.model, learner.optimiser)
        return Learner(model, state, learner.updates + 1), parts

    minibatches = orders.reshape(config.epochs * config.minibatches, -1)
    learner, parts = jax.lax.scan(update, learner, minibatches)
    return learner, {name: values.mean() for name, values in parts.items()}
