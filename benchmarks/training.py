"""How fast the agents train, against Stable-Baselines3 and against what the machine can multiply.

    python benchmarks/training.py [--json FILE] [--quick]

Everything is measured in one run, on one core with one thread. The contestants live in processes
of their own, of which one computes at a time; they take turns over several rounds and the best
round of each counts. Seconds are those that the processor spent on the contestant, so that
whatever else runs on the core disturbs little; on a quiet machine they are those of the clock.

Both sides learn from batches of 128, once in four environment steps, with
the same layers; ours is Double DQN, which computes a quarter more, unless it says otherwise. The
limit is the rate of products of 128 × 256 by 256 × 256 in one compiled loop.

Compiling is measured apart, in fresh processes: with an empty and then with a filled cache. The
memory is that of such a process after training and an evaluation on all 256 rules.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import UsageError, Worker, exit_code, log, machine, table, write_figures

BATCH, STEPS_PER_UPDATE, LENGTH = 128, 4, 32
MATRIX, PRODUCTS = 256, 100
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True)
class Contestant:
    """Something that trains: a name of `AGENTS`, `sb3` or `limit`, and how."""

    name: str
    width: int = 0
    double: bool = True

    @property
    def label(self) -> str:
        if self.name == "limit":
            return "matrix products"
        if self.name == "sb3":
            return f"Stable-Baselines3 DQN, 2 × {self.width}"
        kind = {"dqn": "Double DQN" if self.double else "DQN"}.get(self.name, self.name.upper())
        return f"{kind}, 2 × {self.width}"


LIMIT = Contestant("limit")
DQN = {width: Contestant("dqn", width) for width in (256, 128)}
SINGLE = {width: Contestant("dqn", width, double=False) for width in (256, 128)}
SB3 = {width: Contestant("sb3", width) for width in (256, 128)}
OTHERS = [Contestant(name, 256) for name in ("rad", "curl", "pearl")]
CONTESTANTS = [LIMIT, *DQN.values(), *SINGLE.values(), *SB3.values()]


@dataclass(frozen=True)
class Mark:
    """A figure that the project promises."""

    name: str
    wanted: float
    measured: float | None
    is_most: bool = False
    """Whether `wanted` is the most that is allowed instead of the least."""

    @property
    def reached(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.wanted if self.is_most else self.measured >= self.wanted


def flops_per_update(width: int, double: bool) -> int:
    """Floating-point operations in the matrix products of one update of a 2 × `width` network."""
    sizes = [LENGTH + 1, width, width, LENGTH]
    layers = [2 * BATCH * sizes[i] * sizes[i + 1] for i in range(3)]
    # Forward, and twice that back, but nobody asks for the gradient of the observation. Then the
    # next states by the target network and, for Double DQN, by the one that learns.
    return 3 * sum(layers) - layers[0] + (2 if double else 1) * sum(layers)


# What runs in the workers.


def prepare_limit() -> tuple[Callable[[], Any], float]:
    import jax

    key, other = jax.random.split(jax.random.key(0))
    x = jax.random.normal(key, (BATCH, MATRIX))
    w = jax.random.normal(other, (MATRIX, MATRIX)) / MATRIX**0.5

    def multiply(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, x: x @ w, x)

    compiled = jax.jit(multiply)
    jax.block_until_ready(compiled(x, w))
    flops = PRODUCTS * 2.0 * BATCH * MATRIX * MATRIX
    return lambda: jax.block_until_ready(compiled(x, w)), flops


def prepare_agent(contestant: Contestant) -> tuple[Callable[[], Any], float]:
    """One chunk of training, past the warmup."""
    import jax

    from tapebench import agents, env, seeding

    agent = agents.make(
        contestant.name,
        *env.make(length=LENGTH),
        width=contestant.width,
        double=contestant.double,
        dueling=False,
        batch=BATCH,
        steps_per_update=STEPS_PER_UPDATE,
    )
    state = agent.init(seeding.key(0, "benchmark"))
    for _ in range(2):
        state, _ = agent.train(state)

    def run() -> None:
        nonlocal state
        state, _ = agent.train(state)
        jax.block_until_ready(state)

    run()
    return run, float(agent.chunk)


def prepare_sb3(contestant: Contestant) -> tuple[Callable[[], Any], float]:
    """SB3 on its native vector environment of four, with the same work in each update."""
    import torch
    from stable_baselines3 import DQN

    from tapebench.sb3 import TapeVecEnv

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        TapeVecEnv(STEPS_PER_UPDATE, length=LENGTH),
        batch_size=BATCH,
        buffer_size=100_000,
        learning_starts=500,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=1_000,
        gamma=0.95,
        policy_kwargs={"net_arch": [contestant.width] * 2},
        device="cpu",
        seed=0,
    )
    model.learn(600, log_interval=10**9)
    steps = 200

    def run() -> None:
        model.learn(steps, log_interval=10**9, reset_num_timesteps=False)

    run()
    return run, float(steps)


def serve(contestant: Contestant, seconds: float) -> None:
    """Answer each line of input with the best rate of the calls that fit into `seconds`."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if contestant == LIMIT:
        run, work = prepare_limit()
    else:
        run, work = (prepare_sb3 if contestant.name == "sb3" else prepare_agent)(contestant)
    for _ in sys.stdin:
        best, end = float("inf"), time.perf_counter() + seconds
        while best == float("inf") or time.perf_counter() < end:
            start = time.process_time()
            run()
            best = min(best, time.process_time() - start)
        print(json.dumps(work / best), file=answers)


