"""Tune an agent by successive halving, never on rules of any result: see `tapebench.runs.tuning`.

    python tools/tune.py dqn --network conv

Searches `Config.SEARCH` of the agent's file in 1.5 core-hours and writes every finished run to
`docs/tuning/core/AGENT-NETWORK.json`, from which an interrupted search goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tapebench import agents
from tapebench.base import files
from tapebench.runs import tuning

FOLDER = Path(__file__).parents[1] / "docs" / "tuning" / "core"


def main() -> None:
    """Begin a search or go on with it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("agent", help="a name, or package.module of any agent")
    parser.add_argument("--network", help="by default that of the agent")
    parser.add_argument(
        "--hours", type=float, default=tuning.HOURS, help="core-hours in all; more may follow later"
    )
    parser.add_argument("--steps", type=int, default=200_000, help="of a run")
    parser.add_argument("--workers", type=int, help="runs at a time, by default one a core")
    parser.add_argument("--results", type=Path, default=Path("runs/tuning"))
    options = parser.parse_args()
    network = options.network or agents.configure(options.agent).network
    file = FOLDER / f"{options.agent}-{network}.json"

    def write(search: tuning.Search) -> None:
        files.write_json(file, search.document())

    if file.is_file():
        search = tuning.extend(tuning.from_document(files.read_object(file)), options.hours)
    else:
        FOLDER.mkdir(parents=True, exist_ok=True)
        search = tuning.begin(
            options.agent,
            {"network": network},
            options.results,
            steps=options.steps,
            hours=options.hours,
            workers=options.workers,
        )
        write(search)
    tuning.run(search, options.results, write, workers=options.workers)
    for trial in search.order(tuning.SEEDS[-1]):
        mean = sum(row[tuning.STRATUM] for row in search.rows[trial]) / len(search.rows[trial])
        print(f"{mean:.3f}", search.options()[trial])


if __name__ == "__main__":
    main()
