"""Learning from a dataset instead of an environment: what agents that do so have in common.

The dataset is one of `tapebench.datasets`, made in memory under the run's own training rules, so
that `data`, `episodes` and `data_seed` fix its every byte; its content is that of `tape data make`
with the same arguments. A run stores the hash of it, and is not resumed with another.

A batch is drawn evenly from the *queries* of the dataset: observations with the cells that were
right there. With the `labels` `optimal` these are the cells with which a shortest way begins, the
rule known, and tapes from which no way is short enough for the time that is left are no queries.
With `played` it is the cell that was flipped, by whoever played. The loss is the cross-entropy of
the policy and the even distribution over the cells that are right.

The *context* of a query is what transitions under the same rule have shown: those of its own
episode so far, and with a probability of `earlier` up to `context` more, which in the dataset come
right before that episode, in the same history or, where there are no histories, under the same
rule. Of a transition the context holds what was read by each cell and what became of it. Which cell
was flipped it does not hold by itself, nor who flipped it.

A step is a labelled transition that an update has consumed, however often it was consumed before.
So a budget of these agents counts uses of data and no steps of an environment, and where they stand
in a table beside others that has to be said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float32, Int32, Integer, Key, PRNGKeyArray, Shaped, UInt32

from tapebench import datasets
from tapebench import env as envs
from tapebench.agents import nn
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_positive,
    check_shares,
    gradient_step,
    learning_rate,
    observation_size,
    snapshot,
)
from tapebench.base.names import one_of
from tapebench.datasets import Dataset, Spec
from tapebench.datasets.behaviour import BEHAVIOURS
from tapebench.exam.policy import Policy
from tapebench.physics import evidence, space
from tapebench.physics.family import Family
from tapebench.physics.space import Space
from tapebench.tasks.layout import Layout
from tapebench.tasks.splits import Split
from tapebench.tasks.universe import ELEMENTARY

NEVER = 2.0
"""A time past any: before the first observation."""

LABELS = ("optimal", "played")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every agent that learns from data may set."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        "width": 16,
        "channels": 8,
        "depth": 1,
        "episodes": 2_000,
        "batch": 20,
        "chunk": 80,
        "total_steps": 160,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    METRICS: ClassVar[Mapping[str, str]] = {
        "loss": "Cross-entropy of the policy and the cells that are right, mean over updates.",
        "accuracy": "Share of queries in which the likeliest cell is right.",
        "learning_rate": "Of Adam.",
    }
    """What training reports for every chunk."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "channels": (32, 64),
        "depth": (2, 3),
        "learning_rate": (1e-3, 3e-3),
        "layer_norm": (False, True),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    data: str = "bayes-optimal"
    """Who plays in the dataset, one of those of `tape data make`."""
    labels: str = "played"
    """Which cells are right: `optimal`, if the rule is known, or those `played`."""
    episodes: int = 100_000
    """Episodes of the dataset."""
    data_seed: int = 0
    """Seed of the dataset, the same for all seeds of the agent."""
    network: str = "conv"
    """`conv`: periodic convolutions, commutes with shifts; `mlp`: fully connected."""
    width: int = 128
    """Units of every hidden layer of `mlp`."""
    channels: int = 64
    """Channels of every hidden layer of `conv`."""
    depth: int = 3
    """Hidden layers."""
    kernel: int = 3
    """Cells that a convolution sees, along each side."""
    layer_norm: bool = False
    """Whether hidden layers are normalised."""
    learning_rate: float = 2e-3
    """Of Adam, at the start."""
    final_rate: float = 0.05
    """Share of the learning rate that is left at `total_steps`."""
    total_steps: int = 200_000
    """Steps after which the learning rate has fallen; `tape train` sets it to the budget."""
    batch: int = 250
    """Queries in an update."""
    chunk: int = 1_000
    """Labelled transitions in one call of `train`; each is a step."""

    networks: ClassVar[tuple[str, ...]] = nn.NETWORKS
    """What `network` may be."""

    def __post_init__(self) -> None:
        one_of("dataset", self.data, BEHAVIOURS)
        one_of("labels", self.labels, LABELS)
        one_of("network", self.network, self.networks)
        check_counts(self, "episodes", "width", "channels", "depth", "kernel")
        check_counts(self, "total_steps", "batch", "chunk")
        check_positive(self, "learning_rate")
        check_shares(self, "final_rate")
        if not isinstance(self.layer_norm, bool):
            raise ValueError(f"layer_norm must be true or false, not {self.layer_norm!r}")
        if self.chunk % self.batch:
            raise ValueError(f"chunk must be a multiple of batch, {self.batch}, not {self.chunk}")


