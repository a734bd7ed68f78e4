"""A page about results: the main table, learning curves, and how they were made.

Everything is in the one file, drawings included, so that it can be sent and kept. It is made of
plain values: no JAX, no agents, no results directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from itertools import pairwise

from tapebench.stats import Interval

SIDES = {"id": "ID: rules seen in training", "ood": "OOD: held-out rules"}


NOTE = """<span class=id>●</span> ID, <span class=ood>●</span> OOD. Mean over seeds with 95%
intervals: Student’s t below ten seeds, a bootstrap of whole seeds from ten on. References need no
training; <i>greedy</i> and <i>mpc</i> know the rule. The ceiling is exact: the share of start tapes
from which any policy can succeed."""


@dataclass(frozen=True)
class Row:
    """A line of the main table. Without training there are no intervals, only their means."""

    name: str
    kind: str
    """`agent`, `reference` or `ceiling`."""
    id: Interval | None = None
    ood: Interval | None = None
    drop: Interval | None = None
    normalised: float | None = None
    """OOD success as a share of what is possible."""
    seeds: int = 0
    wanted: int = 0
    seconds: float | None = None
    """Mean wall-clock of a run."""


@dataclass(frozen=True)
class Curve:
    """An agent's success in the course of training."""

    name: str
    steps: tuple[int, ...]
    id: tuple[Interval, ...]
    ood: tuple[Interval, ...]


@dataclass(frozen=True)
class Page:
    """All that is on the page."""

    title: str
    about: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    failures: tuple[tuple[str, str], ...] = ()


