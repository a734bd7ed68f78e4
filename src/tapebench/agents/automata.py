"""A world model that knows no rule, only that the rule is local and the same everywhere.

It is system identification and search, no reinforcement learning, and tables show it with the
references. Its search was developed on all 256 rules, held-out ones among them; a table that learns
nothing does about as well (`tape reproduce automata-control`), and where cells are hidden it is
below `flip-ones`.

The evidence of an episode is, for every neighbourhood x of five cells after the flip, how often the
middle cell became 0 and 1: n_0(x), n_1(x). On a torus x is a cell and how many of its eight
neighbours are ones. A neighbourhood that was not seen may be similar to one
that was. The similarity is learned: φ is a network on the five cells, and

    K(x, y) = exp(s − |φ(x) − φ(y)|²)        m_b(x) = a_b + Σ_y K(x, y) n_b(y)
    p(x becomes 1) = m_1(x) / (m_0(x) + m_1(x)),

a Beta posterior whose counts are shared among the neighbourhoods that behave alike. φ, s and the
prior a are learned on training rules by the likelihood of the next tape,

    L = mean over the neighbourhoods x in it of − log p(x becomes what it became),

so confidence is calibrated by the loss itself. These probabilities are the model of the rule in
this episode. Elementary rules depend on three cells: that the outer two do not matter, hence that a
single transition reveals nearly everything, has to be learned in training.

The policy takes the likelier outcome of each neighbourhood as the rule and searches with it from
both ends (`tapebench.planning.beam`). A plan is kept while its predictions come true. The model
itself decides when it is used:

- the probability that a step goes as predicted is the product, over the distinct neighbourhoods in
  it, of the probability of their likelier outcome. Where it is below `trust`, the flip may be an
  exploratory one instead: it has to be informative about more neighbourhoods, Σ_x a / m(x) before
  less after, by a margin, since a plan that may fail is informative as well;
- a rule that does not explain a share `fit` of the observed neighbourhoods is not planned with at
  all. Then, and where search fails, a one is flipped.

Notes:

1. learning is supervised: in training cells are flipped at random, and rewards are not used;
2. the evidence in training is a random part of the cells of up to `context` transitions before,
   its size uniform on a logarithmic scale. Without that, uncertainty would hardly occur: at 32
   cells one transition says nearly all;
3. each neighbourhood counts once in the loss, however many cells have it: under a deterministic
   rule these are one piece of evidence, not many;
4. n are counts n' with n = n' c / (c + Σ n'), c = `saturation`, so that long episodes look no
   different from the short pieces that were learned from;
5. an entry whose probability of becoming one is below 0.6 is planned with as a zero. That is
   optimistic, as the goal is mostly zeros: either it is right, or the plan visits the entry and
   resolves it;
6. the model does not assume that the rule has three cells. If the inferred rule depends on the
   inner three alone, search is quick; with a wider one it works too, but tries less;
7. counts are kept from one episode to the next as long as the memory lasts, which is right
   where the rule stays the same. The goal is the zero tape unless it is observed. The horizon is
   read from how far the observed t/H moves in a step;
8. search from the goal takes tapes of up to 32 cells. On longer ones there is a beam alone, of a
   quarter of the width, and for rules of three cells only;
9. so neighbourhoods are the entries of a table of `ring2`, or on a torus of `life`. There search is
   the beam alone, of a quarter of the width.

`learn=False` is an untrained copy, `network=table` a model that has nothing to learn: every
neighbourhood is its own. `trust=0` with `fit=0` is without control: plans are always made and
played, and no flip is made to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import (
    Bool,
    Float,
    Float32,
    Int32,
    Int64,
    Integer,
    Key,
    PRNGKeyArray,
    Real,
    UInt8,
    UInt32,
)

from tapebench import env as envs
from tapebench.agents import loop, nn, replay
from tapebench.agents.api import (
    Agent,
    Forecaster,
    check_counts,
    check_positive,
    check_shares,
    gradient_step,
    observation_size,
)
from tapebench.agents.replay import Replay
from tapebench.base import seeding
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy, blind, flip_a_one
from tapebench.physics.families.life import LIFE
from tapebench.physics.families.ring2 import RING2
from tapebench.physics.family import Family
from tapebench.physics.space import Space, pack
from tapebench.planning import beam as search
from tapebench.planning.ball import MAX_LENGTH
from tapebench.tasks.layout import Layout

_TABLE_WEIGHT = 1e4
"""Prior counts that an observation outweighs in a model that has nothing to learn."""

_LIKELY = 0.6
"""Probability of a one from which it is planned with."""

_MARGIN = 4.0
"""Of how many neighbourhoods more a flip has to tell than a planned one, or than one that brings
the tape nearer to the goal by itself."""

_ROWS = 256
"""Episodes whose flips are all looked at together: what bounds memory."""


@dataclass(frozen=True, kw_only=True)
class Config:
    SMALL: ClassVar[Mapping[str, Any]] = {
        "width": 16,
        "features": 4,
        "batch": 32,
        "steps_per_update": 2,
        "context": 4,
        "replay_size": 400,
        "num_envs": 8,
        "chunk": 80,
        "beam": 32,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    METRICS: ClassVar[Mapping[str, str]] = {
        **loop.METRICS,
        "loss": "Negative log-likelihood of what neighbourhoods become; mean over updates.",
    }
    """What training reports for every chunk."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": (1e-3, 3e-3),
        "features": (4, 8),
        "saturation": (2.0, 8.0),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    network: str = "kernel"
    """`kernel`: learns which neighbourhoods behave alike; `table`: every one is its own."""
    width: int = 32
    """Units of the hidden layer of φ."""
    features: int = 8
    """Entries of φ."""
    learn: bool = True
    """Whether to learn; without, an untrained copy goes through the same steps."""
    learning_rate: float = 3e-3
    """Of Adam."""
    batch: int = 128
    """Transitions in an update."""
    steps_per_update: int = 4
    """Environment steps for each update."""
    context: int = 8
    """Transitions that are looked back on in training."""
    saturation: float = 8.0
    """What the counts of one neighbourhood cannot exceed together."""
    trust: float = 0.5
    """Probability that the next tape is as foreseen, below which a flip may be made to learn."""
    fit: float = 0.8
    """Share of the observed neighbourhoods that a rule must explain to be planned with."""
    asks: int = 4
    """Flips in an episode that may be made to learn."""
    plan_depth: int = 64
    """Steps that a plan may have."""
    beam: int = 256
    """Tapes that search keeps at a depth."""
    replay_size: int = 20_000
    """Transitions kept."""
    num_envs: int = 20
    """Environments that step together; each step of each one counts."""
    chunk: int = 1_000
    """Environment steps in one call of `train`."""

    networks: ClassVar[tuple[str, ...]] = ("kernel", "table")
    """What `network` may be."""

    def __post_init__(self) -> None:
        one_of("network", self.network, self.networks)
        check_counts(self, "width", "features", "batch", "steps_per_update", "context", "asks")
        check_counts(self, "plan_depth", "beam", "replay_size", "num_envs", "chunk")
        check_shares(self, "trust", "fit")
        check_positive(self, "learning_rate", "saturation")
        if not isinstance(self.learn, bool):
            raise ValueError(f"learn must be true or false, not {self.learn!r}")
        if self.num_envs % self.steps_per_update:
            raise ValueError(
                f"num_envs must be a multiple of steps_per_update, {self.steps_per_update}, "
                f"not {self.num_envs}"
            )
        if self.chunk % self.num_envs:
            raise ValueError(
                f"chunk must be a multiple of num_envs, {self.num_envs}, not {self.chunk}"
            )
        if self.replay_size < self.num_envs:
            raise ValueError(f"replay_size must be at least num_envs, {self.num_envs}")


