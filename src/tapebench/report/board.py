"""The leaderboard as a page: a table for every exam, episodes to watch, and what was refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import numpy as np

from tapebench.exam import bounds, by_stratum
from tapebench.report import page
from tapebench.report.contests import Contest
from tapebench.report.tables import AGENT, CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.runs.board import Board, Refusal, Standing, row_success, watched
from tapebench.runs.board import Row as BoardRow
from tapebench.tasks.folds import NAMES as FOLDS

TITLE = "TAPE leaderboard"


def render(board: Board) -> str:
    """The board as one HTML file."""
    count = sum(len(standing.rows) for standing in board.standings)
    bundles = sum(len(row.entries) for standing in board.standings for row in standing.rows)
    lead = (
        f"{count} row{'s' if count != 1 else ''} of {bundles} bundles, every action of them "
        "replayed. Does an agent generalise to laws it has never seen? Rows are in the order of "
        "success on unseen rules that take more than flipping ones; click a name to watch its "
        "episodes."
    )
    if board.refused:
        lead += f' <a href="#refused">Refused: {len(board.refused)}.</a>'
    parts = [
        f"<h1>{TITLE}</h1><p class=lead>{lead}</p>",
        *map(_section, board.standings),
        _about(),
        _refused(board.refused),
    ]
    documents = [_document(standing) for standing in board.standings]
    return page.assemble(TITLE, "\n".join(parts), {"contests": documents}, "report.js")


def table(standing: Standing) -> Table:
    """The rows of a standing, and what bounds them."""
    rows = []
    for rank, row in zip(standing.ranks(), standing.rows, strict=True):
        figures = row.figures
        cells: list[Cell] = [row.label, None if rank is None else str(rank)]
        if figures is None:
            cells += [None, _how(row), *([None] * 5)]
        else:
            cells += [figures.unseen, _how(row), figures.seen, figures.cost]
            cells += [figures.above_memoryless, figures.below_blind_ceiling, figures.below_ceiling]
        rows.append(Row(tuple(cells), REFERENCE if row.is_reference else AGENT))
    for name, level in standing.levels.items():
        means = [float(level[rules].mean()) for rules in standing.sides.values()]
        unseen, seen = (None if np.isnan(mean) else mean for mean in means)
        rows.append(Row((name, None, unseen, "", seen, *([None] * 4)), CEILING))
    is_over_folds = len(standing.track.splits) > 1
    count = int(standing.sides["unseen"].sum())
    held_out = "held out by one fold and trained on by the others" if is_over_folds else "held out"
    players = (
        "; memoryless and bayes-optimal among them play for all rules of the exam"
        if any(row.is_reference for row in standing.rows)
        else ""
    )
    return Table(
        f"{_slug(standing)}-board",
        "Strict success on unseen beyond-reflex rules",
        f"{count} beyond-reflex rules, {held_out}, from "
        f"{standing.exam.num_columns} start tapes each, with 95% intervals over rules and start "
        "tapes. Cost of unseen: seen − unseen on the same rules and tapes. The last three columns "
        "are the gaps of unseen to the bounds at the bottom, on the rules of the row. References "
        f"are not ranked{players}. "
        f"{by_stratum.about(standing.exam)} {bounds.ABOUT}",
        (
            Column("agent"),
            Column("rank"),
            Column("unseen"),
            Column("how it was made"),
            Column("seen"),
            Column("cost of unseen", signed=True),
            Column("− memoryless", signed=True),
            Column("blind ceiling −", signed=True),
            Column("ceiling −", signed=True),
        ),
        tuple(rows),
    )


def _how(row: BoardRow) -> str:
    """How a row was made, and why it is not ranked."""
    why = [f"not ranked: {row.unranked}"]
    is_said = not row.unranked or row.is_reference or row.unranked == row.made
    return "; ".join([row.made, *row.remarks, *([] if is_said else why)])


def _slug(standing: Standing) -> str:
    return re.sub(r"[^a-z0-9._+-]", "-", f"{standing.track.label}-{standing.exam.name}".lower())[
        :80
    ]


def _section(standing: Standing) -> str:
    slug, task = _slug(standing), standing.exam.task
    is_over_folds = standing.exam.split in FOLDS
    whose = (
        "Under each rule success and episodes are those of the bundle that held it out; of a row "
        "with missing folds those of one that had seen it. "
        if is_over_folds
        else ""
    )
    first = int(standing.headline.argmax())
    return (
        f"<section class=contest><h2>{escape(standing.title)}: {task.space.title}, "
        f"H = {task.horizon}</h2>"
        f'<div class=board data-contest="{slug}" data-first="{first}">'
        f"{page.table_html(table(standing))}</div>"
        f'<h3 id="watch-{slug}">Rule by rule</h3><p class=note>{whose}</p>'
        f'<div class=explorer data-contest="{slug}">'
        "<noscript>The explorer of rules and episodes needs JavaScript.</noscript></div></section>"
    )


def _document(standing: Standing) -> dict[str, object]:
    """A standing as the explorer reads it."""
    contest = Contest("board", _slug(standing), standing.exam, (), standing.optimal_steps, {})
    scores, episodes = {}, {}
    for row in standing.rows:
        unseen, seen = (side.mean(axis=1) for side in row_success(row.entries))
        scores[row.label] = np.where(np.isnan(unseen), seen, unseen)
        episodes[row.label] = watched(row.entries)
    document = page.explorer(contest, scores, episodes)
    if standing.exam.split in FOLDS:
        for rule in document["rules"]:
            rule["side"] = "ood"
    return document


def _refused(refused: Sequence[Refusal]) -> str:
    if not refused:
        return ""
    items = "".join(
        f"<li><code>{escape(refusal.file)}</code> {escape(refusal.reason)}</li>"
        for refusal in refused
    )
    return (
        f"<section id=refused class=failed><h2>Refused: {len(refused)}</h2>"
        f"<ul>{items}</ul></section>"
    )


def _about() -> str:
    kinds = {
        "run by us": "we ran the agent ourselves; known by the hash of its actions, which the "
        "package lists",
        "outcomes replayed, blindness declared": "what came of the actions is proved, by replaying "
        "them. That they were chosen without knowing the rule, by agents trained without the rules "
        "held out, is what its author says",
        "pools rows": "actions in one episode depended on other episodes; not ranked",
        "saw the rule": "its author says that it was told the rule; not ranked",
    }
    listed = "".join(
        f"<dt>{escape(kind)}</dt><dd>{escape(what)}</dd>" for kind, what in kinds.items()
    )
    return f"<section><h2>How a row was made</h2><dl>{listed}</dl></section>"
