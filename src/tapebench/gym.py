"""The environment for Gymnasium: `TapeEnv` for one tape, `TapeVectorEnv` for many in NumPy.

Both are registered as `Tape-v0` and `Tape-v1` by `import tapebench`. Neither imports JAX.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tapebench.base import seeding
from tapebench.base.names import one_of
from tapebench.base.shapes import Bool, Float32
from tapebench.physics import space, starts
from tapebench.physics.family import Family, Law
from tapebench.tasks.render import board_picture, picture, text_boards, text_rows
from tapebench.tasks.task import (
    MAX_REDRAWS,
    TASK_OPTIONS,
    Task,
    check_version,
    describe,
    parse_cells,
    parse_goal,
    parse_tape,
    resolve,
    reward,
)
from tapebench.tasks.universe import Universe

RENDER_MODES = ("ansi", "rgb_array")

_BYTE_CELLS = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=-1, bitorder="little"
).astype(np.float32)
"""Row b: the eight cells that byte b packs, as an observation shows them."""

_BYTE_BUFFERS = [row.astype("<f4").tobytes() for row in _BYTE_CELLS]


@cache
def _laws(universe: Universe) -> tuple[np.ndarray, np.ndarray]:
    """The rules of a universe, ascending, and their laws, uint32 `[masks, rules, 1]`."""
    rules = np.array(universe.rules, np.uint32)
    return rules, np.stack(universe.family.compile(rules))


@dataclass
class TapeSpec(EnvSpec):
    """How an environment was made, with its horizon as `max_episode_steps`.

    Programs read that number. To `gymnasium.make` it is also an order to add a `TimeLimit`, which
    would flag the last step of an episode as truncated, terminated or not. So what is made of the
    JSON, or by `spec.make()`, has none; `gymnasium.make(env.spec)` cannot be kept from adding one.

    Where an option was given that JSON does not hold (a ready-made task, an array, a path), the
    JSON describes the task.
    """

    @classmethod
    def of(cls, spec: EnvSpec, max_episode_steps: int | None) -> TapeSpec:
        """`spec` with so many steps."""
        values = {entry.name: getattr(spec, entry.name) for entry in fields(spec) if entry.init}
        return cls(**values | {"max_episode_steps": max_episode_steps})

    def make(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """As `EnvSpec.make`, without a time limit at the horizon."""
        limit = {"max_episode_steps": -1} if self._says_the_horizon() else {}
        return super().make(**limit | kwargs)

    def to_json(self) -> str:
        """As `EnvSpec.to_json`, of what can be made again."""
        plain = copy(self)
        plain.kwargs = self._plain_kwargs()
        if self._says_the_horizon():
            plain.max_episode_steps = None
        return EnvSpec.to_json(plain)

    def _says_the_horizon(self) -> bool:
        return self.max_episode_steps == self._task().horizon

    def _task(self) -> Task:
        options = {name: self.kwargs[name] for name in self.kwargs if name in TASK_OPTIONS}
        return resolve(self.kwargs.get("task"), options)

    def _plain_kwargs(self) -> dict[str, Any]:
        kwargs = dict(self.kwargs)
        if "autoreset_mode" in kwargs:
            kwargs["autoreset_mode"] = AutoresetMode(kwargs["autoreset_mode"]).value
        try:
            json.dumps(kwargs)
            return kwargs
        except (TypeError, ValueError):
            given = (*TASK_OPTIONS, "task")
            rest = {name: value for name, value in kwargs.items() if name not in given}
            return rest | {"task": describe(self._task())}


class TapeEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Binary cells on a ring or a torus under a hidden cellular-automaton rule.

    ## Description
    Each step flips one cell; then the rule, drawn at reset and hidden, updates all cells at once,
    read from the flipped tape: under an elementary rule cell i becomes bit
    `4 * left + 2 * centre + right` of its number. The goal, by default the all-zero tape, is to be
    reached within the horizon. Cells of a torus are numbered in reading order everywhere.

    ## Action Space
    `Discrete(length)`: the 0-based cell to flip. There is no "do nothing".

    ## Observation Space
    `Box(0, 1, (length + 1,), float32)`: the cells, then t/H. With `observe_goal` the goal's
    cells follow. Hidden cells read 0. The rule is never observed.

    ## Rewards
    With d the share of wrong cells after the step: `"distance"` pays -d, `"potential"` the
    decrease of d, `"sparse"` nothing; each adds `success_bonus` when d = 0.

    ## Starting State
    Cells are ones with probability `start_density`, drawn again if the tape equals the goal.
    `reset(options={"rule": 30, "tape": [...], "goal": [...]})` sets any of the three, and
    `"switch_to": [110]` the rules that follow where the rule switches.

    ## Episode End
    In `Tape-v1` the episode terminates on success and at t = H: as t/H is observed, the horizon
    is a true end of the task, and no agent should bootstrap over it. It is never truncated; `info`
    says whether it was a success. In `Tape-v0` it terminates on success and is truncated at t = H.

    `spec.max_episode_steps` is the horizon, but there is no `TimeLimit`, see `TapeSpec`.

    ## Info
    `distance` (share of wrong cells) and `success`; `rule`, the one that acts on the next flip,
    only with `reveal_rule=True`. `Tape-v1` adds `is_success`, which is `success` by the name that
    Stable-Baselines3 looks for, and holds arrays and scalars of NumPy, with the dtypes of the
    vector environment; `Tape-v0` holds Python's own values.

    ## Arguments
    - `family`: `"elementary"`, `"ring2"` (five cells on a ring) or `"life"` (a cell and the count
      of its neighbours on a torus).
    - `length` of a ring (3 to 1024), or `shape` of a torus like `(5, 5)`; `horizon`.
    - `split` and `rules`: a split's name or file, and `"train"`, `"test"`, `"all"`, a rule or a
      list of rules to draw from. A family other than `elementary` needs a split of its own, like
      `"life-H8-matched"`, or a list of rules, by number or label like `"B3/S23"`.
    - `goal`: `"zeros"`, `"random"` (drawn at each reset) or the cells of a tape; `observe_goal`.
    - `reward`, `success_bonus`, `start_density`.
    - `noise`: each cell flips with this probability after the update.
    - `mask`: cells hidden from the observation, as `length` flags (1 hides) or cell numbers.
      Success and distance still see them.
    - `reveal_rule`: put the rule into `info`.
    - `switch`: a step or a list of steps at which the rule changes to another one of `rules`, drawn
      uniformly at reset. With 4 the first four updates are of the first rule. Nothing tells the
      agent. By default the rule stays.
    - `task`: a ready-made `Task`, or its description, in place of all the options above.
    - `render_mode`: `"ansi"` or `"rgb_array"`, the episode's space-time diagram so far, of a torus
      as a strip of boards.
    - `version`: which `gymnasium.make("Tape-v1")` sets to 1.

    ## Version History
    - v1: the horizon terminates the episode where it truncated it, `info` has `is_success` and
      NumPy's types. Dynamics, observations, rewards and random draws are those of v0.
    - v0: the first version.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012

    _spec: EnvSpec | None = None

    def __init__(
        self,
        *,
        task: Task | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        version: int = 0,
        **options: Any,
    ) -> None:
        _check_render_mode(render_mode)
        self.task = resolve(task, options)
        self.version = check_version(version)
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(self.task.length)
        self.observation_space = _observation_space(self.task)
        self._num_bytes = -(-self.task.length // 8)
        self._times = [share.tobytes() for share in _shares(self.task.horizon)]
        self._distances = _shares(self.task.length).tolist()
        self._shown_distances = list(_shares(self.task.length))
        self._bonus = float(np.float32(self.task.success_bonus))
        self._update, self._space = self.task.family.update, self.task.space
        self._started = False
        self._ended = False
        self._tape = self._goal = self._rule = self._t = 0
        self._distance = 0.0
        self._law: Law = ()
        self._coming: dict[int, int] = {}
        self._history: list[int] = []
        self._flips: list[int] = []

    @property
    def spec(self) -> EnvSpec | None:
        """How `gymnasium.make` made this environment; its `max_episode_steps` is the horizon."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = spec if spec is None else TapeSpec.of(spec, self.task.horizon)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, " D"], dict[str, Any]]:
        super().reset(seed=seed)
        options = _check_options(options, ("rule", "tape", "goal", "switch_to"))
        rules, schedule = self.task.rules, self.task.schedule
        # The rule is drawn even where it is given, so that the draws after it do not move.
        rule = rules[int(self.np_random.integers(len(rules)))]
        if "rule" in options:
            rule = self.task.family.read_rule(options["rule"])
        if "goal" in options:
            goal = parse_goal(options["goal"], self._space)
        else:
            goal = self._draw(0.5) if self.task.goal is None else self.task.goal
        if "tape" in options:
            tape = parse_tape(options["tape"], self._space)
            if tape == goal:
                raise ValueError("the start tape is the goal: give another tape or goal")
        else:
            tape = self._draw_start(goal)
        later: Any = ()
        if "switch_to" in options:
            later = _check_later(options["switch_to"], self.task, 1)[0].tolist()
        elif schedule.switches:
            drawn = self.np_random.integers(2**32, size=(2, 1), dtype=np.uint32)
            later = schedule.later_rules(seeding.Stream(*drawn), np.array([rule]), rules)
            later = later[0].tolist()
        # Nothing has changed before everything that was given has been checked.
        self._rule, self._goal, self._tape = rule, goal, tape
        self._law = self.task.family.compile(rule)
        self._coming = dict(zip(schedule.switches, later, strict=True))
        self._distance = self._distances[(self._tape ^ self._goal).bit_count()]
        self._t = 0
        self._started, self._ended = True, False
        self._history, self._flips = [self._tape], []
        return self._observe(), self._info(success=False)

    def step(
        self, action: Any
    ) -> tuple[Float32[np.ndarray, " D"], float, bool, bool, dict[str, Any]]:
        if not self._started or self._ended:
            raise ResetNeeded(
                "the episode has ended: call reset() before step()"
                if self._started
                else "call reset() before step()"
            )
        task = self.task
        length = task.length
        try:
            cell = operator.index(action)
        except TypeError:
            raise ValueError(f"an action is one integer cell, not {action!r}") from None
        if not 0 <= cell < length:
            raise ValueError(f"action {cell} is no cell: choose from 0 to {length - 1}")
        tape = self._update(self._tape ^ (1 << cell), self._law, self._space)
        if task.noise:
            tape ^= self._draw(task.noise)
        distance = self._distances[(tape ^ self._goal).bit_count()]
        paid = reward(task.reward, self._distance, distance, self._bonus)
        self._tape, self._distance, self._t = tape, distance, self._t + 1
        if self._t in self._coming:
            self._rule = self._coming[self._t]
            self._law = task.family.compile(self._rule)
        success, is_over = distance == 0, self._t >= task.horizon
        terminated = success or (is_over and self.version > 0)
        truncated = is_over and not terminated
        self._ended = terminated or truncated
        if self.render_mode is not None:
            self._history.append(tape)
            self._flips.append(cell)
        return self._observe(), paid, terminated, truncated, self._info(success)

    def render(self) -> Any:
        """The space-time diagram of the episode so far, as text or as pixels."""
        if self.render_mode is None:
            gymnasium.logger.warn('pass render_mode="ansi" or "rgb_array" to render')
            return None
        if not self._started:
            raise ResetNeeded("call reset() before render()")
        tapes = [np.frombuffer(self._cells(tape), "<f4") for tape in self._history]
        return _draw(self.task, self.render_mode, tapes, self._flips)

    def _draw_start(self, goal: int) -> int:
        """A start tape that is not the goal."""
        for _ in range(MAX_REDRAWS):
            tape = self._draw(self.task.start_density)
            if tape != goal:
                return tape
        return goal ^ 1

    def _draw(self, density: float) -> int:
        """A tape whose cells are ones with probability `density`."""
        length = self.task.length
        if density == 0.5:
            words = self.np_random.bit_generator.random_raw(-(-length // 64))
            return int.from_bytes(words.tobytes(), "little") & ((1 << length) - 1)
        ones = self.np_random.random(length) < density
        return int.from_bytes(np.packbits(ones, bitorder="little").tobytes(), "little")

    def _cells(self, tape: int) -> bytearray:
        """The cells as the bytes of so many float32."""
        rows = [_BYTE_BUFFERS[byte] for byte in tape.to_bytes(self._num_bytes, "little")]
        cells = bytearray().join(rows)
        del cells[4 * self.task.length :]
        return cells

    def _observe(self) -> np.ndarray:
        task = self.task
        # Bytes end to end, not array by array: at this size NumPy's overhead is what costs.
        observation = self._cells(self._tape & ~task.hidden if task.hidden else self._tape)
        observation += self._times[self._t]
        if task.observe_goal:
            observation += self._cells(self._goal)
        return np.frombuffer(observation, "<f4")

    def _info(self, success: bool) -> dict[str, Any]:
        if self.version == 0:
            info: dict[str, Any] = {"distance": self._distance, "success": success}
            return info | {"rule": self._rule} if self.task.reveal_rule else info
        distance = self._shown_distances[(self._tape ^ self._goal).bit_count()]
        # An array, as a vector environment of Gymnasium's makes objects of NumPy's own booleans.
        info = {"distance": distance, "success": np.array(success), "is_success": np.array(success)}
        return info | {"rule": np.int64(self._rule)} if self.task.reveal_rule else info


class TapeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many tapes at once: `TapeEnv` with a leading axis, computed on arrays of packed words.

    Takes the options of `TapeEnv` and `autoreset_mode`, an `AutoresetMode` or its value. In
    same-step mode `info` carries `final_obs` and `final_info` of the episodes that ended. In
    disabled mode ended episodes are restarted by `reset(options={"reset_mask": ended})`.

    `reset(options=...)` takes `rule`, `tape`, `goal` and `switch_to` for all (`30`, `[L]`, `[S]`)
    or for each (`[N]`, `[N, L]`, `[N, S]`), and `stream`, a `seeding.Stream` `[N]`, which fixes the
    noise of the episode and the rules that follow to what `tapebench.env` makes of that stream.
    """

    _spec: EnvSpec | None = None

    metadata = TapeEnv.metadata | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        task: Task | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        version: int = 0,
        **options: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)):
            raise ValueError(f"num_envs must be a positive integer, not {num_envs!r}")
        if num_envs < 1:
            raise ValueError(f"num_envs must be a positive integer, not {num_envs}")
        _check_render_mode(render_mode)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(repr(mode.value) for mode in AutoresetMode)
            raise ValueError(f"unknown autoreset_mode {autoreset_mode!r}: use {known}") from None
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.task = resolve(task, options)
        self.version = check_version(version)
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self.single_action_space = spaces.Discrete(self.task.length)
        self.single_observation_space = _observation_space(self.task)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        length, words = self.task.length, space.num_words(self.task.length)
        self._rules = np.array(self.task.rules, np.uint32)
        self._switches = self.task.schedule.switches
        self._later = np.zeros((self.num_envs, len(self._switches)), np.uint32)
        self._fixed_goal = space.to_words(self.task.goal or 0, length)
        self._hidden = space.to_words(self.task.hidden, length)
        self._everyone = np.ones(self.num_envs, bool)
        self._everyone.flags.writeable = False
        # Each tape's bytes and one more, which is zero.
        self._bytes = np.zeros((self.num_envs, 4 * words + 1), np.uint8)
        self._tape = np.zeros((self.num_envs, words), np.uint32)
        self._goal = np.zeros((self.num_envs, words), np.uint32)
        self._stream = seeding.Stream(*np.zeros((2, self.num_envs), np.uint32))
        self._rule = np.zeros(self.num_envs, np.uint32)
        self._known, self._laws = _laws(self.task.universe)
        self._law = np.zeros((len(self._laws), self.num_envs, 1), np.uint32)
        self._update, self._space = self.task.family.update, self.task.space
        self._distance = np.zeros(self.num_envs, np.float32)
        self._t = np.zeros(self.num_envs, np.int32)
        self._over = np.flatnonzero([])
        self._history: list[list[np.ndarray]] = [[] for _ in range(self.num_envs)]
        self._flips: list[list[int]] = [[] for _ in range(self.num_envs)]
        self._started = False

    @property
    def spec(self) -> EnvSpec | None:
        """How `gymnasium.make_vec` made this environment."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        # Without the horizon: `make_vec` hands what a spec says of it to the environment.
        self._spec = spec if spec is None else TapeSpec.of(spec, None)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Float32[np.ndarray, "E D"], dict[str, Any]]:
        super().reset(seed=seed)
        known = ("rule", "tape", "goal", "switch_to", "stream", "reset_mask")
        options = _check_options(options, known)
        restarted = self._check_reset_mask(options.get("reset_mask", self._everyone))
        self._distance = self._distance.copy()
        self._start(np.flatnonzero(restarted), options)
        self._over = self._over[~restarted[self._over]]
        self._started = True
        return self._observe(), self._info()

    def step(
        self, actions: Any
    ) -> tuple[
        Float32[np.ndarray, "E D"],
        Float32[np.ndarray, " E"],
        Bool[np.ndarray, " E"],
        Bool[np.ndarray, " E"],
        dict[str, Any],
    ]:
        if not self._started:
            raise ResetNeeded("call reset() before step()")
        cells = self._check_actions(actions)
        task, length = self.task, self.task.length
        if self.autoreset_mode is AutoresetMode.DISABLED and len(self._over):
            raise ResetNeeded(
                f"episode {int(self._over[0])} has ended: "
                'call reset(options={"reset_mask": ended}) before step()'
            )
        flipped = space.flip(self._tape, cells)
        self._tape = self._update(flipped, tuple(self._law), self._space)
        if task.noise:
            lane = seeding.NOISE + self._t[:, None].astype(np.uint32) * np.uint32(length)
            self._tape ^= starts.bernoulli_words(self._stream, lane, task.noise, length)
        if self.render_mode is not None:
            for history, flips, tape, cell in zip(
                self._history, self._flips, self._tape.copy(), cells.tolist(), strict=True
            ):
                history.append(tape)
                flips.append(cell)
        before, self._distance = self._distance, space.distance(self._tape, self._goal, length)
        self._t += 1
        for number, switch in enumerate(self._switches):
            changing = np.flatnonzero(self._t == switch)
            self._set_rules(changing, self._later[changing, number])
        terminated = self._distance == 0
        is_over = self._t >= task.horizon
        if self.version > 0:
            terminated |= is_over
        truncated = is_over & ~terminated
        bonus = np.float32(task.success_bonus)
        paid = reward(task.reward, before, self._distance, bonus)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and len(self._over):
            self._start(self._over, {})
            paid[self._over] = 0.0
            terminated[self._over] = False
            truncated[self._over] = False
        self._over = np.flatnonzero(terminated | truncated)
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and len(self._over):
            final = self._final(self._over)
            self._start(self._over, {})
        return self._observe(), paid, terminated, truncated, self._info() | final

    def render(self) -> tuple[Any, ...] | None:
        """The space-time diagram of each episode so far, as text or as pixels."""
        if self.render_mode is None:
            gymnasium.logger.warn('pass render_mode="ansi" or "rgb_array" to render')
            return None
        if not self._started:
            raise ResetNeeded("call reset() before render()")
        length = self.task.length
        return tuple(
            _draw(self.task, self.render_mode, space.unpack(np.stack(tapes), length), flips)
            for tapes, flips in zip(self._history, self._flips, strict=True)
        )

    def _start(self, which: np.ndarray, options: dict[str, Any]) -> None:
        """Begin an episode in the environments `which`, drawing what is not given.

        Nothing changes before everything that was given has been checked.
        """
        task, length, words = self.task, self.task.length, self._tape.shape[-1]
        # Raw 64-bit words: one for the stream, one for the rule, then those of goal and tape.
        raw = self.np_random.bit_generator.random_raw(size=(len(which), 2 + words))
        drawn = raw.astype("<u8", copy=False).view("<u4")
        if "stream" in options:
            identity, counter = _check_stream(options["stream"], self.num_envs)
            stream = seeding.Stream(identity[which], counter[which])
        else:
            stream = seeding.Stream(drawn[:, 0], drawn[:, 1])
        if "rule" in options:
            rule = _check_rules(options["rule"], self.num_envs, task.family)[which]
        else:
            rule = self._rules[(raw[:, 1] >> 32) * len(self._rules) >> 32]
        if "goal" in options:
            goal = self._parse_tapes("goal", options["goal"])[which]
        elif task.goal is None:
            goal = drawn[:, 4 : 4 + words] & space.full(length)
        else:
            goal = self._fixed_goal
        if "tape" in options:
            tape = self._parse_tapes("tape", options["tape"])[which]
            if (tape == goal).all(axis=-1).any():
                raise ValueError("a start tape is its goal: give another tape or goal")
        elif task.start_density == 0.5:
            tape = goal ^ starts.nonzero_words(drawn[:, 4 + words :], length)
        else:
            tape = self._draw_biased(goal, len(which))
        if "switch_to" in options:
            later = _check_later(options["switch_to"], task, self.num_envs)[which]
        elif self._switches:
            later = task.schedule.later_rules(stream, rule, task.rules)
        else:
            later = self._later[which]
        if task.noise:
            self._stream.identity[which] = stream.identity
            self._stream.counter[which] = stream.counter
        self._later[which] = later
        self._set_rules(which, rule)
        self._goal[which] = goal
        self._tape[which] = tape
        self._distance[which] = space.distance(tape, goal, length)
        self._t[which] = 0
        if self.render_mode is not None:
            for index in which.tolist():
                self._history[index], self._flips[index] = [self._tape[index].copy()], []

    def _set_rules(self, which: np.ndarray, rule: np.ndarray) -> None:
        """From now on these rules act in the environments `which`."""
        self._rule[which] = rule
        places = np.searchsorted(self._known, rule).clip(max=len(self._known) - 1)
        if (self._known[places] != rule).any():  # given at a reset, and not one of the task's
            self._known = np.union1d(self._known, rule)
            self._laws = np.stack(self.task.family.compile(self._known))
            places = np.searchsorted(self._known, rule)
        self._law[:, which] = self._laws[:, places]

    def _draw_biased(self, goal: np.ndarray, num: int) -> np.ndarray:
        """Start tapes at a density other than 0.5, drawn again where they equal the goal."""
        tape = np.array(np.broadcast_to(goal, (num, self._tape.shape[-1])))
        for _ in range(MAX_REDRAWS):
            again = (tape == goal).all(axis=-1)
            if not again.any():
                return tape
            uniform = self.np_random.random((int(again.sum()), self.task.length))
            tape[again] = space.pack(uniform < self.task.start_density)
        tape[(tape == goal).all(axis=-1), 0] ^= np.uint32(1)
        return tape

    def _parse_tapes(self, name: str, cells: Any) -> np.ndarray:
        """A tape for all or one for each, given as cells, as words `[N, W]`."""
        if name == "goal" and isinstance(cells, str):
            words = space.to_words(parse_goal(cells, self._space), self.task.length)
        else:
            words = space.pack(parse_cells(cells, self._space, name, self.num_envs))
        return np.broadcast_to(words, self._tape.shape)

    def _observe(self) -> np.ndarray:
        task, length = self.task, self.task.length
        tape = self._tape & ~self._hidden if task.hidden else self._tape
        observation = self._cells(tape)
        observation[:, length] = self._t.astype(np.float32) / np.float32(task.horizon)
        if task.observe_goal:
            goal = self._cells(self._goal)[:, :length]
            return np.concatenate([observation, goal], axis=1)
        return observation

    def _cells(self, tape: np.ndarray) -> np.ndarray:
        """The cells of packed tapes as float32, with a zero after the last: `[N, L + 1]`.

        One look-up per byte, several times as fast as shifting bits out, straight into the rows
        of the result; these are whole bytes long, so what is returned is a view of their start.
        """
        shape, stride = tape.shape, self._bytes.shape[1]
        # Made anew each time: a view kept would not follow its buffer into a copy of the env.
        np.ndarray(shape, "<u4", self._bytes.data, strides=(stride, 4))[...] = tape
        rows = np.take(_BYTE_CELLS, self._bytes, axis=0, mode="clip")
        return rows.reshape(self.num_envs, -1)[:, : self.task.length + 1]

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {
            "distance": self._distance.copy(),
            "success": self._distance == 0,
        }
        if self.version > 0:
            info["is_success"] = info["success"].copy()
        if self.task.reveal_rule:
            info["rule"] = self._rule.astype(np.int64)
        return info | {f"_{key}": self._everyone for key in info}

    def _final(self, which: np.ndarray) -> dict[str, Any]:
        """What same-step mode reports of the episodes that ended, in Gymnasium's layout."""
        ended = np.zeros(self.num_envs, bool)
        ended[which] = True
        observations = np.full(self.num_envs, None, object)
        for index, row in zip(which, self._observe()[which], strict=True):
            observations[index] = row
        final = {
            key: ended if key.startswith("_") else np.where(ended, value, value.dtype.type())
            for key, value in self._info().items()
        }
        return {
            "final_obs": observations,
            "_final_obs": ended,
            "final_info": final,
            "_final_info": ended,
        }

    def _check_actions(self, actions: Any) -> np.ndarray:
        cells = np.asarray(actions)
        if not cells.dtype.isnative:
            cells = cells.astype(cells.dtype.newbyteorder("="))
        if cells.shape != (self.num_envs,):
            raise ValueError(f"actions must have shape ({self.num_envs},), not {cells.shape}")
        if cells.dtype.kind not in "iu":
            raise ValueError(f"actions must be integers, not {cells.dtype}")
        # Seen as unsigned a negative action is a huge one: a single pass finds both.
        if cells.view(f"u{cells.itemsize}").max() >= self.task.length:
            wrong = int(cells[(cells < 0) | (cells >= self.task.length)][0])
            raise ValueError(f"action {wrong} is no cell: choose from 0 to {self.task.length - 1}")
        return cells

    def _check_reset_mask(self, mask: Any) -> np.ndarray:
        array = np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != bool or not array.any():
            raise ValueError(f"reset_mask must be {self.num_envs} booleans with at least one True")
        if not self._started and not array.all():
            raise ResetNeeded("the first reset() must start every episode: leave reset_mask out")
        return array


def _check_render_mode(mode: str | None) -> None:
    if mode is not None and mode not in RENDER_MODES:
        raise ValueError(f"unknown render_mode {mode!r}: use None, 'ansi', 'rgb_array'")


def _draw(task: Task, mode: str, tapes: Any, flips: Sequence[int]) -> Any:
    """The diagram of an episode, from its tapes `[T + 1, L]` and the cells flipped."""
    if task.space.is_torus:
        boards = np.reshape(tapes, (len(tapes), *task.space.shape))
        if mode == "ansi":
            return "\n".join(text_boards(boards, flips)) + "\n"
        return board_picture(boards, flips, places=task.horizon + 1)
    if mode == "ansi":
        return "\n".join(text_rows(tapes, flips)) + "\n"
    return picture(tapes, flips, rows=task.horizon + 1)


def _shares(whole: int) -> np.ndarray:
    """0, 1, ... whole of `whole`, as the float32 that arrays would compute."""
    return np.arange(whole + 1, dtype="<f4") / np.float32(whole)


def _observation_space(task: Task) -> spaces.Box:
    return spaces.Box(0.0, 1.0, (task.observation_size,), np.float32)


def _check_options(options: dict[str, Any] | None, known: tuple[str, ...]) -> dict[str, Any]:
    options = dict(options or {})
    for name in options:
        one_of("reset option", name, known)
    return options


def _check_rules(rule: Any, num: int, family: Family) -> np.ndarray:
    array = np.asarray(rule)
    if array.shape not in ((), (num,)):
        raise ValueError(f"rule must be one rule or {num} of them, not shape {array.shape}")
    return np.broadcast_to(_read_rules(array, family), (num,))


def _read_rules(given: np.ndarray, family: Family) -> np.ndarray:
    """Rules by number or label as numbers, uint32, of the same shape."""
    different, places = np.unique(given, return_inverse=True)
    rules = [family.read_rule(member) for member in different.tolist()]
    return np.array(rules, np.uint32)[places].reshape(given.shape)


def _check_later(rules: Any, task: Task, num: int) -> np.ndarray:
    """The rules that follow, for all or for each, uint32 `[num, S]`."""
    count = len(task.schedule.switches)
    array = np.asarray(rules)
    if not count:
        raise ValueError("switch_to is for tasks whose rule switches: set switch")
    if array.shape not in ((count,), (num, count)):
        raise ValueError(f"switch_to must be {count} of the rules, not shape {array.shape}")
    return np.broadcast_to(_read_rules(array, task.family), (num, count))


def _check_stream(stream: Any, num: int) -> seeding.Stream:
    parts = np.asarray(stream)
    if parts.shape != (2, num) or parts.dtype != np.uint32:
        raise ValueError(f"stream must be a seeding.Stream of two uint32 arrays of shape ({num},)")
    return seeding.Stream(*parts)