@dataclass(frozen=True, kw_only=True)
class ContextOptions(Options):
    """What those may set that are given a context."""

    context: int = 32
    """Most transitions of earlier episodes in the context of a query."""
    earlier: float = 0.0
    """Share of the queries that may have any. With none the policy forgets at the start of every
    episode, otherwise it remembers for as long as the rule stays the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "context")
        check_shares(self, "earlier")


# The data.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lessons:
    """The S steps of a dataset in the order of histories or else of rules, then of play. Padded, so
    that datasets of as many episodes have the same shapes."""

    tape: UInt32[Array, " S"]
    step: Int32[Array, " S"]
    """Steps taken before in the episode."""
    label: UInt32[Array, " S"]
    """The cells that are right, as bits."""
    first: Int32[Array, " S"]
    """The first step that was under the same rule, in the same history."""
    seen: Int32[Array, "S+1 cases"]
    """How often each entry of the rule's table was read and became zero, and one, before."""
    queries: Int32[Array, " S"]
    """The steps with a label, in front."""
    num_queries: Int32[Array, ""]


def training_spec(config: Options, env: Env, params: envs.EnvParams) -> Spec:
    """The dataset that a config stands for under the training rules of these parameters."""
    params = jax.tree.map(np.asarray, params)  # values, also within a program that is traced
    is_usual = not (
        env.random_goal
        or env.schedule.switches
        or params.goal.any()
        or params.hidden.any()
        or params.noise.any()
        or (params.start_density != 0.5).any()
    )
    if not is_usual:
        raise ValueError(
            "datasets are of the usual task: leave out mask, noise, start_density, goals and "
            "rules that switch"
        )
    rules = tuple(sorted({*params.rules[: int(params.num_rules)].tolist()}))
    held_out = tuple(sorted(set(ELEMENTARY.rules) - set(rules)))
    if not held_out:
        raise ValueError("datasets are of the training rules of a split: train on fewer rules")
    spec = Spec(
        behaviour=config.data,
        track="of-run",
        length=env.length,
        horizon=int(params.horizon),
        split=Split("of-run", rules, held_out),
        episodes=config.episodes,
        seed=config.data_seed,
    )
    if config.labels == "optimal" and not spec.is_labelled:
        raise ValueError(
            f"optimal cells are not known on {env.length} cells: choose a shorter track, such as "
            "core, or labels=played"
        )
    return spec


@lru_cache(maxsize=4)
def make_data(spec: Spec) -> tuple[Dataset, str]:
    """The dataset and the hash of its content. The last few are kept."""
    return datasets.make_in_memory(spec)


@lru_cache(maxsize=4)
def make_lessons(spec: Spec, labels: str) -> Lessons:
    """The lessons that a dataset holds. The last few are kept."""
    data, _ = make_data(spec)
    size = len(data) * spec.horizon
    block = data.rule if data.history == 1 else np.arange(len(data)) // data.history
    order = np.argsort(block, kind="stable")
    row, step = np.nonzero(data.is_taken[order])
    row = order[row]
    tape, after, cell = data.tape[row, step], data.tape[row, step + 1], data.action[row, step]
    played = np.uint32(1) << cell.astype(np.uint32)
    label = data.optimal_cells[row, step] if labels == "optimal" else played
    is_query = label != 0
    if labels == "optimal":
        is_query &= data.optimal_steps[row, step] <= spec.horizon - step
    queries = np.flatnonzero(is_query)
    if not len(queries):
        raise ValueError("no step of the dataset has a label: make it longer")
    family, world = spec.task.family, spec.task.space
    seen = np.zeros((size + 1, 2 * family.entries), np.int32)
    for start in range(0, len(row), _STEPS):
        part = slice(start, start + _STEPS)
        before = space.unpack(tape[part, None] ^ played[part, None], spec.length)
        shown = cases(before, space.unpack(after[part, None], spec.length), family, world)
        seen[start + 1 : start + 1 + len(shown)] = shown
    # A block begins where it is another than that of the step before.
    starts = np.append(True, block[row][1:] != block[row][:-1])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(row)), 0))

    def padded(values: np.ndarray, kind: Any) -> Array:
        return jnp.asarray(np.pad(values, (0, size - len(values))).astype(kind))

    # They are kept, so they must be no part of a program that is being traced.
    with jax.ensure_compile_time_eval():
        return Lessons(
            tape=padded(tape, np.uint32),
            step=padded(step, np.int32),
            label=padded(label, np.uint32),
            first=padded(first, np.int32),
            seen=jnp.asarray(np.cumsum(seen, axis=0, dtype=np.int32)),
            queries=padded(queries, np.int32),
            num_queries=jnp.int32(len(queries)),
        )