def start_up(contestant: Contestant) -> None:
    """Print what a fresh worker takes to get going, and its memory after an evaluation."""
    import jax

    from tapebench import agents, env, seeding
    from tapebench.rollout import rollout
    from tapebench.task import make_task

    agent = agents.make(contestant.name, *env.make(length=LENGTH), width=contestant.width)
    began = time.process_time()
    state = jax.block_until_ready(agent.init(seeding.key(0, "benchmark")))
    state = jax.block_until_ready(agent.train(state)[0])
    first = time.process_time() - began
    began = time.process_time()
    state = jax.block_until_ready(agent.train(state)[0])
    chunk = time.process_time() - began
    rollout(agent.policy(state), make_task(length=LENGTH, rules="all"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"compile_seconds": first - chunk, "memory_gib": peak}))


# What asks them.


def start(contestant: Contestant, *options: str, cache: str | None = None) -> Worker:
    """A contestant in a process of its own, on one core."""
    settings = {
        "XLA_FLAGS": ONE_THREAD,
        "OMP_NUM_THREADS": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "true" if cache else "false",
    }
    if cache:
        settings["JAX_COMPILATION_CACHE_DIR"] = cache
        settings["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    command = [sys.executable, __file__, "--worker", json.dumps(asdict(contestant)), *options]
    return Worker(command, settings)


def take_turns(
    contestants: list[Contestant], rounds: int, seconds: float
) -> dict[Contestant, list[float]]:
    """The rate of every contestant in each round."""
    rates: dict[Contestant, list[float]] = {contestant: [] for contestant in contestants}
    with contextlib.ExitStack() as stack:
        workers = {}
        for contestant in contestants:
            log(f"starting {contestant.label}")
            workers[contestant] = start(contestant, "--seconds", str(seconds))
            stack.callback(workers[contestant].close)
            # It prepares itself alone, so that none is measured while another compiles.
            workers[contestant].ask("go", contestant.label)
        for number in range(rounds):
            log(f"round {number + 1} of {rounds}")
            for contestant, worker in workers.items():
                rates[contestant].append(worker.ask("go", contestant.label))
    return rates


def start_ups(contestant: Contestant) -> dict[str, dict[str, float]]:
    """What a fresh worker takes, with an empty cache and with the one that the first has filled."""
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in ("empty cache", "filled cache"):
            log(f"a fresh worker, {name}")
            worker = start(contestant, "--start-up", cache=directory)
            try:
                found[name] = worker.answer(contestant.label)
            finally:
                worker.close()
    return found


def share_of_limit(contestant: Contestant, rate: float, limit: float) -> float:
    """Which part of the machine's products an agent's own products make up."""
    flops = flops_per_update(contestant.width, contestant.double)
    return rate / STEPS_PER_UPDATE * flops / limit


def find_marks(best: dict[Contestant, float], memory: float) -> list[Mark]:
    share = share_of_limit(DQN[256], best[DQN[256]], best[LIMIT])
    return [
        Mark("Double DQN 2 × 256 / SB3 DQN", 2.8, best[DQN[256]] / best[SB3[256]]),
        Mark("Double DQN 2 × 128 / SB3 DQN", 6.0, best[DQN[128]] / best[SB3[128]]),
        Mark("Double DQN 2 × 256, share of the limit", 0.6, share),
        Mark("memory of a worker, GiB", 1.5, memory, is_most=True),
    ]


def run(options: argparse.Namespace) -> None:
    if options.json not in (None, "-") and not Path(options.json).absolute().parent.is_dir():
        raise UsageError(f"there is no directory to write {options.json} into: make it first")
    rounds, seconds = (2, 0.3) if options.quick else (8, 1.0)
    contestants = CONTESTANTS if options.quick else CONTESTANTS + OTHERS
    rates = take_turns(contestants, rounds, seconds)
    best = {contestant: max(found) for contestant, found in rates.items()}
    fresh = start_ups(DQN[256])
    marks = find_marks(best, max(found["memory_gib"] for found in fresh.values()))

    rows = []
    for contestant in contestants[1:]:
        share = ""
        if contestant.name == "dqn":
            share = f"{share_of_limit(contestant, best[contestant], best[LIMIT]):.0%}"
        middle = sorted(rates[contestant])[len(rates[contestant]) // 2]
        rows.append([contestant.label, f"{best[contestant]:,.0f}", f"{middle:,.0f}", share])
    console = Console(stderr=options.json == "-", highlight=False)
    limit = f"{best[LIMIT] / 1e9:.1f} GFLOP/s"
    title = f"Training, one core, one thread; limit {limit}"
    console.print(table(title, ("agent", "steps/s", "median", "share of limit"), rows))
    lines = [
        [name, f"{found['compile_seconds']:.1f}", f"{found['memory_gib']:.2f}"]
        for name, found in fresh.items()
    ]
    title = f"Getting going: {DQN[256].label}"
    console.print(table(title, ("fresh worker", "compile s", "memory GiB"), lines))
    words = {None: "not measured", True: "yes", False: "no"}
    verdicts = [
        [
            mark.name,
            f"{mark.measured:.2f}",
            f"{'at most ' if mark.is_most else ''}{mark.wanted:g}",
            words[mark.reached],
        ]
        for mark in marks
    ]
    console.print(table("Marks", ("mark", "measured", "wanted", "reached"), verdicts))
    document = {
        "machine": machine(),
        "rounds": rounds,
        "limit_flops": best[LIMIT],
        "results": [
            {**asdict(contestant), "label": contestant.label, "rates": rates[contestant]}
            for contestant in contestants[1:]
        ],
        "fresh_worker": fresh,
        "marks": [asdict(mark) | {"reached": mark.reached} for mark in marks],
    }
    write_figures(document, options.json)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--json", metavar="FILE", help="write every figure to FILE; - is stdout")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.add_argument("--start-up", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        contestant = Contestant(**json.loads(options.worker))
        if options.start_up:
            start_up(contestant)
        else:
            serve(contestant, options.seconds)
        return 0
    return exit_code("training.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
