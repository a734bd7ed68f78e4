"""What a seed of the world models costs, in time and memory, against tape length.

    python benchmarks/worlds.py [--json FILE] [--quick]

Each agent and length has a process and one core of its own, one after the other, and starts from
nothing: its programs are compiled, a part of a run is trained, and the exam of `fps30` is sat in
part. Time for a seed is extrapolated from that to 200,000 steps and twenty evaluations of 5,120
episodes; memory is the most that the process had resident. What is found for a tape by search is
kept, so the first evaluation of `automata` takes longest: both are shown, and the seed is one first
and nineteen later ones. Only on a quiet machine do the figures mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from typing import Any

from rich.console import Console

from harness import Worker, exit_code, log, machine, table, write_figures

AGENTS = ("dreamer", "automata")
LENGTHS = (16, 32, 64)
STEPS, EVALUATIONS, EPISODES = 200_000, 20, 5_120


def measure(agent: str, length: int, quick: bool) -> dict[str, Any]:
    """Train and examine a little, in this process."""
    import jax

    from tapebench import agents
    from tapebench import env as envs
    from tapebench.base import seeding
    from tapebench.exam.exam import make_exam
    from tapebench.exam.rollout import rollout
    from tapebench.tasks.task import make_task

    task = make_task(split="fps30", rules="train", length=length, horizon=length)
    trained = agents.make(agent, *envs.make(task=task))
    began = time.perf_counter()
    state = trained.init(seeding.key(0, "cost"))
    state, _ = jax.block_until_ready(trained.train(state))
    compiled = time.perf_counter() - began
    if not quick:
        state, _ = jax.block_until_ready(trained.train(state))  # past the warm-up
    chunks, began = (1, 5)[not quick], time.perf_counter()
    for _ in range(chunks):
        state, _ = jax.block_until_ready(trained.train(state))
    speed = chunks * trained.chunk / (time.perf_counter() - began)
    exam = make_exam(length=length, horizon=length, rules=list(range(0, 256, 64 if quick else 8)))
    policy, episodes = trained.policy(state), 1 if quick else 20
    took = []
    for _ in range(2):
        began = time.perf_counter()
        rollout(policy, exam.task, None, episodes)
        took.append((time.perf_counter() - began) * EPISODES / (episodes * len(exam.rules)))
    first, later = took
    seed = compiled + STEPS / speed + first + (EVALUATIONS - 1) * later
    return {
        "agent": agent,
        "length": length,
        "compile_seconds": compiled,
        "steps_per_second": speed,
        "first_evaluation_seconds": first,
        "evaluation_seconds": later,
        "seed_minutes": seed / 60,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def serve() -> None:
    """Answer lines of JSON: a worker."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), flush=True)


def benchmark() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", help="write every figure to this file, or - for standard output")
    parser.add_argument("--quick", action="store_true", help="a little of it: does it run?")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    rows = []
    for agent in AGENTS:
        for length in LENGTHS[:1] if options.quick else LENGTHS:
            log(f"{agent} at {length} cells")
            worker = Worker([sys.executable, __file__, "--serve"], {})
            try:
                request = {"agent": agent, "length": length, "quick": options.quick}
                rows.append(worker.ask(json.dumps(request), f"{agent} at {length} cells"))
            finally:
                worker.close()
    figures = {"machine": machine(), "costs": rows}
    shown = table(
        "What a seed costs: 200,000 steps, 20 evaluations, one core",
        ("agent", "cells", "compile", "steps/s", "first exam", "later exam", "seed", "peak memory"),
        [
            [
                row["agent"],
                str(row["length"]),
                f"{row['compile_seconds']:.0f} s",
                f"{row['steps_per_second']:,.0f}",
                f"{row['first_evaluation_seconds']:.0f} s",
                f"{row['evaluation_seconds']:.0f} s",
                f"{row['seed_minutes']:.0f} min",
                f"{row['peak_mib']:,.0f} MiB",
            ]
            for row in rows
        ],
    )
    Console(stderr=options.json == "-").print(shown)
    write_figures(figures, options.json)


if __name__ == "__main__":
    sys.exit(exit_code("worlds", benchmark))
