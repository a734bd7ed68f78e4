"""The whole benchmark of a track: which runs it takes, how long they will, and what they say.

A `Plan` names every run and which are missing; an executor makes those; `summarise` reads what is
there into the main table and the learning curves. None of it needs all runs to be done.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents, bundle, protocol, score, seeding, splits, stats, store, sweep
from tapebench.exam import SUBSETS, Exam, from_identity
from tapebench.executors import Executor
from tapebench.report import results
from tapebench.report.tables import Column, Table
from tapebench.report.tables import Row as TableRow
from tapebench.stats import Interval
from tapebench.sweep import Change, Failure
from tapebench.training import Report, RunSpec

SAMPLE = 8
"""Finished runs of an agent that an estimate goes by."""

START = 4.0
"""Seconds until a run is going: its programs are read from the cache, or compiled."""

UNKNOWN_SPEED = {"steps_per_second": 1000.0, "episodes_per_second": 300.0}
"""For agents that are not in the shipped table of speeds."""


@dataclass(frozen=True)
class Plan:
    """The runs of a track with the agents, split and seeds that were asked for."""

    track: protocol.Track
    split: str
    specs: tuple[RunSpec, ...]
    """Every run, those that take longest first."""
    todo: tuple[RunSpec, ...]
    """Those that are not done."""
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
    track: protocol.Track,
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
    return Plan(track, splits.load(chosen).name, every, todo, takes)


def _name(spec: RunSpec, root: Path) -> str:
    """The track's name; if what is stored under it was asked something else, also its hash.

    So results of other settings (an agent that was tuned since, another version of the track) are
    neither mixed with new ones nor lost.
    """
    known = next(_documents((root / str(spec.id)).parent, "spec.json"), None)
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


def _documents(place: Path, name: str) -> Iterator[dict[str, Any]]:
    """That file of a run, or of those below a directory; what cannot be read is passed over."""
    own = place / name
    for file in [own] if own.is_file() else place.glob(f"s*/{name}"):
        with suppress(ValueError):
            yield store.read_json(file)


def estimate(spec: RunSpec, root: Path) -> float:
    """Seconds that a run takes: as its like took in this directory, else by shipped speeds."""
    place = (root / str(spec.id)).parent
    known = [
        document["seconds"] * spec.steps / about["steps"]
        for marker in islice(place.glob(f"s*/{store.MARKER}"), SAMPLE)
        for document in _documents(marker.parent, "provenance.json")
        for about in _documents(marker.parent, "spec.json")
        if document.get("seconds") and about.get("steps")
    ]
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


def run(
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
        "machine": store.provenance()["machine"],
    }
    file = place / f"{plan.track.name}-{uuid.uuid4().hex[:12]}.json"

    def note() -> None:
        store.write_json(file, {**about, "seconds": round(time.monotonic() - began, 1)})

    note()
    try:
        yield note
    finally:
        note()


def replay(
    root: Path, progress: Callable[[str, int, int], Any] = lambda what, done, total: None
) -> list[str]:
    """Have the first seed of every agent sit its exam again; keep the episodes as bundles.

    Only where the run is newer than its bundle. What could not be replayed is said, not raised:
    a report without those episodes is still a report.
    """
    place, notes = root / "episodes", []
    first: dict[str, Path] = {}
    for path in store.load(root).paths:
        if not results.is_setting(store.read_json(path / "spec.json")):
            first.setdefault(path.parent.relative_to(root.resolve()).as_posix(), path)
    for number, (name, path) in enumerate(first.items(), 1):
        progress("replaying agents", number, len(first))
        target = place / f"{name.replace('/', '-')}.tape"
        if target.is_file() and target.stat().st_mtime >= (path / store.MARKER).stat().st_mtime:
            continue
        try:
            spec = store.read_json(path / "spec.json")
            exam = from_identity(spec.get("exam"))
            outcome = protocol.evaluate(path, exam)
            place.mkdir(exist_ok=True)
            about = {
                "policy": spec["agent"],
                "run": spec["id"],
                "sees_rule": outcome.sees_rule,
                "provenance": store.provenance(outcome.seconds),
            }
            bundle.write(target, outcome.runs[0], exam, about, outcome.conditions)
        except (ValueError, KeyError) as error:
            notes.append(f"{name} cannot be replayed: {error}")
    return notes


@dataclass(frozen=True)
class Row:
    """A line of the main table. Without training there are no intervals, only their means."""

    name: str
    kind: str
    """`agent`, `reference` or `ceiling`."""
    id: Interval | None = None
    ood: Interval | None = None
    drop: Interval | None = None
    normalised: float | None = None
    """OOD success as a share of what is possible."""
    seeds: int = 0
    wanted: int = 0
    seconds: float | None = None
    """Mean wall-clock of a run."""


@dataclass(frozen=True)
class Summary:
    """A plan's main table, and how it came about."""

    title: str
    about: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    failures: tuple[tuple[str, str], ...] = ()

    def table(self) -> Table:
        """The rows to be printed."""
        columns = (
            Column(""),
            Column("ID success", better="high"),
            Column("OOD success", better="high"),
            Column("drop", signed=True),
            Column("of ceiling", digits=2),
            Column("seeds"),
            Column("s per run", digits=0),
        )
        rows = [
            TableRow(
                (
                    row.name,
                    row.id,
                    row.ood,
                    row.drop,
                    row.normalised,
                    f"{row.seeds}/{row.wanted}" if row.kind == "agent" else "",
                    row.seconds,
                ),
                row.kind,
            )
            for row in self.rows
        ]
        return Table("main", f"{self.title}: strict success", self.about, columns, tuple(rows))


