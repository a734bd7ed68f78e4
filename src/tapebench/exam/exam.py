"""What everybody is asked: an exam as a value with an identity, and its exact answers.

An exam is a split, a task, a number of start tapes and, for a fresh one, a salt. Everything that
two results must share to be compared is in its `identity`; `hash` is that in a few letters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.shapes import Float64, Int16, Int64, Integer, Shaped, UInt32
from tapebench.physics import exact, space, starts, switching
from tapebench.tasks import splits
from tapebench.tasks.task import Task, make_task
from tapebench.tasks.universe import ELEMENTARY, Universe

STANDARD = "standard"
EPISODES = 20
"""Start tapes for every rule."""

MAX_EPISODES = 100_000
"""Episodes of one exam, all rules and trials together, that a result may hold."""

SUBSETS = ("id", "ood")

COMPUTED_LENGTH = 20
"""Longest tape whose exact answers are searched for on the spot: some seconds for all rules."""

NOISY_LENGTH = 16
"""Longest tape whose ceilings under noise are computed on the spot: some seconds for all rules."""

IMPOSSIBLE, UNKNOWN = -1, -2
"""In `Exam.optimal_steps`: proved that there is no way; not known."""


@dataclass(frozen=True)
class Exam:
    """Rules, start tapes and what is asked of the agent. Get one from `make_exam`."""

    split: str
    """Name of the split that the two sides come from."""
    train: tuple[int, ...]
    """The rules asked about that agents may train on."""
    test: tuple[int, ...]
    """The rules asked about that are held out."""
    task: Task
    """Its rules are all of these, ascending."""
    episodes: int = EPISODES
    salt: str = ""
    """Empty for the standard exam."""
    trials: int = 1
    origin: splits.Split | str = field(default="fps30", compare=False, repr=False)
    """The whole split, of which a part may be asked: what policies that know its training rules
    are told. Not a part of the exam's identity."""

    @property
    def name(self) -> str:
        """`standard`, or `fresh:SALT`."""
        return f"fresh:{self.salt}" if self.salt else STANDARD

    @cached_property
    def rules(self) -> Int64[np.ndarray, " R"]:
        """All of them, ascending."""
        return np.array(self.task.rules)

    @cached_property
    def subsets(self) -> Shaped[np.ndarray, " R"]:
        """`id` for rules of the training side, `ood` for those held out."""
        return np.where(np.isin(self.rules, self.train), "id", "ood")

    @cached_property
    def types(self) -> Shaped[np.ndarray, " R"]:
        """Operational type of each rule."""
        return np.array([self.universe.features[rule].type for rule in self.rules])

    @property
    def universe(self) -> Universe:
        """Where the rules are from."""
        return self.task.universe

    def rows(self, subset: str) -> Int64[np.ndarray, " rows"]:
        """Positions of a subset's rules."""
        return np.flatnonzero(self.subsets == subset)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that must agree for two results to be results of the same exam."""
        task = self.task
        return {
            "exam": self.name,
            "version": seeding.EXAM_VERSION,
            "split": self.split,
            "train": list(self.train),
            "test": list(self.test),
            "length": task.length,
            "horizon": task.horizon,
            "episodes": self.episodes,
            "trials": self.trials,
            "goal": "random" if task.goal is None else f"{task.goal:0{task.length}b}"[::-1],
            "observe_goal": task.observe_goal,
            "noise": task.noise,
            "mask": [cell for cell in range(task.length) if task.hidden >> cell & 1],
            "reward": task.reward,
            "success_bonus": task.success_bonus,
        } | ({"switch": list(task.schedule.switches)} if task.schedule.switches else {})

    @cached_property
    def hash(self) -> str:
        """The identity in 16 letters."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def only(self, members: Sequence[int]) -> Exam:
        """The part of this exam that asks about these rules.

        Where the rule switches it does so among these, so that the part is an exam of its own.
        """
        rules = tuple(rule for rule in self.task.rules if rule in set(members))
        train, test = (
            tuple(rule for rule in side if rule in rules) for side in (self.train, self.test)
        )
        schedule = self.task.schedule.within(train, test)
        task = replace(self.task, rules=rules, schedule=schedule)
        return replace(self, train=train, test=test, task=task)

    @property
    def num_columns(self) -> int:
        """Episodes per rule, of all trials together."""
        return self.episodes * self.trials

    def tapes(self) -> UInt32[np.ndarray, "E W"]:
        """The start tapes of a fixed goal."""
        goals = np.tile(
            space.to_words(self.task.goal or 0, self.task.length), (self.num_columns, 1)
        )
        return starts.exam_tapes(self.task.length, self.num_columns, goals=goals, salt=self.salt)

    def optimal_steps(
        self, progress: Callable[[int], Any] = lambda rule: None
    ) -> Int16[np.ndarray, "R E"]:
        """Fewest steps from each start tape under each rule.

        `IMPOSSIBLE` where no policy can succeed, `UNKNOWN` where that is not known: under noise,
        for random goals, and on tapes that are neither shipped nor short enough to search. Where
        the rule switches, this is of who knows all rules of a row and when they change.
        """
        task, shape = self.task, (len(self.rules), self.num_columns)
        steps = np.full(shape, UNKNOWN, np.int16)
        if task.noise or task.goal is None:
            return steps
        if task.schedule.switches:
            self._search_switching(steps, progress)
        elif task.length <= COMPUTED_LENGTH:
            tapes = self.tapes()[:, 0]
            for row, rule in enumerate(self.rules):
                needed = exact.steps_to_goal(int(rule), task.length, task.horizon, task.goal)[tapes]
                steps[row] = np.where(needed == exact.UNREACHED, np.int32(IMPOSSIBLE), needed)
                progress(int(rule))
        elif task.length == exact.MAX_LENGTH and task.goal == 0 and not self.salt:
            self._look_up(steps)
        return steps

    def _search_switching(self, steps: np.ndarray, progress: Callable[[int], Any]) -> None:
        """Fill in the answers for rules that switch, row by row, where tapes are short enough."""
        task = self.task
        if task.length > switching.MAX_LENGTH:
            return
        tapes, streams = self.tapes()[:, 0], seeding.exam_streams(self.num_columns, salt=self.salt)
        for row, rule in enumerate(self.rules):
            first = np.full(self.num_columns, rule)
            later = task.schedule.later_rules(streams, first, task.rules)
            for column, (tape, following) in enumerate(zip(tapes, later.tolist(), strict=True)):
                spans = switching.spans(
                    (int(rule), *following), task.schedule.switches, task.horizon
                )
                needed = switching.steps_under_switches(spans, task.length, task.goal or 0)[tape]
                steps[row, column] = IMPOSSIBLE if needed == exact.UNREACHED else needed
            progress(int(rule))

    def _look_up(self, steps: np.ndarray) -> None:
        """Fill in what is shipped of the standard exam at 32 cells."""
        answers = exact.exam_answers()
        for row, rule in enumerate(self.rules):
            answer = answers.get(int(rule))
            if answer is None or answer["exam_version"] != seeding.EXAM_VERSION:
                continue
            is_settled = exact.is_settled(answer, self.task.horizon)
            for column, fewest in enumerate(answer["exam_steps"][: self.num_columns]):
                if fewest is not None:
                    steps[row, column] = fewest if fewest <= self.task.horizon else IMPOSSIBLE
                elif is_settled:
                    steps[row, column] = IMPOSSIBLE

    def ceilings(self, optimal_steps: Integer[np.ndarray, "R E"]) -> Float64[np.ndarray, " R"]:
        """The best success possible under each rule; nan where it is not known.

        Of the exam's own tapes where all are settled, else of all tapes where that is shipped.
        Under noise it is the chance of a player that knows the rule, from the exam's own tapes.
        """
        of_exam = (optimal_steps >= 0).mean(axis=1)
        ceilings = np.where((optimal_steps == UNKNOWN).any(axis=1), np.nan, of_exam)
        task = self.task
        if task.noise and task.goal is not None and not task.schedule.switches:
            return self._noisy_ceilings()
        is_plain = task.goal == 0 and not task.noise and not task.schedule.switches
        if is_plain and np.isnan(ceilings).any():
            try:
                shipped = exact.shipped_ceilings(task.length, task.horizon)
            except ValueError:
                return ceilings
            for row in np.flatnonzero(np.isnan(ceilings)):
                if reach := shipped.get(int(self.rules[row])):
                    ceilings[row] = reach.solvable_excluding_goal
        return ceilings

    def _noisy_ceilings(self) -> np.ndarray:
        task = self.task
        if task.length > NOISY_LENGTH:
            return np.full(len(self.rules), np.nan)
        tapes, size = self.tapes()[:, 0], (task.length, task.horizon, task.noise, task.goal or 0)
        chances = (exact.chances_under_noise(int(rule), *size)[tapes] for rule in self.rules)
        return np.array([chance.mean() for chance in chances])


