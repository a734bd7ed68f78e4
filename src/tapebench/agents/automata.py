"""A world model that knows no rule, only that the law is local and the same everywhere.

What an episode shows is, for every neighbourhood x of five cells after the flip, how often the
middle one became 0 and 1: n_0(x), n_1(x). A neighbourhood that was not seen may be much like one
that was. How much is learned: φ is a network on the five cells, and

    K(x, y) = exp(s − |φ(x) − φ(y)|²)        m_b(x) = a_b + Σ_y K(x, y) n_b(y)
    p(x becomes 1) = m_1(x) / (m_0(x) + m_1(x)),

a Beta posterior whose counts are shared among the neighbourhoods that behave alike. φ, s and the
prior a are learned on training rules by the likelihood of the next tape,

    L = mean over the neighbourhoods x in it of − log p(x becomes what it became),

so confidence is calibrated by the loss itself. The 32 probabilities are the model of the law in
this episode. Elementary laws look at three cells: that the outer two do not matter, hence that a
single transition tells nearly everything, is what training has to find out.

The policy takes what is likelier for each neighbourhood as the law and searches with it from both
ends (`tapebench.planning.beam`). A plan is kept while the tape does what it foresaw. When the
model is to be used, the model says itself:

- the probability that a step goes as foreseen is the product, over the different neighbourhoods
  met, of the probability of what they should become. Where it is below `trust`, the flip may be
  one to learn from instead: it should tell about more neighbourhoods, Σ_x a / m(x) before less
  after, by a margin, since a plan that may fail teaches as well;
- a law that does not say of a share `fit` of the neighbourhoods seen what they became is not
  planned with at all. Then, and where no way is found, a one is flipped.

Notes:

1. learning is supervised: in training cells are flipped at random, and nothing is rewarded;
2. the evidence in training is a random part of the cells of up to `context` transitions before,
   its size uniform on a logarithmic scale. Without that, uncertainty would hardly occur: at 32
   cells one transition says nearly all;
3. each neighbourhood counts once in the loss, however many cells have it: under a deterministic
   law these are one piece of evidence, not many;
4. n are counts n' with n = n' c / (c + Σ n'), c = `saturation`, so that long episodes look no
   different from the short pieces that were learned from;
5. what is hardly likelier to become one than zero is planned with as if it became zero. That is
   optimistic, as the goal is mostly zeros: it is so, or the plan meets it and something is learned;
6. nothing says that the law has three cells. If the law found depends on the inner three alone,
   search is quick; with a wider one it works too, but fewer ways are tried;
7. counts are kept from one episode to the next as long as the memory goes on, which is right
   where the rule stays the same. The goal is the zero tape unless it is observed. The horizon is
   read from how far the observed t/H moves in a step;
8. search from the goal takes tapes of up to 32 cells. On longer ones there is a beam alone, of a
   quarter of the width, and for laws of three cells only.

`learn=False` is an untrained copy, `network=table` a model that has nothing to learn: every
neighbourhood is its own. `trust=0` with `fit=0` is without control: plans are always made and
played, and no flip is made to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

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
from tapebench.physics import space
from tapebench.planning import beam as search
from tapebench.planning.ball import MAX_LENGTH
from tapebench.tasks.layout import Layout

if TYPE_CHECKING:
    from tapebench import env as envs

RADIUS = 2
"""Cells to each side that the model looks at."""

CODES = 1 << (2 * RADIUS + 1)
"""Neighbourhoods."""

_BITS = 2.0 * (np.arange(CODES)[:, None] >> np.arange(2 * RADIUS, -1, -1) & 1) - 1.0
"""`[32, 5]`: the cells of each neighbourhood from left to right, as -1 and 1."""

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
    """Share of the neighbourhoods seen that a law must explain to be planned with."""
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


class Model(eqx.Module):
    """Which neighbourhoods behave alike. Of a model that learns nothing `hidden` is empty."""

    hidden: tuple[eqx.nn.Linear, ...]
    strength: Array
    """s."""
    log_prior: Array
    """`[2]`: log a_0, log a_1."""

    def likeness(self) -> tuple[Array, Array]:
        """K `[32, 32]` and a `[2]`."""
        if not self.hidden:
            return _TABLE_WEIGHT * jnp.eye(CODES), jnp.ones(2)
        x = jnp.asarray(_BITS, jnp.float32)
        first, last = self.hidden
        x = nn.linear(last, jnp.tanh(nn.linear(first, x)))
        apart = jnp.square(x[:, None] - x[None]).sum(axis=-1)
        return jnp.exp(self.strength - apart), jnp.exp(self.log_prior)


def make_model(key: Array, config: Config) -> Model:
    """The model that a config asks for."""
    sizes = [(2 * RADIUS + 1, config.width), (config.width, config.features)]
    hidden = nn.layers(key, *sizes) if config.network == "kernel" else ()
    return Model(hidden, jnp.float32(0.0), jnp.zeros(2))


def codes(cells: Any) -> Any:
    """The neighbourhood of every cell, cells `[..., L]` of 0 and 1 -> integers below 32."""
    xp = cells.__array_namespace__()
    whole = cells.astype(np.int32)
    found = xp.zeros_like(whole)
    for offset in range(-RADIUS, RADIUS + 1):
        found = 2 * found + xp.roll(whole, -offset, axis=-1)
    return found


def masses(likeness: Any, prior: Any, counts: Any, saturation: float) -> Any:
    """m: counts `[..., 32, 2]` -> `[..., 32, 2]`. NumPy or JAX."""
    total = counts.sum(axis=-1, keepdims=True)
    return prior + likeness @ (counts * (saturation / (saturation + total)))


def loss(config: Config, model: Model, evidence: Array, outcome: Array) -> Array:
    """Surprise at the next tape, given what was seen before; counts of both are `[B, 32, 2]`."""
    mass = masses(*model.likeness(), evidence, config.saturation)
    log_chance = jnp.log(mass) - jnp.log(mass.sum(axis=-1, keepdims=True))
    total = outcome.sum(axis=-1, keepdims=True)
    share = outcome / jnp.maximum(total, 1.0)
    return -(share * log_chance).sum() / jnp.maximum((total > 0).sum(), 1)


def tally(before: Array, action: Array, after: Array, weight: Array) -> Array:
    """Counts `[B, 32, 2]` of transitions `[B, C, L]`; each cell has a `weight[B, C, L]`."""
    flipped = jnp.abs(before - jax.nn.one_hot(action, before.shape[-1]))
    case = 2 * codes(flipped) + after.astype(jnp.int32)
    found = jax.nn.one_hot(case, 2 * CODES) * weight[..., None]
    return found.sum(axis=(1, 2)).reshape(-1, CODES, 2)


# Learning.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """What is learned, and what learning needs to go on."""

    model: Model
    optimiser: optax.OptState
    updates: Array
    """int32."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Learner
    replay: Replay
    env: Any
    """The environments' states, `[E]`."""
    key: Array
    """A typed JAX key."""
    steps: Array
    """int32: environment steps so far."""


