"""`tape train`: make runs of one agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from tapebench.cli.console import parse_rules
from tapebench.naming import one_of


@dataclass(frozen=True)
class Train:
    """Train an agent with some seeds. What is there goes on; what is done stays."""

    agent: tyro.conf.Positional[str]
    """dqn, rad, curl, pearl, ppo, ppo-dr, rppo, dreamer or automata."""
    set: tuple[str, ...] = ()
    """Options of the agent that differ from its defaults, like network=conv depth=3."""
    options: bool = False
    """Only list the agent's options, with their defaults."""
    track: str = "full"
    """Track that the options below come from unless they are given: full, lite, smoke, long or
    inference."""
    seeds: str | None = None
    """A number of seeds, or some of them like 3,7; by default those of the track."""
    split: str | None = None
    """Split whose training rules are trained on."""
    rules: str = "train"
    """Train on train, test or all of the split, or on rules like 30 or 0,4,204."""
    length: int | None = None
    """Cells on the ring."""
    horizon: int | None = None
    """Steps per episode; with --length, by default as many as there are cells."""
    steps: int | None = None
    """Environment steps of training."""
    evaluate_every: int | None = None
    """Environment steps from one evaluation to the next."""
    episodes: int | None = None
    """Start tapes for every rule in an evaluation."""
    experiment: str | None = None
    """First part of the runs' names; by default main, or rules-... if --rules is given."""
    results: Path = Path("runs")
    """Results directory."""
    workers: int | None = None
    """Processes at work; by default one for each core."""
    together: int | None = None
    """Train so many seeds at a time as one vmapped program in this process; meant for a GPU."""
    log: str | None = None
    """Also log to tensorboard or wandb (extra: tracking)."""
    anew: bool = False
    """Drop what is there of these runs and begin again."""
    json: bool = False
    """Print one JSON document: the summary of every run."""

    def run(self) -> None:
        from tapebench import store

        if self.options:
            self._list_options()
            return
        specs = self.specs()
        make_runs(
            specs,
            self.results,
            workers=self.workers,
            together=self.together,
            log=self.log,
            anew=self.anew,
        )
        summaries = {
            str(spec.id): store.read_json(self.results / str(spec.id) / "summary.json")
            for spec in specs
        }
        if self.json:
            print(json.dumps(summaries))
        else:
            print_summaries(summaries)

    def specs(self) -> list[Any]:
        """The runs that are asked for."""
        from tapebench.protocol import get_track

        track = get_track(self.track)
        which = parse_rules(self.rules)
        trained_on = which if isinstance(which, str) else tuple(which)
        changes: dict[str, Any] = {
            "options": parse_options(self.agent, self.set),
            "experiment": self.experiment or default_experiment(trained_on),
            "train_on": trained_on,
        }
        for name in ("split", "length", "horizon", "steps", "evaluate_every", "episodes"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.length is not None:
            changes.setdefault("horizon", self.length)
        if not isinstance(trained_on, str):
            changes["rules"] = tuple(sorted(trained_on))
        seeds = parse_seeds(self.seeds, track.seeds)
        return [track.spec(self.agent, seed, **changes) for seed in seeds]

    def _list_options(self) -> None:
        from tapebench import agents

        config = agents.load(self.agent)[0]
        tyro.cli(config, prog=f"tape train {self.agent} --set", args=["--help"])


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
    found = [*range(*parts)] if len(parts) == 1 and "," not in text else parts
    if not found:
        raise ValueError(f"unknown seeds {text!r}: give a number like 5, or some like 3,7")
    return found


def parse_options(agent: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    """`width=128` and the like, as values of the kind that the agent's defaults are."""
    from tapebench import agents

    defaults = agents.configure(agent)
    known = [field.name for field in fields(defaults)]
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} sets nothing: write it like width=128")
        one_of(f"option of {agent}", name, known)
        found[name] = _value(name, text, getattr(defaults, name))
    agents.configure(agent, **found)
    return found


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


def make_runs(
    specs: Sequence[Any],
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
    from tapebench import store, sweep
    from tapebench.executors.vmap import Vmap

    todo = list(specs) if anew else sweep.missing(specs, results)
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
            f"tape: interrupted; what was done is in {results}, "
            "and the same command goes on from there",
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
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
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
    """One line for each run, and their mean."""
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(
        Column("run", no_wrap=True), "ID success", "OOD success", "ID final", "OOD final", "steps"
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
        )
    if len(summaries) > 1:
        table.add_section()
        means = [
            f"{sum(s[side][metric] for s in present) / len(present):.3f}" if present else ""
            for metric in ("success", "final_distance")
            for side in sides
            for present in [[s for s in summaries.values() if side in s]]
        ]
        table.add_row("mean", *means, "")
    Console().print(table)
