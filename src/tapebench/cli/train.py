"""`tape train`: make runs of one agent."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.agents import NAMES
from tapebench.base.names import one_of
from tapebench.cli.console import make_table, parse_rules, parse_size, screen

if TYPE_CHECKING:
    from tapebench.runs.tracks import Track
    from tapebench.runs.training import RunSpec


EVALUATIONS = 5
"""Evaluations of a run for which only --steps is chosen, if its chunk allows that."""


@dataclass(frozen=True)
class Train:
    """Train an agent. Interrupted runs resume, finished runs are kept, damaged ones are made again.

    For example:
      tape train dqn --seeds 3 --steps 20000
      tape train ppo --family life --split life-H8-matched --steps 20000
    """

    agent: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            metavar="AGENT",
            help=f"{', '.join(NAMES[:-1])} or {NAMES[-1]}; package.module of an agent of your own, "
            "from here or installed; or the directory of a run, which is then resumed or remade "
            "with its own settings.",
        ),
    ]
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Options of the agent that differ from its defaults, like network=mlp depth=3."""
    options: bool = False
    """Only list the agent's options, with their defaults and how to set them."""
    track: Annotated[str, tyro.conf.arg(metavar="TRACK")] = "full"
    """Track that sets the defaults of the options below: full, core, lite, smoke, long, ring2 or
    life; of older ones lite@2 and inference@2."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="SEEDS")] = None
    """A number of seeds, or a list like 3,7; by default those of the track."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """Split whose training rules are trained on."""
    rules: Annotated[str, tyro.conf.arg(metavar="RULES")] = "train"
    """Train on train, test or all of the split, or on rules like 30 or 0,4,204."""
    family: Annotated[str | None, tyro.conf.arg(metavar="FAMILY")] = None
    """elementary, ring2 (five cells on a ring) or life (on a torus), by default the track's; of
    another than that, name a --split too."""
    length: Annotated[int | None, tyro.conf.arg(metavar="CELLS")] = None
    """Cells on the ring; of ring2, by default what the rules of the split are drawn for."""
    shape: Annotated[str | None, tyro.conf.arg(metavar="SIDES")] = None
    """Sides of a torus, like 5x5, by default those that the rules of the split are drawn for."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps per episode; with --length or --shape, by default as many as there are cells, or those
    that the rules of the split are drawn for."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Environment steps of training."""
    evaluate_every: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Environment steps between two evaluations; with --steps alone about a fifth of those."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Start tapes for every rule in an evaluation."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """First part of the runs' names; by default main, or rules-... if --rules is given."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Worker processes; by default one per core."""
    together: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Seeds to train at a time as one vmapped program in this process; meant for a GPU."""
    log: Annotated[str | None, tyro.conf.arg(metavar="LOGGER")] = None
    """Also log to tensorboard or wandb (extra: tracking)."""
    anew: bool = False
    """Delete what is stored of these runs and start over."""
    json: bool = False
    """Print one JSON document: the summary of every run."""

    def run(self) -> None:
        from tapebench import agents
        from tapebench.base import files
        from tapebench.runs import store

        # Typed here, it may be a file of here. What results name is not imported from here.
        if agents.is_from_outside(self.agent):
            os.environ.setdefault(agents.PATH, os.getcwd())
        if self.options:
            self._list_options()
            return
        path = Path(self.agent)
        if len(path.parts) > 1 or store.has_marker(path) or (path / "spec.json").is_file():
            results, specs = self._recorded(path)
        else:
            results, specs = self.results, self.specs()
        make_runs(
            specs,
            results,
            workers=self.workers,
            together=self.together,
            log=self.log,
            anew=self.anew,
        )
        summaries = {
            str(spec.id): files.read_object(results / str(spec.id) / "summary.json")
            for spec in specs
        }
        if self.json:
            print(json.dumps(summaries))
        else:
            print_summaries(summaries)
            print_next(specs, results)

    def _recorded(self, path: Path) -> tuple[Path, list[RunSpec]]:
        """The results directory and the spec of a run that is there."""
        from tapebench.runs import store, training

        own = ("agent", "workers", "together", "log", "anew", "json")
        others = [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if field.name not in own and getattr(self, field.name) != field.default
        ]
        if others:
            raise ValueError(f"{path} is trained with its own settings: leave out {others[0]}")
        if not path.is_dir():
            raise ValueError(f"there is no run {path}: name an agent, or the directory of a run")
        recorded = store.recorded_spec(path)
        if recorded is None:
            raise ValueError(f"{path} cannot be remade: {store.remedy(path)}")
        results = Path(os.path.relpath(os.path.abspath(path / "../../../..")))
        return results, [training.from_dict(recorded)]

    def specs(self) -> list[RunSpec]:
        """The runs that are asked for."""
        from tapebench.physics import families
        from tapebench.runs.tracks import get_track
        from tapebench.tasks.task import parse_space

        track = get_track(self.track)
        family = families.get(track.family if self.family is None else self.family)
        which = parse_rules(self.rules, family)
        trained_on = which if isinstance(which, str) else tuple(which)
        changes: dict[str, Any] = {
            "options": parse_options(self.agent, self.set),
            "experiment": self.experiment or default_experiment(trained_on),
            "train_on": trained_on,
            "family": family.name,
        }
        for name in ("split", "length", "horizon", "steps", "evaluate_every", "episodes"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.shape is not None or family.name != "elementary":
            split = self.split or track.split
            length, shape, horizon = parse_size(
                family, split, self.length, self.shape, self.horizon
            )
            space = parse_space(family, length, shape)
            changes |= {"length": space.size, "shape": space.shape, "horizon": horizon}
        elif self.length is not None:
            changes.setdefault("horizon", self.length)
        if not isinstance(trained_on, str):
            changes["rules"] = tuple(sorted(trained_on))
        if self.steps is not None or self.evaluate_every is not None:
            steps = track.steps if self.steps is None else self.steps
            every, last = self._cadence(track, steps, changes["options"])
            changes |= {"evaluate_every": every, "last": last}
        seeds = parse_seeds(self.seeds, track.seeds)
        return [track.spec(self.agent, seed, **changes) for seed in seeds]

    def _cadence(self, track: Track, steps: int, options: Mapping[str, Any]) -> tuple[int, int]:
        """Steps between evaluations, and how many of those at the end count.

        What is given must fit; what is not is the track's where that fits, else found.
        """
        from tapebench import agents

        chunk = int(agents.configure(self.agent, **options).chunk)
        interval = self.evaluate_every
        for flag, value in (("--steps", steps), ("--evaluate-every", interval)):
            if value is not None and value < 1:
                raise ValueError(f"{flag} must be at least 1, not {value}")
        if interval is None and fits(steps, track.evaluate_every, chunk, track.last):
            return track.evaluate_every, track.last
        every = find_cadence(steps, chunk, track.last)
        if every is None:
            more = -(-steps // chunk) * chunk
            raise ValueError(
                f"{self.agent} trains {chunk:,} steps at a time, which do not divide {steps:,}: "
                f"--steps {more} --evaluate-every {find_cadence(more, chunk, track.last)} works"
            )
        last = min(track.last, steps // every)
        if interval is None:
            count = "" if last == track.last else f"; all {last} evaluations count"
            print(f"evaluating every {every:,} steps{count}", file=sys.stderr)
            return every, last
        if not fits(steps, interval, chunk, last):
            reason = (
                f"{self.agent} trains {chunk:,} steps at a time, which do not divide {interval:,}"
                if interval % chunk
                else f"{steps:,} steps are no multiple of {interval:,}"
                if steps % interval
                else f"the last {last} evaluations count, and there would be {steps // interval}"
            )
            raise ValueError(f"{reason}: --evaluate-every {every} works")
        return interval, last

    def _list_options(self) -> None:
        from rich.table import Column

        from tapebench import agents

        config = agents.configure(self.agent)
        about = field_docstrings(type(config))
        table = make_table(
            Column("name=default", no_wrap=True), "what it does", title=f"Options of {self.agent}"
        )
        for field in fields(config):
            value = _written(getattr(config, field.name))
            table.add_row(f"{field.name}={value}", about.get(field.name, ""))
        screen().print(table)
        print(f"set them like this: tape train {self.agent} --set learning_rate=0.001 width=128")


def fits(steps: int, every: int, chunk: int, last: int) -> bool:
    """Whether evaluations come out even: at the end of chunks, and enough of them."""
    return steps % every == 0 and every % chunk == 0 and steps // every >= last


def find_cadence(steps: int, chunk: int, last: int) -> int | None:
    """Steps between evaluations: about a fifth of all, `last` evaluations if there is room for so
    many; None if chunks do not divide the steps."""
    if steps % chunk:
        return None
    chunks = steps // chunk
    counts = [count for count in range(1, chunks + 1) if chunks % count == 0]
    enough = [count for count in counts if count >= last] or counts[-1:]
    return steps // min(enough, key=lambda count: abs(count - EVALUATIONS))


def field_docstrings(config: type) -> dict[str, str]:
    """The string below each field of a dataclass, as far as its source can be read."""
    texts: dict[str, str] = {}
    for part in reversed(config.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                texts[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(below.value))
    return {name: " ".join(text.split()) for name, text in texts.items()}


def _written(value: Any) -> str:
    """A value as --set takes it; nothing for none."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def default_experiment(trained_on: str | tuple[int, ...]) -> str:
    """`main` for training rules; other rules are named, lest results be taken for those."""
    if isinstance(trained_on, str):
        return "main" if trained_on == "train" else f"rules-{trained_on}"
    return "rules-" + "-".join(map(str, trained_on[:12]))


