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

from tapebench.base import files, seeding
from tapebench.base.shapes import Float64, Int16, Int64, Integer, Shaped, UInt16, UInt32
from tapebench.physics import exact, families, quotient, space, starts, switching
from tapebench.tasks import splits
from tapebench.tasks.task import Task, make_task, parse_rules
from tapebench.tasks.universe import ELEMENTARY, Universe, listed, read_rules

STANDARD = "standard"
EPISODES = 20
"""Start tapes for every rule."""

MAX_EPISODES = 100_000
"""Episodes of one exam, all rules and trials together, that a result may hold."""

SUBSETS = ("id", "ood")

COMPUTED_LENGTH = 20
"""Most cells of a tape whose exact answers are searched for on the spot, which takes seconds. Up to
`exact.NUMPY_CELLS` it takes up to half a minute for the zero goal. That is done for rules of the
larger families, and kept in the user's cache."""

NOISY_LENGTH = 16
"""Most cells of a tape whose ceilings under noise are computed on the spot: up to half a minute."""

ANSWERS_VERSION = 1
"""Of the kept answers."""

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
        """What each rule is grouped by, see `Universe.types`."""
        return np.array([self.universe.types[rule] for rule in self.rules.tolist()])

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
            **({"switch": list(task.schedule.switches)} if task.schedule.switches else {}),
            **({} if task.family == ELEMENTARY.family else {"family": task.family.name}),
            **({"shape": list(task.space.shape)} if task.space.is_torus else {}),
        }

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
        return starts.exam_tapes(self.task.space, self.num_columns, goals=goals, salt=self.salt)

    def optimal_steps(
        self, progress: Callable[[int], Any] = lambda rule: None
    ) -> Int16[np.ndarray, "R E"]:
        """Fewest steps from each start tape under each rule.

        `IMPOSSIBLE` where no policy can succeed, `UNKNOWN` where that is not known: under noise,
        for random goals, and on tapes that are neither shipped nor short enough to search. Where
        the rule switches, this is of a player that knows all rules of a row and when they change.
        """
        task, shape = self.task, (len(self.rules), self.num_columns)
        steps = np.full(shape, UNKNOWN, np.int16)
        if task.noise or task.goal is None:
            return steps
        if task.schedule.switches:
            self._search_switching(steps, progress)
        elif task.length <= self._most_cells:
            searched = self._search(progress)
            steps[:] = np.where(searched == exact.UNREACHED, np.int32(IMPOSSIBLE), searched)
        elif task.length == exact.MAX_LENGTH and task.goal == 0 and not self.salt:
            self._look_up(steps)
        return steps

    @property
    def _most_cells(self) -> int:
        """On how many cells answers are searched for where nothing switches."""
        if self.task.goal == 0 and self.task.family != ELEMENTARY.family:
            return exact.NUMPY_CELLS
        return COMPUTED_LENGTH

    def _search(self, progress: Callable[[int], Any]) -> UInt16[np.ndarray, "R E"]:
        """The answers for rules that stay; where that takes long they are kept."""
        if self.task.length <= COMPUTED_LENGTH:
            return self._search_rules(progress)
        shape = len(self.rules), self.num_columns

        def parse(document: dict[str, Any]) -> np.ndarray:
            kept = np.array(document["steps"])
            if kept.shape != shape or kept.dtype.kind != "i":
                raise ValueError("these are answers of another exam")
            return kept.astype(np.uint16)

        return files.remember(
            f"answers/{self.hash}-{ANSWERS_VERSION}.json",
            lambda: {"steps": self._search_rules(progress).tolist()},
            parse,
        )

    def _search_rules(self, progress: Callable[[int], Any]) -> UInt16[np.ndarray, "R E"]:
        task, tapes, rules = self.task, self.tapes()[:, 0], self.rules.tolist()
        parts = []
        if task.goal:
            for rule in rules:
                of_all = exact.steps_to_goal(rule, task.space, task.horizon, task.goal, task.family)
                parts.append(of_all[tapes][None])
                progress(rule)
        else:
            search = quotient.classes(task.family, task.space)
            for first in range(0, len(rules), quotient.TOGETHER):
                together = rules[first : first + quotient.TOGETHER]
                parts.append(search.steps(together, tapes, task.horizon))
                for rule in together:
                    progress(rule)
        return np.concatenate(parts)

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
                needed = switching.steps_under_switches(
                    spans, task.space, task.goal or 0, task.family
                )[tape]
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

    def ceilings(
        self,
        optimal_steps: Integer[np.ndarray, "R E"],
        progress: Callable[[int], Any] = lambda rule: None,
    ) -> Float64[np.ndarray, " R"]:
        """The best success possible under each rule; nan where it is not known.

        Of the exam's own tapes where all are settled, else of all tapes where that is shipped.
        Under noise it is the chance of a player that knows the rule, from the exam's own tapes.
        """
        of_exam = (optimal_steps >= 0).mean(axis=1)
        ceilings = np.where((optimal_steps == UNKNOWN).any(axis=1), np.nan, of_exam)
        task = self.task
        if task.noise and task.goal is not None and not task.schedule.switches:
            return self._noisy_ceilings(progress)
        is_plain = task.goal == 0 and not task.noise and not task.schedule.switches
        if is_plain and np.isnan(ceilings).any():
            try:
                shipped = self.universe.ceilings(task.length, task.horizon)
            except ValueError:
                return ceilings
            for row in np.flatnonzero(np.isnan(ceilings)):
                if reach := shipped.get(int(self.rules[row])):
                    ceilings[row] = reach.solvable_excluding_goal
        return ceilings

    def _noisy_ceilings(self, progress: Callable[[int], Any]) -> np.ndarray:
        task, ceilings = self.task, np.full(len(self.rules), np.nan)
        if task.length > NOISY_LENGTH:
            return ceilings
        tapes = self.tapes()[:, 0]
        for row, rule in enumerate(self.rules.tolist()):
            chances = exact.chances_under_noise(
                rule, task.space, task.horizon, task.noise, task.goal or 0, task.family
            )
            ceilings[row] = chances[tapes].mean()
            progress(rule)
        return ceilings

    @property
    def no_ceilings(self) -> str:
        """Why ceilings are nan, where some are, as half a sentence."""
        task = self.task
        if task.goal is None:
            return "none is computed for random goals"
        if task.noise and task.schedule.switches:
            return "none is computed for rules that switch under noise"
        if task.noise:
            return f"under noise it is computed up to {NOISY_LENGTH} cells"
        if task.schedule.switches:
            return f"of rules that switch it is computed up to {switching.MAX_LENGTH} cells"
        return f"it is computed up to {self._most_cells} cells, and shipped for some sizes"


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
    laws = families.get(options.get("family", ELEMENTARY.family.name))
    parse_rules(laws, split, "all")  # refuses a split of another family
    wanted = {*split.train, *split.test}
    if rules is not None:
        is_listed = not isinstance(rules, str) or rules not in ("train", "test", "all")
        by_label = is_listed and laws != ELEMENTARY.family
        asked = read_rules(laws, rules) if by_label else splits.select(split, rules)
        strangers = sorted(set(asked) - wanted)
        if strangers:
            raise ValueError(f"rule {laws.label(strangers[0])} is on neither side of {split.name}")
        wanted = set(asked)
    members = sorted(wanted)
    if len(members) * episodes * trials > MAX_EPISODES:
        raise ValueError(
            f"{len(members)} rules × {episodes} episodes × {trials} trials are more than "
            f"{MAX_EPISODES}: ask for fewer"
        )
    task = make_task(split=split, rules=members, **options)
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
        if "shape" in options:
            del options["length"]  # the same said twice, as is checked in the end
        universe = _universe(name, options.get("family"), [*train, *test])
        # A side that was not asked about is filled up with what the other leaves.
        rest = set(universe.rules)
        split = splits.Split(
            name,
            tuple(train or rest - set(test)),
            tuple(test or rest - set(train)),
            universe=universe,
        )
        exam = make_exam(
            split=split, rules=[*train, *test], mask=options.pop("mask") or None, **options
        )
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"the exam's description is malformed ({error})") from None
    if exam.identity != identity:
        raise ValueError("the exam's description is malformed")
    if name in splits.all_names():
        known = splits.load(name)
        if not set(train) <= set(known.train) or not set(test) <= set(known.test):
            raise ValueError(f"its rules are not on the sides that the split {name} has them on")
    return exam


def _universe(split: Any, family: Any, rules: list[Any]) -> Universe:
    """Where the rules of an identity are from: the universe of its split if that is a known one,
    else these rules and, since both sides of a split have rules, one more."""
    if family is None:
        return ELEMENTARY
    laws = families.get(family)
    known = splits.load(split).universe if split in splits.all_names() else None
    if known is not None and known.family == laws and set(rules) <= set(known.rules):
        return known
    members = {laws.check_rule(rule) for rule in rules}
    other = next(rule for rule in range(laws.num_rules) if rule not in members)
    return listed(laws, [*members, other])[0]
