"""How fast the agents train, against Stable-Baselines3 and against what the machine can multiply.

    python benchmarks/training.py [--json FILE] [--quick] [--sweep]

Everything is measured in one run, on one core with one thread. The contestants live in processes
of their own, of which one computes at a time; they take turns over several rounds and the best
round of each counts. Seconds are those that the processor spent on the contestant, so that
whatever else runs on the core disturbs little; on a quiet machine they are those of the clock.

With DQN, both sides learn from batches of 128, once in four environment steps, with the same
layers. The marks are of plain DQN, which is what Stable-Baselines3 has. Our default is Double DQN,
which computes a quarter more: it is listed too, and has stayed below them in full runs. The
limit is the rate of products of 128 × 256 by 256 × 256 in one compiled loop. DQN is also measured
with two processes of a kind at work at once, which share the machine's caches and memory.

PQN, which has no replay, and the agents whose networks are named are as they are by default; a
convolution of 16 channels has about five times the arithmetic of the perceptron of 64 units.

With PPO, both sides have the environments, rollouts, epochs and minibatches that are our defaults.
Policy and value share all layers but the last, in ours as in theirs, where separate ones are the
default and slower. In recurrent PPO theirs has an LSTM where ours has a GRU of the same size. It
can share layers only before that, so it has all three there, where ours has one there and two
after; it sees neither the previous action nor the reward, and the value does not train the LSTM.
Theirs steps our native `VecEnv`, torch checks no distributions, and its Adam is the fused one.

Compiling is measured apart, in fresh processes: with an empty and then with a filled cache. The
memory is that of such a process after training and an evaluation on all 256 rules.

A mark that is missed is exit code 1, except in a quick run. `--sweep` also makes the runs of PPO on
the track `full`, with all evaluations, as `tape train` does with two workers, and takes the time.
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
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from harness import UsageError, Worker, exit_code, log, machine, table, write_figures

BATCH, STEPS_PER_UPDATE, LENGTH = 128, 4, 32
MATRIX, PRODUCTS = 256, 100
MEMORY = 64
WORKERS = 2
PEERS = ("stable_baselines3", "sb3_contrib", "torch")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True)
class Contestant:
    """Something that trains: the name of an agent or `limit`, and how."""

    name: str
    width: int = 0
    double: bool = False
    by_sb3: bool = False
    """Whether it is the agent of Stable-Baselines3 or its contrib package instead of ours."""
    network: str = ""
    """Ours with this network and otherwise as it is by default; `width` are the channels of one of
    convolutions."""

    @property
    def label(self) -> str:
        if self.name == "limit":
            return "matrix products"
        if self.network:
            return f"{self.name.upper()} as it is, {self.network} of {self.width}"
        if self.name == "rppo":
            if self.by_sb3:
                return f"sb3-contrib RPPO, 3 × {self.width}, LSTM {MEMORY}"
            return f"RPPO, {self.width}, GRU {MEMORY}, 2 × {self.width}"
        kind = "Double DQN" if self.name == "dqn" and self.double else self.name.upper()
        return f"{'Stable-Baselines3 ' if self.by_sb3 else ''}{kind}, 2 × {self.width}"


LIMIT = Contestant("limit")
DQN = {width: Contestant("dqn", width) for width in (256, 128)}
DOUBLE = {width: Contestant("dqn", width, double=True) for width in (256, 128)}
SB3 = {width: Contestant("dqn", width, by_sb3=True) for width in (256, 128)}
PPO, SB3_PPO = Contestant("ppo", 64), Contestant("ppo", 64, by_sb3=True)
RPPO, SB3_RPPO = Contestant("rppo", 64), Contestant("rppo", 64, by_sb3=True)
GRADIENT = [PPO, SB3_PPO, RPPO, SB3_RPPO]
PQN = {width: Contestant("pqn", width, network="mlp") for width in (256, 128)}
PERCEPTRON = Contestant("dqn", 64, network="mlp")
CONVOLUTION = Contestant("dqn", 16, network="conv")
TURNING = [PERCEPTRON, CONVOLUTION]
CONTESTANTS = [LIMIT, *DQN.values(), *DOUBLE.values(), *SB3.values(), *PQN.values()]
CONTESTANTS += [*GRADIENT, *TURNING]
OTHERS = [Contestant(name, 256, double=True) for name in ("rad", "curl", "pearl")]
OTHERS += [
    Contestant("drqn", 16, network="entries"),
    Contestant("pqn", 32, network="conv"),
    Contestant("rpqn", 32, network="entries"),
    Contestant("ppo", 16, network="conv"),
    Contestant("rppo", 16, network="entries"),
]
"""On which no mark rests; a quick run leaves them out."""


@dataclass(frozen=True)
class Mark:
    """A figure that the project promises, or one that is only listed."""

    name: str
    threshold: float | None
    measured: float
    is_most: bool = False
    """Whether `threshold` is the most that is allowed instead of the least."""

    @property
    def reached(self) -> bool | None:
        if self.threshold is None:
            return None
        return self.measured <= self.threshold if self.is_most else self.measured >= self.threshold


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


def agent_options(contestant: Contestant) -> dict[str, Any]:
    """Options of our agent, where they are not its defaults."""
    if contestant.network:
        size = "width" if contestant.network in ("mlp", "gru") else "channels"
        return {"network": contestant.network, size: contestant.width}
    if contestant.name == "rppo":
        sizes = {"encoder_width": contestant.width, "memory_size": MEMORY}
        return {"network": "gru", "width": contestant.width, **sizes}
    if contestant.name == "ppo":
        return {"network": "mlp", "width": contestant.width}
    return {
        "network": "mlp",
        "width": contestant.width,
        "double": contestant.double,
        "dueling": False,
        "n_step": 1,
        "batch": BATCH,
        "steps_per_update": STEPS_PER_UPDATE,
    }


def prepare_agent(contestant: Contestant) -> tuple[Callable[[], Any], float]:
    """One chunk of training, past the warmup."""
    import jax

    from tapebench import agents, env
    from tapebench.base import seeding

    agent = agents.make(contestant.name, *env.make(length=LENGTH), **agent_options(contestant))
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
    from stable_baselines3 import DQN

    from tapebench.sb3 import TapeVecEnv

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


def prepare_sb3_gradient(contestant: Contestant) -> tuple[Callable[[], Any], float]:
    """PPO or RecurrentPPO, with the rounds of ours: as many steps, and as many updates on them."""
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger

    from tapebench import agents
    from tapebench.sb3 import TapeVecEnv

    # SB3 leaves these checks on; they only take time.
    torch.distributions.Distribution.set_default_validate_args(False)
    ours = agents.configure(contestant.name, **agent_options(contestant))
    is_recurrent = contestant.name == "rppo"
    policy = shared_layers(contestant.width, ours.depth + is_recurrent)
    if is_recurrent:
        policy |= {"lstm_hidden_size": MEMORY, "shared_lstm": True, "enable_critic_lstm": False}
    model = (RecurrentPPO if is_recurrent else PPO)(
        "MlpLstmPolicy" if is_recurrent else "MlpPolicy",
        TapeVecEnv(ours.num_envs, length=LENGTH),
        learning_rate=ours.learning_rate,
        n_steps=ours.rollout,
        batch_size=ours.round // ours.minibatches,
        n_epochs=ours.epochs,
        gamma=ours.discount,
        gae_lambda=ours.trace,
        clip_range=ours.clip,
        ent_coef=ours.entropy_weight,
        vf_coef=ours.value_weight / 2,
        max_grad_norm=ours.gradient_norm,
        policy_kwargs=policy,
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(None, []))

    def run() -> None:
        model.learn(ours.chunk, log_interval=10**9, reset_num_timesteps=False)

    run()
    before = model.num_timesteps
    run()
    assert model.num_timesteps == before + ours.chunk
    return run, float(ours.chunk)


def shared_layers(width: int, depth: int) -> dict[str, Any]:
    """Options of an SB3 policy: these layers for policy and value together, then their last."""
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Layers(BaseFeaturesExtractor):
        def __init__(self, space: spaces.Box) -> None:
            super().__init__(space, width)
            layers: list[torch.nn.Module] = []
            for before in [space.shape[0], *[width] * (depth - 1)]:
                layers += [torch.nn.Linear(before, width), torch.nn.ReLU()]
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.layers(obs)

    return {
        "net_arch": [],
        "features_extractor_class": Layers,
        "optimizer_kwargs": {"eps": 1e-5, "fused": True},
    }


def prepare(contestant: Contestant) -> tuple[Callable[[], Any], float]:
    """What is to be timed, and how much of the work one call of it does."""
    if contestant == LIMIT:
        return prepare_limit()
    if not contestant.by_sb3:
        return prepare_agent(contestant)
    import torch

    torch.set_num_threads(1)
    return (prepare_sb3 if contestant.name == "dqn" else prepare_sb3_gradient)(contestant)


def serve(contestant: Contestant, seconds: float) -> None:
    """Answer each line of input with the best rate of the calls that fit into `seconds`."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    run, work = prepare(contestant)
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

    from tapebench import agents, env
    from tapebench.base import seeding
    from tapebench.exam.rollout import rollout
    from tapebench.tasks.task import make_task

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


