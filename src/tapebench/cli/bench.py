"""`tape bench`: train, evaluate and report every baseline of a track."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.base.names import one_of
from tapebench.cli.console import error_line, make_table, name_damage, progress, screen
from tapebench.cli.progress import live_table
from tapebench.cli.train import name_remade, parse_seeds

if TYPE_CHECKING:
    from tapebench.exam.baselines import Baseline
    from tapebench.report.summary import Summary
    from tapebench.report.verdict import Verdict
    from tapebench.runs.executors import Executor
    from tapebench.runs.plan import Plan


@dataclass(frozen=True)
class RayOptions:
    """With --executor ray."""

    address: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "auto"
    """auto for the cluster that this machine is part of, or HOST:PORT."""
    bring_back: bool = False
    """Bring results back through Ray even if the nodes seem to share the results directory."""
    insecure: bool = False
    """Join a cluster that has no token, on which anybody can run anything."""


@dataclass(frozen=True)
class SlurmOptions:
    """With --executor slurm."""

    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 8
    """Jobs of the array, of one core each; each makes its runs one after another."""
    minutes: Annotated[int, tyro.conf.arg(metavar="MINUTES")] = 240
    """Time limit of a job; one that reaches it is queued again and resumes."""
    memory: Annotated[float, tyro.conf.arg(metavar="GB")] = 3.0
    """GB for a job."""
    partition: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Partition to run in."""
    account: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Account to charge."""
    sbatch: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[OPTION=VALUE ...]")] = ()
    """Any other options of sbatch, like qos=low constraint=avx2."""


@dataclass(frozen=True)
class Bench:
    """The whole benchmark: make the missing runs of a track, print the main table, write a page.

    Interrupted runs resume, finished runs are kept.

    For example:
      tape bench --track smoke
      tape bench --track full --agents dqn ppo --seeds 5 --plan
    """

    track: Annotated[str, tyro.conf.arg(metavar="TRACK")] = "lite"
    """smoke (a minute or two), lite, core, full (the paper's budget), long, ring2 or life; what
    was published under an older version: lite@2, inference@2."""
    agents: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[AGENT ...]")] = ()
    """Agents, like dqn ppo; by default all of the track."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """Split other than the track's."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="SEEDS")] = None
    """A number of seeds, or a list like 3,7; by default those of the track."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory; the page goes to DIR/report/index.html."""
    plan: bool = False
    """Only say which runs are missing, and how long they will take."""
    executor: Annotated[str, tyro.conf.arg(metavar="EXECUTOR")] = "local"
    """local, vmap (seeds in one program, for a GPU), ray (extra: ray) or slurm (extra: slurm)."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Runs at a time on local or ray, by default one for each core; on vmap, by default 8."""
    ray: tyro.conf.OmitArgPrefixes[RayOptions] = field(default_factory=RayOptions)
    slurm: tyro.conf.OmitArgPrefixes[SlurmOptions] = field(default_factory=SlurmOptions)
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
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
            with live_table(planned, executor.slots) as table:
                failures = run_plan(
                    planned, self.results, executor, report=table.report, change=table.change
                )
        except KeyboardInterrupt:
            print(
                f"tape: interrupted; what was done is in {self.results}, "
                "and the same command goes on from there",
                file=sys.stderr,
            )
            raise SystemExit(130) from None
        # Matplotlib and SciPy, which a plan and a sweep do without.
        from tapebench.report.summary import summarise_plan

        baselines, unkept = self.measure_baselines(planned)
        summary = summarise_plan(planned, self.results, baselines, failures)
        verdicts = self.reach_verdicts(summary)
        # Printed before it is written: a full disk takes no result with it.
        place = self.results / "report" / "index.html"
        if self.json:
            print(json.dumps(summary_document(summary, verdicts, place)), flush=True)
        else:
            print_summary(summary, self.results)
        try:
            self.write_report(planned, summary, verdicts, baselines)
            if not self.json:
                print("\n".join(line for verdict in verdicts for line in verdict.lines))
            print(f"report: {place}", file=sys.stderr if self.json else sys.stdout)
        except (ValueError, OSError) as error:
            unkept.append(error_line(error))
        for complaint in unkept:
            print(f"tape: {complaint}", file=sys.stderr)
        if summary.failures or unkept:
            raise SystemExit(1)

    def reach_verdicts(self, summary: Summary) -> list[Verdict]:
        """What the runs over folds come to, with lesions of one run for each fold."""
        from tapebench.report.verdict import verdict
        from tapebench.runs import evaluation

        verdicts = []
        for fold_set in summary.sets:
            runs = {
                agent: [self.results / entry.specs[0]["id"] for _, entry in fold_set.entries(agent)]
                for agent in fold_set.runs
            }
            with progress() as show:
                verdicts.append(verdict(fold_set, evaluation.lesion_runs(runs, progress=show)))
        return verdicts

    def write_report(
        self,
        planned: Plan,
        summary: Summary,
        verdicts: Sequence[Verdict],
        baselines: dict[str, Baseline],
    ) -> Path:
        """The page of all that is in the results directory, with episodes to watch."""
        from tapebench import report
        from tapebench.runs import evaluation

        with progress() as show:
            notes = evaluation.replay_runs(self.results, progress=show)
        for note in notes:
            print(f"tape: {note}", file=sys.stderr)
        page = report.make(
            self.results,
            title=summary.title,
            failures=summary.failures,
            facts=(*summary.facts, *(fact for verdict in verdicts for fact in verdict.facts)),
            baselines={exam.hash: baselines for exam in planned.exams},
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
            options = self.ray
            return Ray(options.address, self.workers, options.bring_back, options.insecure)
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
            known = baselines.load_stored(planned.exam, self.results)
        except files.DamageError as error:
            print(f"tape: {error}: measuring it again", file=sys.stderr)
            known = None
        if known is not None:
            return known, []
        training.use_compilation_cache()
        with progress() as show:
            names = baselines.of_track(planned.exam)
            count = iter(range(1, len(names) + 1))
            measured = baselines.run_baselines(
                planned.exam, lambda _: show("references", next(count), len(names)), names
            )
        try:
            for exam in planned.exams:  # over folds the same, as rules and tapes are
                baselines.store_baselines(exam, measured, self.results)
        except (ValueError, OSError) as error:
            return measured, [error_line(error)]
        return measured, []


def print_plan(planned: Plan, slots: int, as_json: bool) -> None:
    """What is missing and how long it takes, by agent; as JSON run by run."""
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
        document = {"track": planned.track.label, "split": planned.split, "runs": runs}
        print(json.dumps({**document, "at_a_time": slots, "seconds": round(total, 1)}))
        return
    takes = {agent: duration(seconds) for agent, seconds in planned.seconds.items()}
    missing = f"{len(planned.todo)} of {len(planned.specs)} runs are missing"
    print(f"{missing}: about {duration(total)}, {slots} at a time")
    runs_of = Counter(spec.agent for spec in planned.specs)
    left_of = Counter(spec.agent for spec in planned.todo)
    for agent, count in runs_of.items():
        left = left_of[agent]
        state = f"{left:,} of {count:,} missing, about {takes[agent]} each" if left else "done"
        print(f"  {agent:<10} {state}")
    for run, reason in planned.damaged.items():
        print(f"  damaged: {run}: {reason}")
    print("--json lists every run")


def print_summary(summary: Summary, out: Path) -> None:
    """Success by stratum, the report's main table, what it lacks, and in red what failed."""
    from rich.table import Column

    from tapebench.exam.bounds import NOT_COMPUTED
    from tapebench.exam.by_stratum import ABOUT
    from tapebench.report import strata
    from tapebench.runs.sweep import LOG

    console = screen()
    if not console.is_terminal:
        columns = max((len(made.columns) for made in summary.tables), default=0)
        console.width = max(console.width, 110, 16 * columns)
    for made in summary.tables:
        # A window has no room for what is on the page as well.
        places = [
            place
            for place, column in enumerate(made.columns)
            if "return" not in column.name and not column.name.startswith("impossible")
        ]
        first, *others = (made.columns[place].name for place in places)
        table = make_table(
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
            table.add_row(*(texts[place].replace(", ", ",") for place in places))
        console.print(table)
    headlines = [made for made in summary.tables if made.name.endswith(strata.NAME)]
    if headlines:
        console.print(ABOUT, highlight=False)
    if any(strata.lacks_bounds(made) for made in headlines):
        console.print(NOT_COMPUTED, highlight=False)
    for note in summary.notes:
        console.print(note, highlight=False)
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


def summary_document(summary: Summary, verdicts: Sequence[Verdict], place: Path) -> dict[str, Any]:
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
    } | (
        {
            "folds": list(summary.costs),
            "verdicts": [dict(verdict.facts) for verdict in verdicts],
        }
        if summary.costs
        else {}
    )
