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
from tapebench.runs.training import Report, RunSpec
from tapebench.tasks import splits

SAMPLE = 8
"""Finished runs of an agent that an estimate goes by."""

START = 4.0
"""Seconds until a run is going: its programs are read from the cache, or compiled."""

UNKNOWN_SPEED = {"steps_per_second": 1000.0, "episodes_per_second": 300.0}
"""For agents that are not in the shipped table of speeds."""


@dataclass(frozen=True)
class Plan:
    """The runs of a track with the agents, split and seeds that were asked for."""

    track: tracks.Track
    split: str
    specs: tuple[RunSpec, ...]
    """Every run, those that take longest first."""
    todo: tuple[RunSpec, ...]
    """Those that are not done."""
    damaged: dict[str, str]
    """Those of them that were done and are damaged now, and what is wrong."""
    seconds: dict[str, float]
    """What a run of each agent takes, as far as can be told beforehand."""

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(spec.agent for spec in self.specs))

    @cached_property
    def exam(self) -> Exam:
        """What every run is asked."""
        return self.specs[0].exam

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
    """Plan a track; `names` are agents other than those of the track."""
    chosen = split or track.split
    if Path(chosen).is_file():
        chosen = str(Path(chosen).resolve())  # workers may live in other directories
    takes, specs = {}, []
    for name in dict.fromkeys(names or track.agents):
        first = track.spec(name, experiment=track.name, split=chosen)
        agents.configure(name)  # what cannot be is refused before anything is begun
        takes[name] = estimate(first, root)
        experiment = _name(first, root)
        specs.append(
            [replace(first, experiment=experiment, seed=s) for s in seeds or range(track.seeds)]
        )
    specs.sort(key=lambda group: -takes[group[0].agent])
    every = tuple(spec for group in specs for spec in group)
    todo = tuple(sweep.missing(every, root))
    return Plan(track, splits.load(chosen).name, every, todo, sweep.damaged(todo, root), takes)


def _name(spec: RunSpec, root: Path) -> str:
    """The track's name; if what is stored under it was asked something else, also its hash.

    So results of other settings (an agent that was tuned since, another version of the track) are
    neither mixed with new ones nor lost.
    """
    stored = map(store.trusted_spec, sorted((root / str(spec.id)).parent.glob("s*")))
    known = next((document for document in stored if document), None)
    if known is None:
        return spec.experiment
    wanted = json.loads(json.dumps(spec.as_dict()))
    for document in (known, wanted):
        for key in ("id", "seed", "experiment"):
            document.pop(key, None)
    if known == wanted:
        return spec.experiment
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    return f"{spec.experiment}+{digest[:8]}"


def estimate(spec: RunSpec, root: Path) -> float:
    """Seconds that a run takes: as its like took in this directory, else by shipped speeds."""
    place = (root / str(spec.id)).parent
    known = []
    for path in islice(filter(store.is_finished, place.glob("s*")), SAMPLE):
        with suppress(ValueError, KeyError, TypeError, ZeroDivisionError):
            seconds = files.read_object(path / "provenance.json")["seconds"]
            steps = files.read_object(path / "spec.json")["steps"]
            known.append(float(seconds * spec.steps / steps))
    if known:
        return float(np.mean(known))
    speeds = _speeds()
    usual = speeds.get(spec.agent, UNKNOWN_SPEED)
    speed = speeds.get(f"{spec.agent} {spec.config.get('network')}", usual)
    episodes = spec.steps // spec.evaluate_every * spec.episodes * len(spec.exam.rules)
    evaluating = spec.horizon / 32 * episodes / speed["episodes_per_second"]
    return START + spec.steps / speed["steps_per_second"] + evaluating


@cache
def _speeds() -> dict[str, dict[str, float]]:
    file = resources.files("tapebench").joinpath("data/speeds.json")
    return dict(json.loads(file.read_text())["agents"])


def run_plan(
    plan: Plan, root: Path, executor: Executor, *, report: Report, change: Change
) -> list[Failure]:
    """Make the missing runs; those that failed. How long it took is recorded on the way."""
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
    """Keep a file that says for how long this sweep has been at work; what is yielded updates it.

    Each sweep has its own, so that those at work at the same time do not overwrite each other's.
    """
    began = time.monotonic()
    place = root / "sweeps"
    place.mkdir(exist_ok=True)
    about = {
        "track": plan.track.name,
        "version": plan.track.version,
        "split": plan.split,
        "executor": executor.name,
        "slots": executor.slots,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": files.provenance()["machine"],
    }
    file = place / f"{plan.track.name}-{uuid.uuid4().hex[:12]}.json"

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
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
