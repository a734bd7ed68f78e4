"""The runs of a track: which it takes, which are missing, and how long they will take."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from itertools import islice
from pathlib import Path

import numpy as np

from tapebench import agents
from tapebench.base import files
from tapebench.exam.exam import Exam
from tapebench.runs import store, sweep, tracks
from tapebench.runs.executors import Executor
from tapebench.runs.sweep import Change, Failure
from tapebench.runs.training import ReportProgress, RunSpec
from tapebench.tasks import splits

SAMPLE = 8
"""Most finished runs of an agent that an estimate reads."""

START = 4.0
"""Seconds before a run takes its first step: programs are read from the cache, or compiled."""


@dataclass(frozen=True)
class Plan:
    """The runs of a track for some agents, a split and seeds."""

    track: tracks.Track
    split: str
    """Name of the split; of several, their names."""
    specs: tuple[RunSpec, ...]
    """Every run, those that take longest first."""
    todo: tuple[RunSpec, ...]
    """Those that are not done."""
    damaged: dict[str, str]
    """Those of them that were done and are damaged now, and what is wrong."""
    seconds: dict[str, float]
    """Estimated seconds of a run, by agent."""

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(spec.agent for spec in self.specs))

    @cached_property
    def exams(self) -> tuple[Exam, ...]:
        """What runs are asked, with each split in turn: the same rules and tapes, with others of
        them held out."""
        firsts = {spec.split: spec for spec in reversed(self.specs)}
        return tuple(firsts[split].exam for split in sorted(firsts))

    @property
    def exam(self) -> Exam:
        """The exam of every run; which of its rules are held out may differ, see `exams`."""
        return self.exams[0]

    def duration(self, slots: int) -> float:
        """Estimated seconds until all is done, with so many runs at a time."""
        takes = [self.seconds[spec.agent] for spec in self.todo]
        return max(sum(takes) / min(slots, len(takes)), max(takes)) if takes else 0.0


def make_plan(
    track: tracks.Track,
    root: Path,
    *,
    names: Sequence[str] | None = None,
    split: str | None = None,
    seeds: Sequence[int] | None = None,
) -> Plan:
    """Plan a track; `names` are agents other than those of the track, `split` one other split."""
    split_names = [split] if split else list(track.splits)
    # Workers may live in other directories.
    split_names = [
        str(Path(split_name).resolve()) if Path(split_name).is_file() else split_name
        for split_name in split_names
    ]
    takes, groups = {}, []
    for name in dict.fromkeys(names or track.agents):
        firsts = [
            track.spec(name, experiment=track.name, split=split_name) for split_name in split_names
        ]
        agents.configure(name)  # what cannot be is refused before anything is begun
        takes[name] = estimate_seconds(firsts[0], root)
        # Runs over folds are one set: all of them are called alike.
        called = [_name(first, root) for first in firsts]
        experiment = next((label for label in called if label != track.name), track.name)
        groups.append(
            [
                replace(first, experiment=experiment, seed=seed)
                for seed in seeds or range(track.seeds)
                for first in firsts
            ]
        )
    groups.sort(key=lambda group: -takes[group[0].agent])
    every = tuple(spec for group in groups for spec in group)
    todo = tuple(sweep.missing(every, root))
    named = " ".join(splits.load(split_name).name for split_name in split_names)
    return Plan(track, named, every, todo, sweep.damaged(todo, root), takes)


def _name(spec: RunSpec, root: Path) -> str:
    """The track's name, with a hash if runs of other settings are stored under it.

    So results of other settings (an agent that was tuned since, another version of the track) are
    neither mixed with new ones nor lost.
    """
    stored = map(store.trusted_spec, sorted((root / str(spec.id)).parent.glob("s*")))
    stored_spec = next((document for document in stored if document), None)
    if stored_spec is None:
        return spec.experiment
    planned_spec = json.loads(json.dumps(spec.as_dict()))
    for document in (stored_spec, planned_spec):
        for key in ("id", "seed", "experiment"):
            document.pop(key, None)
    if stored_spec == planned_spec:
        return spec.experiment
    digest = hashlib.sha256(json.dumps(planned_spec, sort_keys=True).encode()).hexdigest()
    return f"{spec.experiment}+{digest[:8]}"


def estimate_seconds(spec: RunSpec, root: Path) -> float:
    """Seconds that a run takes: measured on runs like it in this directory, else by agent."""
    setting = (root / str(spec.id)).parent
    estimates = []
    for path in islice(filter(store.is_finished, setting.glob("s*")), SAMPLE):
        with suppress(ValueError, KeyError, TypeError, ZeroDivisionError):
            seconds = files.read_object(path / "provenance.json")["seconds"]
            steps = files.read_object(path / "spec.json")["steps"]
            estimates.append(float(seconds * spec.steps / steps))
    if estimates:
        return float(np.mean(estimates))
    speed = speed_of(spec.agent, str(spec.config.get("network")))
    episodes = spec.steps // spec.evaluate_every * spec.episodes * len(spec.exam.rules)
    evaluating = spec.horizon / 32 * episodes / speed["episodes_per_second"]
    training = spec.steps / speed["steps_per_second"]
    if speed.get("by_horizon"):
        training *= spec.horizon / 32
    return START + training + evaluating


def speed_of(agent: str, network: str) -> dict[str, float]:
    """Rough speeds of an agent: measured, else those of the agent whose `Config` it extends.

    An agent of another kind gets the median of ours as they are by default.
    """
    speeds = _speeds()
    if agent not in speeds:
        bases = (base.__module__ for base in agents.load(agent)[0].__mro__)
        names = (base.rpartition(".")[2].replace("_", "-") for base in bases if _is_ours(base))
        agent = next((name for name in names if name in speeds), agent)
    if agent in speeds:
        return speeds.get(f"{agent} {network}", speeds[agent])
    usual = [speed for name, speed in speeds.items() if name in agents.NAMES]
    return {kind: float(np.median([speed[kind] for speed in usual])) for kind in usual[0]}


def _is_ours(module: str) -> bool:
    return module.startswith("tapebench.agents.")


@cache
def _speeds() -> dict[str, dict[str, float]]:
    file = resources.files("tapebench").joinpath("data/speeds.json")
    return dict(json.loads(file.read_text())["agents"])


def run_plan(
    plan: Plan, root: Path, executor: Executor, *, report: ReportProgress, change: Change
) -> list[Failure]:
    """Make the missing runs and return those that failed. Records how long the sweep took."""
    if not plan.todo:
        return []
    root.mkdir(parents=True, exist_ok=True)
    with _recorded(plan, root, executor) as note:

        def changed(name: str, state: str, reason: str) -> None:
            if state == "done":
                note()
            change(name, state, reason)

        return executor.run(plan.todo, root, report, changed)


@contextmanager
def _recorded(plan: Plan, root: Path, executor: Executor) -> Iterator[Callable[[], None]]:
    """Record this sweep's wall-clock time in a file; the function yielded updates it.

    Each sweep has its own, so that those at work at the same time do not overwrite each other's.
    """
    began = time.monotonic()
    folder = root / "sweeps"
    folder.mkdir(exist_ok=True)
    about = {
        "track": plan.track.name,
        "version": plan.track.version,
        "split": plan.split,
        "executor": executor.name,
        "slots": executor.slots,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": files.provenance()["machine"],
    }
    file = folder / f"{plan.track.name}-{uuid.uuid4().hex[:12]}.json"

    def note() -> None:
        # A full disk is for the runs to tell of: for want of this file none of them is given up.
        with suppress(ValueError):
            files.write_json(file, {**about, "seconds": round(time.monotonic() - began, 1)})

    note()
    try:
        yield note
    finally:
        note()


def duration(seconds: float) -> str:
    """Seconds as text for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
