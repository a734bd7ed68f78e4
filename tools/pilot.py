"""Where does the law matter? Exact figures for small tasks, to choose the one of track `core`.

    python tools/pilot.py [--longest 12] [--kicks 256] [--sizes 9,4] [--out docs/results/pilot.json]

For each length up to the longest and each horizon up to the length: ceiling, blind ceiling and
what tape and time alone reach at least, over the rules that are not impossible there. What was
computed before is read from the file and not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tapebench.base import files
from tapebench.physics import bayes, memoryless
from tapebench.physics.strata import strata
from tapebench.tasks.universe import ELEMENTARY

SHORTEST = 4


def measure(length: int, horizon: int, kicks: int) -> dict[str, float]:
    """One size."""
    kinds = strata(ELEMENTARY.rules, length, horizon)
    rules = [rule for rule, kind in kinds.items() if kind != "impossible"]
    prior = bayes.parse_prior(rules)
    return {
        "length": length,
        "horizon": horizon,
        "rules": len(rules),
        "beyond_reflex": sum(kind == "beyond-reflex" for kind in kinds.values()),
        "ceiling": float(np.mean(bayes.ceilings(rules, length, horizon))),
        "blind_ceiling": bayes.solve(prior, length, horizon).blind_ceiling,
        "memoryless_at_least": memoryless.search(prior, length, horizon, kicks=kicks).value,
        "kicks": kicks,
    }


def show(rows: list[dict[str, float]]) -> None:
    """The table, the size where evidence is worth most first."""
    table = Table(
        *("cells", "steps", "rules", "beyond reflex", "ceiling", "blind ceiling", "memoryless ≥"),
        *("evidence ≤", "share of ceiling"),
    )

    def share(row: dict[str, float]) -> float:
        return (row["blind_ceiling"] - row["memoryless_at_least"]) / row["ceiling"]

    for row in sorted(rows, key=share, reverse=True):
        worth = row["blind_ceiling"] - row["memoryless_at_least"]
        reached = row["ceiling"], row["blind_ceiling"], row["memoryless_at_least"]
        figures = *reached, worth, share(row)
        counts = row["length"], row["horizon"], row["rules"], row["beyond_reflex"]
        table.add_row(*map(str, counts), *(f"{figure:.4f}" for figure in figures))
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact figures for small tasks.")
    parser.add_argument("--longest", type=int, default=12)
    parser.add_argument("--kicks", type=int, default=memoryless.KICKS)
    parser.add_argument("--sizes", nargs="*", default=[], help="only these, like 9,4 12,5")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pilot.json"))
    options = parser.parse_args()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    measured = {(row["length"], row["horizon"]) for row in rows if row["kicks"] >= options.kicks}
    for length in range(SHORTEST, options.longest + 1):
        for horizon in range(1, length + 1):
            if (length, horizon) in measured:
                continue
            if options.sizes and f"{length},{horizon}" not in options.sizes:
                continue
            print(f"{length} cells, {horizon} steps", flush=True)
            rows = [row for row in rows if (row["length"], row["horizon"]) != (length, horizon)]
            rows.append(measure(length, horizon, options.kicks))
            text = ",\n".join(json.dumps(row) for row in rows)
            files.write_bytes(options.out, f"[\n{text}\n]\n".encode())
    show(rows)


if __name__ == "__main__":
    main()
