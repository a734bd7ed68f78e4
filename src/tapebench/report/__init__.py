"""What results say: tables, figures and a page. Reads files and plain values, imports no JAX.

`tables` and `figures` know nothing of results: they turn values into something to paste.
`contests` reads a directory, `findings` says what is in it, `page` puts it together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapebench.report.page import Page
    from tapebench.report.tables import Table
    from tapebench.runs.board import Board


def __getattr__(name: str) -> ModuleType:
    if name != "results":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tapebench.report import contests

    message = "tapebench.report.results is called tapebench.report.contests now"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return contests


def make(
    root: Path,
    *,
    tracks: Sequence[str] = (),
    title: str = "TAPE report",
    failures: Sequence[tuple[str, str]] = (),
    facts: Sequence[tuple[str, str]] = (),
    bundles: Sequence[Path] = (),
    **options: Any,
) -> Page:
    """All that can be said of the finished runs under a directory, but for those of experiments.

    Where `tracks` are named, of theirs alone; `bundles` stand beside them. Other `options` are
    those of `contests.read`.
    """
    from tapebench.report import contests, findings, folds, illustrations, strata
    from tapebench.report.page import Page, Section
    from tapebench.tasks.universe import ELEMENTARY

    results = contests.read(root, settings=False, tracks=tracks, **options)
    results = contests.with_bundles(results, bundles)
    sets, others = folds.group(results.contests)
    sections = (
        *(
            Section(
                fold_set.first,
                tuple(folds.tables(fold_set)),
                tuple(folds.pictures(fold_set)),
                fold_set.title,
            )
            for fold_set in sets
        ),
        *(
            Section(contest, tuple(strata.tables(contest)), tuple(findings.pictures(contest)))
            for contest in others
        ),
    )
    # They are of elementary rules.
    shows_elementary = not sections or any(
        section.contest.exam.universe.family == ELEMENTARY.family for section in sections
    )
    return Page(
        title,
        results,
        sections,
        tuple(illustrations.all_pictures() if shows_elementary else ()),
        tuple(failures),
        tuple(facts),
    )


def published_tables(*tracks: str) -> dict[str, Table]:
    """Every table of the results that come with the package, by name; of all contests, or of these
    tracks."""
    from tapebench.base.names import one_of
    from tapebench.report import contests, folds, strata
    from tapebench.runs import published
    from tapebench.runs.tracks import tracks as registered

    for track in tracks:
        one_of("published track", track, (*published.CONTESTS, *registered()))
    results = contests.read(
        published.directory(), settings=False, tracks=tracks or published.CONTESTS, published=True
    )
    sets, others = folds.group(results.contests)
    tables = [table for fold_set in sets for table in folds.tables(fold_set)]
    tables += [table for contest in others for table in strata.tables(contest)]
    return {table.name: table for table in tables}


def write(
    page: Page,
    out: Path,
    progress: Callable[[Path], Any] = lambda path: None,
    *,
    pdf: bool = False,
) -> Path:
    """Write `index.html`, `tables/` and `figures/` into a directory; the path of the page.

    Figures are SVG, and with `pdf` PDF too. Files of an earlier report are replaced one by one,
    each whole, and those of contests that are no longer there are left.
    """
    from tapebench.base import files
    from tapebench.report.page import render

    places = {name: out / name for name in ("tables", "figures")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    for section in page.sections:
        for table in section.tables:
            progress(table.save(places["tables"])[0])
        for picture in section.pictures:
            progress(picture.save(places["figures"], pdf))
    for picture in page.illustrations:
        progress(picture.save(places["figures"], pdf))
    path = out / "index.html"
    files.write_text(path, render(page))
    return path


def write_board(board: Board, out: Path) -> Path:
    """Write a leaderboard, `index.html` and `board.json`, into a directory; where the page is."""
    from tapebench.base import files
    from tapebench.report.board import render

    out.mkdir(parents=True, exist_ok=True)
    files.write_json(out / "board.json", board.as_dict())
    path = out / "index.html"
    files.write_text(path, render(board))
    return path