def work_in_pairs(
    contestants: list[Contestant], rounds: int, seconds: float
) -> dict[Contestant, list[float]]:
    """The rate of two processes together, in each round, of every contestant."""
    rates: dict[Contestant, list[float]] = {contestant: [] for contestant in contestants}
    with contextlib.ExitStack() as stack:
        pairs: dict[Contestant, list[Worker]] = {}
        for contestant in contestants:
            log(f"starting two of {contestant.label}")
            pairs[contestant] = []
            for _ in range(2):
                worker = start(contestant, "--seconds", str(seconds))
                stack.callback(worker.close)
                worker.ask("go", contestant.label)
                pairs[contestant].append(worker)
        for number in range(rounds):
            log(f"pairs, round {number + 1} of {rounds}")
            for contestant, pair in pairs.items():
                for worker in pair:
                    worker.tell("go")
                rates[contestant].append(sum(worker.answer(contestant.label) for worker in pair))
    return rates


def start_ups(contestant: Contestant) -> dict[str, dict[str, float]]:
    """What a fresh worker takes, with an empty cache and with the one that the first has filled."""
    answers = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in ("empty cache", "filled cache"):
            log(f"a fresh worker, {name}")
            worker = start(contestant, "--start-up", cache=directory)
            try:
                answers[name] = worker.answer(contestant.label)
            finally:
                worker.close()
    return answers


