"""Figures in one house style, and how they are written: SVG and PDF, the same bytes every time.

Functions take plain values and give a `Drawing`, which is drawn when it is needed; there is no
pyplot and no global state. Colours are those of Okabe and Ito, which colour-blind readers tell
apart; lines and points differ in dash and shape as well. Everything that is not data is drawn in
`INK`, `DIM` or `FAINT`, so that a page can exchange these for its own and show the same drawing in
the dark (`inline`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tapebench.base import files
from tapebench.report.drawing import Drawing, drawing
from tapebench.report.style import (
    DASHES,
    DIM,
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    TYPE_COLOURS,
    TYPE_MARKERS,
    styled,
)
from tapebench.stats import Interval, Profile
from tapebench.tasks.render import Spacetime as Episode

ACROSS = 2
"""Panels side by side before there is a second row."""


@dataclass(frozen=True)
class Picture:
    """A figure with what a page needs to say about it."""

    name: str
    """Of its files."""
    title: str
    caption: str
    """What is drawn and what the bands are; also what a reader hears who cannot see it."""
    drawing: Drawing

    @cached_property
    def svg(self) -> bytes:
        """For its file and for a page."""
        return self.drawing.render("svg")

    @property
    def is_broad(self) -> bool:
        """Whether it wants the whole width of a page: more than seven inches, of 72 points."""
        width = re.search(rb'<svg[^>]* width="([0-9.]+)pt"', self.svg)
        return width is not None and float(width[1]) > 7 * 72

    def save(self, place: Path, pdf: bool = False) -> Path:
        """Write `NAME.svg` into a directory that exists, and `NAME.pdf` if it is asked for.

        One of an earlier figure goes, since it would not be the same one.
        """
        svg, other = (place / f"{self.name}.{ending}" for ending in ("svg", "pdf"))
        files.write_bytes(svg, self.svg)
        if pdf:
            files.write_bytes(other, self.drawing.render("pdf"))
        else:
            other.unlink(missing_ok=True)
        return svg


# Lines


@dataclass(frozen=True)
class Series:
    """A line: its name, and a value or an interval at each x."""

    name: str
    x: tuple[float, ...]
    y: tuple[Interval | float, ...]


@dataclass(frozen=True)
class Panel:
    """Axes with lines on them."""

    title: str
    series: tuple[Series, ...]
    references: Mapping[str, float] | None = None
    """Levels that hold for every x, drawn across and named at the right."""


@drawing
def lines(
    panels: Sequence[Panel],
    *,
    x: str,
    y: str,
    bottom: float | None = 0.0,
    top: float | None = None,
    log: bool = False,
) -> Figure:
    """Lines with bands of their intervals, panels side by side with one scale of y.

    `x` and `y` are the labels of the axes, units included. `log` is for x. An agent has the same
    colour in every panel, by the order in which names first occur.
    """
    with styled():
        figure, axes = _side_by_side(len(panels), 4.7, 3.4)
        order = list(dict.fromkeys(line.name for panel in panels for line in panel.series))
        for axis, panel in zip(axes, panels, strict=True):
            axis.set_title(panel.title)
            axis.grid(axis="y")
            for line in panel.series:
                _draw_line(axis, line, order.index(line.name))
            if log:
                axis.set_xscale("log")
            elif all(float(place).is_integer() for line in panel.series for place in line.x):
                axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axis.xaxis.set_major_formatter(FuncFormatter(_count))
            axis.set_xlabel(x)
        for axis in axes[::ACROSS]:
            axis.set_ylabel(y)
        _same_scale(axes, bottom, top, [v for p in panels for v in (p.references or {}).values()])
        for axis, panel in zip(axes, panels, strict=True):
            _draw_references(axis, panel.references or {})
        _legend(figure, axes)
        return figure


def _draw_line(axis: Axes, line: Series, number: int) -> None:
    mean, low, high = (np.array(part) for part in zip(*map(_ends, line.y), strict=True))
    colour, dash = PALETTE[number % len(PALETTE)], DASHES[number // 2 % len(DASHES)]
    marker = MARKERS[number % len(MARKERS)] if len(line.x) <= 12 else ""
    axis.plot(line.x, mean, color=colour, ls=dash, marker=marker, ms=4, label=line.name)
    if (high > low).any():
        axis.fill_between(line.x, low, high, color=colour, alpha=0.15, lw=0)


def _draw_references(axis: Axes, levels: Mapping[str, float]) -> None:
    """Dotted lines across; their names at the right edge, moved apart where they would overlap."""
    known = sorted((value, name) for name, value in levels.items() if np.isfinite(value))
    low, high = axis.get_ylim()
    gap = 0.055 * (high - low)
    places: list[float] = []
    for value, _ in known:
        places.append(max(value, places[-1] + gap) if places else value)
    over = max(places[-1] - high, 0.0) if places else 0.0
    for (value, name), place in zip(known, places, strict=True):
        axis.axhline(value, color=DIM, lw=1.0, ls=(0, (1, 2)))
        axis.annotate(
            name,
            (1.0, place - over),
            (4, 0),
            axis.get_yaxis_transform(),
            "offset points",
            color=DIM,
            fontsize=8,
            va="center",
        )


# Dots


@drawing
def dots(
    rows: Mapping[str, Mapping[str, Interval | float]],
    *,
    x: str,
    colours: Mapping[str, str] | None = None,
    references: Mapping[str, float] | None = None,
) -> Figure:
    """A line for each name, on it a dot with its interval for each group, such as ID and OOD.

    `colours` are those of the groups, by default from the palette.
    """
    groups = list(dict.fromkeys(group for row in rows.values() for group in row))
    colours = colours or {group: PALETTE[n % len(PALETTE)] for n, group in enumerate(groups)}
    with styled():
        figure = Figure(figsize=(6.4, 0.9 + 0.34 * max(len(rows), 1)), layout="constrained")
        axis = figure.add_subplot()
        axis.grid(axis="x")
        for place, row in enumerate(rows.values()):
            for number, group in enumerate(groups):
                if group not in row:
                    continue
                mean, low, high = _ends(row[group])
                height = place + 0.22 * (number - (len(groups) - 1) / 2)
                axis.plot([low, high], [height, height], color=colours[group], lw=1.6)
                axis.plot(
                    [mean],
                    [height],
                    MARKERS[number % len(MARKERS)],
                    color=colours[group],
                    ms=5,
                    label=group if place == 0 else "_",
                )
        for name, value in (references or {}).items():
            axis.axvline(value, color=DIM, lw=1.0, ls=(0, (1, 2)), label=name)
        if axis.get_xlim()[0] > 0:
            axis.set_xlim(left=0)
        axis.set_yticks(range(len(rows)), list(rows))
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlabel(x)
        _legend(figure, [axis])
        return figure


# Rules


@dataclass(frozen=True)
class RulePoint:
    """What is drawn of one rule."""

    rule: int
    type: str
    value: float
    ceiling: float | None = None
    held_out: bool = False


@drawing
def rule_points(panels: Mapping[str, Sequence[RulePoint]], *, y: str, by: str = "type") -> Figure:
    """Each rule a point, coloured and shaped by type; a tick marks the best that is possible.

    Rules stand in the same order in every panel: by type, then by ceiling, then by their mean over
    the panels. What stands low under a high tick is failure, under a low one it is not. Held-out
    rules are filled, seen ones hollow. The axis calls types what `by` says.
    """
    everyone = [point for points in panels.values() for point in points]
    kinds = list(TYPE_COLOURS)
    means = {
        rule: float(np.mean([point.value for point in everyone if point.rule == rule]))
        for rule in {point.rule for point in everyone}
    }

    def order(point: RulePoint) -> tuple[float, ...]:
        ceiling = -1.0 if point.ceiling is None else point.ceiling
        return kinds.index(point.type), ceiling, means[point.rule], point.rule

    with styled():
        figure = Figure(figsize=(9.0, 0.4 + 2.1 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for axis, (title, points) in zip(axes, panels.items(), strict=True):
            axis.set_title(title)
            axis.grid(axis="y")
            axis.set_ylabel(y)
            _draw_points(axis, sorted(points, key=order))
        axes[-1].set_xlabel(f"rules, by {by} and then by exact ceiling")
        _legend(figure, [axes[0]])
        return figure


def _draw_points(axis: Axes, ranked: Sequence[RulePoint]) -> None:
    known = [(x, point.ceiling) for x, point in enumerate(ranked) if point.ceiling is not None]
    if known:
        axis.plot(*zip(*known, strict=True), "_", color=DIM, ms=3.2, mew=1.4, label="exact ceiling")
    for kind in TYPE_COLOURS:
        for held_out in (False, True):
            points = [
                (x, point.value)
                for x, point in enumerate(ranked)
                if point.type == kind and point.held_out == held_out
            ]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    TYPE_MARKERS[kind],
                    ms=4.5 if held_out else 3.6,
                    mfc=TYPE_COLOURS[kind] if held_out else "none",
                    mec=TYPE_COLOURS[kind],
                    mew=1.0,
                    label=f"{kind}, {'held out' if held_out else 'seen'}",
                )
    axis.set_xticks([])
    axis.set_xlim(-1, max(len(ranked), 1))
    axis.set_ylim(-0.04, 1.06)


# Distributions


@drawing
def boxes(groups: Mapping[str, Mapping[str, Sequence[float]]], *, y: str) -> Figure:
    """Box plots: a cluster for each name, in it a box for each group; every value is also a dot."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(len(groups), 1)
    with styled():
        size = 1.2 + 0.42 * max(len(names) * len(groups), 6)
        figure = Figure(figsize=(min(size, 12.0), 3.6), layout="constrained")
        axis = figure.add_subplot()
        axis.grid(axis="y")
        for number, (label, group) in enumerate(groups.items()):
            colour = PALETTE[number % len(PALETTE)]
            for place, name in enumerate(names):
                if not (values := list(group.get(name, ()))):
                    continue
                position = place + width * (number - (len(groups) - 1) / 2)
                axis.boxplot(
                    [values],
                    positions=[position],
                    widths=0.8 * width,
                    showfliers=False,
                    boxprops={"color": colour, "lw": 1.2},
                    whiskerprops={"color": colour},
                    capprops={"color": colour},
                    medianprops={"color": colour, "lw": 2.2},
                )
                axis.plot([position] * len(values), values, ".", color=colour, alpha=0.6, ms=4)
            axis.plot([], [], color=colour, lw=2.2, label=label)
        axis.set_xticks(range(len(names)), names)
        axis.set_xlim(-0.6, len(names) - 0.4)
        axis.set_ylabel(y)
        _legend(figure, [axis])
        return figure