def summarise(
    plan: Plan, root: Path, beside: dict[str, score.Line], failures: Sequence[Failure] = ()
) -> Summary:
    """What the finished runs of a plan say, beside what needs no learning and what is possible."""
    exam = plan.exam
    at = {subset: exam.rows(subset) for subset in SUBSETS}
    ceilings = exam.ceilings(exam.optimal_steps())
    possible = {
        subset: float(ceilings[rows].mean()) if len(rows) else float("nan")
        for subset, rows in at.items()
    }
    rows, finished, damaged = [], [], []
    for agent in plan.agents:
        group = [spec for spec in plan.specs if spec.agent == agent]
        done = []
        for spec in group:
            if (root / str(spec.id) / store.MARKER).is_file():
                try:
                    done.append(_read(root / str(spec.id)))
                except (ValueError, KeyError) as error:
                    damaged.append(Failure(str(spec.id), f"its files are damaged: {error}"))
        finished += done
        rows.append(_row(agent, done, len(group), possible))
    rows.sort(key=lambda row: -(row.ood.mean if row.ood else -1.0))
    for name, line in beside.items():
        means = {subset: float(line["success"][at[subset]].mean()) for subset in SUBSETS}
        rows.append(_fixed(name, "reference", means, possible))
    rows.append(_fixed("exact ceiling", "ceiling", possible, possible))
    return Summary(
        title=f"TAPE {plan.track.name}",
        about=plan.track.about,
        facts=_facts(plan, root, finished),
        rows=tuple(rows),
        failures=tuple((f.run, f.reason) for f in [*failures, *damaged]),
    )


def _read(path: Path) -> dict[str, Any]:
    """What the table needs to know of a finished run."""
    return {
        "summary": store.read_json(path / "summary.json"),
        "provenance": store.read_json(path / "provenance.json"),
    }


def _row(
    agent: str, done: Sequence[dict[str, Any]], wanted: int, possible: dict[str, float]
) -> Row:
    if not done:
        return Row(agent, "agent", seeds=0, wanted=wanted)
    found: dict[str, Any] = {}
    scores = {
        subset: np.array([[run["summary"][subset]["success"]] for run in done])
        for subset in SUBSETS
        if all(subset in run["summary"] for run in done)
    }
    for subset, values in scores.items():
        rng = seeding.generator(0, "bench", agent, subset)
        found[subset] = stats.within_0_and_1(stats.seed_interval(values, rng))
    if len(scores) == len(SUBSETS):
        rng = seeding.generator(0, "bench", agent, "drop")
        found["drop"] = stats.paired_interval(scores["id"], scores["ood"], rng)
        if possible["ood"] > 0:
            found["normalised"] = found["ood"].mean / possible["ood"]
    spent = [run["provenance"].get("seconds") or 0.0 for run in done]
    return Row(
        agent, "agent", seeds=len(done), wanted=wanted, seconds=float(np.mean(spent)), **found
    )


def _fixed(name: str, kind: str, means: dict[str, float], possible: dict[str, float]) -> Row:
    """A row that no training stands behind: figures without intervals."""
    point = {
        subset: None if np.isnan(mean) else stats.Interval(mean, mean, mean)
        for subset, mean in means.items()
    }
    drop = means["id"] - means["ood"]
    return Row(
        name,
        kind,
        id=point["id"],
        ood=point["ood"],
        drop=None if np.isnan(drop) else stats.Interval(drop, drop, drop),
        normalised=means["ood"] / possible["ood"] if possible["ood"] > 0 else None,
    )


def _facts(
    plan: Plan, root: Path, finished: Iterable[dict[str, Any]]
) -> tuple[tuple[str, str], ...]:
    """What the page says about how the numbers were made."""
    track, finished = plan.track, list(finished)
    records = [
        record
        for file in sorted((root / "sweeps").glob(f"{track.name}-*.json"))
        if (record := store.read_json(file))["split"] == plan.split
    ]
    clock = sum(record["seconds"] for record in records)
    executors = sorted({record["executor"] for record in records})
    world = f"L = {track.length}, H = {track.horizon}"
    if track.mask:
        world += f", cells {', '.join(map(str, track.mask))} hidden"
    facts = [
        ("track", f"{track.name} version {track.version} ({track.hash})"),
        ("split", f"{plan.split}, {len(plan.exam.train)} ID and {len(plan.exam.test)} OOD rules"),
        ("tapes", world),
        ("training", f"{track.steps:,} steps, the last {track.last} evaluations count"),
        ("exam", f"{track.episodes} start tapes per rule ({plan.exam.hash})"),
        ("runs", f"{len(finished)} of {len(plan.specs)} done"),
    ]
    if clock:
        sweeps = f"{len(records)} sweep{'s' if len(records) > 1 else ''}"
        facts.append(("wall clock", f"{duration(clock)} in {sweeps} ({', '.join(executors)})"))
    return (*facts, *results.made_with([run["provenance"] for run in finished]))


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
