"""What a dataset is of: everything that decides its content."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tapebench.base.names import one_of
from tapebench.datasets.behaviour import BEHAVIOURS, Behaviour
from tapebench.tasks import splits
from tapebench.tasks.task import Task, make_task
from tapebench.tasks.universe import ELEMENTARY

VERSION = 0
"""Version of the content: a change of what a dataset holds is a change of this number."""

SEARCHED_LENGTH = 16
"""Longest tape whose optimal cells are looked up: the answers of all rules fit into memory."""

MAX_LENGTH = 32
"""Longest tape: one word."""

MAX_HORIZON = 1024
MAX_STEPS = 1 << 28
"""Episodes times horizon."""

STEPS_PER_FILE = 1 << 18

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Who plays which task under the training rules of which split, and how often."""

    behaviour: str
    """One of `BEHAVIOURS`."""
    track: str
    """What the task is called in the dataset's id: the track that it is of."""
    length: int
    horizon: int
    split: splits.Split
    episodes: int
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("dataset", self.behaviour, BEHAVIOURS)
        for what, name in (("track", self.track), ("split", self.split.name)):
            if not isinstance(name, str) or not _PART.fullmatch(name):
                raise ValueError(
                    f"a dataset cannot be named after the {what} {str(name)[:40]!r}: "
                    "use letters, digits, _ and -"
                )
        for what, value, least, most in (
            ("length", self.length, 3, MAX_LENGTH),
            ("horizon", self.horizon, 1, MAX_HORIZON),
            ("episodes", self.episodes, 1, MAX_STEPS),
            ("seed", self.seed, 0, 2**32 - 1),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ValueError(
                    f"{what} of a dataset must be from {least} to {most:,}, not {value!r}"
                )
        if self.episodes * self.horizon > MAX_STEPS:
            most = MAX_STEPS // self.horizon
            raise ValueError(
                f"episodes of a dataset must be at most {most:,}, not {self.episodes:,}"
            )
        if self.split.universe != ELEMENTARY:
            raise ValueError(
                f"datasets are of elementary rules so far, and the split {self.split.name} is of "
                f"{self.split.universe.family.name} rules"
            )
        if self.plays.is_searched and not self.is_labelled:
            raise ValueError(
                f"{self.behaviour} is played up to {SEARCHED_LENGTH} cells, not {self.length}: "
                f"choose a shorter track, or one of {', '.join(_unsearched())}"
            )

    @property
    def id(self) -> str:
        """The id, as Minari has them: `tape/core-folds-0/optimal-v0`."""
        seed = f"-s{self.seed}" if self.seed else ""
        return f"tape/{self.track}-{self.split.name}/{self.behaviour}{seed}-v{VERSION}"

    @property
    def plays(self) -> Behaviour:
        """How the episodes are played."""
        return BEHAVIOURS[self.behaviour]

    @property
    def is_labelled(self) -> bool:
        """Whether optimal cells and steps are known."""
        return self.length <= SEARCHED_LENGTH

    @cached_property
    def task(self) -> Task:
        """The task, whose rules are the training rules of the split."""
        return make_task(length=self.length, horizon=self.horizon, split=self.split, rules="train")

    @property
    def file_episodes(self) -> int:
        """Episodes of each file but the last: whole histories of about `STEPS_PER_FILE` steps."""
        history = self.plays.history
        return max(STEPS_PER_FILE // self.horizon // history, 1) * history

    @property
    def num_files(self) -> int:
        """Into how many files the episodes are divided."""
        return -(-self.episodes // self.file_episodes)

    def episodes_of(self, number: int) -> tuple[int, int]:
        """The first episode of a file and the one after its last."""
        first = number * self.file_episodes
        return first, min(first + self.file_episodes, self.episodes)

    def as_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {
            "version": VERSION,
            "behaviour": self.behaviour,
            "track": self.track,
            "length": self.length,
            "horizon": self.horizon,
            "episodes": self.episodes,
            "seed": self.seed,
            "split": self.split.as_dict(),
        }


def read_spec(document: Any) -> Spec:
    """The spec that a document stands for. It may come from others: everything is checked."""
    fields = ("behaviour", "track", "length", "horizon", "episodes", "seed", "split", "version")
    if not isinstance(document, dict) or set(document) != set(fields):
        raise ValueError("it does not say what it is of")
    options = dict(document)
    if options.pop("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    split = splits.parse(json.dumps(options.pop("split")), "its split")
    if split.name in splits.all_names() and split.hash != splits.load(split.name).hash:
        raise ValueError(f"its split {split.name} has other rules than the one of that name")
    return Spec(split=split, **options)


def _unsearched() -> list[str]:
    return [name for name, behaviour in BEHAVIOURS.items() if not behaviour.is_searched]
