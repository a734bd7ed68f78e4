"""`tape report`: tables, figures and a page from stored results."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from tapebench.cli.console import name_damage, progress, progress_bar


@dataclass(frozen=True)
class Report:
    """Write every table and figure that stored results suffice for, and a page to look at.

    Reads results only. What is missing is said on the page and here.
    """

    directory: tyro.conf.Positional[Path | None] = None
    """Results directory, for short."""
    results: Path = Path("runs")
    """Results directory; the page goes to DIR/report/index.html."""
    published: bool = False
    """Report on the results that come with the package; the page goes to DIR/published."""
    tracks: tuple[str, ...] = ()
    """Tracks to report on, like full long; by default all, and of the results that come with the
    package those that are not there for experiments alone."""
    out: Path | None = None
    """Directory to write to instead of DIR/report."""
    replay: bool = False
    """First play the exam again with every agent's first seed, so that episodes can be watched
    (seconds to a minute an agent); they are kept in DIR/episodes."""
    check: bool = False
    """Write no page: compare every byte of every finished run with what was written. The exit code
    is 1 if anything is damaged."""
    pdf: bool = False
    """Write every figure as PDF too, which takes longer."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench import report
        from tapebench.runs import published as shipped

        if self.tracks:
            from tapebench.runs.tracks import get_track

            for track in self.tracks:
                get_track(track)
        here = self.directory or self.results
        root = shipped.directory() if self.published else here
        out = self.out or here / ("published" if self.published else "report")
        if not root.is_dir():
            raise ValueError(f"there is no results directory {here}: name one with runs")
        if self.check:
            self.check_files(root)
            return
        tracks = self.tracks or (shipped.CONTESTS if self.published else ())
        if self.replay:
            from tapebench.runs import evaluation

            with progress() as show:
                notes = evaluation.replay(root, tracks=tracks, progress=show)
            for note in notes:
                print(f"tape: {note}", file=sys.stderr)
        page = report.make(root, tracks=tracks, published=self.published)
        if not page.sections:
            raise ValueError(
                f"there are no finished runs in {root} to report on: tape bench makes some"
            )
        tables = sum(len(section.tables) for section in page.sections)
        drawn = sum(len(section.pictures) for section in page.sections) + len(page.illustrations)
        with progress_bar("writing", tables + drawn) as advance:
            place = report.write(page, out, advance, pdf=self.pdf)
        for sentence in page.findings.missing:
            print(f"missing: {sentence}", file=sys.stderr)
        if self.json:
            document = {
                "report": str(place),
                "contests": [
                    {
                        "name": section.contest.title,
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
        print(f"report: {place}")

    def check_files(self, root: Path) -> None:
        """Compare every file with the hash in its run's marker; say what differs."""
        from tapebench.runs.results import load_results

        found = load_results(root, thorough=True)
        name_damage(found.damaged)
        if self.json:
            damaged = [
                {"run": str(damage.path), "reason": damage.reason} for damage in found.damaged
            ]
            print(json.dumps({"sound": len(found.paths), "damaged": damaged}))
        else:
            print(
                f"{len(found.paths)} runs are sound to the last byte, {len(found.damaged)} damaged"
            )
        if found.damaged:
            raise SystemExit(1)
