"""The evaluator: a policy × rules × episodes in one vectorised program.

Every rule is sat with the same exam tapes, so differences between policies and between rules are
paired. JAX policies run inside one compiled scan; NumPy policies drive the vector environment.
Given the same actions the two produce identical episodes, noise included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench import dynamics, seeding, splits
from tapebench import task as tasks
from tapebench.gym import TapeVectorEnv
from tapebench.policy import Policy

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
    rules: np.ndarray
    """int `[R]`."""
    cells: np.ndarray
    """int16 `[R, E, H]`: the actions; -1 once the episode is over."""
    wrong: np.ndarray
    """int16 `[R, E, H + 1]`: wrong cells at the start and after each step; 0 from success on."""
    salt: str = ""
    """Which exam: empty for the standard one."""

    @cached_property
    def success(self) -> np.ndarray:
        """Whether the goal was reached."""
        reached: np.ndarray = self.wrong[..., -1] == 0
        return reached

    @cached_property
    def steps(self) -> np.ndarray:
        """Steps taken: up to success, or the whole horizon."""
        return (self.cells >= 0).sum(axis=-1)

    @cached_property
    def final_distance(self) -> np.ndarray:
        """Distance at the end."""
        return self.wrong[..., -1] / self.task.length

    @cached_property
    def auc_distance(self) -> np.ndarray:
        """Mean distance over the H steps; after success the goal is kept, at distance 0."""
        return self.wrong[..., 1:].mean(axis=-1) / self.task.length

    @cached_property
    def returns(self) -> np.ndarray:
        """Undiscounted sum of rewards."""
        distance = self.wrong / self.task.length
        rewards = tasks.reward(
            self.task.reward, distance[..., :-1], distance[..., 1:], self.task.success_bonus
        )
        return np.where(self.cells >= 0, rewards, 0.0).sum(axis=-1)

    def trace(self, rule_index: int, episode: int) -> tuple[np.ndarray, np.ndarray]:
        """The tapes `[T + 1, L]` and the actions `[T]` of one episode, by playing it again."""
        actions = self.cells[rule_index, episode, : self.steps[rule_index, episode]]
        visible = replace(self.task, hidden=0)
        start = exam_start(visible, np.array([self.rules[rule_index]]), episode + 1, self.salt)
        env, obs, _ = _vector_env(visible, start)
        tapes = [obs[episode]]
        for cell in actions:
            tapes.append(env.step(np.full(episode + 1, cell))[0][episode])
        return np.array(tapes)[:, : self.task.length].astype(np.uint8), actions

    def soft_success(self, tolerance: float) -> np.ndarray:
        """Whether the final distance is at most `tolerance`."""
        return self.final_distance <= tolerance


def rollout(
    policy: Policy,
    task: tasks.Task,
    rules: Any = None,
    episodes: int = STANDARD_EPISODES,
    *,
    seed: int = 0,
    salt: str = "",
) -> Episodes:
    """Run `policy` on the exam: every rule (default: the task's) from every exam tape.

    `seed` decides the policy's own draws. A `salt` makes it a fresh exam of the same kind.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, not {episodes}")
    members = np.array(task.rules if rules is None else splits.check_rules(rules), np.uint32)
    start = exam_start(task, members, episodes, salt)
    run = _run_jax if policy.backend == "jax" else _run_numpy
    cells, wrong = run(policy, task, start, seed)
    if (cells == _INVALID).any():
        raise ValueError(
            f"policy {policy.name!r} chose a cell that is none: cells are 0 to {task.length - 1}"
        )
    return by_rule(policy, task, members, cells, wrong, salt)


def by_rule(
    policy: Policy,
    task: tasks.Task,
    rules: np.ndarray,
    cells: np.ndarray,
    wrong: np.ndarray,
    salt: str,
) -> Episodes:
    """Actions `[B, H]` and wrong cells `[B, H + 1]` of a whole exam, rule by rule."""
    shape = (len(rules), len(cells) // len(rules), -1)
    return Episodes(
        policy=policy.name,
        task=task,
        rules=rules.astype(int),
        cells=cells.reshape(shape),
        wrong=wrong.reshape(shape),
        salt=salt,
    )


@dataclass(frozen=True)
class Start:
    """The first states of B episodes."""

    rule: np.ndarray
    tape: np.ndarray
    goal: np.ndarray
    stream: seeding.Stream


def exam_start(task: tasks.Task, rules: np.ndarray, episodes: int, salt: str) -> Start:
    """Every rule from every exam tape, rule by rule."""
    streams = seeding.exam_streams(episodes, salt=salt)
    words = np.arange(dynamics.num_words(task.length), dtype=np.uint32)
    if task.goal is None:
        goals = seeding.draw(streams, seeding.GOAL + words) & dynamics.full(task.length)
    else:
        goals = np.tile(dynamics.to_words(task.goal, task.length), (episodes, 1))
    tapes = seeding.exam_tapes(task.length, episodes, goals=goals, salt=salt)

    def on_every_rule(values: np.ndarray) -> np.ndarray:
        return np.tile(values, (len(rules),) + (1,) * (values.ndim - 1))

    return Start(
        rule=rules.repeat(episodes),
        tape=on_every_rule(tapes),
        goal=on_every_rule(goals),
        stream=seeding.Stream(*map(on_every_rule, streams)),
    )


def _vector_env(task: tasks.Task, start: Start) -> tuple[TapeVectorEnv, np.ndarray, np.ndarray]:
    """The vector environment at the start of these episodes, what it shows, and distances."""
    env = TapeVectorEnv(len(start.rule), task=task)
    given = {
        "rule": start.rule,
        "tape": dynamics.unpack(start.tape, task.length),
        "goal": dynamics.unpack(start.goal, task.length),
        "stream": start.stream,
    }
    obs, info = env.reset(seed=0, options=given)
    return env, obs, info["distance"]


def _run_numpy(
    policy: Policy, task: tasks.Task, start: Start, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Actions `[B, H]` and wrong cells `[B, H + 1]` of a NumPy policy."""
    num = len(start.rule)
    env, obs, distance = _vector_env(task, start)
    memory = policy.init(start.rule, num)
    rng = seeding.generator(seed, "rollout", policy.name)
    cells = np.full((num, task.horizon), -1, np.int16)
    wrong = np.zeros((num, task.horizon + 1), np.int16)
    wrong[:, 0] = _count(distance, task.length)
    running = np.ones(num, bool)
    for t in range(task.horizon):
        memory, action = policy.act(memory, obs, rng)
        obs, _, terminated, truncated, info = env.step(action)
        cells[running, t] = np.asarray(action)[running]
        wrong[running, t + 1] = _count(info["distance"], task.length)[running]
        running &= ~(terminated | truncated)
        if not running.any():
            break
    return cells, wrong


def _count(distance: np.ndarray, length: int) -> np.ndarray:
    return np.rint(distance * length).astype(np.int16)


def _run_jax(
    policy: Policy, task: tasks.Task, start: Start, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Actions `[B, H]` and wrong cells `[B, H + 1]` of a JAX policy."""
    import jax.numpy as jnp

    from tapebench import env as envs

    env, params = envs.make(task=task)
    state = envs.EnvState(
        tape=jnp.asarray(start.tape),
        goal=jnp.asarray(start.goal),
        rule=jnp.asarray(start.rule),
        t=jnp.zeros(len(start.rule), jnp.int32),
        stream=seeding.Stream(*map(jnp.asarray, start.stream)),
    )
    memory = policy.init(state.rule, len(start.rule))
    key = seeding.key(seed, "rollout", policy.name)
    cells, wrong = _compiled_scan()(policy.act, env, task.horizon, memory, state, params, key)
    return np.asarray(cells), np.asarray(wrong)


@cache
def _compiled_scan() -> Callable[..., Any]:
    """The episode as one program, compiled once for every `act`, env, horizon and batch size."""
    import jax
    import jax.numpy as jnp

    def scan(
        act: Any, env: envs.TapeEnv, horizon: int, memory: Any, state: Any, params: Any, key: Any
    ) -> tuple[jax.Array, jax.Array]:
        step = jax.vmap(env.step_env, in_axes=(None, 0, 0, None))
        observe = jax.vmap(env.observe, in_axes=(0, None))
        count = dynamics.hamming

        def body(carry: Any, key: jax.Array) -> Any:
            memory, state, running = carry
            memory, action = act(memory, observe(state, params), key)
            _, after, _, terminated, _, _ = step(None, state, action, params)
            # An episode that is over stands still, at the goal.
            state = jax.tree.map(
                lambda new, old: jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                after,
                state,
            )
            is_valid = (action >= 0) & (action < env.length)
            cell = jnp.where(running, jnp.where(is_valid, action, _INVALID), -1).astype(jnp.int16)
            wrong = count(state.tape, state.goal).astype(jnp.int16)
            return (memory, state, running & ~terminated), (cell, wrong)

        first = count(state.tape, state.goal).astype(jnp.int16)
        running = jnp.ones(first.shape, bool)
        _, (cells, wrong) = jax.lax.scan(
            body, (memory, state, running), jax.random.split(key, horizon)
        )
        return cells.T, jnp.concatenate([first[None], wrong]).T

    return jax.jit(scan, static_argnames=("act", "env", "horizon"))