def draw(key: Array, config: Config, stored: Replay) -> tuple[Array, Array]:
    """What was seen before some transitions, thinned, and the transitions: `[B, 32, 2]` each."""
    place_key, size_key, cell_key = jax.random.split(key, 3)
    places = replay.draw(place_key, stored, config.batch)
    past, batch = replay.past(stored, places, config.context), replay.take(stored, places)
    length, layout = stored.length, Layout(stored.length)
    cells = config.context * length
    part = float(cells) ** -jax.random.uniform(size_key, (config.batch, 1, 1))
    kept = jax.random.uniform(cell_key, past.before.shape) < part
    evidence = tally(past.before, past.action, past.after, kept & past.is_real[..., None])
    outcome = tally(
        layout.cells(batch.obs)[:, None],
        batch.action[:, None],
        layout.cells(batch.next_obs)[:, None],
        jnp.broadcast_to(~batch.ended[:, None, None], (config.batch, 1, length)),
    )
    return evidence, outcome


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """The agent that infers automata, for this environment."""
    size = observation_size(env, params)
    act = make_act(config, env.length)

    def policy(state: State) -> Policy:
        likeness, prior = (np.array(part) for part in state.learner.model.likeness())

        def init(rule: None, num: int) -> Memory:
            return begin(config, env.length, likeness, prior, num)

        return blind(Policy("automata", init, act, backend="numpy"))

    def foresee(state: State) -> Forecaster:
        likeness, prior = (np.array(part) for part in state.learner.model.likeness())
        return partial(forecast, likeness, prior, config.saturation, env.length)

    return Agent(
        name="automata",
        chunk=config.chunk,
        init=partial(_init, config, env, size, params),
        train=partial(_train, config, env, size, params),
        policy=policy,
        forecast=foresee,
    )