_STEPS = 1 << 16
"""Steps whose cells are looked at together: what bounds memory."""


def cases(
    flipped: Shaped[Any, "*B L"], after: Shaped[Any, "*B L"], family: Family, world: Space
) -> Shaped[Any, "*B cases"]:
    """In how many cells an update read each entry of a table and became zero, and one, entry by
    entry. NumPy or JAX."""
    xp = flipped.__array_namespace__()
    shares = evidence.shares(flipped, after, family, world)
    return xp.rint(shares.reshape(*shares.shape[:-2], -1) * world.size).astype(np.int32)


# Learning.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    network: Any
    optimiser: optax.OptState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Learner
    key: Key[Array, ""]
    steps: Int32[Array, ""]
    """Labelled transitions consumed so far."""


class Algorithm(NamedTuple):
    """What tells one of these agents from the others. Equal for equal settings."""

    name: str
    init: Callable[[PRNGKeyArray], Any]
    """Key -> network."""
    logits: Callable[[Any, Array, Array], Array]
    """Network, observations `[B, D]` and what was seen `[B, cases]` -> `[B, A]`."""
    context: int = 0
    """Most transitions of earlier episodes in a context."""
    earlier: float = 0.0
    """Share of queries that have any."""
    remembers: bool = True
    """Whether there is a context at all."""


class Batch(NamedTuple):
    """Queries and their contexts."""

    obs: Float32[Array, "B D"]
    seen: Int32[Array, "B cases"]
    label: Float32[Array, "B A"]
    """1 for cells that are right."""


def draw_batch(
    key: PRNGKeyArray,
    lessons: Lessons,
    algorithm: Algorithm,
    *,
    batch: int,
    length: int,
    horizon: Integer[Array, ""],
) -> Batch:
    """Queries drawn evenly, with a context each."""
    place_key, any_key, size_key = jax.random.split(key, 3)
    place = jax.random.randint(place_key, (batch,), 0, lessons.num_queries)
    row = lessons.queries[place]
    has_more = jax.random.uniform(any_key, (batch,)) < algorithm.earlier
    more = jax.random.randint(size_key, (batch,), 0, algorithm.context + 1)
    begin = row - lessons.step[row] - jnp.where(has_more, more, 0)
    begin = jnp.maximum(begin, lessons.first[row])
    cell = jnp.arange(length, dtype=jnp.uint32)

    def unpack(words: Array) -> Array:
        return (words[:, None] >> cell & 1).astype(jnp.float32)

    time = lessons.step[row].astype(jnp.float32) / horizon
    return Batch(
        obs=jnp.concatenate([unpack(lessons.tape[row]), time[:, None]], axis=-1),
        seen=lessons.seen[row] - lessons.seen[begin],
        label=unpack(lessons.label[row]),
    )


def imitation_loss(
    logits: Float32[Array, "B A"], label: Float32[Array, "B A"]
) -> Float32[Array, ""]:
    """Cross-entropy of the policies and the even distributions over the cells that are right."""
    target = label / label.sum(axis=-1, keepdims=True)
    return -(target * jax.nn.log_softmax(logits)).sum(axis=-1).mean()


def make_body(
    key: PRNGKeyArray, config: Options, space: Space, family: Family | None = None, numbers: int = 0
) -> nn.Network:
    """A network for the logits of all cells. With `family`, observations end with so many `numbers`
    of each entry of a table."""
    return nn.make(
        key,
        config.network,
        space=space,
        observation_size=space.size + 1 + nn.table_size(family, numbers),
        num_actions=space.size,
        width=config.width,
        channels=config.channels,
        depth=config.depth,
        kernel=config.kernel,
        family=family,
        numbers=numbers,
        layer_norm=config.layer_norm,
    )


def build(config: Options, env: Env, params: envs.EnvParams, algorithm: Algorithm) -> Agent:
    """The agent of an algorithm, under the training rules of these parameters.

    Whether there is a dataset of the task is asked when it is needed: a policy that was learned
    also acts in tasks that datasets are not of.
    """
    if env.family != ELEMENTARY.family:
        raise ValueError(
            f"datasets are of elementary rules so far: there are none of {env.family.name} rules"
        )
    if observation_size(env, params) != env.length + 1:
        raise ValueError("datasets hold no goal: make the environment without observe_goal")
    spec = cache(partial(training_spec, config, env, params))
    horizon = jnp.copy(params.horizon)

    def train(state: State) -> tuple[State, dict[str, Array]]:
        lessons = make_lessons(spec(), config.labels)
        return _learn(config, env.length, algorithm, lessons, horizon, state)

    def policy(state: State) -> Policy:
        begin = partial(_begin, algorithm, env)
        act, network = _actor(algorithm, env), state.learner.network
        if not algorithm.remembers:
            return snapshot(algorithm.name, network, begin, act)
        return snapshot(algorithm.name, network, begin, act, _note, _recall)

    return Agent(
        name=algorithm.name,
        chunk=config.chunk,
        init=partial(_init, algorithm),
        train=train,
        policy=policy,
        data=lambda: make_data(spec())[1],
    )


