"""The page: one file that opens from disk, with everything it shows inside it.

Tables and drawings are there as they are; what is clicked through (rules, episodes) is drawn by
the script from a JSON document in the page, see `document`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.exam import bounds
from tapebench.exam.exam import STANDARD, Exam
from tapebench.physics import exact, space
from tapebench.report import figures, moves
from tapebench.report.contests import Contest, Findings, knows_relatives, made_with, player
from tapebench.report.figures import Picture
from tapebench.report.findings import ranked
from tapebench.report.tables import Table
from tapebench.runs.board import WATCHED
from tapebench.tasks.universe import ELEMENTARY

SHOWN_TAPES = WATCHED
"""Start tapes for each rule whose episodes are put into the page."""

MOST_JUDGED = 20
"""Players whose moves are judged, the first ones: a fifth of a second each."""

SEARCHED_BY_SCRIPT = 16
"""Tapes up to this length are solved by the page's own script, move by move."""

OPEN = ("-strata", "-main")
"""Ends of the names of the tables that are open at first."""

SHORTEST = "a shortest way"
"""The name of episodes that take as few steps as can be."""

NO_CELL = 255
"""In encoded actions: the episode is over."""


@dataclass(frozen=True)
class Section:
    """A contest with all that is shown of it; or a set of them over folds, with its first."""

    contest: Contest
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    set_title: str = ""
    """Of a set; empty of a contest that stands for itself."""

    @property
    def title(self) -> str:
        return self.set_title or self.contest.title


@dataclass(frozen=True)
class Page:
    """All that is on the page."""

    title: str
    findings: Findings
    sections: tuple[Section, ...]
    illustrations: tuple[Picture, ...]
    failures: tuple[tuple[str, str], ...] = ()
    """Runs that failed, and why."""
    facts: tuple[tuple[str, str], ...] = field(default=())
    """How it was made, beyond what runs say themselves."""


def render(page: Page) -> str:
    """The page as HTML."""
    entries = [entry for contest in page.findings.contests for entry in contest.entries]
    runs = sum(len(entry.seeds) for entry in entries)
    agents = {entry.agent for entry in entries}
    lead = f"{runs} finished runs of {len(agents)} agents. " if runs else "No finished runs yet. "
    parts = [
        f"<h1>{escape(page.title)}</h1>",
        f"<p class=lead>{lead}Does an agent generalise to laws it has never seen, and if not, "
        "why? Everything on this page comes from stored results; nothing is loaded from "
        "elsewhere.</p>",
        _contents(page.sections, page.findings.missing),
        _failures(page.failures),
        *(_section(section) for section in page.sections),
        _missing(page.findings.missing),
        _illustrations(page.illustrations),
        _facts(page),
    ]
    document = {"contests": [explorer(section.contest) for section in page.sections]}
    return assemble(page.title, "\n".join(part for part in parts if part), document, "report.js")


def render_exhibit(
    title: str, lead: str, tables: Sequence[Table], pictures: Sequence[Picture]
) -> str:
    """Tables and figures of one experiment as a page of the same kind."""
    parts = [f"<h1>{escape(title)}</h1>", f"<p class=lead>{escape(lead)}</p>"]
    if pictures:
        parts.append(f"<div class=plots>{''.join(map(_figure, pictures))}</div>")
    parts += [f"<section>{table_html(table)}</section>" for table in tables]
    return assemble(title, "\n".join(parts), {"contests": []}, "report.js")


def assemble(title: str, body: str, document: Any, *scripts: str) -> str:
    """A whole HTML file: style, body, the JSON that scripts read, and the scripts.

    The policy in its head forbids the browser to load or send anything.
    """
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    code = "\n".join(map(asset, ("tape.js", *scripts)))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}img-src data:; '
        "connect-src 'self'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{asset('report.css')}</style></head>\n"
        f"<body><main>\n{body}\n</main>\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{code}</script></body></html>\n"
    )


@cache
def asset(name: str) -> str:
    """A shipped style or script."""
    return resources.files("tapebench").joinpath(f"web/{name}").read_text()


def _contents(sections: Sequence[Section], missing: Sequence[str]) -> str:
    if len(sections) < 2:
        return ""
    links = "".join(
        f'<li><a href="#{section.contest.slug}">{escape(section.title)}</a></li>'
        for section in sections
    )
    links += '<li><a href="#missing">What is missing</a></li>' if missing else ""
    return f"<nav aria-label=Experiments><ul>{links}</ul></nav>"


