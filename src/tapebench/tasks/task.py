"""What is asked of the agent: which rules, which goal, what it sees and what it is paid.

`make_task` turns the options that every face of the environment takes (Gymnasium, the vector
environment, JAX) into one validated value, so that a mistake is refused in the same words
everywhere. `reward` is the one definition of the reward, shared by all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tapebench.base.names import one_of
from tapebench.physics import families, space
from tapebench.physics.family import Family
from tapebench.physics.space import Size, Space, as_space
from tapebench.tasks import splits
from tapebench.tasks import universe as universes
from tapebench.tasks.layout import Layout
from tapebench.tasks.schedule import NEVER, Schedule, parse_schedule
from tapebench.tasks.universe import ELEMENTARY, Universe, listed, read_rules

DEFAULT_LENGTH = 32
VERSIONS = (0, 1)
"""Of the environment: the n of `Tape-vn`. They differ in how the horizon ends an episode, see
`tapebench.gym.TapeEnv`, and in no task."""

REWARDS = ("distance", "sparse", "potential")
MAX_HORIZON = 65_536

MAX_REDRAWS = 1000
"""Attempts to start elsewhere than at the goal with a `start_density` other than 0.5. A tape that
is still the goal then has its first cell flipped: a density next to 0 or 1 may leave no other."""


@dataclass(frozen=True)
class Task:
    """A validated description of an environment. Tapes are Python integers, bit i is cell i."""

    space: Space
    """Where the cells are."""
    horizon: int
    rules: tuple[int, ...]
    """An episode's rule is drawn uniformly from these."""
    goal: int | None
    """`None`: drawn anew at each reset."""
    observe_goal: bool
    reward: str
    success_bonus: float
    start_density: float
    noise: float
    hidden: int
    """Cells that the observation shows as zero."""
    reveal_rule: bool
    schedule: Schedule = NEVER
    """When the rule changes within an episode."""
    universe: Universe = ELEMENTARY
    """Where the rules are from."""

    @cached_property
    def length(self) -> int:
        """How many cells, and actions, there are."""
        return self.space.size

    @property
    def family(self) -> Family:
        """What kind of laws they are."""
        return self.universe.family

    @property
    def layout(self) -> Layout:
        """Where things are in an observation."""
        return Layout(self.length)

    @property
    def observation_size(self) -> int:
        """Entries of an observation, see `Layout`."""
        return self.layout.width(self.observe_goal)


def make_task(
    *,
    family: str = ELEMENTARY.family.name,
    length: int | None = None,
    shape: Any = None,
    horizon: int = 32,
    split: Any = "fps30",
    rules: Any = "train",
    goal: Any = "zeros",
    observe_goal: bool = False,
    reward: str = "distance",
    success_bonus: float = 1.0,
    start_density: float = 0.5,
    noise: float = 0.0,
    mask: Any = None,
    reveal_rule: bool = False,
    switch: Any = None,
) -> Task:
    """Validate the options of `Tape-v0` (documented in `tapebench.gym.TapeEnv`)."""
    laws = families.get(family)
    where = parse_space(laws, length, shape)
    length = where.size
    if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)):
        raise ValueError(f"horizon must be a positive integer, not {horizon!r}")
    if not 1 <= horizon <= MAX_HORIZON:
        raise ValueError(f"horizon must be a positive integer up to {MAX_HORIZON}, not {horizon}")
    one_of("reward", reward, REWARDS)
    goal_tape = None if isinstance(goal, str) and goal == "random" else parse_goal(goal, where)
    density = _check_share("start_density", start_density)
    only_start = {0.0: 0, 1.0: (1 << length) - 1}.get(density)
    if only_start is not None and only_start == goal_tape:
        raise ValueError(f"start_density={density:g} always starts at the goal: choose another")
    universe, members = parse_rules(laws, split, rules)
    return Task(
        space=where,
        horizon=int(horizon),
        rules=members,
        goal=goal_tape,
        observe_goal=bool(observe_goal),
        reward=reward,
        success_bonus=_check_number("success_bonus", success_bonus),
        start_density=density,
        noise=_check_share("noise", noise),
        hidden=0 if mask is None else parse_mask(mask, length),
        reveal_rule=bool(reveal_rule),
        schedule=parse_schedule(switch, int(horizon), members),
        universe=universe,
    )


