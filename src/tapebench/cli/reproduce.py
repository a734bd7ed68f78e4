"""`tape reproduce`: experiments by name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.base.names import one_of
from tapebench.cli.console import make_table, name_damage, parse_rules, screen
from tapebench.cli.train import make_runs

if TYPE_CHECKING:
    from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale

LITE = "lite@2"
"""The small size of the paper's experiments."""

TRACKS = ("full", LITE, "smoke")
"""Tracks of published results, the better first."""

LONG = 60
"""Rows from which a table is only named: what matters would scroll away."""

INTERVAL = re.compile(r"^(\S+) (\[.+\])$")
"""A mean and its interval, as tables have them."""

VERIFIED = 2
"""Agents of which a run is made again."""


@dataclass(frozen=True)
class Reproduce:
    """List the experiments, or make the missing runs of one and show its tables and figures.

    They go to DIR/reproduce/TRACK/EXPERIMENT: tables as Markdown, LaTeX and CSV, figures as SVG,
    and index.html with all of them.

    For example:
      tape reproduce bounds
      tape reproduce main --track full --published
    """

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[EXPERIMENT]")] = None
    """The experiment; without it all are listed, with their cost and state."""
    track: Annotated[str | None, tyro.conf.arg(metavar="TRACK")] = None
    """Track that budgets come from: full, lite@2 or smoke. By default lite@2; of published results
    the first of these that has any."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Seeds of every setting; by default as many as the experiment has."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """Split other than the track's."""
    rules: Annotated[str | None, tyro.conf.arg(metavar="RULES")] = None
    """Evaluate only on rules like 30 or 0,4,204."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Worker processes; by default one per core."""
    show: bool = False
    """Make no runs: show the finished ones."""
    published: bool = False
    """Make no runs: show the results that come with the package."""
    verify: bool = False
    """Remake one seed of the two quickest agents of the published results, and compare."""
    pdf: bool = False
    """Write every figure as PDF too, which takes longer."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench import experiments
        from tapebench.experiments import api

        by_name = experiments.every()
        if self.name is not None:
            one_of("experiment", self.name, by_name)
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.seeds}")
        if self.name is None:
            if self.verify:
                raise ValueError("--verify needs an experiment, such as main")
            scale = self.scale(self.track or LITE)
            root = self.root
            results = {
                name: api.experiment_results(experiment, scale, root)
                for name, experiment in by_name.items()
            }
            self.list(by_name, results)
            return
        experiment = by_name[self.name]
        if self.verify:
            self.check(self.best(experiment))
            return
        if self.published:
            self.exhibit(experiment, self.best(experiment))
            return
        scale = self.scale(self.track or LITE, experiment)
        if not self.show:
            specs = api.experiment_results(experiment, scale, self.results).specs
            make_runs(specs, self.results, workers=self.workers)
        self.exhibit(experiment, api.experiment_results(experiment, scale, self.results))

    @property
    def root(self) -> Path:
        """Where runs are read from."""
        from tapebench.runs.published import directory

        return directory() if self.published or self.verify else self.results

    def best(self, experiment: Experiment) -> ExperimentResults:
        """The published runs of the track asked for, or of the first that has any."""
        from tapebench.experiments import api

        root = self.root
        for track in [self.track] if self.track else TRACKS:
            results = api.experiment_results(experiment, self.scale(track, experiment), root)
            if results.finished or not results.settings:
                return results
        raise ValueError(f"no runs of {experiment.name} come with the package")

    def check(self, published: ExperimentResults) -> None:
        """Make some of the published runs again, and say whether they are the same to the bit."""
        from tapebench.base import files
        from tapebench.runs.published import circumstances, difference

        def seconds(spec: Any) -> float:
            about = files.read_json(published.path(spec) / "provenance.json")
            return float(about["seconds"])

        first = {group[0].agent: group[0] for group in published.finished.values()}
        specs = sorted(first.values(), key=seconds)[:VERIFIED]
        folder = self.results / "verify"
        make_runs(specs, folder, workers=self.workers, anew=True)
        rows: list[Any] = []
        is_bad = False
        for spec in specs:
            was, remade = published.path(spec), folder / str(spec.id)
            apart = difference(was, remade)
            changed = circumstances(was, remade) if apart else []
            is_bad |= bool(apart) and not changed
            rows.append({"run": str(spec.id), "difference": apart, "changed": changed})
        if self.json:
            print(json.dumps({"runs": rows}))
        else:
            for row in rows:
                print(f"{row['run']}: {row['difference'] or 'the same to the bit'}")
                for sentence in row["changed"]:
                    print(f"  {sentence}")
        if is_bad:
            raise SystemExit(1)

    def scale(self, name: str, experiment: Experiment | None = None) -> Scale:
        """How much is asked for."""
        from tapebench.experiments.api import Scale
        from tapebench.runs.tracks import get_track

        rules = None if self.rules is None else parse_rules(self.rules)
        if isinstance(rules, str):
            raise ValueError(f"--rules takes numbers like 0,4,204 here, not {rules!r}")
        tested = None if rules is None else tuple(sorted(rules))
        track = get_track(name)
        if track.folds and not (experiment and experiment.over_folds):
            who = f"{experiment.name} holds" if experiment else "experiments hold"
            raise ValueError(
                f"{who} out one part of the rules, and track {name} each of "
                f"{len(track.folds)} in turn: use {', '.join(TRACKS[:-1])} or {TRACKS[-1]}"
            )
        return Scale(track, self.seeds, self.split, tested)

    def folder(self, name: str, track: str) -> Path:
        """Where what an experiment shows is written."""
        return self.results / "reproduce" / track / name

    def list(
        self, by_name: dict[str, Experiment], results_by_name: dict[str, ExperimentResults]
    ) -> None:
        """Every experiment: what it is for, what is there, and how long the rest takes."""
        from rich.table import Column

        from tapebench.runs.plan import duration, estimate_seconds

        track = self.track or LITE
        rows: list[dict[str, Any]] = []
        for name, results in results_by_name.items():
            rest = results.remaining
            is_shown = (self.folder(name, track) / "index.html").is_file()
            left = sum(estimate_seconds(spec, self.results) for spec in rest)
            if not is_shown:
                left += by_name[name].seconds
            rows.append(
                {
                    "name": name,
                    "about": by_name[name].about,
                    "paper": by_name[name].paper,
                    "runs": len(results.specs),
                    "done": len(results.specs) - len(rest),
                    "shown": is_shown,
                    "seconds": round(left, 1),
                    "command": f"tape reproduce {name} --track {track}",
                }
            )
        if self.json:
            print(json.dumps({"track": track, "experiments": rows}))
            return
        table = make_table(
            Column("experiment", no_wrap=True),
            "what it shows",
            Column("runs\ndone", justify="right"),
            Column("to do,\none core", justify="right"),
        )
        for row in rows:
            table.add_row(
                row["name"],
                row["about"] + (f" ({row['paper']})" if row["paper"] else ""),
                f"{row['done']}/{row['runs']}" if row["runs"] else "–",
                duration(row["seconds"]) if row["seconds"] else "shown",
            )
        screen().print(table)
        print(f"tape reproduce NAME --track {track} makes what is missing and shows it")

    def exhibit(self, experiment: Experiment, results: ExperimentResults) -> None:
        """Print the tables, and write all there is to see."""
        from tapebench.base import files
        from tapebench.report.page import render_exhibit
        from tapebench.runs import store, sweep, training
        from tapebench.runs.results import Damage

        damaged = sweep.damaged(results.specs, results.root)
        name_damage(
            Damage(results.root / run, reason, store.remedy(results.root / run))
            for run, reason in damaged.items()
        )
        if results.settings and not results.finished:
            raise ValueError(f"no run of {experiment.name} is done: leave out --show to make them")
        training.use_compilation_cache()
        shown = experiment.show(results)
        folder = self.folder(experiment.name, results.scale.track.label)
        shown.save(folder, self.pdf)
        page = render_exhibit(experiment.name, experiment.about, shown.tables, shown.pictures)
        files.write_text(folder / "index.html", page)
        if self.json:
            print(json.dumps(exhibit_document(shown, results.missing, folder)))
            return
        for table in shown.tables:
            if len(table.rows) <= LONG:
                print_table(table)
        for table in shown.tables:
            if len(table.rows) > LONG:
                print(f"{table.title}: {len(table.rows)} rows, in {folder / table.name}.md")
        for setting in results.missing:
            print(f"missing: no run of {setting!r} is done")
        print(f"tables and figures: {folder / 'index.html'}")


def print_table(table: Any) -> None:
    """A table of the report on a terminal."""
    from rich.table import Column

    from tapebench.report.tables import PROSE

    console = wide_console()
    texts = table.texts()
    names = [column.name for column in table.columns]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    if sum(widths) + 2 * len(widths) > console.width:  # an interval goes below its mean, in a piece
        texts = [[INTERVAL.sub(r"\1\n\2", text) for text in row] for row in texts]
    columns = [
        # Names stay in one line and figures at the right; sentences are broken where they must be.
        Column(column.name, no_wrap=not index, justify="right" if index else "left")
        if all(len(row[index]) <= PROSE for row in texts)
        else Column(column.name, overflow="fold")
        for index, column in enumerate(table.columns)
    ]
    shown = make_table(
        *columns,
        title=table.title,
        caption=table.caption,
    )
    kinds = [row.kind for row in table.rows]
    for number, row in enumerate(texts):
        if number and kinds[number] != kinds[number - 1]:
            shown.add_section()
        shown.add_row(*row)
    console.print(shown)


def wide_console() -> Any:
    """Standard output, with room for a table where there is no window to be filled."""

    console = screen()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


def exhibit_document(exhibit: Exhibit, missing: Sequence[str], folder: Path) -> dict[str, Any]:
    """An exhibit as JSON: the tables row by row, intervals as lists."""
    return {
        "tables": {
            table.name: {
                "title": table.title,
                "columns": [column.name for column in table.columns],
                "rows": [[_plain(cell) for cell in row.cells] for row in table.rows],
            }
            for table in exhibit.tables
        },
        "figures": [picture.name for picture in exhibit.pictures],
        "missing": list(missing),
        "place": str(folder),
    }


def _plain(cell: Any) -> Any:
    from tapebench.stats import Interval

    if isinstance(cell, Interval):
        return [_plain(end) for end in (cell.mean, cell.low, cell.high)]
    return None if isinstance(cell, float) and cell != cell else cell
