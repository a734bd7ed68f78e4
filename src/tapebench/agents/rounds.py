"""The loop of agents that learn in rounds: play for some steps, then learn from all of them.

A round is `rollout` steps of every environment. It is learned from `epochs` times, in minibatches,
and thrown away: what is learned from was always played by (nearly) the policy that learns. Agents
with memory learn from pieces of `rollout` steps, all others step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float32, Int32, Key, PRNGKeyArray, Scalar, UInt32

from tapebench import env as envs
from tapebench.agents import loop, nn
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_positive,
    check_shares,
    gradient_step,
    learning_rate,
    snapshot,
)
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every agent that learns in rounds may set."""

    LATER: ClassVar[Mapping[str, Any]] = {"layer_norm": False}
    """Options that came later, with what agents did before: a stored config without them means
    this."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **loop.METRICS,
        "learning_rate": "Of Adam.",
    }
    """What training reports for every chunk; means over its rounds, unless it says otherwise."""

    network: str = "conv"
    """`conv`: periodic convolutions, which commute with shifts; `mlp`: fully connected."""
    width: int = 128
    """Units of a hidden layer of `mlp`."""
    channels: int = 16
    """Units of a hidden layer of `conv` in each cell."""
    depth: int = 2
    """Hidden layers."""
    kernel: int = 3
    """Cells that a convolution of `conv` sees, along each side."""
    layer_norm: bool = False
    """Whether hidden layers are normalised (Ba et al. 2016)."""
    discount: float = 0.9
    """Per-step discount γ. The horizon is a true end, since the observation carries t/H."""
    trace: float = 0.5
    """λ of the returns: 0 looks one step ahead, 1 as far as was played. What comes later says
    more about the hidden rule than about the action, hence not much."""
    learning_rate: float = 2e-3
    """Of Adam, at the start."""
    final_rate: float = 0.3
    """Share of the learning rate that is left after `total_steps`."""
    total_steps: int = 200_000
    """Environment steps over which the learning rate falls; a run sets them to its budget. Training
    may go on beyond them, at the rate reached by then."""
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
        check_positive(self, "learning_rate", "gradient_norm")
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


def check_whole_pieces(config: Options) -> None:
    """Raise a `ValueError` unless a minibatch of an agent with memory is of whole environments."""
    if config.num_envs % config.minibatches:
        raise ValueError(
            f"minibatches must divide num_envs, {config.num_envs}, not {config.minibatches}"
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    model: Any
    optimiser: optax.OptState
    updates: Int32[Array, ""]


class Played(NamedTuple):
    """The rows of a round, `[T, E]`."""

    kept: Any
    """What `choose` kept of each step."""
    reward: Float32[Array, "T E"]
    ended: Bool[Array, "T E"]
    following: Any
    """What the model says of the observations after the last row, `[E, ...]`."""


class Segment(NamedTuple):
    """A round to learn from: B sequences of T steps."""

    obs: Float32[Array, "T B D"]
    action: Int32[Array, "T B"]
    targets: Any
    """What the loss compares with, every leaf `[T, B]`."""


See = Callable[[Any, Any, Array], tuple[Any, Any]]
"""Model, memory and observations `[B, D]` -> memory after, and what the model says: a tuple, the
first of it logits or action values `[B, A]`."""
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
    unroll: Callable[[Any, Any, Array, Array], Any]
    """Model, memory before the first row, observations `[T, B, D]` and actions `[T, B]` -> what
    the model says of each, as `see` and `note` would in turn."""
    choose: Callable[[Array, Any, Array], tuple[Array, Any]]
    """Key, what the model says and environment steps so far -> actions to play, and what to keep of
    the step for `aim`."""
    aim: Callable[[Played], Any]
    """What was played -> the `targets` of a `Segment`."""
    loss: Callable[[Any, Segment], tuple[Array, dict[str, Array]]]
    """What the model says of a batch, and the batch -> the loss, and scalars to watch."""
    act: Callable[[Any, Array, Array], tuple[Any, Array]]
    """The `act` of its policy, made by `greedy_act`."""
    is_recurrent: bool
    """Whether play has to be learned from in pieces of `rollout` steps; else step by step."""
    recall: Callable[[Any], Array] | None = None
    """The `recall` of its policy, where it remembers anything."""
    scalars: Callable[[Array], dict[str, Array]] = lambda steps: {}
    """Environment steps so far -> further scalars to watch."""


def greedy_act(see: See, note: Note) -> Callable[[Any, Array, Array], tuple[Any, Array]]:
    """The `act` that takes the action it likes best. Its memory is `(model, memory)`."""

    def act(memory: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        model, inner = memory
        inner, (logits, *_) = see(model, inner, obs)
        action = logits.argmax(axis=-1)
        return (model, note(inner, action)), action

    return act


@cache
def noted(note: Note) -> Note:
    """The `note` of the policy whose `act` is made by `greedy_act` of it."""
    return lambda memory, action: (memory[0], note(memory[1], action))


def optimiser(config: Options, rate: float | Float32[Array, ""]) -> optax.GradientTransformation:
    """Adam on clipped gradients. Its state does not depend on the rate."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_norm),
        optax.scale_by_adam(eps=1e-5),
        optax.scale(-rate),
    )