def time_sweep(track: str) -> dict[str, Any]:
    """The runs of PPO on a track, from nothing, as `tape train` makes them: seconds of the clock.

    Starting the workers and compiling count, with an empty cache.
    """
    from tapebench.cli.train import Train, runs_shown
    from tapebench.runs import sweep

    specs = Train(agent="ppo", track=track).specs()
    cores = min(WORKERS, len(os.sched_getaffinity(0)))
    log(f"{len(specs)} runs of {specs[0].steps:,} steps on {cores} cores")
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=f"{directory}/cache"),
        runs_shown(len(specs), 0) as report,
    ):
        began = time.perf_counter()
        failures = sweep.run_all(specs, Path(directory, "runs"), workers=WORKERS, report=report)
        seconds = time.perf_counter() - began
    if failures:
        raise RuntimeError(f"{failures[0].run}: {failures[0].reason}")
    return {
        "track": track,
        "seeds": len(specs),
        "steps": specs[0].steps,
        "evaluations": specs[0].steps // specs[0].evaluate_every,
        "rules": len(specs[0].exam.rules),
        "episodes": specs[0].episodes,
        "cores": cores,
        "seconds": seconds,
    }


def share_of_limit(contestant: Contestant, rate: float, limit: float) -> float:
    """Which part of the machine's products an agent's own products make up."""
    flops = flops_per_update(contestant.width, contestant.double)
    return rate / STEPS_PER_UPDATE * flops / limit


def terms(contestant: Contestant) -> str:
    """On what a policy-gradient agent and its rival both train."""
    from tapebench import agents

    ours = agents.configure(contestant.name, **agent_options(contestant))
    return (
        f"{contestant.name}: {ours.num_envs} environments × {ours.rollout} steps, {ours.epochs} "
        f"epochs × {ours.minibatches} minibatches, all layers but the last shared by policy and "
        "value, on both sides."
    )


def find_marks(
    best: dict[Contestant, float], both: dict[Contestant, float], memory: float
) -> list[Mark]:
    """What is promised; `best` is on one core, `both` on two."""
    share = share_of_limit(DQN[256], best[DQN[256]], best[LIMIT])
    return [
        Mark("DQN 2 × 256 / SB3 DQN", 2.8, best[DQN[256]] / best[SB3[256]]),
        Mark("DQN 2 × 128 / SB3 DQN", 6.0, best[DQN[128]] / best[SB3[128]]),
        Mark("Double DQN 2 × 256 / SB3 DQN", None, best[DOUBLE[256]] / best[SB3[256]]),
        Mark("Double DQN 2 × 128 / SB3 DQN", None, best[DOUBLE[128]] / best[SB3[128]]),
        Mark("DQN 2 × 256 / SB3 DQN, on two cores", None, both[DQN[256]] / both[SB3[256]]),
        Mark("DQN 2 × 128 / SB3 DQN, on two cores", None, both[DQN[128]] / both[SB3[128]]),
        Mark("DQN 2 × 256, share of the limit", 0.6, share),
        Mark("PQN 2 × 256 / SB3 DQN", 10.0, best[PQN[256]] / best[SB3[256]]),
        Mark("PQN 2 × 128 / SB3 DQN", 10.0, best[PQN[128]] / best[SB3[128]]),
        Mark("DQN, conv of 16 / mlp of 64", 0.2, best[CONVOLUTION] / best[PERCEPTRON]),
        Mark("PPO 2 × 64 / SB3 PPO", 4.5, best[PPO] / best[SB3_PPO]),
        Mark("RPPO / sb3-contrib RecurrentPPO", None, best[RPPO] / best[SB3_RPPO]),
        Mark("memory of a worker, GiB", 1.5, memory, is_most=True),
    ]


