"""The evaluator: a policy × rules × episodes in one vectorised program.

Every rule is sat with the same exam tapes, so differences between policies and between rules are
paired. JAX policies run inside one compiled scan; NumPy policies drive the vector environment.
Given the same actions the two produce identical episodes, noise included.

A *row* is a rule with a start tape. Rows reach a policy in the order of a `Seating`, which says
nothing about their rules, and are put back afterwards. Whatever a policy draws, it draws row by
row, so the order makes no difference to one that keeps its rows apart.

With several *trials* a policy meets the same rule again and again and keeps its memory: an
episode that ends is followed at once by the next trial, and the observed t/H, back at 0, is the
only sign of it. After its last trial an episode stands still.

Where the rule switches, a row's rule is its first one. Those that follow are fixed by the exam, the
row's episode and its first rule, so that every policy meets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.shapes import Bool, Float64, Int16, Int64, Integer, Shaped, UInt8, UInt32
from tapebench.exam.policy import Policy, check_privilege
from tapebench.exam.seating import OWN, Seating, verdict
from tapebench.gym import TapeVectorEnv
from tapebench.physics import space
from tapebench.physics.starts import exam_tapes
from tapebench.tasks import splits
from tapebench.tasks import task as tasks

if TYPE_CHECKING:
    from tapebench import env as envs

STANDARD_EPISODES = 20

_INVALID = -2
"""In place of an action out of range, which a compiled program cannot refuse by itself."""


@dataclass(frozen=True)
class Episodes:
    """What happened: R rules × E episodes of at most H steps. Metrics are `[R, E]` arrays."""

    policy: str
    task: tasks.Task
    rules: Int64[np.ndarray, " R"]
    cells: Int16[np.ndarray, "R E H"]
    """The actions; -1 once the episode is over."""
    wrong: Int16[np.ndarray, "R E H+1"]
    """Wrong cells at the start and after each step; 0 from success on."""
    salt: str = ""
    """Which exam: empty for the standard one."""
    trials: int = 1
    """Memory was kept over so many episodes in a row: the first E / trials columns are every
    first trial, the next as many every second one, on tapes further on in the exam."""

    @cached_property
    def success(self) -> Bool[np.ndarray, "R E"]:
        """Whether the goal was reached."""
        reached: np.ndarray = self.wrong[..., -1] == 0
        return reached

    @cached_property
    def steps(self) -> Int64[np.ndarray, "R E"]:
        """Steps taken: up to success, or the whole horizon."""
        return (self.cells >= 0).sum(axis=-1)

    @cached_property
    def final_distance(self) -> Float64[np.ndarray, "R E"]:
        """Distance at the end."""
        return self.wrong[..., -1] / self.task.length

    @cached_property
    def auc_distance(self) -> Float64[np.ndarray, "R E"]:
        """Mean distance over the H steps; after success the goal is kept, at distance 0."""
        return self.wrong[..., 1:].mean(axis=-1) / self.task.length

    @cached_property
    def returns(self) -> Float64[np.ndarray, "R E"]:
        """Undiscounted sum of rewards."""
        distance = self.wrong / self.task.length
        rewards = tasks.reward(
            self.task.reward, distance[..., :-1], distance[..., 1:], self.task.success_bonus
        )
        return np.where(self.cells >= 0, rewards, 0.0).sum(axis=-1)

    def trace(
        self, rule_index: int, episode: int
    ) -> tuple[UInt8[np.ndarray, "tapes L"], Int16[np.ndarray, " T"]]:
        """The tapes and the actions of one episode, by playing it again."""
        actions = self.cells[rule_index, episode, : self.steps[rule_index, episode]]
        visible = replace(self.task, hidden=0)
        start = exam_start(visible, np.array([self.rules[rule_index]]), episode + 1, self.salt)
        env, obs, _ = _vector_env(visible, start.trial(0))
        tapes = [obs[episode]]
        for cell in actions:
            tapes.append(env.step(np.full(episode + 1, cell))[0][episode])
        return np.array(tapes)[:, : self.task.length].astype(np.uint8), actions

    def soft_success(self, tolerance: float) -> Bool[np.ndarray, "R E"]:
        """Whether the final distance is at most `tolerance`."""
        return self.final_distance <= tolerance

    def by_trial(self, metric: Shaped[np.ndarray, "R E"]) -> Shaped[np.ndarray, "K R E//K"]:
        """A metric trial by trial."""
        return metric.reshape(len(self.rules), self.trials, -1).swapaxes(0, 1)


def rollout(
    policy: Policy,
    task: tasks.Task,
    rules: Any = None,
    episodes: int = STANDARD_EPISODES,
    *,
    seed: int = 0,
    salt: str = "",
    trials: int = 1,
) -> Episodes:
    """Run `policy` on the exam: every rule (default: the task's) from every exam tape.

    `seed` decides the policy's own draws. A `salt` makes it a fresh exam of the same kind. With
    `trials` there are so many times `episodes`, see the module.
    """
    sitting = prepare(policy, task, rules, episodes, seed=seed, salt=salt, trials=trials)
    return sitting.episodes([(rows, sitting.play(rows)) for rows in OWN.batches(sitting.num)])


def watch(
    policy: Policy,
    task: tasks.Task,
    look: Callable[[Any, Any], dict[str, Any]],
    rules: Any = None,
    episodes: int = STANDARD_EPISODES,
    *,
    seed: int = 0,
    salt: str = "",
    trials: int = 1,
) -> tuple[Episodes, dict[str, Shaped[np.ndarray, "B looks ..."]], Bool[np.ndarray, "B looks"]]:
    """The same episodes as `rollout`, and what `look(memory, rule)` saw on the way.

    `look` is asked before the first step and after each, once the policy has seen where the step
    led (for that, it acts once more after the last). It gives arrays with a leading axis of B
    episodes, and must be traceable and stay the same function if the policy is a JAX one. What it
    saw comes back as `[B, K H + 1, ...]`, with `[B, K H + 1]` booleans that say which of it
    belongs to a step that was taken.
    """
    sitting = prepare(policy, task, rules, episodes, seed=seed, salt=salt, trials=trials)
    (order,) = OWN.batches(sitting.num)
    steps = sitting.play(order, look)
    back = np.argsort(order)
    is_fresh = np.pad(steps.moved, ((0, 0), (1, 0)), constant_values=True)
    looks = {name: seen[back] for name, seen in steps.looks.items()}
    return sitting.episodes([(order, steps)]), looks, is_fresh[back]


@dataclass(frozen=True)
class Sitting:
    """A policy before an exam of B rows, each a rule with a start tape. Get it from `prepare`."""

    policy: Policy
    task: tasks.Task
    rules: UInt32[np.ndarray, " R"]
    columns: int
    """Rows of each rule: B is R times as many, rule by rule."""
    salt: str
    trials: int
    start: Start
    draws: seeding.Stream
    """What the policy draws from in each row, `[B]`."""

    @property
    def num(self) -> int:
        """How many rows there are."""
        return len(self.rules) * self.columns

    def play(self, rows: Integer[np.ndarray, " B"], look: Any = None) -> Steps:
        """Play some rows as one batch, seated in this order; a row may be there more than once."""
        draws = seeding.Stream(*(part[rows] for part in self.draws))
        run = _run_jax if self.policy.backend == "jax" else _run_numpy
        steps = run(self.policy, self.task, self.start.rows(rows), draws, look)
        if (steps.cells == _INVALID).any():
            raise ValueError(
                f"policy {self.policy.name!r} chose an action that is no cell: "
                f"cells are 0 to {self.task.length - 1}"
            )
        return steps

    def actions(self, steps: Steps) -> Int16[np.ndarray, "B K H"]:
        """The cells of each row of a batch by trial and time; -1 for none."""
        cells = np.full((len(steps.cells), self.trials, self.task.horizon), -1, np.int16)
        row, column = np.nonzero(steps.moved)
        cells[row, steps.trial[row, column], steps.t[row, column]] = steps.cells[row, column]
        return cells

    def episodes(self, played: Sequence[tuple[Integer[np.ndarray, " B"], Steps]]) -> Episodes:
        """Batches, each with the rows that were seated in it, put back in order.

        Of a row that was played more than once the first time counts. Rows that nobody has played
        are as if no step had been taken in them.
        """
        horizon, trials = self.task.horizon, self.trials
        cells = np.full((self.num, trials, horizon), -1, np.int16)
        wrong = np.zeros((self.num, trials, horizon + 1), np.int16)
        wrong[:, :, 0] = space.hamming(self.start.tape, self.start.goal).T
        is_new = np.ones(self.num, bool)
        for rows, steps in played:
            seat, column = np.nonzero(steps.moved & is_new[rows][:, None])
            is_new[rows] = False
            place = rows[seat], steps.trial[seat, column], steps.t[seat, column]
            cells[place] = steps.cells[seat, column]
            wrong[:, :, 1:][place] = steps.wrong[seat, column]

        def by_rule(array: np.ndarray) -> np.ndarray:
            """`[R E, K, ...]` -> `[R, K E, ...]`."""
            apart = array.reshape(len(self.rules), self.columns, *array.shape[1:]).swapaxes(1, 2)
            return apart.reshape(len(self.rules), trials * self.columns, -1)

        return Episodes(
            policy=self.policy.name,
            task=self.task,
            rules=self.rules.astype(int),
            cells=by_rule(cells),
            wrong=by_rule(wrong),
            salt=self.salt,
            trials=trials,
        )

    def check(
        self,
        seating: Seating,
        played: Sequence[tuple[Integer[np.ndarray, " B"], Steps]],
        afresh: Callable[[], AbstractContextManager[Policy]] | None = None,
    ) -> str:
        """Does the policy keep its rows apart? Some rows are played twice more; see `seating.ROWS`.

        Once among the same neighbours, once among others, in the same seats of as large a batch;
        each time by a policy made `afresh`, if that can be, which remembers nothing of the exam.
        """
        number, seats, others = seating.check(self.num)
        rows, first = played[number]
        actions = [self.actions(first)[seats]]
        for neighbours in (rows, others):
            with nullcontext(self.policy) if afresh is None else afresh() as policy:
                actions.append(self.actions(replace(self, policy=policy).play(neighbours))[seats])
        return verdict(*actions)


def prepare(
    policy: Policy,
    task: tasks.Task,
    rules: Any = None,
    episodes: int = STANDARD_EPISODES,
    *,
    seed: int = 0,
    salt: str = "",
    trials: int = 1,
) -> Sitting:
    """All rows of an exam for a policy to play. Arguments as for `rollout`."""
    for name, count in (("episodes", episodes), ("trials", trials)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}")
    members = np.array(
        task.rules if rules is None else splits.check_rules(rules, task.universe), np.uint32
    )
    episode = np.tile(np.arange(episodes), len(members))
    draws = seeding.policy_streams(seed, policy.name, members.repeat(episodes), episode)
    check_privilege(policy, task)
    start = exam_start(task, members, episodes, salt, trials)
    return Sitting(policy, task, members, episodes, salt, trials, start, draws)


@dataclass(frozen=True)
class Steps:
    """A batch step by step, N steps of B rows, before it is sorted into trials."""

    cells: Int16[np.ndarray, "B N"]
    """The action; -1 in a row that is over, `_INVALID` if it was none."""
    wrong: Int16[np.ndarray, "B N"]
    """Wrong cells after the step."""
    trial: Integer[np.ndarray, "B N"]
    """The trial that the step belongs to."""
    t: Integer[np.ndarray, "B N"]
    """Steps taken in that trial before it."""
    looks: dict[str, Shaped[np.ndarray, "B N+1 ..."]]
    """What was watched, if anything was."""

    @property
    def moved(self) -> Bool[np.ndarray, "B N"]:
        return self.cells != -1


@dataclass(frozen=True)
class Start:
    """The first states of B episodes in each of K trials, or in one of them."""

    rule: Integer[np.ndarray, "*K B"]
    tape: UInt32[np.ndarray, "*K B W"]
    goal: UInt32[np.ndarray, "*K B W"]
    stream: seeding.Stream
    later: np.ndarray
    """uint32 `[K, B, S]`: the rules that follow where the rule switches S times."""

    def trial(self, number: int | Integer[np.ndarray, " B"]) -> Start:
        """One trial; or, given a number for each, for each episode the trial it is in."""
        place = number if isinstance(number, int) else (number, np.arange(self.rule.shape[1]))
        return self._at(place)

    def rows(self, rows: Integer[np.ndarray, " B"]) -> Start:
        """Some of the episodes, in this order."""
        return self._at((slice(None), rows))

    def _at(self, place: Any) -> Start:
        parts = (self.rule[place], self.tape[place], self.goal[place])
        stream = seeding.Stream(*(part[place] for part in self.stream))
        return Start(*parts, stream, self.later[place])


def exam_start(
    task: tasks.Task,
    rules: Integer[np.ndarray, " R"],
    episodes: int,
    salt: str,
    trials: int = 1,
) -> Start:
    """Every rule from every exam tape, rule by rule, then trial by trial."""
    count = trials * episodes
    streams = seeding.exam_streams(count, salt=salt)
    words = np.arange(space.num_words(task.length), dtype=np.uint32)
    if task.goal is None:
        goals = seeding.draw(streams, seeding.GOAL + words) & space.full(task.length)
    else:
        goals = np.tile(space.to_words(task.goal, task.length), (count, 1))
    tapes = exam_tapes(task.space, count, goals=goals, salt=salt)

    def on_every_rule(values: np.ndarray) -> np.ndarray:
        apart = values.reshape(trials, episodes, *values.shape[1:])
        return np.tile(apart, (1, len(rules)) + (1,) * (values.ndim - 1))

    rule = np.tile(rules.repeat(episodes), (trials, 1))
    stream = seeding.Stream(*map(on_every_rule, streams))
    later = np.zeros((*rule.shape, 0), np.uint32)
    if task.schedule.switches:
        later = task.schedule.later_rules(stream, rule, task.rules)
    return Start(rule, on_every_rule(tapes), on_every_rule(goals), stream, later)


def _vector_env(task: tasks.Task, start: Start) -> tuple[TapeVectorEnv, np.ndarray, np.ndarray]:
    """The vector environment at the start of these episodes, what it shows, and distances."""
    env = TapeVectorEnv(len(start.rule), task=task)
    obs, info = env.reset(seed=0, options=_reset_options(task, start))
    return env, obs, info["distance"]


def _reset_options(task: tasks.Task, start: Start) -> dict[str, Any]:
    """First states `[B]` as the vector environment takes them."""
    return {
        "rule": start.rule,
        "tape": space.unpack(start.tape, task.length),
        "goal": space.unpack(start.goal, task.length),
        "stream": start.stream,
    } | ({"switch_to": start.later} if task.schedule.switches else {})


def _run_numpy(
    policy: Policy, task: tasks.Task, start: Start, draws: seeding.Stream, look: Any
) -> Steps:
    """Every step of a NumPy policy."""
    trials, num = start.rule.shape
    env, obs, _ = _vector_env(task, start.trial(0))
    memory = policy.init(start.rule[0], num)

    def present() -> np.ndarray:
        """The rule that acts next in each row, `[B]`."""
        rule: np.ndarray = start.rule[0]
        if task.schedule.switches:
            now = start.trial(trial.clip(max=trials - 1))
            rule = task.schedule.rule_at(taken, rule, now.later.T)
        return rule

    trial, t, taken = (np.zeros(num, int) for _ in range(3))
    columns: list[tuple[np.ndarray, ...]] = []
    looks: list[dict[str, Any]] = []
    for _ in range(trials * task.horizon):
        running = trial < trials
        memory, action = policy.act(memory, obs, draws)
        draws = seeding.advance(draws)
        if look is not None:
            looks.append(look(memory, present()))
        after, _, terminated, truncated, info = env.step(action)
        wrong = np.rint(info["distance"] * task.length).astype(np.int16)
        cells = np.where(running, np.asarray(action), -1).astype(np.int16)
        columns.append((cells, wrong, trial, t))
        is_over = running & (terminated | truncated)
        taken = np.where(running, t + 1, taken)
        trial, t = trial + is_over, np.where(is_over, 0, t + running)
        again = is_over & (trial < trials)
        taken = np.where(again, 0, taken)
        if again.any():
            following = _reset_options(task, start.trial(trial.clip(max=trials - 1)))
            after, _ = env.reset(options={**following, "reset_mask": again})
        obs = np.where(running[:, None], after, obs)
        if look is None and not (trial < trials).any():
            break
    if look is not None:
        looks.append(look(policy.act(memory, obs, draws)[0], present()))
    cells, wrong, trial, t = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
    names = looks[0] if looks else ()
    return Steps(
        cells, wrong, trial, t, {n: np.stack([seen[n] for seen in looks], 1) for n in names}
    )


def _run_jax(
    policy: Policy, task: tasks.Task, start: Start, draws: seeding.Stream, look: Any
) -> Steps:
    """Every step of a JAX policy."""
    import jax
    import jax.numpy as jnp

    from tapebench import env as envs

    env, params = envs.make(task=task)
    starts = envs.EnvState(
        tape=space.split(jnp.asarray(start.tape)),
        goal=space.split(jnp.asarray(start.goal)),
        rule=jnp.asarray(start.rule),
        t=jnp.zeros(start.rule.shape, jnp.int32),
        stream=seeding.Stream(*map(jnp.asarray, start.stream)),
        later=tuple(map(jnp.asarray, np.moveaxis(start.later, -1, 0))),
    )
    memory = policy.init(starts.rule[0], start.rule.shape[1])
    taken = slice(len(start.rule) * task.horizon)
    calls = taken.stop + (look is not None)
    outputs = _compiled_scan()(policy.act, look, env, calls, memory, starts, params, draws)
    cells, wrong, trial, t, looks = jax.tree.map(
        lambda part: np.asarray(part).swapaxes(0, 1), outputs
    )
    return Steps(cells[:, taken], wrong[:, taken], trial[:, taken], t[:, taken], looks)


@cache
def _compiled_scan() -> Callable[..., Any]:
    """All steps as one program, compiled once for every `act`, env, horizon and batch size."""
    import jax
    import jax.numpy as jnp

    def scan(
        act: Any,
        look: Any,
        env: envs.TapeEnv,
        calls: int,
        memory: Any,
        starts: Any,
        params: Any,
        draws: Any,
    ) -> Any:
        step = jax.vmap(env.step_env, in_axes=(None, 0, 0, None))
        observe = jax.vmap(env.observe, in_axes=(0, None))
        trials, num = starts.rule.shape

        def choose(which: jax.Array, new: Any, old: Any) -> Any:
            def leaf(new: jax.Array, old: jax.Array) -> jax.Array:
                return jnp.where(which.reshape(-1, *[1] * (new.ndim - 1)), new, old)

            return jax.tree.map(leaf, new, old)

        def body(carry: Any, call: None) -> Any:
            memory, state, trial, stream = carry
            running = trial < trials
            memory, action = act(memory, observe(state, params), stream)
            seen = {} if look is None else look(memory, state.rule)
            _, after, _, terminated, truncated, _ = step(None, state, action, params)
            is_valid = (action >= 0) & (action < env.length)
            cell = jnp.where(running, jnp.where(is_valid, action, _INVALID), -1).astype(jnp.int16)
            wrong = space.hamming(after.tape, after.goal).astype(jnp.int16)
            out = cell, wrong, trial, state.t, seen
            state = choose(running, after, state)
            is_over = running & (terminated | truncated)
            trial = trial + is_over
            if trials > 1:
                place = trial.clip(max=trials - 1), jnp.arange(num)
                following = jax.tree.map(lambda part: part[place], starts)
                state = choose(is_over & (trial < trials), following, state)
            return (memory, state, trial, seeding.advance(stream)), out

        first = jax.tree.map(lambda part: part[0], starts)
        began = (memory, first, jnp.zeros(num, jnp.int32), draws)
        return jax.lax.scan(body, began, length=calls)[1]

    return jax.jit(scan, static_argnames=("act", "look", "env", "calls"))
