"""The environment as pure JAX functions, in the shape of gymnax 1.0.

    env, params = tapebench.env.make(rules="train")
    obs, state = env.reset(key, params)
    obs, state, reward, terminated, truncated, info = env.step(key, state, action, params)

What fixes a shape or the program is a static field of `TapeEnv`; everything else is a leaf of
`EnvParams`, which may change, or be vmapped over, without a new compilation.

Every draw is a hash of the stream that `reset` takes from its key and the state carries, so an
episode is fixed by the key of its `reset` and its actions. The key that `step` accepts, as gymnax
has it, is not used: inside `jit` the splitting of keys for it costs nothing, it is eliminated.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from jaxtyping import ArrayLike, Bool, Float32, Int32, Integer, Key, UInt8, UInt16, UInt32

from tapebench.base import seeding
from tapebench.physics import space, starts
from tapebench.physics.family import Family
from tapebench.physics.space import Space, Tape
from tapebench.tasks.layout import Layout
from tapebench.tasks.schedule import NEVER, Schedule
from tapebench.tasks.task import (
    MAX_REDRAWS,
    REWARDS,
    Task,
    check_version,
    make_task,
    resolve,
    reward,
)
from tapebench.tasks.universe import ELEMENTARY, Universe

if TYPE_CHECKING:
    Observation = Any
else:
    Observation = Float32[Array, " D"] | dict[str, UInt32[Array, " W"] | Float32[Array, ""]]
    """See `TapeEnv`."""

Reward = Float32[Array, ""]
Flag = Bool[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvParams:
    """What may change without recompiling. Every field is an array."""

    rules: UInt8[Array, "*B R"] | UInt16[Array, "*B R"] | UInt32[Array, "*B R"]
    """The rules to draw from, the first `num_rules` entries count. Wider where the universe has
    larger rules, longer where it has more."""
    num_rules: UInt32[Array, "*B"]
    goal: UInt32[Array, "*B W"]
    """Ignored by an env whose goal is random."""
    hidden: UInt32[Array, "*B W"]
    """Cells the observation shows as zero."""
    horizon: Int32[Array, "*B"]
    success_bonus: Float32[Array, "*B"]
    start_density: Float32[Array, "*B"]
    noise: Float32[Array, "*B"]
    num_seen: UInt32[Array, "*B"] | None = None
    """How many of the rules, the first ones, are on the side of the seen, where a schedule keeps
    sides apart; see `Schedule.draw`. Nothing where the rule never changes."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """One episode in progress."""

    tape: Tape
    """uint32 `[1]`, or a tuple of W such where there are more than 32 cells: see `space.split`."""
    goal: Tape
    """As `tape`."""
    rule: UInt32[Array, "*B"]
    """Hidden from agents: it is in no observation, and in `info` only if revealed."""
    t: Int32[Array, "*B"]
    """Steps taken."""
    stream: seeding.Stream
    """The source of all draws of this episode and, counted on, of those after it."""
    later: tuple[Array, ...] = ()
    """uint32: the rules that follow, one for each switch of the schedule. As hidden as `rule`."""


def rule_table(
    rules: tuple[int, ...], universe: Universe
) -> tuple[Integer[Array, " R"], UInt32[Array, ""]]:
    """Rules as the table and the count that `EnvParams` holds: as large for any of a universe."""
    table = np.zeros(len(universe.rules), np.min_scalar_type(universe.rules[-1]))
    table[: len(rules)] = rules
    return jnp.asarray(table), jnp.uint32(len(rules))


@dataclass(frozen=True)
class TapeEnv:
    """Flip a cell, the hidden rule updates the tape, reach the goal. All methods are pure.

    Action: a 0-based cell; one out of range flips nothing, since a compiled program cannot
    refuse. Reward and ending are those of `tapebench.gym.TapeEnv` in the same `version`.

    Observation: float32 `[L + 1]`, the cells and t/H (then the goal's L cells if
    `observe_goal`); or, if `packed`, a dict of the same as `tape` uint32 `[W]`, `time` float32
    (and `goal` uint32 `[W]`).
    """

    length: int = 32
    reward: str = "distance"
    random_goal: bool = False
    observe_goal: bool = False
    packed: bool = False
    reveal_rule: bool = False
    family: Family = ELEMENTARY.family
    schedule: Schedule = NEVER
    shape: tuple[int, ...] | None = None
    """Sides of a torus of `length` cells; a ring has none."""
    version: int = 0
    """1: the horizon terminates the episode. 0: it truncates it."""
    defaults: Task | None = field(default=None, compare=False, repr=False)
    """What `default_params` are of. Environments that differ in it alone are equal, so that they
    share compiled programs."""

    def __post_init__(self) -> None:
        if space.check_length(self.length) != self.space.size:
            raise ValueError(f"a torus of {self.shape} has {self.space.size} cells: set length")
        self.family.check_space(self.space)
        if self.reward not in REWARDS:
            raise ValueError(f"unknown reward {self.reward!r}: use one of {', '.join(REWARDS)}")
        check_version(self.version)

    @property
    def name(self) -> str:
        return f"Tape-v{self.version}"

    @property
    def space(self) -> Space:
        """Where the cells are."""
        return Space(self.shape or (self.length,))

    @property
    def num_actions(self) -> int:
        return self.space.size

    @property
    def default_params(self) -> EnvParams:
        """The parameters that `make` gave with this environment.

        Of one that `make` did not make: those of no options, at this length.

        Not for use inside a compiled function. A program compiled for one environment serves all
        that are equal to it, so it would go on with the rules of the first: pass `params` in.
        """
        task = self.defaults or self._plain_task()
        if task.space != self.space or task.schedule.switches != self.schedule.switches:
            raise ValueError("default_params are of another length, shape or schedule: use make")
        params = make_params(task)
        if isinstance(params.horizon, jax.core.Tracer):
            raise ValueError(
                "default_params cannot be read inside a compiled function: pass params to it"
            )
        return params

    def _plain_task(self) -> Task:
        if self.family != ELEMENTARY.family:
            raise ValueError(
                f"there are no default rules of {self.family.name}: take the parameters from "
                "tapebench.env.make, with split= or rules="
            )
        return replace(make_task(length=self.length), schedule=self.schedule)

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self.length)

    def observation_space(self, params: EnvParams | None = None) -> spaces.Space[Any]:
        if not self.packed:
            size = Layout(self.length).width(self.observe_goal)
            return spaces.Box(0.0, 1.0, (size,), np.float32)
        full = space.full(self.length)
        words = spaces.Box(np.zeros_like(full), full, dtype=np.uint32)
        parts: dict[str, spaces.Space[Any]] = {
            "tape": words,
            "time": spaces.Box(0.0, 1.0, (), np.float32),
        }
        return spaces.Dict(parts | ({"goal": words} if self.observe_goal else {}))

    def reset(self, key: Key[Array, ""], params: EnvParams) -> tuple[Observation, EnvState]:
        """Start an episode: a rule from the set, a tape that is not the goal."""
        state = self.start(seeding.stream(key), params)
        return self.observe(state, params), state

    def start(self, stream: seeding.Stream, params: EnvParams) -> EnvState:
        """The first state of the episode that `stream` stands for."""
        words = np.arange(space.num_words(self.length), dtype=np.uint32)
        goal = jnp.copy(params.goal)  # whoever donates the state keeps the parameters
        if self.random_goal:
            goal = seeding.draw(stream, seeding.GOAL + words) & space.full(self.length)

        def draw_number() -> Array:
            drawn = seeding.draw(stream, np.array([seeding.RULE]))
            return seeding.below(params.num_rules, drawn)[0]

        def fair() -> tuple[Array, Array]:
            drawn = seeding.draw(stream, seeding.TAPE + words)
            return goal ^ starts.nonzero_words(drawn, self.length), draw_number()

        def biased() -> tuple[Array, Array]:
            def attempt(number: Array) -> Array:
                lane = seeding.TAPE + number * np.uint32(self.length)
                return starts.bernoulli_words(stream, lane, params.start_density, self.length)

            def is_goal(carry: tuple[Array, Array]) -> Array:
                number, tape = carry
                return (tape == goal).all() & (number < MAX_REDRAWS)

            def redraw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
                number = carry[0] + np.uint32(1)
                return number, attempt(number)

            first = jnp.uint32(0)
            _, tape = jax.lax.while_loop(is_goal, redraw, (first, attempt(first)))
            moved = jnp.where((tape == goal).all(), space.flip(tape, first), tape)
            return moved, draw_number()

        # A predicate that is not vmapped stays a branch: the usual density pays for one draw.
        # It also keeps the look-up below, which does not vectorise, apart from what does.
        tape, number = jax.lax.cond(params.start_density == 0.5, fair, biased)

        def rule_of(number: Array) -> Array:
            return params.rules.at[number].get(mode="promise_in_bounds").astype(jnp.uint32)

        rule = rule_of(number)
        later: tuple[Array, ...] = ()
        if self.schedule.switches:
            following = self.schedule.draw(stream, number, params.num_seen, params.num_rules)
            later = tuple(map(rule_of, following))
        return EnvState(
            tape=space.split(tape),
            goal=space.split(goal),
            rule=rule,
            t=jnp.int32(0),
            stream=stream,
            later=later,
        )

    def observe(self, state: EnvState, params: EnvParams) -> Observation:
        """What the agent sees of `state`."""
        tape = space.each(operator.and_, state.tape, space.split(~params.hidden))
        time = space.share(state.t, params.horizon)
        if self.packed:
            goal = {"goal": space.join(state.goal)} if self.observe_goal else {}
            return {"tape": space.join(tape), "time": time} | goal
        parts = [space.unpack(tape, self.length), jnp.zeros(1, jnp.uint8)]
        if self.observe_goal:
            parts.append(space.unpack(state.goal, self.length))
        cells = jnp.concatenate(parts).astype(jnp.float32)
        # Measured: joining the time as one more float32 part makes the step half as slow again.
        return jnp.where(np.arange(len(cells)) == self.length, time, cells)

    def step_env(
        self,
        key: Key[Array, ""] | None,
        state: EnvState,
        action: Integer[ArrayLike, ""],
        params: EnvParams,
    ) -> tuple[Observation, EnvState, Reward, Flag, Flag, dict[str, Array]]:
        """One step without auto-reset. Stepping on after the end is the caller's mistake."""
        before = space.distance(state.tape, state.goal, self.length)
        flipped = space.trim(space.flip(state.tape, action), self.length)
        tape = self.family.update(flipped, self.family.compile(state.rule), self.space)

        def disturb(tape: Tape) -> Tape:
            lane = seeding.NOISE + state.t.astype(jnp.uint32) * np.uint32(self.length)
            noise = starts.bernoulli_words(state.stream, lane, params.noise, self.length)
            return space.each(operator.xor, tape, space.split(noise))

        tape = jax.lax.cond(params.noise > 0, disturb, lambda tape: tape, tape)
        after = space.distance(tape, state.goal, self.length)
        success = after == 0
        state = replace(state, tape=tape, t=state.t + 1)
        if self.schedule.switches:
            rule = self.schedule.rule_at(state.t, state.rule, state.later)
            state = replace(state, rule=rule)
        terminated, truncated = self._ending(success, state.t, params)
        paid = reward(self.reward, before, after, params.success_bonus)
        info = {"distance": after, "success": success}
        if self.version > 0:
            info["is_success"] = success
        if self.reveal_rule:
            info["rule"] = state.rule
        return self.observe(state, params), state, paid, terminated, truncated, info

    def ending(self, state: EnvState, params: EnvParams) -> tuple[Flag, Flag]:
        """Whether the episode is terminated in `state`, and whether it is truncated."""
        wrong = space.hamming(state.tape, state.goal)
        return self._ending(wrong == 0, state.t, params)

    def _ending(self, success: Flag, t: Int32[Array, ""], params: EnvParams) -> tuple[Flag, Flag]:
        is_over = t >= params.horizon
        terminated = success | is_over if self.version > 0 else success
        return terminated, is_over & ~terminated

    def step(
        self,
        key: Key[Array, ""] | None,
        state: EnvState,
        action: Integer[ArrayLike, ""],
        params: EnvParams,
    ) -> tuple[Observation, EnvState, Reward, Flag, Flag, dict[str, Any]]:
        """One step; an episode that ends is followed at once by the first state of the next.

        `info["final_observation"]` is what the step itself led to, ended or not.
        """
        final, state, paid, terminated, truncated, info = self.step_env(key, state, action, params)
        fresh = self.start(seeding.advance(state.stream), params)
        state = renew(terminated | truncated, state, fresh)
        info["final_observation"] = final
        return self.observe(state, params), state, paid, terminated, truncated, info

    def step5(
        self,
        key: Key[Array, ""] | None,
        state: EnvState,
        action: Integer[ArrayLike, ""],
        params: EnvParams,
    ) -> tuple[Observation, EnvState, Reward, Flag, dict[str, Any]]:
        """`step` in gymnax's older form: obs, state, reward, done, info."""
        obs, state, paid, terminated, truncated, info = self.step(key, state, action, params)
        info |= {"terminated": terminated, "truncated": truncated}
        return obs, state, paid, terminated | truncated, info