def _failures(failures: Sequence[tuple[str, str]]) -> str:
    if not failures:
        return ""
    items = "".join(
        f"<li><code>{escape(run)}</code> {escape(reason)}</li>" for run, reason in failures
    )
    return f"<section class=failed><h2>Failed: {len(failures)}</h2><ul>{items}</ul></section>"


def _illustrations(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    drawn = "".join(map(_figure, pictures))
    return f"<section id=about><h2>What is measured</h2><div class=plots>{drawn}</div></section>"


def _missing(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    items = "".join(f"<li>{escape(sentence)}.</li>" for sentence in missing)
    return f"<section id=missing class=missing><h2>What is missing</h2><ul>{items}</ul></section>"


def _section(section: Section) -> str:
    contest = section.contest
    blocks = [
        table_html(table) if table.name.endswith(OPEN) else _folded(table)
        for table in section.tables
    ]
    drawn = "".join(map(_figure, section.pictures))
    return (
        f'<section id="{contest.slug}" class=contest>'
        f"<h2>{escape(section.title)}</h2>{''.join(blocks)}"
        f"<h3>Figures</h3><div class=plots>{drawn}</div>"
        f"<h3>Rule by rule{f', {contest.exam.split}' if section.set_title else ''}</h3>"
        f'<div class=explorer data-contest="{contest.slug}">'
        "<noscript>The explorer of rules and episodes needs JavaScript.</noscript></div></section>"
    )


def table_html(table: Table) -> str:
    """A table with its title above and its caption below."""
    return (
        f"<h3>{escape(table.title)}</h3><div class=wide tabindex=0 role=region "
        f'aria-label="{escape(table.title)}">{table.html()}</div>'
        f"<p class=note>{escape(table.caption)}</p>"
    )


def _folded(table: Table) -> str:
    body = table_html(table).split("</h3>", 1)[1]
    return f"<details><summary>{escape(table.title)}</summary>{body}</details>"


def _figure(picture: Picture) -> str:
    kind, reach = (" class=broad", " tabindex=0") if picture.is_broad else ("", "")
    return (
        f"<figure{kind}><figcaption>{escape(picture.title)}</figcaption>"
        f"<div class=drawing{reach}>{figures.inline(picture)}</div>"
        f"<p class=note>{escape(picture.caption)}</p></figure>"
    )


def _facts(page: Page) -> str:
    """What was told, then what is known of the runs themselves."""
    about = [
        made
        for contest in page.findings.contests
        for entry in contest.entries
        for made in entry.provenance
        if made
    ]
    facts = dict(page.facts) | dict(made_with(about))
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items()
    )
    return f"<section><h2>How it was made</h2><dl>{listed}</dl></section>" if facts else ""


# What the script shows


def explorer(
    contest: Contest,
    scores: Mapping[str, np.ndarray] = MappingProxyType({}),
    episodes: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> dict[str, Any]:
    """A contest as the explorer reads it: rules, who reached what, and episodes to watch.

    By name there may be more agents than the contest has: the `scores` of some, `[R]`, and the
    `episodes` of some, cells `[R, SHOWN_TAPES, H]`.
    """
    exam, task = contest.exam, contest.exam.task
    family = exam.universe.family
    is_fixed = task.goal is not None and not task.noise and not task.schedule.switches
    is_plain = is_fixed and exam.trials == 1
    shown = min(SHOWN_TAPES, exam.num_columns) if is_plain else 0
    watched = (
        {**episodes, **_episodes(contest, shown), **_shortest(contest, shown)} if shown else {}
    )
    counts = _histograms(contest)
    listed = []
    for row, rule in enumerate(exam.rules):
        ceiling = float(contest.ceilings[row])
        listed.append(
            {
                "rule": int(rule),
                "label": family.label(int(rule)),
                "type": str(exam.types[row]),
                "side": str(exam.subsets[row]),
                **_relatives(exam, int(rule)),
                "ceiling": None if np.isnan(ceiling) else round(ceiling, 6),
                "steps": contest.optimal_steps[row].tolist(),
                "counts": counts.get(int(rule)),
            }
        )
    return {
        "slug": contest.slug,
        "world": {"family": family.name, "shape": list(task.space.shape)},
        "length": task.length,
        "horizon": task.horizon,
        "goal": None if task.goal is None else _bits(task.goal, task.length),
        "tapes": [_bits(space.to_int(words), task.length) for words in exam.tapes()[:shown]]
        if shown
        else [],
        "rules": listed,
        "scores": [
            *(
                {"name": name, "kind": "agent", "success": _rounded(success)}
                for name, success in scores.items()
            ),
            *(
                {
                    "name": entry.label,
                    "kind": "reference" if entry.is_reference else "agent",
                    "success": _rounded(entry.scores["success"].mean(axis=0)),
                }
                for entry in ranked(contest)
            ),
            *(
                {"name": name, "kind": "reference", "success": _rounded(line["success"])}
                for name, line in contest.baselines.items()
            ),
        ],
        "episodes": {name: _base64(cells) for name, cells in watched.items()},
        "judged": moves.encode(exam, dict(islice(watched.items(), MOST_JUDGED))),
        "not_judged": bounds.obstacle(exam),
    }


def _relatives(exam: Exam, rule: int) -> dict[str, int]:
    """Class and relatives of a rule, where they are known."""
    if not knows_relatives(exam):
        return {}
    known = exam.universe.features[rule]
    return {
        "wolfram": known.wolfram_class,
        "mirror": known.mirror,
        "complement": known.complement,
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]


def _bits(tape: int, length: int) -> str:
    """A tape as text, cell 0 first."""
    return f"{tape:0{length}b}"[::-1]


def _episodes(contest: Contest, shown: int) -> dict[str, np.ndarray]:
    """The cells of the first tapes, `[R, shown, H]`, by who flipped them; -1 after the end.

    A second bundle of the same name is numbered. Cells beyond 254 do not fit into a page: such
    tapes are too long to draw, and nothing is shown of them.
    """
    named: dict[str, np.ndarray] = {}
    for bundle in contest.bundles if contest.exam.task.length <= NO_CELL else ():
        name, number = player(bundle), 1
        while name in named:
            number += 1
            name = f"{player(bundle)} ({number})"
        named[name] = bundle.episodes.cells[:, :shown]
    return named


def _base64(cells: np.ndarray) -> str:
    """Cells as uint8 in base 64, `NO_CELL` after the end."""
    known = np.where(cells < 0, NO_CELL, cells).astype(np.uint8)
    return base64.b64encode(known.tobytes()).decode()


def _shortest(contest: Contest, shown: int) -> dict[str, np.ndarray]:
    """Shortest ways, where moves are judged, where they are searched for over classes of tapes and,
    at 32 cells, where proved ones are shipped.

    In between the script finds them.
    """
    exam = contest.exam
    if exam.universe.family != ELEMENTARY.family:
        is_searched = SEARCHED_BY_SCRIPT < exam.task.length <= exact.NUMPY_CELLS
        is_searched = is_searched and exam.task.goal == 0
        return {SHORTEST: moves.searched_ways(exam, shown)} if is_searched else {}
    if not bounds.obstacle(exam):
        return {SHORTEST: moves.shortest_ways(exam, shown)}
    if exam.task.length != exact.MAX_LENGTH or exam.name != STANDARD or exam.task.goal != 0:
        return {}
    cells = np.full((len(exam.rules), shown, exam.task.horizon), -1)
    for row, rule in enumerate(exam.rules):
        answer = exact.exam_answers().get(int(rule))
        if answer is None or answer["exam_version"] != seeding.EXAM_VERSION:
            continue
        for column, way in enumerate(answer["exam_witnesses"][:shown]):
            if way is not None and len(way) <= exam.task.horizon:
                cells[row, column, : len(way)] = way
    return {SHORTEST: cells}


def _histograms(contest: Contest) -> dict[int, list[int]]:
    """How many of all tapes need how many steps, for tapes that the script does not solve."""
    task = contest.exam.task
    is_plain = task.goal == 0 and not task.noise and not task.schedule.switches
    if task.length <= SEARCHED_BY_SCRIPT or not is_plain:
        return {}
    try:
        ceilings = contest.exam.universe.ceilings(task.length, task.horizon)
    except ValueError:
        return {}
    return {rule: list(reach.histogram) for rule, reach in ceilings.items()}
