"""Runs over folds: one agent trained with each fold in turn, taken together.

Within such a set every rule of the folds was held out by some runs and trained on by the others,
so what it costs to be unseen is paired by rule, see `stats.cost_over_folds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import files
from tapebench.exam import bundle, metrics
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import Exam, from_identity
from tapebench.physics.strata import STRATA
from tapebench.runs.results import load_results
from tapebench.tasks import folds, splits

ALL = "all"
"""In place of a stratum: every rule of the folds."""


@dataclass(frozen=True)
class FoldRuns:
    """The runs of one agent over folds."""

    agent: str
    experiment: str
    exam: Exam
    """That of one fold; the others differ in which rules are held out and in nothing else."""
    trainings: Mapping[str, stats.Training]
    """By split, in the order of the folds: success of each seed under each rule."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Folds that no run was trained with."""
        return tuple(name for name in folds.NAMES if name not in self.trainings)

    @property
    def single(self) -> tuple[str, ...]:
        """Folds with one seed, which tells nothing of the spread."""
        return tuple(name for name, training in self.trainings.items() if len(training.scores) < 2)

    def costs(self) -> dict[str, stats.FoldCost]:
        """The cost of unseen by stratum, beyond-reflex first, and of all rules; without strata that
        have too few rules. Of the folds that have two seeds or more; empty of a single one."""
        trainings = [self.trainings[name] for name in self.trainings if name not in self.single]
        if len(trainings) < 2:
            return {}
        kinds = strata_by_rule(self.exam)
        groups: dict[str, list[int] | None] = {
            name: [rule for rule, kind in kinds.items() if kind == name] for name in STRATA
        }
        costs = {
            name: stats.cost_over_folds(trainings, rules=rules, kin=self.exam.universe.twins)
            for name, rules in (groups | {ALL: None}).items()
        }
        return {name: cost for name, cost in costs.items() if cost is not None}

    def as_dict(self) -> dict[str, Any]:
        """The cost as a document."""
        task = self.exam.task
        return {
            "agent": self.agent,
            "experiment": self.experiment,
            "exam": self.exam.name,
            "length": task.length,
            "horizon": task.horizon,
            "seeds": {name: len(training.scores) for name, training in self.trainings.items()},
            "missing": list(self.missing),
            "single": list(self.single),
            "cost": {name: asdict(cost) for name, cost in self.costs().items()},
        }


def load(paths: Sequence[Path], name: str | None = None) -> list[FoldRuns]:
    """The sets of runs over folds under directories and in bundles; results of other splits are
    passed over. With a `name`, all are taken for runs of one agent."""
    rows: dict[tuple[str, str, str], dict[str, list[tuple[Exam, np.ndarray]]]] = {}

    def add(experiment: str, agent: str, exam: Exam, scores: np.ndarray) -> None:
        alike = {key: exam.identity[key] for key in exam.identity if key not in _SIDES}
        whose = (experiment, agent) if name is None else ("", name)
        group = rows.setdefault((*whose, json.dumps(alike)), {})
        group.setdefault(exam.split, []).append((exam, scores))

    for path in paths:
        if path.is_dir():
            for run in load_results(path).paths:
                spec = files.read_object(run / "spec.json")
                if _split_of(spec) in folds.NAMES:
                    exam = from_identity(spec["exam"])
                    _check_training(spec, run)
                    experiment, agent, *_ = spec["id"].split("/")
                    add(experiment, agent, exam, rule_success(run, exam, spec["last"])[None])
        elif path.is_file():
            replayed = bundle.verify(path)
            if replayed.exam.split in folds.NAMES:
                success = replayed.episodes.success.astype(float).mean(axis=1)
                add("", replayed.about["policy"], replayed.exam, success[None])
    sets = []
    for (experiment, agent, _), by_split in rows.items():
        trainings = {
            name: _training(by_split[name], f"{agent} with {name}")
            for name in folds.NAMES
            if name in by_split
        }
        exam = next(iter(by_split.values()))[0][0]
        sets.append(FoldRuns(agent, experiment, exam, trainings))
    return sets


_SIDES = ("split", "train", "test")


def _split_of(spec: Mapping[str, Any]) -> Any:
    exam = spec.get("exam")
    return exam.get("split") if isinstance(exam, dict) else None


def _check_training(spec: Mapping[str, Any], path: Path) -> None:
    """Refuse a run that was not trained on all rules of its fold's split and on no others."""
    if set(spec.get("trained_on") or ()) != set(splits.load(spec["exam"]["split"]).train):
        raise ValueError(
            f"{path} was not trained on the training rules of {spec['exam']['split']}: leave it out"
        )


def _training(rows: Sequence[tuple[Exam, np.ndarray]], name: str) -> stats.Training:
    if len({exam.hash for exam, _ in rows}) > 1:
        raise ValueError(f"the runs of {name} sat different exams: name a directory further down")
    exam = rows[0][0]
    return stats.Training(
        np.concatenate([scores for _, scores in rows]), exam.rules, exam.subsets == "ood"
    )


def rule_success(path: Path, exam: Exam, last: int) -> np.ndarray:
    """A run's success under each rule of its exam, `[R]`: mean of the evaluations that count.

    Documents ask for the same runs again and again: a file that has not changed is read once.
    """
    file = path / "curve.parquet"
    about = file.stat()
    version = (about.st_ino, about.st_mtime_ns, about.st_size)
    return np.array(_rule_success(file, version, tuple(exam.rules.tolist()), last))


@lru_cache(maxsize=4096)
def _rule_success(
    file: Path, version: tuple[int, ...], rules: tuple[int, ...], last: int
) -> tuple[float, ...]:
    curve = files.read_table(file)
    counts = metrics.counted(curve["step"], last)
    success, numbers = curve["success"][counts].astype(float), curve["rule"][counts]
    by_rule = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers, rules, sorter=by_rule)
    ends = np.searchsorted(numbers, rules, side="right", sorter=by_rule)
    success = success[by_rule]
    return tuple(float(success[a:b].mean()) for a, b in zip(starts, ends, strict=True))
