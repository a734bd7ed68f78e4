"""Experiments by name: which runs they take, and the tables and figures that come of them.

An `Experiment` has settings, each a group of runs that differ by seed alone, and makes tables and
figures from finished runs alone. `tape reproduce` makes the missing runs first. A `Scale` says how
much is done: a track, and perhaps fewer seeds or rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tapebench import agents
from tapebench.base import files
from tapebench.exam.exam import Exam
from tapebench.report.contests import KINDS, is_ablation, label_of
from tapebench.report.figures import Picture
from tapebench.report.tables import Table
from tapebench.runs import published, store, tracks
from tapebench.runs.results import load_results
from tapebench.runs.training import RunSpec


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is done."""

    track: tracks.Track
    seeds: int | None = None
    """Seeds of every setting; by default as many as the experiment asks for."""
    split: str | None = None
    """Another split than the track's."""
    rules: tuple[int, ...] | None = None
    """Rules to evaluate on; by default those of the track."""

    def runs(self, agent: str, seeds: int, label: str = "", **changes: Any) -> list[RunSpec]:
        """A run of an agent for each seed; `seeds` is how many unless the scale says otherwise.

        `label` says what is unusual about them, `changes` does so in fields of `RunSpec`. Runs with
        nothing unusual are those of `tape bench`, and are shared with it and among experiments.
        """
        options = dict(changes)
        if self.split is not None:
            options.setdefault("split", self.split)
        names = [self.track.name, label]
        if self.rules is not None:
            options["rules"] = self.rules
            names.append("of-" + "-".join(map(str, self.rules[:8])))
        options["experiment"] = "-".join(name for name in names if name)
        count = seeds if self.seeds is None else self.seeds
        return [self.track.spec(agent, seed, **options) for seed in range(count)]

    def exam(self, **changes: Any) -> Exam:
        """The exam at this scale, by default that of every run; `changes` are as for `make_exam`.

        With another split it has as many rules as the track's.
        """
        split = changes.get("split") or self.split or self.track.split
        rules = self.track.rules_of(split) if self.rules is None else self.rules
        options = {"split": split, "rules": None if rules is None else list(rules)}
        return self.track.exam(**options | changes)

    def about(self, **changes: Any) -> str:
        """The exam as a sentence for a caption; `changes` as for `exam`."""
        exam = self.exam(**changes)
        return (
            f"Ours: track {self.track.label}, {exam.split}, L = {exam.task.length}, "
            f"H = {exam.task.horizon}, {len(exam.rules)} rules with {exam.episodes} start tapes "
            "each."
        )


@dataclass(frozen=True)
class Exhibit:
    """The tables and figures of an experiment."""

    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def save(self, folder: Path, pdf: bool = False) -> None:
        """Every table as Markdown, LaTeX and CSV, every figure as SVG, and as PDF if asked for."""
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            table.save(folder)
        for picture in self.pictures:
            picture.save(folder, pdf)


Settings = Callable[[Scale], Mapping[str, list[RunSpec]]]
"""The groups of runs that an experiment takes at a scale, by name."""


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str
    about: str
    settings: Settings
    """The runs of each setting; none for what needs no training, see `untrained`."""
    show: Callable[[ExperimentResults], Exhibit]
    """Makes the exhibit from finished runs; settings without any are left out."""
    paper: str = ""
    """The paper's tables and figures that it reproduces, by label; empty for new ones."""
    seconds: float = 0.0
    """Rough seconds on one core to compute what it shows, runs excluded, at the size of
    `lite@2`."""
    over_folds: bool = False
    """Whether it can take a track that holds out several folds in turn."""