def make_exam(
    *,
    split: str | Path | splits.Split = "fps30",
    exam: str = STANDARD,
    episodes: int = EPISODES,
    trials: int = 1,
    rules: Any = None,
    **options: Any,
) -> Exam:
    """An exam on both sides of a split, or on those of its `rules` that are named.

    `exam` is `standard` or `fresh:SALT`; `options` are those of `make_task`.
    """
    for name, count in (("episodes", episodes), ("trials", trials)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be a positive integer, not {count!r}")
    split = splits.load(split)
    wanted = {*split.train, *split.test} if rules is None else set(splits.select(split, rules))
    strangers = sorted(wanted - {*split.train, *split.test})
    if strangers:
        raise ValueError(f"rule {strangers[0]} is on neither side of {split.name}")
    members = sorted(wanted)
    if len(members) * episodes * trials > MAX_EPISODES:
        raise ValueError(
            f"{len(members)} rules × {episodes} episodes × {trials} trials are more than "
            f"{MAX_EPISODES}: ask for fewer"
        )
    task = make_task(split=split, rules=members, **options)
    if task.family != ELEMENTARY.family:
        raise ValueError(f"there is no exam on {task.family.name} rules yet")
    train, test = (
        tuple(rule for rule in members if rule in side)
        for side in map(set, (split.train, split.test))
    )
    if task.schedule.switches and trials > 1:
        raise ValueError(
            "trials repeat one rule: where the rule switches there can be only one trial"
        )
    task = replace(task, schedule=task.schedule.within(train, test))
    return Exam(split.name, train, test, task, episodes, parse_exam(exam), trials, split)


def parse_exam(text: str) -> str:
    """The salt of `standard` or `fresh:SALT`."""
    if text == STANDARD:
        return ""
    kind, _, salt = text.partition(":")
    if kind != "fresh" or not salt or not salt.isprintable() or len(salt) > 100:
        raise ValueError(f"unknown exam {text!r}: use standard, or fresh:SALT with your own salt")
    return salt


def from_identity(identity: Any) -> Exam:
    """The exam that an identity stands for. It may come from others: everything is checked."""
    if not isinstance(identity, dict):
        raise ValueError("the exam is not described")
    if (version := identity.get("version")) != seeding.EXAM_VERSION:
        raise ValueError(
            f"it is of exam version {version!r}, and this is version {seeding.EXAM_VERSION}"
        )
    options = {key: value for key, value in identity.items() if key != "version"}
    try:
        name, train, test = options.pop("split"), options.pop("train"), options.pop("test")
        # A side that was not asked about is filled up with what the other leaves.
        rest = set(ELEMENTARY.rules)
        split = splits.Split(
            name, tuple(train or rest - set(test)), tuple(test or rest - set(train))
        )
        exam = make_exam(
            split=split, rules=[*train, *test], mask=options.pop("mask") or None, **options
        )
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"the exam's description is malformed ({error})") from None
    if exam.identity != identity:
        raise ValueError("the exam's description is malformed")
    if name in splits.names():
        known = splits.load(name)
        if not set(train) <= set(known.train) or not set(test) <= set(known.test):
            raise ValueError(f"its rules are not on the sides that the split {name} has them on")
    return exam
