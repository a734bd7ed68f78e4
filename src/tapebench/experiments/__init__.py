"""Experiments by name: which runs they take, and the tables and figures that come of them.

An `Experiment` says what it needs at a `Scale`, a track with its seeds, and shows what it found
from finished runs alone. `tape reproduce` makes what is missing in between, on any executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from tapebench import protocol, store
from tapebench.exam import Exam
from tapebench.report.figures import Picture
from tapebench.report.tables import Table
from tapebench.training import RunSpec


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is done."""

    track: protocol.Track
    seeds: int | None = None
    """Seeds of every setting; by default as many as the experiment asks for."""
    split: str | None = None
    """Another split than the track's."""
    rules: tuple[int, ...] | None = None
    """Rules that evaluations ask about; by default those of the track."""

    def specs(self, experiment: str, agent: str, seeds: int, **changes: Any) -> list[RunSpec]:
        """A run of an agent for each seed; `seeds` is how many unless the scale says otherwise."""
        given = changes | {"experiment": f"{self.track.name}-{experiment}"}
        if self.split is not None:
            given.setdefault("split", self.split)
        if self.rules is not None:
            given["rules"] = self.rules
        count = seeds if self.seeds is None else self.seeds
        return [self.track.spec(agent, seed, **given) for seed in range(count)]


@dataclass(frozen=True)
class Exhibit:
    """What an experiment shows."""

    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    missing: tuple[str, ...] = ()
    """What could not be shown, in plain words."""

    def save(self, place: Path) -> None:
        """Every table as Markdown, LaTeX and CSV, every figure as SVG and PDF."""
        place.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            table.save(place)
        for picture in self.pictures:
            picture.save(place)


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str
    about: str
    runs: Callable[[Scale], list[RunSpec]]
    """Every run that it takes."""
    show: Callable[[Results], Exhibit]
    paper: str = ""
    """The table or figure of the paper that it stands for; empty for what is new."""


@dataclass(frozen=True)
class Results:
    """The finished runs of an experiment, and where they are."""

    scale: Scale
    root: Path
    specs: tuple[RunSpec, ...]
    """All that it takes."""

    @cached_property
    def done(self) -> tuple[RunSpec, ...]:
        """Those that are finished."""
        return tuple(s for s in self.specs if (self.path(s) / store.MARKER).is_file())

    def path(self, spec: RunSpec) -> Path:
        """The directory of a run."""
        return self.root / str(spec.id)

    def summary(self, spec: RunSpec) -> dict[str, Any]:
        """What a run came to, see `training.summarise`."""
        return store.read_json(self.path(spec) / "summary.json")

    def named(self, experiment: str) -> list[RunSpec]:
        """The finished runs whose part of the experiment has this name."""
        wanted = f"{self.scale.track.name}-{experiment}"
        return [spec for spec in self.done if spec.experiment == wanted]

    @cached_property
    def exam(self) -> Exam:
        """What the runs were asked; they must all have been asked the same."""
        exams = {spec.exam.hash: spec.exam for spec in self.specs}
        if len(exams) != 1:
            raise ValueError("the runs of this experiment sat different exams")
        return next(iter(exams.values()))


MODULES = ("worlds",)
"""Where experiments are defined, in the order in which they are listed."""


def every() -> dict[str, Experiment]:
    """All experiments by name."""
    parts = [import_module(f"tapebench.experiments.{name}").EXPERIMENTS for name in MODULES]
    return {experiment.name: experiment for part in parts for experiment in part}


def results(experiment: Experiment, scale: Scale, root: Path) -> Results:
    """What there is of an experiment in a results directory."""
    return Results(scale, root, tuple(experiment.runs(scale)))