def forecast(
    likeness: np.ndarray,
    prior: np.ndarray,
    saturation: float,
    length: int,
    obs: np.ndarray,
    action: np.ndarray,
    is_real: np.ndarray,
    depth: int,
) -> np.ndarray:
    """What the model foresees, a `Forecaster`: the likeliest law is taken as given but for the
    last step."""
    tapes = Layout(length).cells(obs).astype(np.uint8)
    rows, num, _ = tapes.shape
    forecast = np.zeros((depth, rows, num, length), np.float32)
    counts = np.zeros((num, CODES, 2), np.float32)
    for row in range(rows):
        if row:
            happened = is_real[row]
            case = 2 * codes(flip(tapes[row - 1], action[row - 1])) + tapes[row]
            case = case + 2 * CODES * np.arange(num)[:, None]
            seen = np.bincount(case[happened].ravel(), minlength=counts.size)
            counts += seen.reshape(counts.shape).astype(np.float32)
        mass = masses(likeness, prior, counts, saturation)
        one = mass[..., 1] / mass.sum(axis=-1)
        ahead = tapes[row]
        for step in range(min(depth, rows - 1 - row)):
            code = codes(flip(ahead, action[row + step]))
            forecast[step, row] = np.take_along_axis(one, code, axis=1)
            ahead = (forecast[step, row] > 0.5).astype(np.uint8)
    return forecast


@partial(jax.jit, static_argnums=(0, 1, 2))
def _init(
    config: Config, env: envs.TapeEnv, size: int, params: envs.EnvParams, key: Array
) -> State:
    model_key, env_key, key = jax.random.split(key, 3)
    keys = jax.random.split(env_key, config.num_envs)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    model = make_model(model_key, config)
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
        evidence, outcome = draw(key, config, stored)

        def batch_loss(model: Model) -> tuple[Array, dict[str, Array]]:
            found = loss(config, model, evidence, outcome)
            return found, {"loss": found}

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
        seen = loop.outcomes(reward, terminated, truncated)
        steps = state.steps + config.num_envs
        return State(learner, stored, after, key, steps), (seen, losses.mean())

    rounds = config.chunk // config.num_envs
    state, (seen, losses) = jax.lax.scan(iterate, state, length=rounds)
    return state, loop.totals(seen, config.chunk) | {"loss": losses.mean()}


# Acting, in NumPy: how long a search takes differs from episode to episode.


class Memory(NamedTuple):
    """What the policy of B episodes remembers."""

    likeness: np.ndarray
    """K, `[32, 32]`."""
    prior: np.ndarray
    """a, `[2]`."""
    counts: np.ndarray
    """float32 `[B, 32, 2]`: what neighbourhoods became."""
    cells: np.ndarray
    """uint8 `[B, L]`: the tape that was last observed."""
    cell: np.ndarray
    """int `[B]`: what was flipped then."""
    foreseen: np.ndarray
    """uint8 `[B, L]`: what the tape should have become."""
    time: np.ndarray
    """float32 `[B]`: the last t/H, past any at the very beginning."""
    horizon: np.ndarray
    """int `[B]`: H, 0 while unknown."""
    plan: np.ndarray
    """int `[B, plan_depth]`: the cells to flip from now on; -1 where the plan, or trust, ends."""
    asked: np.ndarray
    """int `[B]`: flips of this episode made to learn."""
    failed: np.ndarray
    """int64 `[B]`: the law with which search last found no way in this episode; -1 for none."""


class Belief(NamedTuple):
    """The model of the law in each of B episodes, `[B, 32]`."""

    chance: np.ndarray
    """Probability that a neighbourhood becomes what it is taken to become."""
    ones: np.ndarray
    """bool: what it is taken to become."""
    mass: np.ndarray
    """m_0 + m_1."""


def begin(config: Config, length: int, likeness: np.ndarray, prior: np.ndarray, num: int) -> Memory:
    """The memory of episodes that have not begun."""
    return Memory(
        likeness=likeness,
        prior=prior,
        counts=np.zeros((num, CODES, 2), np.float32),
        cells=np.zeros((num, length), np.uint8),
        cell=np.zeros(num, int),
        foreseen=np.zeros((num, length), np.uint8),
        time=np.full(num, 2.0, np.float32),
        horizon=np.zeros(num, int),
        plan=np.full((num, config.plan_depth), -1),
        asked=np.zeros(num, int),
        failed=np.full(num, -1),
    )


@cache
def make_act(config: Config, length: int) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """The `act` of the policy."""
    return partial(_act, config, length)