def shuffle(key: PRNGKeyArray, times: int, num: int) -> UInt32[Array, "times num"]:
    """`times` random permutations of `num` indices.

    Random bits above the number of the thing, sorted. That is ten times faster than to sort pairs;
    where the bits above are equal, which is rare, the smaller number comes first.
    """
    number = jnp.arange(num, dtype=jnp.uint32)
    is_number = jnp.uint32((1 << (num - 1).bit_length()) - 1)
    drawn = jax.random.bits(key, (times, num))
    return jnp.sort(drawn & ~is_number | number) & is_number


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


def build(config: Options, env: Env, params: envs.EnvParams, algorithm: Algorithm) -> Agent:
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
    config: Options, env: Env, algorithm: Algorithm, params: envs.EnvParams, key: Array
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
    config: Options, env: Env, algorithm: Algorithm, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """`chunk` environment steps in rounds: play, then learn from what was played."""

    def iterate(carry: tuple[State, Array], _: None) -> Any:
        state, obs = carry
        key, play_key, learn_key = jax.random.split(state.key, 3)
        rate = learning_rate(config, state.steps)
        model, before = state.learner.model, state.memory
        start = (before, state.env, obs)
        (memory, running, obs), segment, outcomes = play(
            play_key, config, env, algorithm, params, model, start, state.steps
        )
        learner, parts = learn(learn_key, config, algorithm, rate, state.learner, before, segment)
        parts |= algorithm.scalars(state.steps) | {"learning_rate": rate}
        state = State(learner, memory, running, key, state.steps + config.round)
        return (state, obs), (outcomes, parts)

    carry = (state, jax.vmap(env.observe, in_axes=(0, None))(state.env, params))
    rounds = config.chunk // config.round
    (state, _), (outcomes, parts) = jax.lax.scan(iterate, carry, length=rounds)
    metrics = {name: values.sum() for name, values in outcomes.items()}
    metrics["reward"] = metrics["reward"] / config.chunk
    return state, metrics | {name: values.mean() for name, values in parts.items()}


def play(
    key: PRNGKeyArray,
    config: Options,
    env: Env,
    algorithm: Algorithm,
    params: Any,
    model: Any,
    start: tuple[Any, Any, Float32[Array, "E D"]],
    steps: Int32[Array, ""],
) -> tuple[tuple[Any, Any, Float32[Array, "E D"]], Segment, dict[str, Scalar]]:
    """Collect `rollout` steps of every environment, from (memory, states, observations).

    Returns these after the last step, the segment to learn from, and sums for the metrics.
    """
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))

    def move(carry: tuple[Any, Any, Array], key: Array) -> Any:
        memory, running, obs = carry
        memory, says = algorithm.see(model, memory, obs)
        action, kept = algorithm.choose(key, says, steps)
        memory = algorithm.note(memory, action)
        after, running, reward, terminated, truncated, _ = step(None, running, action, params)
        return (memory, running, after), (obs, action, kept, reward, terminated, truncated)

    keys = jax.random.split(key, config.rollout)
    last, rows = jax.lax.scan(move, start, keys)
    obs, action, kept, reward, terminated, truncated = rows
    ended = terminated | truncated
    _, following = algorithm.see(model, last[0], last[2])
    segment = Segment(obs, action, algorithm.aim(Played(kept, reward, ended, following)))
    outcomes = {"episodes": ended.sum(), "successes": terminated.sum(), "reward": reward.sum()}
    return last, segment, outcomes


def learn(
    key: PRNGKeyArray,
    config: Options,
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
            says = algorithm.unroll(model, start, batch.obs, batch.action)
            return algorithm.loss(says, batch)

        model, state, parts = gradient_step(descent, batch_loss, learner.model, learner.optimiser)
        return Learner(model, state, learner.updates + 1), parts

    minibatches = orders.reshape(config.epochs * config.minibatches, -1)
    learner, parts = jax.lax.scan(update, learner, minibatches)
    return learner, {name: values.mean() for name, values in parts.items()}