# The model.


def assumed_family(space: Space) -> Family:
    """The laws among which the model looks for that of an episode: the widest of its space."""
    return LIFE if space.is_torus else RING2


def describe(space: Space) -> Float[np.ndarray, "N F"]:
    """Each neighbourhood in numbers from -1 to 1.

    On a ring its cells from left to right, on a torus how many neighbours are ones, and the cell.
    """
    entry = np.arange(assumed_family(space).entries)
    if space.is_torus:
        return np.stack([entry // 2 / 4.0 - 1.0, entry % 2 * 2.0 - 1.0], axis=-1)
    return 2.0 * (entry[:, None] >> np.arange(4, -1, -1) & 1) - 1.0


class Model(eqx.Module):
    """Which neighbourhoods behave alike. Of a model that learns nothing `hidden` is empty."""

    hidden: tuple[eqx.nn.Linear, ...]
    strength: Float32[Array, ""]
    """s."""
    log_prior: Float32[Array, " 2"]
    """log a_0, log a_1."""
    space: Space = eqx.field(static=True)

    def likeness(self) -> tuple[Float32[Array, "N N"], Float32[Array, " 2"]]:
        """K and a."""
        described = describe(self.space)
        if not self.hidden:
            return _TABLE_WEIGHT * jnp.eye(len(described)), jnp.ones(2)
        x = jnp.asarray(described, jnp.float32)
        first, last = self.hidden
        x = nn.linear(last, jnp.tanh(nn.linear(first, x)))
        apart = jnp.square(x[:, None] - x[None]).sum(axis=-1)
        return jnp.exp(self.strength - apart), jnp.exp(self.log_prior)


def make_model(key: PRNGKeyArray, config: Config, space: Space) -> Model:
    """The model that a config asks for."""
    sizes = [(describe(space).shape[1], config.width), (config.width, config.features)]
    hidden = nn.layers(key, *sizes) if config.network == "kernel" else ()
    return Model(hidden, jnp.float32(0.0), jnp.zeros(2), space)


def neighbourhood_codes(cells: Real[Any, "*B L"], space: Space) -> Int32[Any, "*B L"]:
    """The neighbourhood of every cell of 0 and 1, by number."""
    whole = cells.astype(np.int32).reshape(*cells.shape[:-1], *space.shape)
    return assumed_family(space).codes(whole, space).reshape(cells.shape)


def evidence_masses(
    likeness: Float[Any, "N N"],
    prior: Float[Any, " 2"],
    counts: Float[Any, "*B N 2"],
    saturation: float,
) -> Float[Any, "*B N 2"]:
    """m of counts. NumPy or JAX."""
    total = counts.sum(axis=-1, keepdims=True)
    return prior + likeness @ (counts * (saturation / (saturation + total)))


def prediction_loss(
    config: Config,
    model: Model,
    evidence: Float32[Array, "B N 2"],
    outcome: Float32[Array, "B N 2"],
) -> Float32[Array, ""]:
    """Negative log-likelihood of the next tape given the evidence; both are counts."""
    mass = evidence_masses(*model.likeness(), evidence, config.saturation)
    log_prob = jnp.log(mass) - jnp.log(mass.sum(axis=-1, keepdims=True))
    total = outcome.sum(axis=-1, keepdims=True)
    share = outcome / jnp.maximum(total, 1.0)
    return -(share * log_prob).sum() / jnp.maximum((total > 0).sum(), 1)


def tally(
    before: Float32[Array, "B C L"],
    action: Integer[Array, "B C"],
    after: Float32[Array, "B C L"],
    weight: Real[Array, "B C L"] | Bool[Array, "B C L"],
    space: Space,
) -> Float32[Array, "B N 2"]:
    """Counts of transitions; each cell has a weight."""
    number = assumed_family(space).entries
    flipped = jnp.abs(before - jax.nn.one_hot(action, before.shape[-1]))
    case = 2 * neighbourhood_codes(flipped, space) + after.astype(jnp.int32)
    counts = jax.nn.one_hot(case, 2 * number) * weight[..., None]
    return counts.sum(axis=(1, 2)).reshape(-1, number, 2)


# Learning.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    model: Model
    optimiser: optax.OptState
    updates: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Learner
    replay: Replay
    env: Any
    """The environments' states, `[E]`."""
    key: Key[Array, ""]
    steps: Int32[Array, ""]
    """Environment steps so far."""


def draw_batch(
    key: PRNGKeyArray, config: Config, stored: Replay, space: Space
) -> tuple[Float32[Array, "B N 2"], Float32[Array, "B N 2"]]:
    """A batch of thinned evidence and the transitions that followed it, as counts."""
    place_key, size_key, cell_key = jax.random.split(key, 3)
    places = replay.sample_transitions(place_key, stored, config.batch)
    past, batch = replay.past(stored, places, config.context), replay.take(stored, places)
    length, layout = stored.length, Layout(stored.length)
    cells = config.context * length
    part = float(cells) ** -jax.random.uniform(size_key, (config.batch, 1, 1))
    is_shown = jax.random.uniform(cell_key, past.before.shape) < part
    weight = is_shown & past.is_real[..., None]
    evidence = tally(past.before, past.action, past.after, weight, space)
    outcome = tally(
        layout.cells(batch.obs)[:, None],
        batch.action[:, None],
        layout.cells(batch.next_obs)[:, None],
        jnp.broadcast_to(~batch.ended[:, None, None], (config.batch, 1, length)),
        space,
    )
    return evidence, outcome


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build the agent that infers the rule and plans with it, for this environment."""
    size = observation_size(env, params)
    act = make_act(config, env.space)

    def policy(state: State) -> Policy:
        likeness, prior = (np.array(part) for part in state.learner.model.likeness())

        def init(rule: None, num: int) -> Memory:
            return begin(config, env.space, likeness, prior, num)

        return blind(Policy("automata", init, act, backend="numpy"))

    def foresee(state: State) -> Forecaster:
        likeness, prior = (np.array(part) for part in state.learner.model.likeness())
        return partial(forecast, likeness, prior, config.saturation, env.space)

    return Agent(
        name="automata",
        chunk=config.chunk,
        init=partial(_init, config, env, size, params),
        train=partial(_train, config, env, size, params),
        policy=policy,
        forecast=foresee,
    )


def forecast(
    likeness: Float[np.ndarray, "N N"],
    prior: Float[np.ndarray, " 2"],
    saturation: float,
    space: Space,
    obs: Float32[np.ndarray, "T B D"],
    action: Integer[np.ndarray, "T B"],
    is_real: Bool[np.ndarray, "T B"],
    depth: int,
) -> Float32[np.ndarray, "depth T B L"]:
    """A `Forecaster`: follow the likeliest law, with probabilities at the last step only."""
    tapes = Layout(space.size).cells(obs).astype(np.uint8)
    rows, num, _ = tapes.shape
    forecast = np.zeros((depth, rows, num, space.size), np.float32)
    counts = np.zeros((num, len(likeness), 2), np.float32)
    for row in range(rows):
        if row:
            happened = is_real[row]
            flipped = flip_cells(tapes[row - 1], action[row - 1])
            counts += count_cases(flipped, tapes[row], happened, space)
        mass = evidence_masses(likeness, prior, counts, saturation)
        prob_one = mass[..., 1] / mass.sum(axis=-1)
        ahead = tapes[row]
        for step in range(min(depth, rows - 1 - row)):
            code = neighbourhood_codes(flip_cells(ahead, action[row + step]), space)
            forecast[step, row] = np.take_along_axis(prob_one, code, axis=1)
            ahead = (forecast[step, row] > 0.5).astype(np.uint8)
    return forecast


@partial(jax.jit, static_argnums=(0, 1, 2))
def _init(
    config: Config, env: envs.TapeEnv, size: int, params: envs.EnvParams, key: Array
) -> State:
    model_key, env_key, key = jax.random.split(key, 3)
    keys = jax.random.split(env_key, config.num_envs)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    model = make_model(model_key, config, env.space)
    return State(
        learner=Learner(model, optax.adam(config.learning_rate).init(model), jnp.int32(0)),
        replay=replay.empty(obs, config.replay_size, env.length, jnp.copy(params.horizon)),
        env=state,
        key=key,
        steps=jnp.int32(0),
    )


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _train(
    config: Config, env: envs.TapeEnv, size: int, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """`chunk` environment steps, and an update for every `steps_per_update` of them."""
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))
    optimiser = optax.adam(config.learning_rate)

    def update(learner: Learner, key: Array, stored: Replay) -> tuple[Learner, Array]:
        evidence, outcome = draw_batch(key, config, stored, env.space)

        def batch_loss(model: Model) -> tuple[Array, dict[str, Array]]:
            value = prediction_loss(config, model, evidence, outcome)
            return value, {"loss": value}

        model, optimiser_state, parts = gradient_step(
            optimiser, batch_loss, learner.model, learner.optimiser
        )
        if not config.learn:
            return replace(learner, updates=learner.updates + 1), parts["loss"]
        return Learner(model, optimiser_state, learner.updates + 1), parts["loss"]

    def iterate(state: State, _: None) -> Any:
        key, action_key, update_key = jax.random.split(state.key, 3)
        action = jax.random.randint(action_key, (config.num_envs,), 0, env.num_actions)
        obs, after, reward, terminated, truncated, _info = step(None, state.env, action, params)
        stored = replay.append(state.replay, action, reward, obs)
        keys = jax.random.split(update_key, config.num_envs // config.steps_per_update)
        learner, losses = jax.lax.scan(
            lambda learner, key: update(learner, key, stored), state.learner, keys
        )
        outcomes = loop.step_metrics(reward, terminated, truncated)
        steps = state.steps + config.num_envs
        return State(learner, stored, after, key, steps), (outcomes, losses.mean())

    rounds = config.chunk // config.num_envs
    state, (outcomes, losses) = jax.lax.scan(iterate, state, length=rounds)
    return state, loop.totals(outcomes, config.chunk) | {"loss": losses.mean()}


# Acting, in NumPy: how long a search takes differs from episode to episode.


class Memory(NamedTuple):
    """What the policy of B episodes remembers."""

    likeness: Float[np.ndarray, "N N"]
    """K."""
    prior: Float[np.ndarray, " 2"]
    """a."""
    counts: Float32[np.ndarray, "B N 2"]
    """What neighbourhoods became."""
    cells: UInt8[np.ndarray, "B L"]
    """The tape that was last observed."""
    cell: Int64[np.ndarray, " B"]
    """What was flipped then."""
    foreseen: UInt8[np.ndarray, "B L"]
    """What the tape should have become."""
    time: Float32[np.ndarray, " B"]
    """The last t/H, past any at the very beginning."""
    horizon: Int64[np.ndarray, " B"]
    """H, 0 while unknown."""
    plan: Int64[np.ndarray, "B plan_depth"]
    """The cells to flip from now on; -1 where the plan, or trust, ends."""
    probes: Int64[np.ndarray, " B"]
    """Flips of this episode made to learn."""
    failed: Int64[np.ndarray, " B"]
    """The law with which search last failed in this episode; -1 for none."""


class Belief(NamedTuple):
    """The model of the law in each of B episodes."""

    prob: Float[np.ndarray, "B N"]
    """Probability that a neighbourhood becomes what it is taken to become."""
    ones: Bool[np.ndarray, "B N"]
    """What it is taken to become."""
    mass: Float[np.ndarray, "B N"]
    """m_0 + m_1."""


def begin(
    config: Config,
    space: Space,
    likeness: Float[np.ndarray, "N N"],
    prior: Float[np.ndarray, " 2"],
    num: int,
) -> Memory:
    """The memory of episodes that have not begun."""
    return Memory(
        likeness=likeness,
        prior=prior,
        counts=np.zeros((num, len(likeness), 2), np.float32),
        cells=np.zeros((num, space.size), np.uint8),
        cell=np.zeros(num, int),
        foreseen=np.zeros((num, space.size), np.uint8),
        time=np.full(num, 2.0, np.float32),
        horizon=np.zeros(num, int),
        plan=np.full((num, config.plan_depth), -1),
        probes=np.zeros(num, int),
        failed=np.full(num, -1),
    )


@cache
def make_act(config: Config, space: Space) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """The `act` of the policy."""
    return partial(_act, config, space)


def _act(
    config: Config, space: Space, memory: Memory, obs: np.ndarray, stream: seeding.Stream
) -> tuple[Memory, np.ndarray]:
    memory = remember(memory, obs, space)
    cells, goal = memory.cells, Layout(space.size).goal(obs).astype(np.uint8)
    if not goal.shape[1]:
        goal = np.zeros_like(cells)
    belief = believe(memory, config.saturation)
    running = (cells != goal).any(axis=1) & (memory.time < 1)
    trusted = running & (explained(memory, belief) >= config.fit)
    plan = np.where(trusted[:, None], memory.plan, -1)
    idle = np.flatnonzero(trusted & (plan[:, 0] < 0) & (memory.counts.any(axis=(1, 2))))
    failed = memory.failed.copy()
    plan[idle], failed[idle] = make_plans(config, memory, belief, idle, goal, space)
    action = np.where(plan[:, 0] >= 0, plan[:, 0], flip_a_one(cells ^ goal, stream))

    is_doubtful = foresight(belief, flip_cells(cells, action), space) < config.trust
    doubtful = np.flatnonzero(trusted & is_doubtful & (memory.probes < config.asks))
    for rows in (doubtful[start : start + _ROWS] for start in range(0, len(doubtful), _ROWS)):
        worth = information(memory, belief, rows, config.saturation, space)
        worth += _MARGIN * (cells[rows] != goal[rows])
        worth[np.arange(len(rows)), action[rows]] += _MARGIN * (plan[rows, 0] >= 0)
        best = worth.argmax(axis=1)
        plan[rows[best != action[rows]]] = -1
        action[rows] = best
    probes = memory.probes.copy()
    probes[doubtful] += 1
    return memory._replace(
        cell=action,
        foreseen=follow(belief.ones, flip_cells(cells, action), space),
        plan=np.concatenate([plan[:, 1:], np.full_like(plan[:, :1], -1)], axis=1),
        failed=failed,
        probes=probes,
    ), action


def explained(memory: Memory, belief: Belief) -> Float[np.ndarray, " B"]:
    """Share of the observed neighbourhoods whose outcome the likeliest law explains."""
    total = memory.counts.sum(axis=-1)
    right = np.where(belief.ones, memory.counts[..., 1], memory.counts[..., 0])
    share = (right / np.maximum(total, 1)).sum(axis=1)
    return np.where(total.any(axis=1), share / np.maximum((total > 0).sum(axis=1), 1), 1.0)


def foresight(
    belief: Belief, flipped: UInt8[np.ndarray, "B L"], space: Space
) -> Float[np.ndarray, " B"]:
    """Probability that the next tapes are as foreseen."""
    return np.exp((np.log(belief.prob) * presence(flipped, space)).sum(axis=1))


def count_cases(
    flipped: UInt8[np.ndarray, "B L"],
    after: UInt8[np.ndarray, "B L"],
    happened: Bool[np.ndarray, " B"],
    space: Space,
) -> Float32[np.ndarray, "B N 2"]:
    """What neighbourhoods became in an update, of the tapes that had one."""
    num, number = len(flipped), assumed_family(space).entries
    case = 2 * neighbourhood_codes(flipped, space) + after
    case = case + 2 * number * np.arange(num)[:, None]
    counts = np.bincount(case[happened].ravel(), minlength=2 * number * num)
    return counts.reshape(num, number, 2).astype(np.float32)


def remember(memory: Memory, obs: Float[np.ndarray, "B D"], space: Space) -> Memory:
    """The memory with the transition that led to `obs`, where there was one.

    There was none if time did not go on: at the start of an episode, and in one that is over. A
    plan is dropped where the tape is not what it foresaw, or the episode is a new one.
    """
    layout = Layout(space.size)
    cells, time = layout.cells(obs).astype(np.uint8), layout.time(obs).astype(np.float32)
    happened = time > memory.time
    flipped = flip_cells(memory.cells, memory.cell)
    passed = np.where(happened, time - memory.time, 1.0)
    stays = happened & (memory.foreseen == cells).all(axis=1)
    return memory._replace(
        counts=memory.counts + count_cases(flipped, cells, happened, space),
        cells=cells,
        time=time,
        horizon=np.where(happened, np.rint(1.0 / passed).astype(int), memory.horizon),
        plan=np.where(stays[:, None], memory.plan, -1),
        probes=np.where(time == 0, 0, memory.probes),
        failed=np.where(time == 0, -1, memory.failed),
    )


def believe(memory: Memory, saturation: float) -> Belief:
    """The likeliest law under the counts, with probabilities."""
    mass = evidence_masses(memory.likeness, memory.prior, memory.counts, saturation)
    total = mass.sum(axis=-1)
    prob_one = mass[..., 1] / total
    ones = prob_one > _LIKELY
    return Belief(np.where(ones, prob_one, 1.0 - prob_one), ones, total)


def flip_cells(
    cells: UInt8[np.ndarray, "B L"], cell: Integer[np.ndarray, " B"]
) -> UInt8[np.ndarray, "B L"]:
    """Tapes with one cell inverted in each."""
    return cells ^ (np.arange(cells.shape[-1]) == cell[..., None]).astype(np.uint8)


def follow(
    ones: Bool[np.ndarray, "B N"], cells: UInt8[np.ndarray, "B L"], space: Space
) -> UInt8[np.ndarray, "B L"]:
    """What tapes become if the law is `ones`."""
    return np.take_along_axis(ones, neighbourhood_codes(cells, space), axis=1).astype(np.uint8)


def presence(cells: UInt8[np.ndarray, "*B L"], space: Space) -> Bool[np.ndarray, "*B N"]:
    """Which neighbourhoods occur in tapes."""
    number = assumed_family(space).entries
    code = neighbourhood_codes(cells, space).reshape(-1, cells.shape[-1])
    index = code + number * np.arange(len(code))[:, None]
    is_present = np.zeros(len(code) * number, bool)
    is_present[index.ravel()] = True
    return is_present.reshape(*cells.shape[:-1], number)


def information(
    memory: Memory,
    belief: Belief,
    rows: Integer[np.ndarray, " B"],
    saturation: float,
    space: Space,
) -> Float[np.ndarray, "B L"]:
    """Expected number of neighbourhoods that each flip would resolve in these rows."""
    cells = memory.cells[rows]
    present = presence(cells[:, None] ^ np.eye(cells.shape[1], dtype=np.uint8), space)
    prior, mass = memory.prior.sum(), belief.mass[rows]
    one_each = saturation / (saturation + 1.0) * memory.likeness
    after = mass[:, None] + present.astype(np.float32) @ one_each.T
    return (prior / mass).sum(axis=-1)[:, None] - (prior / after).sum(axis=-1)


def make_plans(
    config: Config,
    memory: Memory,
    belief: Belief,
    rows: Integer[np.ndarray, " rows"],
    goal: UInt8[np.ndarray, "B L"],
    space: Space,
) -> tuple[Int64[np.ndarray, "rows plan_depth"], Int64[np.ndarray, " rows"]]:
    """Plans for these rows, and the law for which search failed, else -1.

    Rows whose law is the one that had failed are not searched again.
    """
    horizon = np.where(memory.horizon > 0, memory.horizon, space.size)[rows]
    left = np.rint((1.0 - memory.time[rows]) * horizon).astype(int)
    budget = np.minimum(left, config.plan_depth)
    law = (belief.ones[rows].astype(np.int64) << np.arange(belief.ones.shape[1])).sum(axis=1)
    plan = np.full((len(rows), config.plan_depth), -1)
    lost = memory.failed[rows]
    unknown = np.flatnonzero(law != lost)
    tapes, goals = pack(memory.cells[rows]), pack(goal[rows])
    for number, *target in sorted({(int(law[i]), *goals[i].tolist()) for i in unknown}):
        group = unknown[(law[unknown] == number) & (goals[unknown] == target).all(axis=1)]
        ways = plan_ways(config, tapes[group], budget[group].tolist(), number, space, target)
        for row, way in zip(group, ways, strict=True):
            if way is None:
                lost[row] = number
            else:
                plan[row, : len(way)] = way
    return plan, lost


def plan_ways(
    config: Config,
    tapes: UInt32[np.ndarray, "N W"],
    budget: list[int],
    law: int,
    space: Space,
    goal: list[int],
) -> list[list[int] | None]:
    """For each tape a way to the goal under a law of the assumed family, where one is found.

    The result depends on the arguments alone, so it is cached: evaluations repeat start tapes.
    """
    keys = [
        (law, *goal, *space.shape, config.beam, steps, *tape.tolist())
        for tape, steps in zip(tapes, budget, strict=True)
    ]
    new = [row for row, key in enumerate(keys) if key not in _WAYS]
    if len(_WAYS) + len(new) > _MAX_WAYS:
        _WAYS.clear()
        new = list(range(len(tapes)))
    steps = [budget[row] for row in new]
    ways = _search(config.beam, tapes[new], steps, law, space, goal) if new else []
    _WAYS.update(zip((keys[row] for row in new), ways, strict=True))
    return [_WAYS[key] for key in keys]


_WAYS: dict[tuple[int, ...], list[int] | None] = {}
_MAX_WAYS = 100_000
"""Most ways to cache, some tens of megabytes. Beyond that the cache is cleared."""


def _search(
    width: int, tapes: np.ndarray, budget: list[int], law: int, space: Space, goal: list[int]
) -> list[list[int] | None]:
    always = seeding.Stream(*np.zeros((2, len(tapes)), np.uint32))
    target, quarter = np.array(goal, np.uint32), max(width // 4, 1)
    if space.is_torus:
        return search.find_far_ways(
            tapes, budget, law, space, target, always, quarter, family=assumed_family(space)
        )
    (rule, radius), length = narrow(law), space.size
    if length <= MAX_LENGTH:
        passes = search.PASSES if radius == 1 else search.PASSES[:3]
        return search.find_ways(
            tapes[:, 0], budget, rule, length, goal[0], always, width, radius, passes
        )
    if radius > 1:
        return [None] * len(tapes)
    return search.find_far_ways(tapes, budget, rule, length, target, always, quarter)


def narrow(law: int) -> tuple[int, int]:
    """A law of five cells as a rule and its radius: 1 if the outer two do not matter."""
    bits = [law >> code & 1 for code in range(RING2.entries)]
    inner = [bits[2 * code] for code in range(8)]
    if all(bits[code] == inner[code >> 1 & 7] for code in range(RING2.entries)):
        return sum(bit << code for code, bit in enumerate(inner)), 1
    return law, 2