@partial(jax.jit, static_argnums=0)
def _init(algorithm: Algorithm, key: Array) -> State:
    network_key, key = jax.random.split(key)
    network = algorithm.init(network_key)
    return State(Learner(network, optax.scale_by_adam().init(network)), key, jnp.int32(0))


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=5)
def _learn(
    config: Options,
    length: int,
    algorithm: Algorithm,
    lessons: Lessons,
    horizon: Array,
    state: State,
) -> tuple[State, dict[str, Array]]:
    """An update for every `batch` of the `chunk`."""
    draw = partial(draw_batch, batch=config.batch, length=length, horizon=horizon)

    def update(state: State, _: None) -> tuple[State, dict[str, Array]]:
        key, draw_key = jax.random.split(state.key)
        batch = draw(draw_key, lessons, algorithm)

        def loss(network: Any) -> tuple[Array, dict[str, Array]]:
            logits = algorithm.logits(network, batch.obs, batch.seen)
            value = imitation_loss(logits, batch.label)
            best = jax.nn.one_hot(logits.argmax(axis=-1), length)
            return value, {"loss": value, "accuracy": (best * batch.label).sum(axis=-1).mean()}

        rate = learning_rate(config, state.steps)
        optimiser = optax.chain(optax.scale_by_adam(), optax.scale(-rate))
        network, (adam, _), parts = gradient_step(
            optimiser, loss, state.learner.network, (state.learner.optimiser, optax.EmptyState())
        )
        steps = state.steps + config.batch
        return State(Learner(network, adam), key, steps), parts | {"learning_rate": rate}

    state, metrics = jax.lax.scan(update, state, length=config.chunk // config.batch)
    return state, jax.tree.map(jnp.mean, metrics)


# Acting.


class Memory(NamedTuple):
    """What is remembered of B episodes."""

    seen: Int32[Array, "B cases"]
    """How often each entry was read and became zero, and one."""
    cells: Float32[Array, "B L"]
    """As they were observed last."""
    time: Float32[Array, " B"]
    """Of the last observation; `NEVER` before the first."""
    action: Int32[Array, " B"]
    """What was done there."""


def _begin(algorithm: Algorithm, env: Env, network: Any, num: int) -> tuple[Any, Any]:
    if not algorithm.remembers:
        return network, ()
    return network, Memory(
        seen=jnp.zeros((num, 2 * env.family.entries), jnp.int32),
        cells=jnp.zeros((num, env.length)),
        time=jnp.full(num, NEVER),
        action=jnp.zeros(num, jnp.int32),
    )


def remember(memory: Memory, obs: Float32[Array, "B D"], env: Env, *, forgets: bool) -> Memory:
    """The memory with the transition that led to `obs`, where there was one.

    There was none if time did not go on: at the start of an episode, and in one that is over.
    """
    layout = Layout(env.length)
    time, cells = layout.time(obs), layout.cells(obs)
    flipped = evidence.flip(memory.cells, memory.action)
    shown = cases(flipped, cells, env.family, env.space)
    seen = memory.seen + jnp.where((time > memory.time)[:, None], shown, 0)
    seen = jnp.where((time == 0)[:, None], 0, seen) if forgets else seen
    return memory._replace(seen=seen, cells=cells, time=time)


@cache
def _actor(algorithm: Algorithm, env: Env) -> Callable[[Any, Array, Array], tuple[Any, Array]]:
    """The `act` of the policy, the same function for the same agent."""

    def act(memory: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        network, inner = memory
        if not algorithm.remembers:
            nothing = jnp.zeros((len(obs), 2 * env.family.entries), jnp.int32)
            return memory, algorithm.logits(network, obs, nothing).argmax(axis=-1)
        inner = remember(inner, obs, env, forgets=algorithm.earlier == 0)
        action = algorithm.logits(network, obs, inner.seen).argmax(axis=-1)
        return (network, inner._replace(action=action)), action

    return act


def _note(memory: Any, action: Array) -> Any:
    return memory[0], memory[1]._replace(action=action)


def _recall(memory: Any) -> Float32[Array, "B cases"]:
    return memory[1].seen.astype(jnp.float32)
