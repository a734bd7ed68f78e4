"""`tape query|power`: ask stored runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from tapebench.cli.console import load_results, report


@dataclass(frozen=True)
class Query:
    """Ask stored results in SQL: tables runs, eval, curve and train. Read-only."""

    sql: tyro.conf.Positional[str]
    """For example: select agent, avg(ood_success) from runs group by agent"""
    results: Path = Path("runs")
    """Results directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        found = load_results(self.results)
        names, rows = found.query(self.sql)
        if self.json:
            print(json.dumps({"columns": names, "rows": rows}, default=str))
            return
        shown = [[_shown(value) for value in row] for row in rows]
        title = f"{len(rows)} rows from {len(found.paths)} finished runs"
        report({}, False, title, names, shown)


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Power:
    """How many seeds does it take to see a difference, going by the spread of stored runs?"""

    difference: float = 0.02
    """The difference in mean success that should be found."""
    metric: str = "ood_success"
    """A column of the table runs."""
    power: float = 0.8
    """Chance of finding it."""
    results: Path = Path("runs")
    """Results directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare

        rows = compare.power(load_results(self.results), self.metric, self.difference, self.power)
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