def profiles(panels: Mapping[str, Mapping[str, Profile]]) -> Drawing:
    """Performance profiles: the share of runs × rules that score above each threshold."""
    drawn = [
        Panel(
            title,
            tuple(
                Series(
                    name,
                    tuple(profile.thresholds.tolist()),
                    tuple(
                        map(
                            Interval,
                            profile.share.tolist(),
                            profile.low.tolist(),
                            profile.high.tolist(),
                        )
                    ),
                )
                for name, profile in named.items()
            ),
        )
        for title, named in panels.items()
    ]
    return lines(drawn, x="success above", y="share of runs × rules")


@drawing
def heat(
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    x: str,
    y: str,
    label: str,
    title: str = "",
    digits: int = 2,
) -> Figure:
    """A matrix `[R, C]` as shades with the numbers in them; nan is left blank."""
    matrix = np.asarray(values, float)
    with styled():
        size = (2.0 + 0.62 * len(columns), 1.3 + 0.36 * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        axis = figure.add_subplot()
        shades = LinearSegmentedColormap.from_list("house", ["#f3f6f8", PALETTE[0]])
        low, high = np.nanmin(matrix), np.nanmax(matrix)
        mesh = axis.pcolormesh(matrix, cmap=shades, vmin=low, vmax=high, edgecolors=PAPER, lw=1.5)
        for (row, column), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                is_dark = value - low > 0.92 * (high - low)  # else black has more contrast
                axis.text(
                    column + 0.5,
                    row + 0.5,
                    f"{value:.{digits}f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if is_dark else "#000001",
                )
        axis.set_xticks(np.arange(len(columns)) + 0.5, columns)
        axis.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axis.tick_params(length=0)
        axis.invert_yaxis()
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.set_title(title)
        figure.colorbar(mesh, ax=axis, label=label)
        return figure


# Tapes


@drawing
def spacetimes(
    episodes: Sequence[Episode], *, across: int = 3, side: float = 2.6, legend: bool = False
) -> Figure:
    """Space-time diagrams: time runs down, ones are dark, the cell flipped in a row is marked.

    Tapes are `side` inches wide. With a `legend` the figure says so itself; a page says it below.
    """
    with styled():
        across = min(across, len(episodes))
        down = -(-len(episodes) // across)
        tallest = max(len(episode.tapes) for episode in episodes)
        widest = max(len(episode.tapes[0]) for episode in episodes)
        height = min(side * tallest / widest, 2 * side)
        figure = Figure(
            figsize=((side + 0.3) * across, down * (height + 0.75 + 0.35 * legend)),
            layout="constrained",
        )
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for axis, episode in zip(axes, episodes, strict=False):
            axis.set_title(f"{episode.title}\n", pad=2)
            axis.text(0, 1.02, episode.subtitle, transform=axis.transAxes, fontsize=8, color=DIM)
            draw_tapes(axis, episode.tapes, episode.cells)
            axis.set_ylim(tallest, 0)
            axis.set_xlabel("cell")
        for axis in axes[len(episodes) :]:
            axis.set_axis_off()
        axes[0].set_ylabel("step")
        if legend:
            handles = [
                Patch(facecolor=INK, edgecolor=DIM, label="one"),
                Patch(facecolor=PAPER, edgecolor=DIM, label="zero"),
            ]
            if any(episode.cells for episode in episodes):
                handles.append(Patch(facecolor=PALETTE[4], label="flipped by the agent"))
            figure.legend(handles=handles, loc="outside lower center", ncols=3)
        return figure


def draw_tapes(axis: Axes, tapes: Any, cells: Sequence[int] = ()) -> None:
    """Tapes `[T + 1, L]` on axes as one outline; `cells[t]` is marked in row t where it is not -1.

    An outline and not a picture: it stays sharp, stays small, and takes the colour of the page.
    """
    tapes = np.asarray(tapes)
    edges = np.diff(np.pad(tapes.astype(np.int8), ((0, 0), (1, 1))))
    (row, left), right = np.nonzero(edges == 1), np.nonzero(edges == -1)[1]
    axis.add_patch(_boxes(row, left, right, 0.0, INK))
    marked = [(t, cell) for t, cell in enumerate(cells) if cell >= 0]
    row, left = np.array(marked, int).reshape(-1, 2).T
    axis.add_patch(_boxes(row, left, left + 1, 0.22, PALETTE[4]))
    axis.set_xlim(0, tapes.shape[1])
    axis.set_ylim(len(tapes), 0)
    axis.set_aspect("equal")
    for spine in axis.spines.values():
        spine.set_visible(True)
        spine.set_color(FAINT)
    for part in (axis.xaxis, axis.yaxis):
        part.set_major_locator(MaxNLocator(4, integer=True))


def _boxes(
    row: np.ndarray, left: np.ndarray, right: np.ndarray, inset: float, colour: str
) -> PathPatch:
    """Boxes one row high, from `left` to `right`, all in one outline."""
    x0, x1, y0, y1 = left + inset, right - inset, row + inset, row + 1 - inset
    points = np.stack([x0, y0, x1, y0, x1, y1, x0, y1, x0, y0], axis=-1).reshape(-1, 2)
    outline = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    codes = np.tile(outline, len(row))
    return PathPatch(Outline(points, codes), facecolor=colour, edgecolor="none")


# Writing


def save(drawing: Drawing, stem: Path) -> tuple[Path, Path]:
    """Write `STEM.svg` and `STEM.pdf`, each aside and then renamed; the same bytes every time."""
    Picture(stem.name, "", "", drawing).save(stem.parent, pdf=True)
    return stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.pdf")


def inline(picture: Picture) -> str:
    """A figure as an `<svg>` element for a page: scales, has a label, and takes its colours.

    The colours of this module become custom properties (`--ink`, `--c0`, ...) with themselves to
    fall back on, so a page that defines them for light and dark recolours every drawing.
    """
    text = picture.svg.decode()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    referred = set(re.findall(r"#([\w-]+)[\")]", text))
    text = re.sub(r' id="([\w.-]+)"', lambda match: match[0] if match[1] in referred else "", text)
    own = {INK: "ink", DIM: "dim", FAINT: "line", PAPER: "paper"}
    own |= {colour: f"c{number}" for number, colour in enumerate(PALETTE)}
    for colour, name in own.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    label = picture.caption.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    width = float(box[0].split()[2])
    start = text.index(">") + 1
    head = f'<svg {box[0]} role="img" aria-label="{label}" style="max-width:{width * 1.6:.0f}px"'
    return f'{head} xmlns:xlink="http://www.w3.org/1999/xlink">{text[start:]}'


# Pieces


def _ends(value: Interval | float) -> tuple[float, float, float]:
    if isinstance(value, Interval):
        return value.mean, value.low, value.high
    return float(value), float(value), float(value)


def _side_by_side(count: int, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    across = min(count, ACROSS)
    down = -(-count // across)
    figure = Figure(figsize=(width * across, height * down + 0.3), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, list(axes[:count])


def _same_scale(
    axes: Sequence[Axes], bottom: float | None, top: float | None, levels: Sequence[float]
) -> None:
    """One scale of y for all, from `bottom` to a little above the highest of all that is drawn."""
    limits = [axis.get_ylim() for axis in axes]
    known = [level for level in levels if np.isfinite(level)]
    lowest = min(low for low, _ in limits) if bottom is None else bottom
    highest = max([high for _, high in limits] + [1.06 * level for level in known])
    for axis in axes:
        axis.set_ylim(lowest, highest if top is None else top)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all, below; nothing where there is one thing to tell apart."""
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if len(handles) > 1:
        # Columns are as wide as their longest entry: about five points a letter, and its line.
        widest = 5.0 * max(map(len, handles)) + 45.0
        fitting = max(int(72.0 * figure.get_figwidth() / widest), 1)
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(len(handles), fitting, 5),
        )


def _count(number: float, _: Any = None) -> str:
    """An axis label: thousands and millions as letters."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