def parse_seeds(text: str | None, default: int) -> list[int]:
    """`5` is the first five seeds, `3,7` are these two."""
    if text is None:
        return [*range(default)]
    try:
        parts = [int(part) for part in text.split(",") if part]
    except ValueError:
        parts = []
    seeds = [*range(*parts)] if len(parts) == 1 and "," not in text else parts
    if not seeds:
        raise ValueError(f"unknown seeds {text!r}: give a number like 5, or some like 3,7")
    return seeds


def parse_options(agent: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    """`width=128` and the like, as values of the kind that the agent's defaults are."""
    from tapebench import agents

    defaults = agents.configure(agent)
    names = [field.name for field in fields(defaults)]
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} sets nothing: write it like width=128")
        one_of(f"option of {agent}", name, names)
        options[name] = _value(name, text, getattr(defaults, name))
    agents.configure(agent, **options)
    return options


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} is true or false, not {text!r}")
        return text.lower() == "true"
    if isinstance(default, str):
        return text
    try:
        # An option without a default value is a count: there is no other kind of these.
        return int(text) if default is None else type(default)(text)
    except ValueError:
        kind = "a number" if isinstance(default, float) else "a whole number"
        raise ValueError(f"{name} is {kind}, not {text!r}") from None


def name_remade(damaged: Mapping[str, str], results: Path) -> None:
    """A line on standard error for each damaged run that is about to be made again."""
    for name, reason in damaged.items():
        print(f"tape: {results / name} is damaged ({reason}): making it again", file=sys.stderr)


