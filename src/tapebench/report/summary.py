"""What the report says of a plan: its main table, and how the runs came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.exam.baselines import Baseline
from tapebench.report import findings
from tapebench.report.contests import Contest, made_with, read
from tapebench.report.tables import AGENT, CEILING, Table
from tapebench.runs.plan import Plan, duration
from tapebench.runs.sweep import Failure
from tapebench.stats import Interval


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
    baselines: Mapping[str, Baseline],
    failures: Sequence[Failure] = (),
) -> Summary:
    """What the report says of a plan's contest, beside what needs no learning and what is possible.

    A contest is of all runs that are there, so it may hold more seeds and agents than the plan.
    """
    contests = [
        contest
        for experiment in dict.fromkeys(spec.experiment for spec in plan.specs)
        if (root / experiment).is_dir()
        for contest in read(root / experiment, baselines={plan.exam.hash: baselines}).contests
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


def _facts(plan: Plan, root: Path, contests: Iterable[Contest]) -> tuple[tuple[str, str], ...]:
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
    return (*facts, *made_with(finished))


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