def sweep_table(swept: dict[str, Any]) -> Table:
    """How long the sweep took."""
    exam = f"{swept['rules']} rules × {swept['episodes']} episodes"
    minutes, seconds = divmod(round(swept["seconds"]), 60)
    row = [
        f"{swept['seeds']} seeds × {swept['steps']:,} steps",
        f"{swept['evaluations']} × {exam}",
        f"{minutes} min {seconds:02d} s",
        f"{swept['seeds'] * swept['steps'] / swept['seconds']:,.0f}",
    ]
    title = f"Sweep of PPO, track {swept['track']}, {swept['cores']} cores, wall time"
    return table(title, ("runs", "evaluations of each", "time", "steps/s"), [row])


def run(options: argparse.Namespace) -> None:
    if options.json not in (None, "-") and not Path(options.json).absolute().parent.is_dir():
        raise UsageError(f"there is no directory to write {options.json} into: make it first")
    rounds, seconds = (2, 0.3) if options.quick else (8, 1.0)
    contestants = CONTESTANTS if options.quick else CONTESTANTS + OTHERS
    rates = take_turns(contestants, rounds, seconds)
    best = {contestant: max(measured) for contestant, measured in rates.items()}
    pairs = work_in_pairs([*DQN.values(), *SB3.values()], rounds // 2, seconds)
    both = {contestant: max(measured) for contestant, measured in pairs.items()}
    fresh = start_ups(DQN[256])
    marks = find_marks(best, both, max(measured["memory_gib"] for measured in fresh.values()))

    rows = []
    for contestant in contestants[1:]:
        share = ""
        if contestant.name == "dqn" and not contestant.by_sb3 and not contestant.network:
            share = f"{share_of_limit(contestant, best[contestant], best[LIMIT]):.0%}"
        middle = sorted(rates[contestant])[len(rates[contestant]) // 2]
        rows.append([contestant.label, f"{best[contestant]:,.0f}", f"{middle:,.0f}", share])
    console = Console(stderr=options.json == "-", highlight=False)
    limit = f"{best[LIMIT] / 1e9:.1f} GFLOP/s"
    title = f"Training, one core, one thread; limit {limit}"
    console.print(table(title, ("agent", "steps/s", "median", "share of limit"), rows))
    for contestant in (PPO, RPPO):
        console.print(terms(contestant))
    rows = [
        [contestant.label, f"{rate:,.0f}", f"{rate / best[contestant]:.2f}"]
        for contestant, rate in both.items()
    ]
    console.print(table("Two at once", ("agent", "steps/s", "against one"), rows))
    lines = [
        [name, f"{measured['compile_seconds']:.1f}", f"{measured['memory_gib']:.2f}"]
        for name, measured in fresh.items()
    ]
    title = f"Getting going: {DQN[256].label}"
    console.print(table(title, ("fresh worker", "compile s", "memory GiB"), lines))
    words = {None: "", True: "yes", False: "no"}
    verdicts = [
        [
            mark.name,
            f"{mark.measured:.2f}",
            ""
            if mark.threshold is None
            else f"{'at most ' if mark.is_most else ''}{mark.threshold:g}",
            words[mark.reached],
        ]
        for mark in marks
    ]
    console.print(table("Marks", ("mark", "measured", "wanted", "reached"), verdicts))
    swept = time_sweep("smoke" if options.quick else "full") if options.sweep else None
    if swept:
        console.print(sweep_table(swept))
    document = {
        "machine": machine() | {name: metadata.version(name) for name in PEERS},
        "rounds": rounds,
        "limit_flops": best[LIMIT],
        "results": [
            {**asdict(contestant), "label": contestant.label, "rates": rates[contestant]}
            for contestant in contestants[1:]
        ],
        "pairs": [
            {**asdict(contestant), "label": contestant.label, "rates": measured}
            for contestant, measured in pairs.items()
        ],
        "fresh_worker": fresh,
        "marks": [asdict(mark) | {"reached": mark.reached} for mark in marks],
        "sweep": swept,
    }
    write_figures(document, options.json)
    missed = [mark.name for mark in marks if mark.reached is False]
    if missed and not options.quick:
        raise RuntimeError(f"missed: {'; '.join(missed)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--json", metavar="FILE", help="write every figure to FILE; - is stdout")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows it works")
    parser.add_argument(
        "--sweep", action="store_true", help="also time all runs of PPO on a track: minutes"
    )
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
