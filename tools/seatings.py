"""Play every published policy again, in the order of the rules as in seating 1 and seated as now.

Policies that keep their rows apart play the same episodes in both. What was published of them
differs from that only where they draw at random (`automata` draws otherwise now), or where another
processor rounds otherwise.

    python tools/seatings.py          # some minutes; --json for one document
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import files
from tapebench.exam import metrics
from tapebench.exam.exam import from_identity
from tapebench.exam.rollout import prepare
from tapebench.exam.seating import OWN
from tapebench.runs import published, store, training
from tapebench.runs.results import load_results


def main() -> None:
    """Print a line for each group of seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in replayed(published.directory()):
        groups.setdefault(run["run"].rsplit("/", 1)[0], []).append(run)
    if options.json:
        print(json.dumps(groups))
        return
    for name, runs in groups.items():
        print(f"{name}: {describe(runs)}")
    print(f"all: {describe([run for runs in groups.values() for run in runs])}")


def describe(runs: Sequence[dict[str, Any]]) -> str:
    """How many policies play the same, and the mean success that was published and is reached."""
    alike, as_published = (sum(run[key] for run in runs) for key in ("alike", "as_published"))
    then, now = (float(np.mean([run[key] for run in runs])) for key in ("then", "now"))
    return (
        f"{len(runs)} policies, {alike} play the same episodes in order and seated, "
        f"{as_published} have the published figures to the bit; "
        f"success {then:.4f} published, {now:.4f} now"
    )


def replayed(root: Path) -> Iterator[dict[str, Any]]:
    """Every run that has kept its policy: its last evaluation in both orders, and as published."""
    for path in load_results(root).paths:
        if store.load_checkpoint(path) is None:
            continue
        spec = files.read_json(path / "spec.json")
        exam = from_identity(spec["exam"])
        learned = training.load_run(path, exam.task)
        sitting = prepare(learned.policy, exam.task, None, exam.episodes)
        in_order, seated = (
            sitting.episodes([(rows, sitting.play(rows))])
            for rows in (np.arange(sitting.num), OWN.order(sitting.num))
        )
        now = metrics.rule_means(seated, exam, step=learned.step)
        curve = files.read_table(path / "curve.parquet")
        then = {name: curve[name][curve["step"] == learned.step] for name in metrics.METRICS}
        yield {
            "run": spec["id"],
            "alike": bool(np.array_equal(in_order.cells, seated.cells)),
            "as_published": all(np.array_equal(then[name], now[name]) for name in metrics.METRICS),
            "then": float(then["success"].mean(dtype=float)),
            "now": float(now["success"].mean(dtype=float)),
        }


if __name__ == "__main__":
    main()