def _act(
    config: Config, length: int, memory: Memory, obs: np.ndarray, stream: seeding.Stream
) -> tuple[Memory, np.ndarray]:
    memory = remember(memory, obs, length)
    cells, goal = memory.cells, Layout(length).goal(obs).astype(np.uint8)
    if not goal.shape[1]:
        goal = np.zeros_like(cells)
    belief = believe(memory, config.saturation)
    running = (cells != goal).any(axis=1) & (memory.time < 1)
    trusted = running & (explained(memory, belief) >= config.fit)
    plan = np.where(trusted[:, None], memory.plan, -1)
    idle = np.flatnonzero(trusted & (plan[:, 0] < 0) & (memory.counts.any(axis=(1, 2))))
    failed = memory.failed.copy()
    plan[idle], failed[idle] = make_plans(config, memory, belief, idle, goal)
    action = np.where(plan[:, 0] >= 0, plan[:, 0], flip_a_one(cells ^ goal, stream))

    is_doubtful = foresight(belief, flip(cells, action)) < config.trust
    doubtful = np.flatnonzero(trusted & is_doubtful & (memory.asked < config.asks))
    for rows in (doubtful[start : start + _ROWS] for start in range(0, len(doubtful), _ROWS)):
        worth = information(memory, belief, rows, config.saturation)
        worth += _MARGIN * (cells[rows] != goal[rows])
        worth[np.arange(len(rows)), action[rows]] += _MARGIN * (plan[rows, 0] >= 0)
        best = worth.argmax(axis=1)
        plan[rows[best != action[rows]]] = -1
        action[rows] = best
    asked = memory.asked.copy()
    asked[doubtful] += 1
    return memory._replace(
        cell=action,
        foreseen=follow(belief.ones, flip(cells, action)),
        plan=np.concatenate([plan[:, 1:], np.full_like(plan[:, :1], -1)], axis=1),
        failed=failed,
        asked=asked,
    ), action


def explained(memory: Memory, belief: Belief) -> np.ndarray:
    """Of how many of the neighbourhoods seen the law taken says what they became: `[B]`."""
    total = memory.counts.sum(axis=-1)
    right = np.where(belief.ones, memory.counts[..., 1], memory.counts[..., 0])
    share = (right / np.maximum(total, 1)).sum(axis=1)
    return np.where(total.any(axis=1), share / np.maximum((total > 0).sum(axis=1), 1), 1.0)


def foresight(belief: Belief, flipped: np.ndarray) -> np.ndarray:
    """Probability that the next tapes are as foreseen: `[B]`."""
    return np.exp((np.log(belief.chance) * presence(flipped)).sum(axis=1))


def remember(memory: Memory, obs: np.ndarray, length: int) -> Memory:
    """The memory with the transition that led to `obs`, where there was one.

    There was none if time did not go on: at the start of an episode, and in one that is over. A
    plan is dropped where the tape is not what it foresaw, or the episode is a new one.
    """
    layout = Layout(length)
    cells, time = layout.cells(obs).astype(np.uint8), layout.time(obs).astype(np.float32)
    happened = time > memory.time
    case = 2 * codes(flip(memory.cells, memory.cell)) + cells
    case = case + 2 * CODES * np.arange(len(obs))[:, None]
    seen = np.bincount(case[happened].ravel(), minlength=len(obs) * 2 * CODES)
    passed = np.where(happened, time - memory.time, 1.0)
    stays = happened & (memory.foreseen == cells).all(axis=1)
    return memory._replace(
        counts=memory.counts + seen.reshape(memory.counts.shape).astype(np.float32),
        cells=cells,
        time=time,
        horizon=np.where(happened, np.rint(1.0 / passed).astype(int), memory.horizon),
        plan=np.where(stays[:, None], memory.plan, -1),
        asked=np.where(time == 0, 0, memory.asked),
        failed=np.where(time == 0, -1, memory.failed),
    )


def believe(memory: Memory, saturation: float) -> Belief:
    """What the counts say about the law."""
    mass = masses(memory.likeness, memory.prior, memory.counts, saturation)
    total = mass.sum(axis=-1)
    one = mass[..., 1] / total
    ones = one > _LIKELY
    return Belief(np.where(ones, one, 1.0 - one), ones, total)


