"""The README's headline: its table and its picture.

    python tools/headline.py            # from the published results
    python tools/headline.py runs       # from a results directory

Takes the runs of `tape bench --track full` if there are any, else those of `--track lite`, writes
`docs/headline.svg` and what stands between the markers in the README. The same runs give the same
bytes, and a test fails when the README does not show the published ones. Nothing is trained here,
and agents without finished runs are named below the table; references are run if they have not
been, and kept beside the runs as `tape bench` keeps them.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapebench.base import files
from tapebench.exam import baselines
from tapebench.experiments import unseen
from tapebench.experiments.api import Scale
from tapebench.experiments.unseen import UNSEEN
from tapebench.pages import claims
from tapebench.report import contests as results
from tapebench.report import findings
from tapebench.report.contests import Contest
from tapebench.report.tables import Table
from tapebench.runs import published, tracks

ROOT = Path(__file__).parents[3]
"""The checkout that the documents are in."""
BEGIN, END = "<!-- headline: begin -->", "<!-- headline: end -->"
PICTURE = Path("docs") / "headline.svg"

TRACKS = ("full", "lite")
"""The tracks that a headline can be made of, the better first."""

SHOWN = ("agent", "ID success", "OOD success", "drop", "seeds")
"""Columns of the report's main table that the README has room for."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Write the picture and the README of the repository at `root`, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, nargs="?", help="by default the published ones")
    try:
        place = parser.parse_args(arguments).results or published.directory()
        contest, track = find(place)
        readme = root / "README.md"
        text = put(readme.read_text(), describe(contest, track, place))
        files.write_bytes(root / PICTURE, findings.success_picture(contest).svg)
        files.write_text(readme, text)
    except ValueError as error:
        print(f"headline: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"{contest.title}: README.md and {PICTURE}")


def find(place: Path) -> tuple[Contest, tracks.Track]:
    """The runs of the best track that has any, on the track's own exam, and references."""
    if not place.is_dir():
        raise ValueError(f"there is no results directory {place}: make bench makes runs")
    contests = results.read(place).contests
    for name in TRACKS:
        track = tracks.get_track(name)
        contest = results.find(contests, name, track.exam())
        if contest:
            return replace(contest, baselines=baselines.load_or_run(contest.exam, place)), track
    raise ValueError(
        f"there are no finished runs of the tracks {' or '.join(TRACKS)} in {place}: "
        f"tape bench --track {TRACKS[-1]} --results {place} makes them"
    )


def describe(contest: Contest, track: tracks.Track, place: Path) -> str:
    """What stands between the markers."""
    exam, task = contest.exam, contest.exam.task
    absent = [name for name in track.agents if name not in {e.agent for e in contest.entries}]
    made = (
        f"Track `{track.name}`, version {track.version}: split `{exam.split}`, "
        f"L = {task.length}, H = {task.horizon}, {track.steps:,} steps of training, "
        f"{len(exam.rows('id'))} ID and {len(exam.rows('ood'))} OOD rules with {exam.episodes} "
        f"start tapes each. {findings.OVER_SEEDS} {findings.MARKS} {findings.BESIDE} "
        f"{findings.EXACT}{findings.about_seatings(contest)}"
    )
    if absent:
        made += f" Not finished: {', '.join(absent)}."
    made += (
        f" `tape bench --track {track.name}` makes the runs, `python tools/headline.py` puts those "
        "that are published here."
    )
    seen = "Strict success of every agent on both sides, beside references and the exact ceiling"
    picture = f"![{seen}]({PICTURE.as_posix()})"
    told = [made]
    costs, longer = (unseen.costs(Scale(one), place) for one in (track, tracks.get_track("long")))
    if costs:
        told.append(
            f"A drop compares different rules. {claims.about_costs(costs, longer)} "
            f"`tape reproduce {UNSEEN} --track {track.name} --published` shows it"
            + (", with `--track long` the last." if longer else ".")
        )
    wrapped = [
        textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False) for part in told
    ]
    return "\n\n".join((picture, shorten(findings.main_table(contest)).grid(), *wrapped))


def shorten(table: Table) -> Table:
    """The main table with the columns that are shown here."""
    places = [place for place, column in enumerate(table.columns) if column.name in SHOWN]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(
            replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows
        ),
    )


def put(readme: str, text: str) -> str:
    """The README with this between its markers."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md needs one line {BEGIN} and one line {END}")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"