COLUMNS = ("", "ID success", "OOD success", "drop", "of ceiling", "seeds", "per run")


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of `COLUMNS`."""
    return (
        row.name,
        shown(row.id, row.kind),
        shown(row.ood, row.kind),
        shown(row.drop, row.kind, sign="+"),
        "" if row.normalised is None else f"{100 * row.normalised:.0f}%",
        f"{row.seeds}/{row.wanted}" if row.kind == "agent" else "",
        "" if row.seconds is None else f"{row.seconds:,.0f} s",
    )


def shown(interval: Interval | None, kind: str, sign: str = "") -> str:
    """A mean, and its interval if there is one."""
    if interval is None:
        return "–"
    if kind != "agent" or interval.low == interval.high:
        return f"{interval.mean:{sign}.3f}"
    return f"{interval.mean:{sign}.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def render(page: Page) -> str:
    """The page as HTML."""
    parts = [
        f"<h1>{escape(page.title)}</h1>",
        f"<p class=lead>{escape(page.about)}</p>",
        _failures(page.failures),
        "<h2>Strict success</h2>",
        f"<div class=wide>{_table(page.rows)}</div>",
        f"<p class=note>{NOTE}</p>",
    ]
    if page.curves:
        parts.append("<h2>Learning curves</h2>")
        parts.append(_legend(page.curves))
        drawn = "".join(
            f"<figure><figcaption>{title}</figcaption>{_plot(page, side)}</figure>"
            for side, title in SIDES.items()
        )
        parts.append(f"<div class=plots>{drawn}</div>")
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in page.facts)
    parts.append(f"<h2>How it was made</h2><dl>{facts}</dl>")
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{_style()}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


@cache
def _style() -> str:
    return resources.files("tapebench").joinpath("data/report.css").read_text()


def _failures(failures: Sequence[tuple[str, str]]) -> str:
    if not failures:
        return ""
    items = "".join(
        f"<li><code>{escape(run)}</code> {escape(reason)}</li>" for run, reason in failures
    )
    return f"<section class=failed><h2>Failed: {len(failures)}</h2><ul>{items}</ul></section>"


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in (*COLUMNS[:3], "", *COLUMNS[3:]))
    top = _top(rows)
    lines = []
    for number, row in enumerate(rows):
        first = number and rows[number - 1].kind != row.kind
        texts = [escape(text) for text in cells(row)]
        texts.insert(3, _bars(row, top))
        tag = "".join(
            f"<th scope=row>{text}</th>" if place == 0 else f"<td>{_dimmed(text)}</td>"
            for place, text in enumerate(texts)
        )
        lines.append(f'<tr class="{row.kind}{" first" if first else ""}">{tag}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _dimmed(text: str) -> str:
    mean, bracket, rest = text.partition(" [")
    return f"{mean} <small>[{rest}</small>" if bracket else text


def _top(rows: Sequence[Row]) -> float:
    """The end of the axis of success: a little above the highest of all."""
    ends = [side.high for row in rows for side in (row.id, row.ood) if side is not None]
    return min(1.0, max([*ends, 0.1]) * 1.06)


def _bars(row: Row, top: float) -> str:
    """ID above OOD as dots with their intervals, on the axis that all rows share."""
    if row.id is None and row.ood is None:
        return ""
    width, parts = 150, ["<line class=axis x1=0 y1=24 x2=150 y2=24 />"]
    for y, side, interval in ((8, "id", row.id), (17, "ood", row.ood)):
        if interval is not None:
            low, mean, high = (
                width * max(0.0, min(1.0, value / top))
                for value in (interval.low, interval.mean, interval.high)
            )
            parts.append(f'<g class="{side}"><line x1={low:.1f} y1={y} x2={high:.1f} y2={y} />')
            parts.append(f"<circle cx={mean:.1f} cy={y} r=3.2 /></g>")
    return f'<svg class=bars viewBox="-4 0 158 26" aria-hidden=true>{"".join(parts)}</svg>'


def _legend(curves: Sequence[Curve]) -> str:
    names = "".join(
        f'<span><i class="c{number % 8}"></i>{escape(curve.name)}</span>'
        for number, curve in enumerate(curves)
    )
    return f"<p class=legend>{names}</p>"


def _plot(page: Page, side: str) -> str:
    """Success against steps: one line for each agent, dashes for what needs no training."""
    width, height, left, bottom, right = 520, 320, 44, 34, 92
    fixed = [(row.name, getattr(row, side)) for row in page.rows if row.kind != "agent"]
    known = [(name, interval.mean) for name, interval in fixed if interval is not None]
    ends = [point.high for curve in page.curves for point in getattr(curve, side)]
    top = min(1.0, max([mean for _, mean in known] + ends + [0.1]) * 1.06)
    last = max(curve.steps[-1] for curve in page.curves)

    def x(step: float) -> float:
        return left + (width - left - right) * step / last

    def y(value: float) -> float:
        return 10 + (height - 10 - bottom) * (1 - min(1.0, max(0.0, value)) / top)

    end = width - right
    parts = []
    for value in _ticks(top):
        parts.append(_across("grid", left, end, y(value)))
        parts.append(_label(f"{value:g}", left - 7, y(value) + 4, "end"))
    for step in _ticks(last):
        parts.append(_label(_count(step), x(step), height - bottom + 17, "middle"))
    parts += [_across("ref", left, end, y(mean)) for _, mean in known]
    places = _apart([y(mean) for _, mean in known], 12)
    for (name, _), place in zip(known, places, strict=True):
        parts.append(_label(name, end + 6, place + 4, "start", "dim"))
    for number, curve in enumerate(page.curves):
        if points := getattr(curve, side):
            parts.append(_band(curve.steps, points, number % 8, x, y))
    parts.append(_label("environment steps", (left + end) / 2, height - 2, "middle", "dim"))
    label = f"Strict success against environment steps, {SIDES[side]}"
    size = f'viewBox="0 0 {width} {height}"'
    return f'<svg {size} role=img aria-label="{label}">{"".join(parts)}</svg>'


def _across(kind: str, left: float, right: float, y: float) -> str:
    return f"<line class={kind} x1={left} y1={y:.1f} x2={right} y2={y:.1f} />"


def _label(text: str, x: float, y: float, anchor: str, kind: str = "ink") -> str:
    return f"<text class={kind} x={x:.1f} y={y:.1f} text-anchor={anchor}>{escape(text)}</text>"


def _band(
    steps: Sequence[int],
    points: Sequence[Interval],
    colour: int,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """A line through the means, on a band of the intervals."""
    across = [x(step) for step in steps]
    upper = [f"{a:.1f},{y(p.high):.1f}" for a, p in zip(across, points, strict=True)]
    lower = [f"{a:.1f},{y(p.low):.1f}" for a, p in zip(across, points, strict=True)]
    line = " ".join(f"{a:.1f},{y(p.mean):.1f}" for a, p in zip(across, points, strict=True))
    end = f"<circle cx={across[-1]:.1f} cy={y(points[-1].mean):.1f} r=2.6 />"
    return (
        f'<g class="c{colour}"><polygon points="{" ".join(upper + lower[::-1])}" />'
        f'<polyline points="{line}" />{end}</g>'
    )


def _ticks(top: float) -> list[float]:
    """Round values from 0 to at most `top`, four to eight of them."""
    size = 1.0
    while size > top:
        size /= 10
    while size * 10 <= top:
        size *= 10
    step = next(size * part for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if top / (size * part) <= 7)
    return [round(step * number, 10) for number in range(int(top / step + 1e-9) + 1)]


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Places of labels, moved down where they would overlap."""
    found = list(places)
    order = sorted(range(len(found)), key=lambda number: found[number])
    for before, number in pairwise(order):
        found[number] = max(found[number], found[before] + gap)
    return found


def _count(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:g}M"
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"
