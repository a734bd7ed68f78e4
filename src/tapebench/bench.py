"""The whole benchmark of a track: which runs it takes, how long they will, and what they say.

A `Plan` names every run and which are missing; an executor makes those; `summarise` has the report
read what is there into its main table. None of it needs all runs to be done.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents, bundle, protocol, score, seating, sweep
from tapebench.base import files
from tapebench.exam import Exam, from_identity
from tapebench.executors import Executor
from tapebench.report import findings, results
from tapebench.report.tables import AGENT, CEILING, Table
from tapebench.runs import store
from tapebench.runs.results import load_results
from tapebench.stats import Interval
from tapebench.sweep import Change, Failure
from tapebench.tasks import splits
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


def replay(
    root: Path,
    *,
    tracks: Sequence[str] = (),
    progress: Callable[[str, int, int], Any] = lambda what, done, total: None,
) -> list[str]:
    """Have the first seed of every agent sit its exam again; keep the episodes as bundles.

    Only where there is no bundle of the same result yet, and where `tracks` are named, of theirs
    alone. What could not be replayed is said, not raised: a report without those episodes is still
    a report.
    """
    place, notes = root / "episodes", []
    groups: dict[str, list[Path]] = {}
    for path in load_results(root).paths:
        spec = files.read_object(path / "spec.json")
        is_asked = not tracks or results.track_of(spec) in tracks
        if is_asked and not results.is_setting(spec):
            name = path.parent.relative_to(root.resolve()).as_posix()
            groups.setdefault(name, []).append(path)
    first = {
        name: next(filter(store.has_checkpoint, paths), None) for name, paths in groups.items()
    }
    if without := [name for name, path in first.items() if path is None]:
        notes.append(f"no seed keeps a checkpoint to be replayed from: {', '.join(without)}")
    for number, (name, run) in enumerate(first.items(), 1):
        progress("replaying agents", number, len(first))
        target = place / f"{name.replace('/', '-')}.tape"
        if run is None or _is_replayed(run, target):
            continue
        try:
            spec = files.read_object(run / "spec.json")
            exam = from_identity(spec.get("exam"))
            outcome = protocol.evaluate(run, exam)
            place.mkdir(exist_ok=True)
            about = {
                "policy": spec["agent"],
                "run": spec["id"],
                "result": store.result_hash(run),
                "sees_rule": outcome.sees_rule,
                "provenance": files.provenance(outcome.seconds),
            }
            bundle.write(target, outcome.runs[0], exam, about, outcome.conditions)
        except OSError as error:
            notes.append(f"{name} cannot be replayed: {error.filename}: {error.strerror}")
        except (ValueError, KeyError, TypeError) as error:
            notes.append(f"{name} cannot be replayed: {error}")
    return notes


def _is_replayed(run: Path, target: Path) -> bool:
    """Whether a bundle holds episodes of what the run came to. Times of files say nothing of it."""
    try:
        found = bundle.verify(target)
    except bundle.BundleError:
        return False
    is_same = found.about.get("result") == store.result_hash(run)
    return is_same and found.conditions.seating == seating.VERSION


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
    """Runs that the row is of."""
    wanted: int = 0
    """Runs that the plan asks for."""
    seconds: float | None = None
    """Mean wall-clock of a run."""


@dataclass(frozen=True)
class Summary:
    """A plan's main table, and how it came about."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    """The report's own main table: of every contest that runs of the plan are in, mostly one."""
    rows: tuple[Row, ...]
    """Their figures, and an empty row for each agent that no run of is done."""
    failures: tuple[tuple[str, str], ...] = ()


def summarise(
    plan: Plan,
    root: Path,
    baselines: Mapping[str, score.Line],
    failures: Sequence[Failure] = (),
) -> Summary:
    """What the report says of a plan's contest, beside what needs no learning and what is possible.

    A contest is of all runs that are there, so it may hold more seeds and agents than the plan.
    """
    contests = [
        contest
        for experiment in dict.fromkeys(spec.experiment for spec in plan.specs)
        if (root / experiment).is_dir()
        for contest in results.read(
            root / experiment, baselines={plan.exam.hash: baselines}
        ).contests
        if contest.exam.hash == plan.exam.hash
    ]
    tables = tuple(map(findings.main_table, contests))
    wanted = Counter(spec.agent for spec in plan.specs)
    rows = [row for table in tables for row in _rows(table, wanted)]
    named = {row.name for row in rows}
    rows += [Row(agent, AGENT, wanted=wanted[agent]) for agent in wanted if agent not in named]
    return Summary(
        title=f"TAPE {plan.track.name}",
        facts=_facts(plan, root, contests),
        tables=tables,
        rows=tuple(rows),
        failures=tuple((failure.run, failure.reason) for failure in failures),
    )


def _rows(table: Table, wanted: Mapping[str, int]) -> list[Row]:
    """A main table's rows as values; OOD success also as a share of the table's ceiling."""
    columns = [column.name for column in table.columns]
    named: list[tuple[str, dict[str, Any]]] = [
        (row.kind, dict(zip(columns, row.cells, strict=True))) for row in table.rows
    ]
    possible = next(
        (_interval(cells.get("OOD success")) for kind, cells in named if kind == CEILING), None
    )
    rows = []
    for kind, cells in named:
        name, ood = str(cells["agent"]), _interval(cells.get("OOD success"))
        rows.append(
            Row(
                name,
                kind,
                id=_interval(cells.get("ID success")),
                ood=ood,
                drop=_interval(cells.get("drop")),
                normalised=ood.mean / possible.mean
                if ood and possible and possible.mean > 0
                else None,
                seeds=int(cells["seeds"] or 0),
                wanted=wanted.get(name, 0) if kind == AGENT else 0,
                seconds=cells["s per run"],
            )
        )
    return rows


def _interval(cell: Any) -> Interval | None:
    """A cell of a table as an interval; that of a bare number has no width."""
    if isinstance(cell, (int, float)):
        return Interval(float(cell), float(cell), float(cell))
    return cell if isinstance(cell, Interval) else None


def _facts(
    plan: Plan, root: Path, contests: Iterable[results.Contest]
) -> tuple[tuple[str, str], ...]:
    """What the page says about how the numbers were made."""
    track = plan.track
    wanted = {str(spec.id) for spec in plan.specs}
    finished = [
        made
        for contest in contests
        for entry in contest.entries
        for spec, made in zip(entry.specs, entry.provenance, strict=True)
        if spec["id"] in wanted
    ]
    records, unread = _sweeps(plan, root)
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
    if unread:
        facts.append(("not counted", f"damaged records of sweeps: {', '.join(unread)}"))
    return (*facts, *results.made_with(finished))


def _sweeps(plan: Plan, root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What earlier sweeps of this kind wrote down, and the files that cannot be read as that."""
    records, unread = [], []
    kinds: dict[str, Any] = {"split": str, "seconds": (int, float), "executor": str}
    for file in sorted((root / "sweeps").glob(f"{plan.track.name}-*.json")):
        try:
            record = files.read_object(file)
        except files.DamageError:
            record = {}
        if not all(isinstance(record.get(key), kind) for key, kind in kinds.items()):
            unread.append(file.name)
        elif record["split"] == plan.split:
            records.append(record)
    return records, unread


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