def make_runs(
    specs: Sequence[RunSpec],
    results: Path,
    *,
    workers: int | None = None,
    together: int | None = None,
    log: str | None = None,
    anew: bool = False,
) -> None:
    """Make the runs that are missing, or all of them `anew`; progress on standard error.

    With `together`, so many at a time in this process, else in processes of their own. Ends the
    program if it is interrupted or if runs fail.
    """
    from tapebench.runs import store, sweep
    from tapebench.runs.executors.vmap import Vmap

    todo = list(specs) if anew else sweep.missing(specs, results)
    name_remade({} if anew else sweep.damaged(todo, results), results)
    left = {spec.id for spec in todo}
    for spec in specs:
        if spec.id not in left:
            changed = store.differences(results / str(spec.id), spec.id, spec.as_dict())
            if changed:
                raise ValueError(
                    f"{results / str(spec.id)} was made with another {', '.join(changed)}: "
                    "choose another --results or remove it; tape train --anew replaces it"
                )
    done = len(specs) - len(todo)
    if done:
        print(f"{done} of {len(specs)} runs are done already", file=sys.stderr)
    if not todo:
        return
    # A mistake in a spec shows here, before any process is started for it.
    todo[0].as_dict()
    todo[0].make_agent()
    results.mkdir(parents=True, exist_ok=True)
    try:
        with runs_shown(len(specs), done) as report:
            if together is not None:
                failures = Vmap(together, log, anew).run(todo, results, report)
            else:
                failures = sweep.run_all(
                    todo, results, workers=workers, report=report, log=log, anew=anew
                )
    except KeyboardInterrupt:
        print(
            f"tape: interrupted; finished work is in {results}, "
            "and the same command resumes from there",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    for failure in failures:
        print(f"tape: {failure.run}: {failure.reason}", file=sys.stderr)
    if failures:
        raise SystemExit(2)


@contextmanager
def runs_shown(total: int, done: int) -> Iterator[Any]:
    """A bar for all runs and one for each run at work: speed, last evaluation, time left."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = screen(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        overall = bars.add_task("runs", total=total, completed=done, note=f"{done}/{total}")
        shares: dict[str, float] = {}
        rows: dict[str, Any] = {}

        def report(event: dict[str, Any]) -> None:
            name = event["run"]
            if "note" in event:
                print(f"tape: {name}: {event['note']}", file=sys.stderr, flush=True)
            if name not in rows:
                rows[name] = bars.add_task(name, total=event["steps"], note="")
            note = f"{event['speed']:,.0f} steps/s"
            for subset in ("id", "ood"):
                if subset in event:
                    note += f"  {subset.upper()} {event[subset]:.3f}"
            bars.update(rows[name], completed=event["step"], note=note)
            shares[name] = event["step"] / event["steps"]
            if event["step"] >= event["steps"]:
                bars.remove_task(rows[name])
            finished = done + sum(share >= 1 for share in shares.values())
            bars.update(overall, completed=done + sum(shares.values()), note=f"{finished}/{total}")

        yield report


def print_summaries(summaries: dict[str, Any]) -> None:
    """One line for each run, in red if it diverged, and the mean of those that did not."""
    from rich.table import Column

    table = make_table(
        Column("run", no_wrap=True),
        "ID success",
        "OOD success",
        "ID final distance",
        "OOD final distance",
        "steps",
    )
    sides = ("id", "ood")

    def shown(summary: dict[str, Any], side: str, metric: str) -> str:
        return f"{summary[side][metric]:.3f}" if side in summary else ""

    for name, summary in summaries.items():
        table.add_row(
            name,
            *(shown(summary, side, "success") for side in sides),
            *(shown(summary, side, "final_distance") for side in sides),
            f"{summary['steps']:,}",
            style="red" if summary.get("diverged") else None,
        )
    counted = [summary for summary in summaries.values() if not summary.get("diverged")]
    if len(summaries) > 1:
        table.add_section()
        means = [
            f"{sum(s[side][metric] for s in present) / len(present):.3f}" if present else ""
            for metric in ("success", "final_distance")
            for side in sides
            for present in [[s for s in counted if side in s]]
        ]
        table.add_row("mean", *means, "")
    console = screen()
    console.print(table)
    for name, summary in summaries.items():
        if summary.get("diverged"):
            message = f"{name} diverged: its weights are not finite, and it does not count"
            console.print(message, style="red", highlight=False, soft_wrap=True)


def print_next(specs: Sequence[RunSpec], results: Path) -> None:
    """Where the runs are, and what can be done with them."""
    from tapebench.runs.training import sides

    first = specs[0]
    path = results / str(first.id)
    runs = path if len(specs) == 1 else path.parent
    exam = [f"--split {shlex.quote(first.split)}"] if first.split != "fps30" else []
    if first.family != "elementary":
        exam.append(f"--family {first.family}")
    if first.shape is not None:
        exam.append(f"--shape {sides(first.task.space)}")
    elif first.length != 32:
        exam.append(f"--length {first.length}")
    if first.horizon != first.length:
        exam.append(f"--horizon {first.horizon}")
    if first.mask:
        exam.append(f"--mask {','.join(map(str, first.mask))}")
    print(f"the runs are in {runs}" if len(specs) > 1 else f"the run is in {runs}")
    print(f"next: {' '.join(['tape evaluate', shlex.quote(str(runs)), *exam])}")
    print(f"      tape report {shlex.quote(str(results))}")
