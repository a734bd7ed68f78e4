"""What inference and planning cost, against tape length and against how much is considered.

    python benchmarks/references.py [--json FILE] [--quick]

One decision of each reference for a batch of episodes, compiled beforehand, best of several
rounds in which all take turns. Microseconds per decision of one episode, on all cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from tapebench.base import seeding
from tapebench.exam.policy import Policy
from tapebench.planning.belief import bayes_filter
from tapebench.planning.mpc import mpc
from tapebench.tasks.task import make_task

EPISODES = 512
LENGTHS = (8, 16, 32, 64, 128)
CANDIDATE_RULES = (1, 16, 64, 256)
SEQUENCES = (32, 128, 512, 2048)
PLANS = (2, 4, 8, 16)


def decision(policy: Policy, length: int) -> Callable[[], Any]:
    """A compiled decision for a batch of random observations, ready to be timed."""
    cells = np.random.default_rng(0).integers(0, 2, (EPISODES, length))
    obs = jax.numpy.asarray(np.hstack([cells, np.full((EPISODES, 1), 0.5)]), np.float32)
    memory = policy.init(np.full(EPISODES, 30, np.uint32), EPISODES)
    act = jax.jit(policy.act)
    rows = np.arange(EPISODES)
    stream = seeding.policy_streams(0, "benchmark", rows, rows)
    return lambda: jax.block_until_ready(act(memory, obs, stream))


def cases(quick: bool) -> dict[tuple[str, str, int], Callable[[], Any]]:
    """What is measured: (reference, what varies, its value) -> one decision."""
    decisions = {}
    for length in LENGTHS[: 2 if quick else None]:
        task = make_task(length=length)
        decisions["bayes", "length", length] = decision(bayes_filter(task), length)
        decisions["mpc", "length", length] = decision(mpc(task), length)
    task = make_task()
    for count in CANDIDATE_RULES[: 2 if quick else None]:
        chosen = bayes_filter(task, list(range(count)))
        decisions["bayes", "candidate rules", count] = decision(chosen, 32)
    for count in SEQUENCES[: 2 if quick else None]:
        decisions["mpc", "sequences", count] = decision(mpc(task, candidates=count), 32)
    for plan in PLANS[: 2 if quick else None]:
        decisions["mpc", "planning horizon", plan] = decision(mpc(task, plan=plan), 32)
    return decisions


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    options = parser.parse_args()
    timed = cases(options.quick)
    best = dict.fromkeys(timed, float("inf"))
    rounds = 2 if options.quick else 7
    for number in range(rounds + 1):
        print(f"\rround {number}/{rounds} ", end="", file=sys.stderr, flush=True)
        for case, decide in timed.items():
            began = time.perf_counter()
            decide()
            if number:  # the first round compiles
                best[case] = min(best[case], (time.perf_counter() - began) / EPISODES * 1e6)
    print(file=sys.stderr)
    table = Table(
        "reference", "what varies", "value", "us per decision", title="Cost of a decision"
    )
    for (name, parameter, value), cost in best.items():
        table.add_row(name, parameter, str(value), f"{cost:.2f}")
    Console().print(table)
    if options.json is not None:
        rows = [
            {"reference": name, "varies": parameter, "value": value, "microseconds": cost}
            for (name, parameter, value), cost in best.items()
        ]
        options.json.write_text(json.dumps({"decisions": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
