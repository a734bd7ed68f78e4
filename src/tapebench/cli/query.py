"""`tape query|power`: ask stored runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tapebench.cli.console import open_results, report


@dataclass(frozen=True)
class Query:
    """Query stored results in SQL: tables runs, eval, curve and train. Read-only.

    For example:
      tape query "select agent, avg(ood_success) from runs group by agent"
      tape query "select step, avg(success) from curve group by step order by step" --json
    """

    sql: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SQL")]
    """One select statement."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Results directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        stored = open_results(self.results)
        names, rows = stored.query(self.sql)
        if self.json:
            print(json.dumps({"columns": names, "rows": rows}, default=str))
            return
        shown = [[_shown(value) for value in row] for row in rows]
        title = f"{len(rows)} rows from {len(stored.paths)} finished runs"
        report({}, False, title, names, shown)


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
