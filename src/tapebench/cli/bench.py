"""`tape bench`: train, evaluate and report every baseline of a track."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.base.names import one_of
from tapebench.cli.console import in_a_line, name_damage, progress, screen
from tapebench.cli.train import name_remade, parse_seeds

if TYPE_CHECKING:
    from tapebench.exam.baselines import Baseline
    from tapebench.report.summary import Summary
    from tapebench.runs.executors import Executor
    from tapebench.runs.plan import Plan

SHOWN = 24
"""Runs that the live table lists one by one; of more it shows sums."""


@dataclass(frozen=True)
class RayOptions:
    """With --executor ray."""

    address: str = "auto"
    """auto for the cluster that this machine is part of, or HOST:PORT."""
    bring_back: bool = False
    """Bring results back through Ray even if the nodes seem to share the results directory."""
    insecure: bool = False
    """Join a cluster that has no token, on which everybody can run anything."""


@dataclass(frozen=True)
class SlurmOptions:
    """With --executor slurm."""

    jobs: int = 8
    """Jobs of the array, of one core each; each makes one run after another."""
    minutes: int = 240
    """Time limit of a job; one that reaches it is queued again and goes on."""
    memory: float = 3.0
    """GB for a job."""
    partition: str | None = None
    """Partition to run in."""
    account: str | None = None
    """Account to charge."""
    sbatch: tuple[str, ...] = ()
    """Any other options of sbatch, like qos=low constraint=avx2."""


@dataclass(frozen=True)
class Bench:
    """The whole benchmark: make the missing runs of a track, print the main table, write a page.

    Start it again at any time: what is done stays, what was begun goes on.
    """

    track: str = "lite"
    """smoke (a minute or two), lite, full (the paper's budget), long or inference."""
    agents: tuple[str, ...] = ()
    """Agents, like dqn ppo; by default all of the track."""
    split: str | None = None
    """Split other than the track's."""
    seeds: str | None = None
    """A number of seeds, or some of them like 3,7; by default those of the track."""
    results: Annotated[Path, tyro.conf.arg(aliases=["--out"])] = Path("runs")
    """Results directory; the page goes to DIR/report/index.html."""
    plan: bool = False
    """Only list the runs, with the time that they will take."""
    executor: str = "local"
    """local, vmap (seeds in one program, for a GPU), ray (extra: ray) or slurm (extra: slurm)."""
    workers: int | None = None
    """Runs at a time on local or ray, by default one for each core; on vmap, by default 8."""
    ray: tyro.conf.OmitArgPrefixes[RayOptions] = field(default_factory=RayOptions)
    slurm: tyro.conf.OmitArgPrefixes[SlurmOptions] = field(default_factory=SlurmOptions)
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.report.summary import summarise
        from tapebench.runs.plan import run_plan

        executor = self.make_executor()
        planned = self.make_plan()
        if self.plan:
            print_plan(planned, executor.slots, self.json)
            return
        done = len(planned.specs) - len(planned.todo)
        if done:
            print(f"{done} of {len(planned.specs)} runs are done already", file=sys.stderr)
        name_remade(planned.damaged, self.results)
        try:
            with shown(planned, executor.slots) as board:
                failures = run_plan(
                    planned, self.results, executor, report=board.report, change=board.change
                )
        except KeyboardInterrupt:
            print(
                f"tape: interrupted; what was done is in {self.results}, "
                "and the same command goes on from there",
                file=sys.stderr,
            )
            raise SystemExit(130) from None
        baselines, unkept = self.measure_baselines(planned)
        summary = summarise(planned, self.results, baselines, failures)
        # Printed before it is written: a full disk takes no result with it.
        place = self.results / "report" / "index.html"
        if self.json:
            print(json.dumps(as_document(summary, place)), flush=True)
        else:
            print_summary(summary, self.results)
        try:
            self.write_report(planned, summary, baselines)
            print(f"report: {place}", file=sys.stderr if self.json else sys.stdout)
        except (ValueError, OSError) as error:
            unkept.append(in_a_line(error))
        for complaint in unkept:
            print(f"tape: {complaint}", file=sys.stderr)
        if summary.failures or unkept:
            raise SystemExit(1)

    def write_report(self, planned: Plan, summary: Summary, baselines: dict[str, Baseline]) -> Path:
        """The page of all that is in the results directory, with episodes to watch."""
        from tapebench import report
        from tapebench.runs import evaluation

        with progress() as show:
            notes = evaluation.replay(self.results, progress=show)
        for note in notes:
            print(f"tape: {note}", file=sys.stderr)
        page = report.make(
            self.results,
            title=summary.title,
            failures=summary.failures,
            facts=summary.facts,
            baselines={planned.exam.hash: baselines},
        )
        name_damage(page.findings.damaged)
        return report.write(page, self.results / "report")

    def make_executor(self) -> Executor:
        """Where the runs are made."""
        from tapebench.runs import executors

        for name, value in (("workers", self.workers), ("jobs", self.slurm.jobs)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        one_of("executor", self.executor, executors.NAMES)
        if self.executor == "ray":
            from tapebench.runs.executors.ray import Ray

            executors.require("ray", "ray")
            given = self.ray
            return Ray(given.address, self.workers, given.bring_back, given.insecure)
        if self.executor == "vmap":
            from tapebench.runs.executors.vmap import TOGETHER, Vmap

            return Vmap(self.workers or TOGETHER)
        if self.executor == "slurm":
            from tapebench.runs.executors.slurm import Slurm

            executors.require("submitit", "slurm")
            pairs = [text.partition("=") for text in self.slurm.sbatch]
            if wrong := [name for name, equals, _ in pairs if not equals]:
                raise ValueError(f"{wrong[0]!r} sets nothing: write it like qos=low")
            return Slurm(
                jobs=self.slurm.jobs,
                minutes=self.slurm.minutes,
                memory_gb=self.slurm.memory,
                partition=self.slurm.partition,
                account=self.slurm.account,
                options={name: value for name, _, value in pairs},
            )
        return executors.Local(self.workers)

    def make_plan(self) -> Plan:
        """The runs that are asked for."""
        from tapebench.agents import NAMES
        from tapebench.runs import plan as plans
        from tapebench.runs import tracks

        track = tracks.get_track(self.track)
        names = [name for text in self.agents for name in text.split(",") if name]
        for name in names:
            one_of("agent", name, NAMES)
        seeds = None if self.seeds is None else parse_seeds(self.seeds, track.seeds)
        return plans.make_plan(
            track, self.results, names=names or None, split=self.split, seeds=seeds
        )

    def measure_baselines(self, planned: Plan) -> tuple[dict[str, Baseline], list[str]]:
        """What needs no training on this exam; and why it could not be kept, if it was not."""
        from tapebench.base import files
        from tapebench.exam import baselines
        from tapebench.runs import training

        try:
            known = baselines.load_kept(planned.exam, self.results)
        except files.DamageError as error:
            print(f"tape: {error}: measuring it again", file=sys.stderr)
            known = None
        if known is not None:
            return known, []
        training.use_compilation_cache()
        with progress() as show:
            count = iter(range(1, len(baselines.NAMES) + 1))
            found = baselines.run_all(
                planned.exam, lambda _: show("references", next(count), len(baselines.NAMES))
            )
        try:
            baselines.keep(planned.exam, found, self.results)
        except (ValueError, OSError) as error:
            return found, [in_a_line(error)]
        return found, []


def print_plan(planned: Plan, slots: int, as_json: bool) -> None:
    """Every run with its state and estimated time; plain text, as there may be very many."""
    from tapebench.runs.plan import duration

    todo = {spec.id for spec in planned.todo}
    total = planned.duration(slots)
    if as_json:
        runs = [
            {
                "run": str(spec.id),
                "done": spec.id not in todo,
                "seconds": round(planned.seconds[spec.agent], 1),
            }
            for spec in planned.specs
        ]
        document = {"track": planned.track.name, "split": planned.split, "runs": runs}
        print(json.dumps({**document, "at_a_time": slots, "seconds": round(total, 1)}))
        return
    takes = {agent: duration(seconds) for agent, seconds in planned.seconds.items()}
    text = "\n".join(
        f"{spec.id}  {'about ' + takes[spec.agent] if spec.id in todo else 'done'}"
        + (f"  damaged: {planned.damaged[str(spec.id)]}" if str(spec.id) in planned.damaged else "")
        for spec in planned.specs
    )
    print(text)
    missing = f"{len(planned.todo)} of {len(planned.specs)} runs are missing"
    print(f"{missing}: about {duration(total)}, {slots} at a time")


@dataclass
class _Group:
    """The runs of one agent, summed up."""

    total: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    """What one run should take."""
    took: float = 0.0
    """What the runs took together whose beginning and end were seen here."""
    seen: int = 0


@dataclass
class _Run:
    """A run that something has been heard of."""

    state: str
    began: float = 0.0
    step: int = 0
    steps: int = 0
    speed: float = 0.0
    scores: str = ""
    reason: str = ""


class Board:
    """What the runs of a sweep are doing. Sums are kept on the way: there may be very many."""

    def __init__(self, planned: Plan, slots: int, talk: bool) -> None:
        import time

        self.clock = time.monotonic
        self.began = self.clock()
        self.slots, self.talk = slots, talk
        self.runs: dict[str, _Run] = {}
        self.names = [str(spec.id) for spec in planned.todo] if len(planned.todo) <= SHOWN else []
        self.groups: dict[str, _Group] = {}
        for spec in planned.specs:
            self.groups.setdefault(
                spec.agent, _Group(seconds=planned.seconds[spec.agent])
            ).total += 1
            self.groups[spec.agent].done += 1
        for spec in planned.todo:
            self.groups[spec.agent].done -= 1

    def report(self, event: dict[str, Any]) -> None:
        """A run at work says how far it is."""
        run = self.runs.setdefault(event["run"], _Run("running"))
        if run.state in ("done", "failed"):
            return
        run.step, run.steps, run.speed = event["step"], event["steps"], event["speed"]
        if "note" in event:
            print(f"tape: {event['run']}: {event['note']}", file=sys.stderr, flush=True)
        run.scores = "  ".join(
            f"{side.upper()} {event[side]:.3f}" for side in ("id", "ood") if side in event
        )

    def change(self, name: str, state: str, reason: str) -> None:
        """A run is in another state."""
        run = self.runs.setdefault(name, _Run(""))
        if run.state == state or run.state in ("done", "failed"):
            return
        run.state, run.reason = state, reason
        group = self.groups[name.split("/")[1]]
        if state == "running":
            run.began = self.clock()
        elif state == "done" and run.steps:
            group.took += self.clock() - run.began
            group.seen += 1
        group.done += state == "done"
        group.failed += state == "failed"
        if self.talk and state in ("done", "again", "failed"):
            ended = sum(group.done for group in self.groups.values())
            total = sum(group.total for group in self.groups.values())
            said = {"done": run.scores, "again": f"tried again: {reason}"}.get(state, reason)
            word = "" if state == "again" else f"{state}  "
            print(f"{ended}/{total}  {name}  {word}{said}".rstrip(), file=sys.stderr, flush=True)
        if state == "done" and not self.names:
            del self.runs[name]

    def left(self) -> float:
        """Estimated seconds until all is done, by what runs have taken so far."""
        took = sum(group.took for group in self.groups.values())
        should = sum(group.seconds * group.seen for group in self.groups.values())
        slower = took / should if should else 1.0
        takes = {
            agent: group.took / group.seen if group.seen else slower * group.seconds
            for agent, group in self.groups.items()
        }
        waiting = sum(
            takes[agent] * (group.total - group.done - group.failed)
            for agent, group in self.groups.items()
        )
        longest = 0.0
        for name, run in self.runs.items():
            if run.state in ("running", "again") and run.speed:
                rest = (run.steps - run.step) / run.speed
                waiting += rest - takes[name.split("/")[1]]
                longest = max(longest, rest)
        return max(waiting / self.slots, longest)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        from tapebench.runs.plan import duration

        done = sum(group.done for group in self.groups.values())
        total = sum(group.total for group in self.groups.values())
        spent = duration(self.clock() - self.began)
        head = f"{done}/{total} runs done, {spent} so far, about {duration(self.left())} left"
        table = self._each() if self.names else self._sums()
        return Group(table, Text(head, style="bold"))

    def _each(self) -> Any:
        table = _table("run", "state", "progress", "steps/s", "last evaluation")
        for name in self.names:
            run = self.runs.get(name, _Run("waiting"))
            note = run.reason if run.state in ("failed", "again") else run.scores
            speed = f"{run.speed:,.0f}" if run.speed else ""
            share = 1.0 if run.state == "done" else run.step / (run.steps or 1)
            table.add_row(name, run.state, _bar(share), speed, note, style=_STYLES.get(run.state))
        return table

    def _sums(self) -> Any:
        from rich.console import Group

        sums = _table("agent", "done", "failed", "progress")
        for agent, group in self.groups.items():
            style = "red" if group.failed else None
            done = f"{group.done:,}/{group.total:,}"
            failed = str(group.failed or "")
            sums.add_row(agent, done, failed, _bar(group.done / group.total), style=style)
        table = _table("run", "state", "progress", "steps/s", "last evaluation")
        lively = [item for item in self.runs.items() if item[1].state != "elsewhere"]
        for name, run in lively[-SHOWN:]:
            note = run.reason if run.state in ("failed", "again") else run.scores
            share = run.step / (run.steps or 1)
            style = _STYLES.get(run.state)
            table.add_row(name, run.state, _bar(share), f"{run.speed:,.0f}", note, style=style)
        return Group(sums, table)


_STYLES = {
    "failed": "red",
    "done": "green",
    "waiting": "dim",
    "elsewhere": "cyan",
    "again": "yellow",
}


def _table(*columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    first, *others = columns
    return Table(Column(first, no_wrap=True), *others, box=SIMPLE_HEAD, pad_edge=False)


def _bar(share: float) -> Any:
    from rich.progress_bar import ProgressBar

    return ProgressBar(total=1.0, completed=min(1.0, share), width=20)


@contextmanager
def shown(planned: Plan, slots: int) -> Iterator[Board]:
    """A live table on standard error if it is a terminal, else a line for each run that ends."""
    from rich.live import Live

    console = screen(stderr=True)
    board = Board(planned, slots, talk=not console.is_terminal)
    if not console.is_terminal or not planned.todo:
        yield board
        return
    with Live(board, console=console, refresh_per_second=4, transient=True):
        yield board


def print_summary(summary: Summary, out: Path) -> None:
    """The report's main table, what it lacks, and in red what failed."""
    from rich.table import Column, Table

    from tapebench.runs.sweep import LOG

    console = screen()
    if not console.is_terminal:
        console.width = max(console.width, 110)
    for made in summary.tables:
        # A window has no room for returns, which are on the page.
        kept = [at for at, column in enumerate(made.columns) if "return" not in column.name]
        first, *others = (made.columns[at].name for at in kept)
        table = Table(
            Column(first, no_wrap=True),
            *(Column(name, justify="right", overflow="fold") for name in others),
            title=f"{summary.title}: {made.title.lower()}",
        )
        before = None
        for row, texts in zip(made.rows, made.texts(), strict=True):
            if before not in (None, row.kind):
                table.add_section()
            before = row.kind
            # Where there is little room an interval goes below its mean, and stays in one piece.
            table.add_row(*(texts[at].replace(", ", ",") for at in kept))
        console.print(table)
    for line in summary.rows:
        if line.seeds < line.wanted:
            console.print(
                f"{line.name}: {line.seeds} of {line.wanted} runs are done",
                highlight=False,
            )
    for run, reason in summary.failures:
        log = out / run / LOG
        where = f" ({log})" if log.is_file() else ""
        console.print(
            f"failed: {run}: {reason}{where}",
            style="red",
            highlight=False,
            soft_wrap=True,
        )


def as_document(summary: Summary, place: Path) -> dict[str, Any]:
    """The main table's figures as one JSON document."""
    from dataclasses import asdict

    def tidy(value: Any) -> Any:
        return None if isinstance(value, float) and value != value else value

    rows = [{key: tidy(value) for key, value in asdict(row).items()} for row in summary.rows]
    return {
        "title": summary.title,
        "facts": dict(summary.facts),
        "rows": rows,
        "failures": [{"run": run, "reason": reason} for run, reason in summary.failures],
        "report": str(place),
    }