@dataclass(frozen=True)
class ExperimentResults:
    """What there is of an experiment in a results directory."""

    scale: Scale
    root: Path
    settings: Mapping[str, list[RunSpec]]

    @property
    def specs(self) -> list[RunSpec]:
        """Every run, none twice."""
        return list({spec.id: spec for group in self.settings.values() for spec in group}.values())

    @cached_property
    def finished(self) -> dict[str, list[RunSpec]]:
        """Finished runs with today's settings, of each setting that has any.

        What comes with the package is read as it was made, see `as_published`.
        """
        groups = {
            name: [self._found[spec.id] for spec in group if spec.id in self._found]
            for name, group in self.settings.items()
        }
        return {name: group for name, group in groups.items() if group}

    @property
    def remaining(self) -> list[RunSpec]:
        """Every run that is not finished."""
        return [spec for spec in self.specs if spec.id not in self._found]

    @cached_property
    def _found(self) -> dict[store.RunId, RunSpec]:
        """The finished run of each id that is asked for, where there is one."""
        is_published = published.is_directory(self.root)
        runs = {}
        for asked in self.specs:
            spec = as_published(asked, self.root) if is_published else asked
            if spec is None or not store.is_finished(path := self.path(spec)):
                continue
            if is_published or not store.differences(path, spec.id, spec.as_dict()):
                runs[asked.id] = spec
        return runs

    def label(self, setting: str) -> str:
        """What tables call a setting. If its name begins with its agent, or with its agent and
        network, that becomes the label of both."""
        spec = self.finished[setting][0]
        agent, network = re.escape(spec.agent), re.escape(str(spec.config.get("network")))
        named = re.match(f"{agent}(, {network})?(?=, | on |$)", setting)
        return label_of(spec.agent, spec.config) + setting[named.end() :] if named else setting

    def network_kind(self, setting: str) -> str:
        """The kind of network of a setting, within which it is compared."""
        return KINDS.get(str(self.finished[setting][0].config.get("network")), "")

    @property
    def missing(self) -> list[str]:
        """Settings without a finished run."""
        return [name for name in self.settings if name not in self.finished]

    def path(self, spec: RunSpec) -> Path:
        """The directory of a run."""
        return self.root / str(spec.id)

    def summaries(self, setting: str) -> list[dict[str, Any]]:
        """Summaries of its finished runs, see `training.summarise_run`."""
        group = self.finished.get(setting, [])
        return [files.read_json(self.path(spec) / "summary.json") for spec in group]

    def mark(self, spec: RunSpec) -> str:
        """The result hash of a finished run: another one if the run is remade differently."""
        return f"{spec.agent}-{spec.seed}-{store.result_hash(self.path(spec))}"

    def of(self, settings: Settings) -> ExperimentResults:
        """What there is of another experiment, at the same scale in the same directory."""
        return ExperimentResults(self.scale, self.root, settings(self.scale))

    def cached(self, exam: Exam, name: str, compute: Callable[[], Any]) -> Any:
        """A JSON document about an exam: computed once, then read from the results directory.

        `name` has to say all that it depends on apart from the exam.
        """
        file = self.kept_file(exam, name)
        if not file.is_file():
            document = compute()
            file.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(file, document)
        return files.read_json(file)

    def kept_file(self, exam: Exam, name: str) -> Path:
        """The file of such a document."""
        return self.root / "computed" / exam.hash / f"{name}.json"

    @cached_property
    def exam(self) -> Exam:
        """The exam of all runs, where they share one."""
        exams = {spec.exam.hash: spec.exam for spec in self.specs}
        if len(exams) != 1:
            raise ValueError("the runs of this experiment sat different exams")
        return next(iter(exams.values()))


def as_published(asked: RunSpec, root: Path) -> RunSpec | None:
    """The published run that a run stands for, whatever the defaults of its agent are today.

    Options that are asked for are never other ones. Without any, the agent is asked for as it was
    then: the run of that name, or of that name and a hash, and no ablation if there is another.
    With some, what was asked the same is the same run, whatever it is called; else it is the run
    whose config has the fewest other values, of that name if there is one.
    """
    wanted, options = json.loads(json.dumps([asked.config, dict(asked.options)]))
    others = _published_configs(root).get(_question(asked.as_dict()), {})
    ranks: dict[str, tuple[Any, ...]] = {}
    for experiment, config in others.items():
        if any(config.get(name) != value for name, value in options.items()):
            continue
        differing = sum(wanted.get(name) != value for name, value in config.items())
        is_other = experiment.partition("+")[0] != asked.experiment
        if options:
            ranks[experiment] = (differing > 0, is_other, differing, experiment)
        elif not (is_other and differing):
            ranks[experiment] = (is_other, is_ablation(asked.agent, config), differing, experiment)
    if not ranks:
        return None
    found = min(ranks, key=lambda experiment: ranks[experiment])
    changed = {name: value for name, value in others[found].items() if wanted.get(name) != value}
    return replace(asked, experiment=found, options={**asked.options, **changed})


@cache
def _published_configs(root: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Configs of published runs by what was asked of them and by their experiment."""
    configs: dict[str, dict[str, dict[str, Any]]] = {}
    for path in load_results(root).paths:
        spec = files.read_json(path / "spec.json")
        config = agents.read_config(spec["agent"], spec["config"])
        configs.setdefault(_question(spec), {})[spec["experiment"]] = config
    return configs


def _question(spec: Mapping[str, Any]) -> str:
    """What was asked of a run but for its agent's config, as text."""
    apart = ("id", "experiment", "options", "config")
    return json.dumps({k: v for k, v in spec.items() if k not in apart}, sort_keys=True)


def untrained(scale: Scale) -> dict[str, list[RunSpec]]:
    """The settings of an experiment that needs no runs."""
    return {}


def experiment_results(experiment: Experiment, scale: Scale, root: Path) -> ExperimentResults:
    """What there is of an experiment in a results directory."""
    return ExperimentResults(scale, root, experiment.settings(scale))
