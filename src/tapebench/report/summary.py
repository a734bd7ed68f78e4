"""What the report says of a plan: its main table, and how the runs came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.exam import bounds
from tapebench.exam.baselines import Baseline
from tapebench.exam.exam import SUBSETS
from tapebench.report import findings, folds, strata
from tapebench.report.contests import Contest, made_with, read
from tapebench.report.tables import AGENT, CEILING, Table
from tapebench.runs.plan import Plan, duration
from tapebench.runs.sweep import Failure
from tapebench.stats import Interval


@dataclass(frozen=True)
class SummaryRow:
    """A line of the main table. Without training there are no intervals, only their means."""

    name: str
    """Of an agent with that of its network, like `dqn-mlp`."""
    kind: str
    """`agent`, `reference` or `ceiling`."""
    beyond_reflex_id: Interval | None = None
    """Success on the rules trained on that take more than flipping ones."""
    beyond_reflex_ood: Interval | None = None
    """The same on held-out rules."""
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
    """The report's own main table, after success by stratum: of every contest that runs of the plan
    are in, mostly one; over folds of the set that they make up, and then the cost of unseen."""
    rows: tuple[SummaryRow, ...]
    """Their figures, and an empty row for each agent that no run of is done."""
    failures: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    """What has to be said under the tables."""
    costs: tuple[dict[str, Any], ...] = ()
    """Over folds, what being unseen costs each agent, see `runs.folds.FoldRuns.as_dict`."""
    sets: tuple[folds.FoldSet, ...] = ()
    """The contests over folds that runs of the plan are in."""


def summarise_plan(
    plan: Plan,
    root: Path,
    baselines: Mapping[str, Baseline],
    failures: Sequence[Failure] = (),
) -> Summary:
    """What the report says of a plan's contest, beside what needs no learning and what is possible.

    A contest is of all runs that are there, so it may hold more seeds and agents than the plan.
    """
    known = {exam.hash: baselines for exam in plan.exams}
    contests = [
        contest
        for experiment in dict.fromkeys(spec.experiment for spec in plan.specs)
        if (root / experiment).is_dir()
        for contest in read(root / experiment, baselines=known).contests
        if contest.exam.hash in known
    ]
    sets, others = folds.group(contests)
    planned = Counter(spec.agent for spec in plan.specs)
    agents = {entry.label: entry.agent for contest in contests for entry in contest.entries}
    wanted = {label: planned[agent] for label, agent in agents.items()}
    tables, rows = [], []
    for contest in others:
        main, by_stratum = findings.main_table(contest), strata.strata_table(contest)
        tables += [by_stratum, main] if by_stratum else [main]
        rows += _rows(main, by_stratum, wanted)
    for fold_set in sets:
        main = folds.fold_table(fold_set)
        tables += [main, folds.cost_table(fold_set)]
        rows += _rows(main, None, wanted)
    rows += [
        SummaryRow(agent, AGENT, wanted=count)
        for agent, count in planned.items()
        if agent not in agents.values()
    ]
    return Summary(
        title=f"TAPE {plan.track.label}",
        facts=_facts(plan, root, contests),
        tables=tuple(tables),
        rows=tuple(rows),
        failures=tuple((failure.run, failure.reason) for failure in failures),
        sets=tuple(sets),
        notes=(bounds.BRACKETED,) if bounds.is_bracketed(plan.exam) else (),
        costs=tuple(runs.as_dict() for fold_set in sets for runs in fold_set.runs.values()),
    )


SAME = {"seen": "ID success", "unseen": "OOD success", "cost": "drop", "runs": "seeds"}
"""What columns over folds are called elsewhere."""


def _rows(table: Table, by_stratum: Table | None, wanted: Mapping[str, int]) -> list[SummaryRow]:
    """A main table's rows as values; OOD success also as a share of the table's ceiling. Over folds
    seen is ID, unseen OOD, and their cost the drop. `wanted` are the runs that the plan asks for,
    by label."""
    columns = [SAME.get(column.name, column.name) for column in table.columns]
    named: list[tuple[str, dict[str, Any]]] = [
        (row.kind, dict(zip(columns, row.cells, strict=True))) for row in table.rows
    ]
    headline = _headline(by_stratum) if by_stratum else {}
    possible = next(
        (_interval(cells.get("OOD success")) for kind, cells in reversed(named) if kind == CEILING),
        None,
    )
    rows = []
    for kind, cells in named:
        name, ood = str(cells["agent"]), _interval(cells.get("OOD success"))
        rows.append(
            SummaryRow(
                name,
                kind,
                **headline.get(name, {}),
                id=_interval(cells.get("ID success")),
                ood=ood,
                drop=_interval(cells.get("drop")),
                normalised=ood.mean / possible.mean
                if ood and possible and possible.mean > 0
                else None,
                seeds=int(cells["seeds"] or 0),
                wanted=wanted.get(name, 0),
                seconds=cells["s per run"],
            )
        )
    return rows


def _headline(by_stratum: Table) -> dict[str, dict[str, Interval | None]]:
    """Success on beyond-reflex rules by name and side."""
    sides = {
        f"beyond_reflex_{side}": place
        for place, column in enumerate(by_stratum.columns)
        for side in SUBSETS
        if column.name.startswith(f"{strata.HEADLINE} {side.upper()} ")
    }
    return {
        str(row.cells[0]): {side: _interval(row.cells[place]) for side, place in sides.items()}
        for row in by_stratum.rows
    }


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
    world = f"{plan.exam.task.space.title}, H = {track.horizon}"
    if track.mask:
        world += f", cells {', '.join(map(str, track.mask))} hidden"
    facts = [
        ("track", f"{track.name} version {track.version} ({track.hash})"),
        ("split", f"{plan.split}, {_sides(plan)}"),
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


def _sides(plan: Plan) -> str:
    """How many rules are seen and held out."""
    if len(plan.exams) > 1:
        held_out = len({rule for exam in plan.exams for rule in exam.test})
        return f"each of {held_out} rules held out by one and trained on with the others"
    return f"{len(plan.exam.train)} ID and {len(plan.exam.test)} OOD rules"


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
