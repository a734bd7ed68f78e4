"""`tape query|power`: ask stored runs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tapebench.cli.console import make_table, open_results, report, screen

RECORDS = 10
"""Rows shown of a result that is too wide for a table."""


@dataclass(frozen=True)
class Query:
    """Query stored results in SQL: tables runs, eval, curve and train. Read-only.

    A result that is too wide for the window is shown row by row, one column to a line.

    For example:
      tape query "select agent, avg(ood_success) from runs group by agent"
      tape query "select step, avg(success) from curve group by step order by step" --csv
    """

    sql: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SQL")]
    """One select statement."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory."""
    csv: bool = False
    """Print comma-separated values, with the names of the columns first."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        stored = open_results(self.results)
        names, rows = stored.query(self.sql)
        if self.json:
            print(json.dumps({"columns": names, "rows": rows}, default=str))
            return
        if self.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerows([names, *rows])
            return
        shown = [[_shown(value) for value in row] for row in rows]
        count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
        print_rows(f"{count} from {len(stored.paths)} finished runs", names, shown)


def print_rows(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows as a table if it fits, else the first of them as records."""
    console = screen()
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) <= console.width:
        report({}, False, None, names, rows)
        console.print(title, highlight=False)
        return
    for number, row in enumerate(rows[:RECORDS], 1):
        record = make_table("", "", title=f"row {number}")
        record.show_header = False
        for name, text in zip(names, row, strict=True):
            record.add_row(name, text)
        console.print(record)
    console.print(title, highlight=False)
    if len(rows) > RECORDS:
        console.print(
            f"the first {RECORDS} are shown: select fewer columns for a table, or use --csv",
            highlight=False,
        )


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Power:
    """How many seeds does it take to detect a difference, given the spread of stored runs?

    For example:
      tape power --difference 0.02
      tape power --metric id_success --difference 0.05 --power 0.9
    """

    difference: Annotated[float, tyro.conf.arg(metavar="D")] = 0.02
    """The true difference in mean success."""
    metric: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = "ood_success"
    """A column of the table runs."""
    power: Annotated[float, tyro.conf.arg(metavar="P")] = 0.8
    """Probability of detecting it."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare

        rows = compare.power(open_results(self.results), self.metric, self.difference, self.power)
        document = {"difference": self.difference, "metric": self.metric, "power": self.power}
        columns = ("experiment", "agent", "split", "seeds", "sd", "seeds needed", "power now")
        report(
            {**document, "agents": rows},
            self.json,
            f"Seeds per agent to find a difference of {self.difference:g} in {self.metric} "
            f"with power {self.power:g}",
            columns,
            [
                (
                    row["experiment"],
                    row["agent"],
                    row["split"],
                    str(row["seeds"]),
                    f"{row['sd']:.4f}",
                    str(row["seeds_needed"]),
                    f"{row['power_now']:.2f}",
                )
                for row in rows
            ],
        )
