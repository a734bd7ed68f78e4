"""A table as a value that reads the same in Markdown, LaTeX, CSV, HTML and a terminal.

The best of each ranked column is marked, and what cannot be told apart from it is marked with it: a
bold number alone in its column is a finding, several are a tie.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import files, frames
from tapebench.stats import Interval

Cell = str | int | float | Interval | None
"""Text, a number, a mean with its interval, or None for what is missing."""

BEST, SECOND = "best", "second"
MISSING = "–"
PROSE = 40
"""Letters from which a text is a sentence, and is broken into lines."""
PAGE = 50
"""Rows that fit on a page of LaTeX."""

AGENT, REFERENCE, CEILING = "agent", "reference", "ceiling"


@dataclass(frozen=True)
class Column:
    """What a column holds and how it is printed."""

    name: str
    digits: int = 3
    """Digits after the point, of numbers that are not whole."""
    better: str = ""
    """`high` or `low` if agents are ranked by this column, else empty."""
    signed: bool = False
    """Whether a plus sign is printed: differences."""
    never_zero: bool = False
    """Whether what is too small to be printed is said to be so: p values."""
    apart: frozenset[frozenset[str]] | None = None
    """Pairs of rows, by their first cells, that a corrected test tells apart; None where nothing
    was tested, and intervals that do not overlap count instead."""

    def __post_init__(self) -> None:
        if self.better not in ("", "high", "low"):
            raise ValueError(f"better is high, low or empty, not {self.better!r}")

    def number(self, value: float) -> str:
        """A number as this column prints it."""
        if not math.isfinite(value):
            return MISSING
        sign = "+" if self.signed else ""
        if isinstance(value, int):
            return f"{value:{sign},}"
        text = f"{value:{sign}.{self.digits}f}"
        if self.never_zero and not float(text):
            return f"< {10**-self.digits:.{self.digits}f}"
        return text if float(text) else f"{0.0:.{self.digits}f}"  # no minus before a zero

    def ends(self, interval: Interval) -> str:
        """The ends of an interval in brackets; nothing if it has no width."""
        if interval.low == interval.high or not math.isfinite(interval.low):
            return ""
        return f"[{self.number(interval.low)}, {self.number(interval.high)}]"


@dataclass(frozen=True)
class Row:
    """A line of a table. Only agents are ranked; references and ceilings are read beside them."""

    cells: tuple[Cell, ...]
    kind: str = AGENT
    """`agent`, `reference` or `ceiling`."""
    group: str = ""
    """Agents are ranked within a group, such as a kind of network."""


@dataclass(frozen=True)
class Table:
    """Columns and rows with a name for files, a title, and a caption that says what is measured.

    The caption is the contract of the numbers: mean over what, interval of what, lower or higher.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", self.name):
            raise ValueError(f"a table's name is part of a file's name, not {self.name!r}")
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"a row of {self.name} has {len(row.cells)} cells "
                    f"for {len(self.columns)} columns: {row.cells[:1]}"
                )

    def select(self, places: Sequence[int]) -> Table:
        """The same table with these columns."""
        return replace(
            self,
            columns=tuple(self.columns[place] for place in places),
            rows=tuple(
                replace(row, cells=tuple(row.cells[place] for place in places)) for row in self.rows
            ),
        )

    @cached_property
    def marks(self) -> tuple[tuple[str, ...], ...]:
        """`best`, `second` or nothing, for each cell of each row.

        Agents of a group are taken from the best mean down. Best is the first, and all that follow
        it up to the first that can be told from it; second are the next ones in the same way. So no
        agent is passed over in favour of a worse one. With one agent there is no contest.
        """
        marks = [[""] * len(self.columns) for _ in self.rows]
        groups = {row.group for row in self.rows if row.kind == AGENT}
        for place, column in enumerate(self.columns):
            for group in groups if column.better else ():
                for number, mark in self._marks_of(place, group).items():
                    marks[number][place] = mark
        return tuple(map(tuple, marks))

    def _marks_of(self, place: int, group: str) -> dict[int, str]:
        """The marks of a ranked column among the agents of a group, by number of row."""
        column = self.columns[place]
        sign = 1 if column.better == "high" else -1
        ends = {
            number: _ends(row.cells[place], sign)
            for number, row in enumerate(self.rows)
            if row.kind == AGENT and row.group == group and _is_number(row.cells[place])
        }
        if len(ends) < 2:
            return {}

        def is_apart(leader: int, other: int) -> bool:
            if column.apart is None:
                return ends[other].high < ends[leader].low
            return frozenset(str(self.rows[n].cells[0]) for n in (leader, other)) in column.apart

        marks: dict[int, str] = {}
        left = sorted(ends, key=lambda number: -ends[number].mean)
        for mark in (BEST, SECOND):
            count = next((n for n, other in enumerate(left) if is_apart(left[0], other)), len(left))
            marks |= dict.fromkeys(left[:count], mark)
            left = left[count:]
        return marks

    def texts(self) -> list[tuple[str, ...]]:
        """Every cell as plain text, row by row."""
        return [
            tuple(
                _plain(column, cell) for column, cell in zip(self.columns, row.cells, strict=True)
            )
            for row in self.rows
        ]

    def markdown(self) -> str:
        """The table in GitHub's Markdown, with title and caption."""
        return f"**{_markdown(self.title)}**\n\n{self.grid()}\n\n{self.caption}\n"

    def grid(self) -> str:
        """Its rows in GitHub's Markdown: best in bold, second in italics."""
        kinds = [self._is_numeric(place) for place in range(len(self.columns))]
        lines = [
            "| " + " | ".join(_markdown(column.name) for column in self.columns) + " |",
            "| " + " | ".join("---:" if is_number else "---" for is_number in kinds) + " |",
        ]
        around = {BEST: "**", SECOND: "_", "": ""}
        for row, marks in zip(self.rows, self.marks, strict=True):
            cells = []
            for column, cell, mark in zip(self.columns, row.cells, marks, strict=True):
                number, ends = _halves(column, cell)
                wrapped = f"{around[mark]}{_markdown(number)}{around[mark]}"
                cells.append(f"{wrapped} {ends}".strip())
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def latex(self) -> str:
        r"""A table for `\usepackage{booktabs}`: best in bold, second underlined.

        A float, or with more rows than fit on a page a `longtable` (`\usepackage{longtable}`).
        """
        setting = {"": "r", "text": "l", "text prose": r"p{0.3\linewidth}"}
        kinds = "".join(setting[self._kind(place)] for place in _range(self.columns))
        head = " & ".join(_latex(column.name) for column in self.columns)
        around = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}", "": "%s"}
        lines, before = [], None
        for row, marks in zip(self.rows, self.marks, strict=True):
            if before is not None and before != row.kind:
                lines.append(r"\midrule")
            before = row.kind
            cells = []
            for column, cell, mark in zip(self.columns, row.cells, marks, strict=True):
                number, ends = _halves(column, cell)
                small = rf" {{\scriptsize {_latex(ends)}}}" if ends else ""
                cells.append(around[mark] % _latex(number) + small)
            lines.append(" & ".join(cells) + r" \\")
        body = "\n".join(lines)
        caption = f"\\caption{{{_latex(self.title)}. {_latex(self.caption)}}}"
        label = f"\\label{{tab:{self.name}}}"
        top = f"\\toprule\n{head} \\\\\n\\midrule\n"
        if len(self.rows) > PAGE:
            return (
                f"\\begin{{longtable}}{{{kinds}}}\n{caption}{label} \\\\\n{top}\\endhead\n"
                f"\\bottomrule\n\\endfoot\n{body}\n\\end{{longtable}}\n"
            )
        return (
            f"\\begin{{table}}\n\\centering\n{caption}\n{label}\n"
            f"\\begin{{tabular}}{{{kinds}}}\n{top}{body}\n\\bottomrule\n"
            "\\end{tabular}\n\\end{table}\n"
        )

    def csv(self) -> str:
        """Full precision for programs: an interval takes three columns, what is missing is empty.

        The first column says what kind of row it is.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        wide = [
            any(isinstance(row.cells[place], Interval) for row in self.rows)
            for place in _range(self.columns)
        ]
        head = ["kind"]
        for column, is_wide in zip(self.columns, wide, strict=True):
            name = column.name or "name"
            head += [name, f"{name} low", f"{name} high"] if is_wide else [name]
        writer.writerow(head)
        for row in self.rows:
            line: list[str] = [row.kind]
            for cell, is_wide in zip(row.cells, wide, strict=True):
                line += _values(cell)[: 3 if is_wide else 1]
            writer.writerow(line)
        return out.getvalue()

    def as_columns(self) -> dict[str, np.ndarray]:
        """Full precision by name: an interval takes three columns, as in `csv`."""
        columns = {"kind": frames.column([row.kind for row in self.rows])}
        for place, described in enumerate(self.columns):
            cells = [row.cells[place] for row in self.rows]
            name = described.name or "name"
            if any(isinstance(cell, Interval) for cell in cells):
                ends = [_three(cell) for cell in cells]
                for end, values in zip(("", " low", " high"), zip(*ends, strict=True), strict=True):
                    columns[name + end] = frames.column(values)
            else:
                columns[name] = frames.column(cells)
        return columns

    def to_pandas(self) -> Any:
        """`as_columns` as a `pandas.DataFrame`."""
        return frames.to_pandas(self.as_columns())

    def to_polars(self) -> Any:
        """`as_columns` as a `polars.DataFrame`."""
        return frames.to_polars(self.as_columns())

    def html(self) -> str:
        """A `<table>` whose head holds buttons; the page's script sorts by what they say.

        Cells carry their number in `data-value`, so that sorting does not read printed digits.
        """
        kinds = [self._kind(place) for place in _range(self.columns)]
        classes = [f' class="{kind}"' if kind else "" for kind in kinds]
        head = "".join(
            f"<th scope=col{classes[place]}>"
            f"<button type=button>{escape(column.name) or '&nbsp;'}</button></th>"
            for place, column in enumerate(self.columns)
        )
        lines, before = [], None
        for row, marks in zip(self.rows, self.marks, strict=True):
            first = " first" if before not in (None, row.kind) else ""
            before = row.kind
            cells = []
            for place, (column, cell, mark) in enumerate(
                zip(self.columns, row.cells, marks, strict=True)
            ):
                number, ends = _halves(column, cell)
                text = escape(number)
                if mark:
                    text = f"<b class={mark}>{text}</b>"
                if ends:
                    text += f" <small>{ends}</small>"
                value = f' data-value="{_values(cell)[0]}"' if _is_number(cell) else ""
                kind = classes[place]
                tag = ("th scope=row", "th") if place == 0 else ("td", "td")
                cells.append(f"<{tag[0]}{kind}{value}>{text}</{tag[1]}>")
            lines.append(f'<tr class="{row.kind}{first}">{"".join(cells)}</tr>')
        return (
            f'<table class=sortable data-name="{self.name}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table>"
        )

    def save(self, place: Path) -> tuple[Path, ...]:
        """Write `NAME.md`, `NAME.tex` and `NAME.csv` into a directory that exists."""
        written = []
        for ending, text in (("md", self.markdown), ("tex", self.latex), ("csv", self.csv)):
            path = place / f"{self.name}.{ending}"
            files.write_text(path, text())
            written.append(path)
        return tuple(written)

    def _kind(self, place: int) -> str:
        """How a column is set: nothing for numbers, `text`, or `text prose` if it has sentences."""
        if self._is_numeric(place):
            return ""
        cells = [row.cells[place] for row in self.rows]
        is_prose = any(isinstance(cell, str) and len(cell) > PROSE for cell in cells)
        return "text prose" if is_prose else "text"

    def _is_numeric(self, place: int) -> bool:
        """Whether a column holds numbers: those are set to the right."""
        cells = [row.cells[place] for row in self.rows if row.cells[place] is not None]
        return not any(isinstance(cell, str) for cell in cells)


def _range(columns: Sequence[Column]) -> range:
    return range(len(columns))


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, Interval):
        return math.isfinite(cell.mean)
    return isinstance(cell, (int, float)) and math.isfinite(cell)


def _ends(cell: Cell, sign: int) -> Interval:
    """A cell as an interval in which more is better."""
    if not isinstance(cell, Interval):
        value = sign * float(cell)  # type: ignore[arg-type]
        return Interval(value, value, value)
    ends = sorted((sign * cell.low, sign * cell.high))
    return Interval(sign * cell.mean, *ends)


def _halves(column: Column, cell: Cell) -> tuple[str, str]:
    """A cell's number (or text) and the ends of its interval."""
    if cell is None:
        return MISSING, ""
    if isinstance(cell, str):
        return cell, ""
    if isinstance(cell, Interval):
        return column.number(cell.mean), column.ends(cell)
    return column.number(cell), ""


def _plain(column: Column, cell: Cell) -> str:
    return " ".join(_halves(column, cell)).strip()


def _values(cell: Cell) -> list[str]:
    """A cell for a program: mean, low and high, or the one value and two blanks."""
    if isinstance(cell, Interval):
        return [_digits(value) for value in (cell.mean, cell.low, cell.high)]
    if cell is None:
        return ["", "", ""]
    return [_inert(cell) if isinstance(cell, str) else _digits(cell), "", ""]


def _inert(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _three(cell: Cell) -> tuple[Cell, Cell, Cell]:
    """Mean, low and high of a cell; of a bare number the mean alone."""
    if isinstance(cell, Interval):
        return cell.mean, cell.low, cell.high
    return cell, None, None


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return ""
    return str(value) if isinstance(value, int) else repr(float(value))


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "ε": r"$\varepsilon$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "’": "'",
    "|": "$|$",
    "<": "$<$",
    ">": "$>$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {letter: "\\" + letter for letter in "&%$#_"}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