def flip(cells: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Tapes `[B, L]` with one cell inverted in each."""
    return cells ^ (np.arange(cells.shape[-1]) == cell[..., None]).astype(np.uint8)


def follow(ones: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """What tapes `[B, L]` become if the law is `ones[B, 32]`."""
    return np.take_along_axis(ones, codes(cells), axis=1).astype(np.uint8)


def presence(cells: np.ndarray) -> np.ndarray:
    """Which neighbourhoods there are in tapes: `[..., L]` -> bool `[..., 32]`."""
    found = codes(cells).reshape(-1, cells.shape[-1])
    place = found + CODES * np.arange(len(found))[:, None]
    there = np.zeros(len(found) * CODES, bool)
    there[place.ravel()] = True
    return there.reshape(*cells.shape[:-1], CODES)


def information(memory: Memory, belief: Belief, rows: np.ndarray, saturation: float) -> np.ndarray:
    """Of how many neighbourhoods each flip should tell in these rows: `[B, L]`."""
    cells = memory.cells[rows]
    present = presence(cells[:, None] ^ np.eye(cells.shape[1], dtype=np.uint8))
    prior, mass = memory.prior.sum(), belief.mass[rows]
    one_each = saturation / (saturation + 1.0) * memory.likeness
    after = mass[:, None] + present.astype(np.float32) @ one_each.T
    return (prior / mass).sum(axis=-1)[:, None] - (prior / after).sum(axis=-1)


def make_plans(
    config: Config,
    memory: Memory,
    belief: Belief,
    rows: np.ndarray,
    goal: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Plans `[B, plan_depth]` for these rows, and with what law none was found.

    Rows whose law is the one that had failed are not searched again.
    """
    length = memory.cells.shape[1]
    horizon = np.where(memory.horizon > 0, memory.horizon, length)[rows]
    left = np.rint((1.0 - memory.time[rows]) * horizon).astype(int)
    budget = np.minimum(left, config.plan_depth)
    law = (belief.ones[rows].astype(np.int64) << np.arange(CODES)).sum(axis=1)
    plan = np.full((len(rows), config.plan_depth), -1)
    lost = memory.failed[rows]
    unknown = np.flatnonzero(law != lost)
    tapes, goals = space.pack(memory.cells[rows]), space.pack(goal[rows])
    for number, *target in sorted({(int(law[i]), *goals[i].tolist()) for i in unknown}):
        group = unknown[(law[unknown] == number) & (goals[unknown] == target).all(axis=1)]
        ways = find_ways(config, tapes[group], budget[group].tolist(), number, length, target)
        for row, way in zip(group, ways, strict=True):
            if way is None:
                lost[row] = number
            else:
                plan[row, : len(way)] = way
    return plan, lost


def find_ways(
    config: Config, tapes: np.ndarray, budget: list[int], law: int, length: int, goal: list[int]
) -> list[list[int] | None]:
    """For each tape `[N, W]` a way to the goal under a law of five cells, where one is found.

    What is found depends on nothing else, not even on chance, so it is kept: one evaluation after
    the other asks about the same start tapes.
    """
    asked = [
        (law, *goal, length, config.beam, steps, *tape.tolist())
        for tape, steps in zip(tapes, budget, strict=True)
    ]
    new = [row for row, key in enumerate(asked) if key not in _FOUND]
    if len(_FOUND) + len(new) > _KEPT:
        _FOUND.clear()
        new = list(range(len(tapes)))
    steps = [budget[row] for row in new]
    found = _search(config.beam, tapes[new], steps, law, length, goal) if new else []
    _FOUND.update(zip((asked[row] for row in new), found, strict=True))
    return [_FOUND[key] for key in asked]


_FOUND: dict[tuple[int, ...], list[int] | None] = {}
_KEPT = 100_000
"""Ways that are kept at most: some tens of megabytes. Beyond that all of them are forgotten."""


def _search(
    width: int, tapes: np.ndarray, budget: list[int], law: int, length: int, goal: list[int]
) -> list[list[int] | None]:
    rule, radius = narrow(law)
    always = seeding.Stream(*np.zeros((2, len(tapes)), np.uint32))
    if length <= MAX_LENGTH:
        passes = search.PASSES if radius == 1 else search.PASSES[:3]
        return search.find_ways(
            tapes[:, 0], budget, rule, length, goal[0], always, width, radius, passes
        )
    if radius > 1:
        return [None] * len(tapes)
    target, quarter = np.array(goal, np.uint32), max(width // 4, 1)
    return search.find_far_ways(tapes, budget, rule, length, target, always, quarter)


def narrow(law: int) -> tuple[int, int]:
    """A law of five cells as a rule and its radius: 1 if the outer two do not matter."""
    bits = [law >> code & 1 for code in range(CODES)]
    inner = [bits[2 * code] for code in range(8)]
    if all(bits[code] == inner[code >> 1 & 7] for code in range(CODES)):
        return sum(bit << code for code, bit in enumerate(inner)), 1
    return law, RADIUS