TASK_OPTIONS = tuple(inspect.signature(make_task).parameters)
"""Names of the options that `make_task` takes."""


def check_version(version: Any) -> int:
    """The version of the environment, if there is one like that."""
    if isinstance(version, bool) or version not in VERSIONS:
        raise ValueError(f"unknown version {version!r}: use {' or '.join(map(str, VERSIONS))}")
    return int(version)


def describe(task: Task) -> dict[str, Any]:
    """A task in values that JSON holds; `resolve` takes it back."""
    where = {"shape": list(task.space.shape)} if task.space.is_torus else {"length": task.length}
    description = {
        **where,
        "family": task.family.name,
        "horizon": task.horizon,
        "rules": list(task.rules),
        "goal": "random" if task.goal is None else _cells(task.goal, task.length),
        "observe_goal": task.observe_goal,
        "reward": task.reward,
        "success_bonus": task.success_bonus,
        "start_density": task.start_density,
        "noise": task.noise,
        "mask": _cells(task.hidden, task.length),
        "reveal_rule": task.reveal_rule,
    }
    if task.schedule.switches:
        description["switch"] = list(task.schedule.switches)
    if task.schedule.seen:
        description["seen"] = list(task.schedule.seen)
    if task.universe.horizon is not None:
        description["universe"] = task.universe.name
    return description


def _read_description(description: Mapping[str, Any]) -> Task:
    options = dict(description)
    seen, name = tuple(options.pop("seen", ())), options.pop("universe", None)
    task = resolve(None, options)
    if name is not None:
        universe = universes.get(str(name))
        if universe.family != task.family or not set(task.rules) <= set(universe.rules):
            raise ValueError(f"the task's rules are not all of the universe {universe.name}")
        task = replace(task, universe=universe)
    if not set(seen) <= set(task.rules):
        raise ValueError("the rules that a task calls seen must be some of its rules")
    return replace(task, schedule=replace(task.schedule, seen=seen))


def _cells(tape: int, length: int) -> list[int]:
    return [tape >> cell & 1 for cell in range(length)]


def resolve(task: Task | Mapping[str, Any] | None, options: Mapping[str, Any]) -> Task:
    """The task that a face was given: ready-made, described, or as options; not both.

    What is described or given as options is validated.
    """
    for name in options:
        try:
            one_of("option", name, TASK_OPTIONS)
        except ValueError as error:
            # Python's own words: TorchRL and Gymnasium look for them and then leave the option out.
            raise TypeError(f"{error} (got an unexpected keyword argument {name!r})") from None
    if task is None:
        return make_task(**options)
    if options:
        raise ValueError(f"give a task or options, not both: {', '.join(options)}")
    if isinstance(task, Mapping):
        return _read_description(task)
    if not isinstance(task, Task):
        raise ValueError(f"task must be a Task, as make_task gives it, not {task!r}")
    return task


def parse_rules(family: Family, split: Any, rules: Any) -> tuple[Universe, tuple[int, ...]]:
    """The rules to draw from, and the universe that they are of.

    Rules of a larger family that are listed, by number or label, need not be of any split.
    """
    chosen = splits.load(split)
    is_side = isinstance(rules, str) and rules in ("train", "test", "all")
    if chosen.universe.family == family:
        if is_side or family == ELEMENTARY.family:
            return chosen.universe, splits.select(chosen, rules)
        members = read_rules(family, rules)
        is_inside = set(members) <= set(chosen.universe.rules)
        return (chosen.universe, members) if is_inside else listed(family, rules)
    if not is_side and family != ELEMENTARY.family:
        return listed(family, rules)
    reason = f"the split {chosen.name} is of {chosen.universe.family.name} rules: "
    if family == ELEMENTARY.family:
        raise ValueError(f"{reason}say family={chosen.universe.family.name!r}")
    example = next(name for name in splits.all_names() if name.startswith(f"{family.name}-"))
    raise ValueError(
        f"{reason}choose one of {family.name} rules, like {example}, or list those to draw from in "
        f"rules=, by number or label, like {family.label(224)}"
    )


