"""The README's headline: its table and its picture.

    python tools/headline.py            # from the published results
    python tools/headline.py runs       # from a results directory

Takes the runs of `tape bench --track full` if there are any, else those of `--track lite@2`, writes
`docs/headline.svg` and what stands between the markers in the README. The same runs give the same
bytes, and a test fails when the README does not show the published ones. Nothing is trained here,
and agents without finished runs are named below the table; references are run if they have not
been, and stored with the runs as `tape bench` does.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapebench.base import files
from tapebench.exam import baselines, by_stratum
from tapebench.experiments import unseen
from tapebench.experiments.api import Scale
from tapebench.experiments.unseen import UNSEEN
from tapebench.pages import claims
from tapebench.pages import results as results_page
from tapebench.report import contests as results
from tapebench.report import findings, strata
from tapebench.report.contests import Contest
from tapebench.report.tables import Table
from tapebench.runs import published, tracks

ROOT = Path(__file__).parents[3]
"""The checkout that the documents are in."""
BEGIN, END = "<!-- headline: begin -->", "<!-- headline: end -->"
PICTURE = Path("docs") / "headline.svg"

TRACKS = ("full", "lite@2")
"""The tracks that a headline can be made of, the better first."""

SHOWN = ("agent", "ID success", "OOD success", "drop", "seeds")
"""Columns of the report's main table that the README has room for, after those of beyond-reflex
rules."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Write the picture and the README of the repository at `root`, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, nargs="?", help="by default the published ones")
    try:
        root_of_results = parser.parse_args(arguments).results or published.directory()
        contest, track = best_contest(root_of_results)
        readme = root / "README.md"
        text = put(readme.read_text(), headline_text(contest, track, root_of_results))
        files.write_bytes(root / PICTURE, findings.success_picture(contest).svg)
        files.write_text(readme, text)
    except ValueError as error:
        print(f"headline: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"{contest.title}: README.md and {PICTURE}")


def best_contest(results_root: Path) -> tuple[Contest, tracks.Track]:
    """The runs of the best track that has any, on the track's own exam, and references."""
    if not results_root.is_dir():
        raise ValueError(f"there is no results directory {results_root}: make bench makes runs")
    contests = results.read(results_root).contests
    for name in TRACKS:
        track = tracks.get_track(name)
        contest = results.find_contest(contests, track.name, track.exam())
        if contest:
            contest = results.with_networks(contest, contests)
            return replace(
                contest, baselines=baselines.load_or_run(contest.exam, results_root)
            ), track
    raise ValueError(
        f"there are no finished runs of the tracks {' or '.join(TRACKS)} in {results_root}: "
        f"tape bench --track {TRACKS[-1]} --results {results_root} makes them"
    )


def headline_text(contest: Contest, track: tracks.Track, results_root: Path) -> str:
    """The text between the markers."""
    exam, task = contest.exam, contest.exam.task
    absent = [name for name in track.agents if name not in {e.agent for e in contest.entries}]
    protocol = (
        f"Track `{track.name}`, version {track.version}: split `{exam.split}`, "
        f"L = {task.length}, H = {task.horizon}, {track.steps:,} steps of training, "
        f"{len(exam.rows('id'))} ID and {len(exam.rows('ood'))} OOD rules with {exam.episodes} "
        f"start tapes each. {by_stratum.about(exam)} {findings.OVER_SEEDS} {findings.MARKS} "
        f"{findings.beside(contest)} {findings.EXACT}{findings.about_seatings(contest)}"
    )
    if absent:
        protocol += f" Not finished: {', '.join(absent)}."
    others = any(
        str(entry.specs[0].get("experiment")).startswith(f"{contest.experiment}-networks-")
        for entry in contest.entries
    )
    networks = f", `tape reproduce networks --track {track.label}` those with a second network of "
    protocol += (
        f" `tape bench --track {track.label}` makes the runs"
        + (f"{networks}the same agent" if others else "")
        + "; `python tools/headline.py` updates this section from the published ones."
    )
    seen = "Strict success of every agent on both sides, with references and the exact ceiling"
    picture = f"![{seen}]({PICTURE.as_posix()})"
    paragraphs = [protocol]
    costs, longer = (
        unseen.costs(Scale(of_track), results_root)
        for of_track in (track, tracks.get_track("long"))
    )
    if costs:
        paragraphs.insert(
            0,
            f"A drop compares different rules. {claims.about_costs(costs, longer)} "
            f"`tape reproduce {UNSEEN} --track {track.label} --published` shows these costs"
            + (", with `--track long` those of the longer training." if longer else "."),
        )
    if identification := results_page.identified(contest, results_root):
        paragraphs.insert(-1, identification)
    wrapped = [
        textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in paragraphs
    ]
    return "\n\n".join((picture, headline_table(contest).grid(), *wrapped))


def headline_table(contest: Contest) -> Table:
    """Success beyond reflex, then the columns of the main table that are shown here."""
    main = findings.main_table(contest)
    main = main.select([place for place, column in enumerate(main.columns) if column.name in SHOWN])
    table = strata.strata_table(contest)
    if table is None:
        return main
    first = strata.beyond_reflex(table)
    known = {row.cells[0]: row.cells[1:] for row in main.rows}
    nothing = (None,) * (len(main.columns) - 1)
    rows = [
        replace(row, cells=row.cells + known.get(row.cells[0], nothing))
        for row in first.rows
        if row.cells[0] in known or any(cell is not None for cell in row.cells[1:])
    ]
    return replace(main, columns=first.columns + main.columns[1:], rows=tuple(rows))


def put(readme: str, text: str) -> str:
    """The README with this between its markers."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md needs one line {BEGIN} and one line {END}")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"