def renew(ended: Bool[Array, ""], state: Any, fresh: Any) -> Any:
    """Auto-reset: the `fresh` state where an episode has ended, elsewhere `state`."""
    state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, state)
    # Without the barrier the whole step is computed again for every cell observed.
    return jax.lax.optimization_barrier(state)


def make(
    *,
    task: Task | Mapping[str, Any] | None = None,
    packed: bool = False,
    version: int = 0,
    **options: Any,
) -> tuple[TapeEnv, EnvParams]:
    """The environment and its parameters from the options of `Tape-v0`, or from a `Task`.

    `version=1` makes that of `Tape-v1`; `packed` chooses observations as words, see `TapeEnv`.
    """
    task = resolve(task, options)
    env = TapeEnv(
        length=task.length,
        reward=task.reward,
        random_goal=task.goal is None,
        observe_goal=task.observe_goal,
        packed=packed,
        reveal_rule=task.reveal_rule,
        family=task.family,
        schedule=Schedule(task.schedule.switches),
        shape=task.space.shape if task.space.is_torus else None,
        version=version,
        defaults=task,
    )
    return env, make_params(task)


def make_params(task: Task) -> EnvParams:
    """The parameters of a task."""
    schedule = task.schedule
    table, num_rules = rule_table(schedule.order(task.rules), task.universe)
    return EnvParams(
        rules=table,
        num_rules=num_rules,
        goal=jnp.asarray(space.to_words(task.goal or 0, task.length)),
        hidden=jnp.asarray(space.to_words(task.hidden, task.length)),
        horizon=jnp.int32(task.horizon),
        success_bonus=jnp.float32(task.success_bonus),
        start_density=jnp.float32(task.start_density),
        noise=jnp.float32(task.noise),
        num_seen=jnp.uint32(len(schedule.seen)) if schedule.switches else None,
    )
