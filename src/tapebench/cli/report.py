"""`tape report`: tables, figures and a page from stored results."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tapebench.cli.console import name_damage, progress, progress_bar


@dataclass(frozen=True)
class Report:
    """Write every table and figure that stored results allow, and a page that shows them.

    Reads results only; the page and the output list what is missing.

    For example:
      tape report runs --replay
      tape report mine.tape --published --track full
    """

    paths: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="[DIR] [BUNDLE ...]")
    ] = ()
    """Results directory, the same as --results; and bundles to show beside its agents."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory; the page goes to DIR/report/index.html."""
    published: bool = False
    """Report on the results that come with the package; the page goes to DIR/published."""
    track: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TRACK ...")] = ()
    """Tracks to report on, like full long; by default all, and with --published those on which
    agents are compared."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory to write to instead of DIR/report."""
    replay: bool = False
    """First evaluate every agent's first seed again, so that the page can show its episodes
    (seconds to a minute per agent); they are stored in DIR/episodes."""
    check: bool = False
    """Write no page: check every byte of every finished run against its recorded hash. The exit
    code is 1 if anything is damaged."""
    pdf: bool = False
    """Write every figure as PDF too, which takes longer."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench import report
        from tapebench.runs import published as shipped

        if self.track:
            from tapebench.runs.tracks import get_track

            for track in self.track:
                get_track(track)
        bundles = [path for path in self.paths if not path.is_dir()]
        directories = [path for path in self.paths if path.is_dir()]
        for path in bundles:
            if not path.is_file():
                raise ValueError(f"there is no {path}: name a results directory and bundles")
        if len(directories) > 1:
            raise ValueError(f"name one results directory, not {len(directories)}")
        root_of_runs = directories[0] if directories else self.results
        root = shipped.directory() if self.published else root_of_runs
        out = self.out or root_of_runs / ("published" if self.published else "report")
        if not root.is_dir():
            raise ValueError(f"there is no results directory {root_of_runs}: name one with runs")
        if self.check:
            self.check_files(root)
            return
        tracks = self.track or (shipped.CONTESTS if self.published else ())
        if self.replay:
            from tapebench.runs import evaluation

            with progress() as show:
                notes = evaluation.replay_runs(root, tracks=tracks, progress=show)
            for note in notes:
                print(f"tape: {note}", file=sys.stderr)
        page = report.make(root, tracks=tracks, published=self.published, bundles=bundles)
        if not page.sections:
            raise ValueError(
                f"there are no finished runs in {root} to report on: tape bench makes some"
            )
        tables = sum(len(section.tables) for section in page.sections)
        drawn = sum(len(section.pictures) for section in page.sections) + len(page.illustrations)
        with progress_bar("writing", tables + drawn) as advance:
            index = report.write(page, out, advance, pdf=self.pdf)
        for sentence in page.findings.missing:
            print(f"missing: {sentence}", file=sys.stderr)
        if self.json:
            document = {
                "report": str(index),
                "contests": [
                    {
                        "name": section.title,
                        "tables": [table.name for table in section.tables],
                        "figures": [picture.name for picture in section.pictures],
                    }
                    for section in page.sections
                ],
                "missing": list(page.findings.missing),
            }
            print(json.dumps(document))
            return
        print(f"{tables} tables, {drawn} figures")
        print(f"report: {index}")

    def check_files(self, root: Path) -> None:
        """Compare every file with the hash in its run's marker; say what differs."""
        from tapebench.runs.results import load_results

        runs = load_results(root, thorough=True)
        name_damage(runs.damaged)
        if self.json:
            damaged = [
                {"run": str(damage.path), "reason": damage.reason} for damage in runs.damaged
            ]
            print(json.dumps({"sound": len(runs.paths), "damaged": damaged}))
        else:
            print(f"{len(runs.paths)} runs are sound to the last byte, {len(runs.damaged)} damaged")
        if runs.damaged:
            raise SystemExit(1)