def parse_space(family: Family, length: Any, shape: Any) -> Space:
    """A ring from its `length`, or any space from its `shape`: sides, or text like `5x5`."""
    if shape is None:
        if family.dimensions > 1:
            raise ValueError(f"{family.name} rules need a torus: give its shape, like 5x5")
        ring = space.check_length(DEFAULT_LENGTH if length is None else length)
        return family.check_space(Space((ring,)))
    if length is not None:
        raise ValueError("give length or shape, not both: length is that of a ring")
    try:
        given = [int(side) for side in shape.split("x")] if isinstance(shape, str) else shape
        sides = np.atleast_1d(given).tolist()
    except ValueError:
        sides = []
    if not sides or any(type(side) is not int for side in sides):
        raise ValueError(f"a shape is written like 5x5 or (5, 5), not {str(shape)[:40]!r}")
    return family.check_space(Space(tuple(sides)))


def parse_goal(goal: Any, size: Size) -> int:
    """A goal as a Python-integer tape: `"zeros"`, or a cell of 0 or 1 for each."""
    if isinstance(goal, str) and goal == "zeros":
        return 0
    if isinstance(goal, str) and set(goal) - {"0", "1"}:
        cells = as_space(size).size
        raise ValueError(f'unknown goal {goal!r}: use "zeros" or {cells} cells of 0 and 1')
    return parse_tape(goal, size, "goal")


def parse_tape(cells: Any, size: Size, what: str = "tape") -> int:
    """A tape given cell by cell (a sequence, an array or a text of 0 and 1) as an integer."""
    return space.to_int(space.pack(parse_cells(cells, size, what)))


def parse_cells(cells: Any, size: Size, what: str, num: int | None = None) -> np.ndarray:
    """Cells of 0 and 1 as uint8, `[length]` or, where `num` tapes may be meant, `[num, length]`.

    Those of a torus are given in reading order, or as boards.
    """
    where = as_space(size)
    length = where.size
    if isinstance(cells, str):
        cells = [character == "1" if character in "01" else 2 for character in cells]
    try:
        array = np.asarray(cells)
    except ValueError:
        raise ValueError(f"{what} must be {length} cells of 0 and 1") from None
    if array.ndim > 1 and array.shape[-2:] == where.shape:
        array = array.reshape(*array.shape[:-2], length)
    shapes = {(length,)} | ({(num, length)} if num is not None else set())
    if array.shape not in shapes:
        wanted = " or ".join(str(shape) for shape in sorted(shapes, key=len))
        raise ValueError(f"{what} must have shape {wanted}, not {array.shape}")
    if array.dtype.kind not in "buif" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{what} must hold only 0 and 1")
    return array.astype(np.uint8)


def parse_mask(mask: Any, length: int) -> int:
    """Hidden cells as a tape of ones. Given as `length` flags (1 hides) or as cell numbers.

    The two cannot be confused: as cell numbers, `length` values of 0 and 1 would repeat.
    """
    array = np.asarray(mask)
    if array.ndim > 1:
        raise ValueError(f"mask must be {length} flags of 0/1 or a list of cells to hide")
    values = array.ravel().tolist()
    if len(values) == length and all(value in (0, 1) for value in values):
        return parse_tape(values, length, "mask")
    cells: set[int] = set()
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"mask must be {length} flags of 0/1 or a list of cells to hide")
        if not 0 <= value < length:
            raise ValueError(f"mask hides cell {value}: cells are 0 to {length - 1}")
        if value in cells:
            raise ValueError(f"mask names cell {value} twice: list each once")
        cells.add(value)
    return sum(1 << cell for cell in cells)


def reward(kind: str, before: Any, after: Any, success_bonus: Any) -> Any:
    """The reward of a step that changed the distance to the goal from `before` to `after`.

    `distance` pays minus the distance after the step, `potential` the distance gained, `sparse`
    neither; each adds the bonus on success. Serves floats, NumPy and JAX; given the same float32
    distances and bonus, all three agree to the bit once rounded to float32.
    """
    success = after == 0
    if hasattr(success, "astype"):  # JAX can be told to refuse products of flags and numbers
        success = success.astype(after.dtype)
    bonus = success * success_bonus
    if kind == "distance":
        return bonus - after
    if kind == "potential":
        return bonus + (before - after)
    return bonus + 0 * after


def _check_number(name: str, value: float) -> float:
    is_number = isinstance(value, (int, float, np.floating, np.integer))
    if isinstance(value, bool) or not is_number or not np.isfinite(value):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def _check_share(name: str, value: float) -> float:
    if not 0.0 <= _check_number(name, value) <= 1.0:
        raise ValueError(f"{name} must be from 0 to 1, not {value}")
    return float(value)
