"""How fast the environment is, against a C loop, Gymnasium, gymnax and XLand-MiniGrid.

    python benchmarks/throughput.py [--json FILE] [--quick] [--no-peers] [--peers-venv DIR]

Everything is measured in one run. The contestants take turns over several rounds and the best
round of each counts: on a shared machine single timings wander, ratios of the best ones hardly.
Contestants live in long-lived workers (`contestants.py`), of which one computes at a time: one
for the raw dynamics, one for our environments and Gymnasium's, and one for gymnax and
XLand-MiniGrid in a virtual environment of their own, made on the first run.

All are bound to the same core. On several, JAX splits the operations of a step among threads that
wait for each other: at 4,096 environments that gains little, and with anything else running on
the machine it can halve the rate. `--all-cores` frees the environments, not the raw dynamics.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness import UsageError, Worker, exit_code, log, machine, table, write_figures

PEERS = {"gymnax": "1.0.1", "six": "1.17.0", "xminigrid": "0.9.3", "gymnasium": "1.3.0"}
"""What is compared. gymnax imports six without asking for it, and refuses Gymnasium 1.4;
Gymnasium's own environments are therefore measured in our interpreter, not in the peers'."""

SHARED = ("jax", "numpy")
"""What the peers use in the versions that we use."""


@dataclass(frozen=True)
class Case:
    """One thing to measure. `length` is 0 where there is no tape."""

    name: str
    length: int = 32
    num: int = 4096


@dataclass
class Result:
    """What was measured of a case: steps per second over all environments, in each round."""

    rates: list[float] = field(default_factory=list)
    steps_per_call: int | None = None
    compile_seconds: float | None = None

    @property
    def rate(self) -> float:
        return max(self.rates)


Results = dict[Case, Result]


@dataclass(frozen=True)
class Mark:
    """A ratio of two cases that the project promises."""

    name: str
    ours: Case
    theirs: Case
    threshold: float

    def ratio(self, results: Results) -> float | None:
        """`None` if one of the two was not measured."""
        if self.ours in results and self.theirs in results:
            return results[self.ours].rate / results[self.theirs].rate
        return None


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    """Of the contestants that marks compare."""
    curve_rounds: int
    seconds: float
    """Of one measurement."""
    lengths: tuple[int, ...]
    batches: tuple[int, ...]


FULL = Plan(10, 4, 0.3, (32, 64, 128, 256, 512, 1024), (1, 16, 256, 4096, 2**16, 2**20))
QUICK = Plan(2, 1, 0.05, (32, 256), (1, 4096))

LABELS = {
    "dynamics-c": "C, AVX2",
    "dynamics-jax": "JAX dynamics",
    "dynamics-numpy": "NumPy dynamics",
    "tape-jax-packed": "Tape JAX, packed obs",
    "tape-jax-float": "Tape JAX, float obs",
    "gymnax-cartpole": "gymnax CartPole",
    "xland-empty": "XLand-MiniGrid Empty-8x8",
    "tape-vector": "Tape vector env",
    "ring2-jax": "Tape JAX, ring2",
    "ring2-vector": "Tape vector env, ring2",
    "life-jax": "Tape JAX, life on 5 × 5",
    "life-vector": "Tape vector env, life on 5 × 5",
    "cartpole-vector": "CartPole vector env",
    "cartpole-sync": "CartPole SyncVectorEnv",
    "tape-single": "Tape single env",
    "cartpole-single": "CartPole single env",
}
RAW = ("dynamics-c", "dynamics-jax", "dynamics-numpy")
FOREIGN = ("gymnax-cartpole", "xland-empty")

GYMNAX = Case("gymnax-cartpole", length=0)
VECTOR, CARTPOLE_VECTOR = Case("tape-vector"), Case("cartpole-vector", length=0)
SINGLE, CARTPOLE_SINGLE = Case("tape-single", num=1), Case("cartpole-single", length=0, num=1)
RING2_JAX, RING2_VECTOR = Case("ring2-jax"), Case("ring2-vector")
LIFE_JAX, LIFE_VECTOR = Case("life-jax", length=25), Case("life-vector", length=25)
DYNAMICS = [Case(name) for name in RAW]
ENVIRONMENTS = [
    Case("tape-jax-packed"),
    Case("tape-jax-float"),
    GYMNAX,
    Case("xland-empty", length=0),
    VECTOR,
    RING2_JAX,
    RING2_VECTOR,
    LIFE_JAX,
    LIFE_VECTOR,
    CARTPOLE_VECTOR,
    Case("cartpole-sync", length=0, num=64),
    SINGLE,
    CARTPOLE_SINGLE,
]
BY_LENGTH = ("dynamics-jax", "tape-jax-float", "tape-vector")
BY_BATCH = ("dynamics-jax", "tape-jax-packed", "tape-jax-float", "tape-vector")
LARGEST = {"tape-jax-float": 2**16, "tape-vector": 2**16}
"""Batch beyond which float observations would take too much memory."""

MARKS = (
    Mark("JAX dynamics / C loop, one core", Case("dynamics-jax"), Case("dynamics-c"), 0.45),
    Mark("NumPy vector env / CartPole vector env", VECTOR, CARTPOLE_VECTOR, 1.3),
    Mark("JAX env, float / gymnax CartPole", Case("tape-jax-float"), GYMNAX, 3.0),
    Mark("JAX env, packed / gymnax CartPole", Case("tape-jax-packed"), GYMNAX, 15.0),
    Mark("JAX env, ring2 / elementary", RING2_JAX, Case("tape-jax-float"), 1 / 3),
    Mark("NumPy vector env, ring2 / elementary", RING2_VECTOR, VECTOR, 1 / 3),
    Mark("JAX env, life on 5 × 5 / elementary", LIFE_JAX, Case("tape-jax-float"), 1 / 4),
    Mark("NumPy vector env, life on 5 × 5 / elementary", LIFE_VECTOR, VECTOR, 1 / 4),
    Mark("single Tape-v1 / single CartPole-v1", SINGLE, CARTPOLE_SINGLE, 1.5),
)

SCRIPT = str(Path(__file__).with_name("contestants.py"))
UNCACHED = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
"""So that compile times do not come out of a cache."""

SETUP_SECONDS = 2.0
"""What a contestant takes before its first measurement, for the estimate of the time left."""


def peers_python(directory: Path) -> Path:
    """The interpreter of the peers' virtual environment, made or completed if need be."""
    python = directory / "bin" / "python"
    if not python.exists():
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is no virtual environment: name another or a new one")
        log(f"making a virtual environment for the peers in {directory}")
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    versions = PEERS | {name: metadata.version(name) for name in SHARED}
    pins = {f"{name}=={version}" for name, version in versions.items()}
    pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check"]
    frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    if missing := pins - set(frozen.split()):
        log(f"installing {', '.join(sorted(missing))} (about a minute)")
        # All pins again, or pip would be free to move those that are there already.
        done = subprocess.run([*pip, "install", "--quiet", *sorted(pins)], stdout=sys.stderr)
        if done.returncode:
            raise UsageError("pip could not install the peers: go without them by --no-peers")
    return python


def take_turns(
    cases: list[Case], rounds: int, seconds: float, workers: dict[str, Worker]
) -> tuple[Results, dict[str, str]]:
    """Measure every case once per round. Also returns why some could not be measured at all."""
    results = {case: Result() for case in cases}
    absent: dict[str, str] = {}
    expected = dict.fromkeys(cases, seconds)
    reported = 0.0
    for number in range(rounds):
        for index, case in enumerate(cases):
            if case.name in absent:
                continue
            question = f"go {case.name} {case.length} {case.num}"
            answer = workers[case.name].ask(question, LABELS[case.name])
            if "unavailable" in answer:
                absent[case.name], expected[case] = answer["unavailable"], 0.0
                log(f"not measured: {LABELS[case.name]}: {absent[case.name]}")
                continue
            result = results[case]
            result.rates.append(answer["rate"])
            result.steps_per_call = answer["steps_per_call"]
            result.compile_seconds = answer["compile_seconds"]
            # A measurement is one call at least, however long.
            expected[case] = max(seconds, case.num * answer["steps_per_call"] / answer["rate"])
            if (now := time.monotonic()) > reported + 3.0:
                left = sum(expected[case] for case in cases[index + 1 :])
                left += (rounds - number - 1) * sum(expected.values())
                left += SETUP_SECONDS * (len(cases) - index - 1) * (number == 0)
                progress = f"round {number + 1} of {rounds}, {index + 1} of {len(cases)}"
                log(f"{progress}: about {left:.0f} s left in this part")
                reported = now
    return {case: result for case, result in results.items() if result.rates}, absent


def document(plan: Plan, results: Results, absent: dict[str, str]) -> dict[str, Any]:
    """Everything that was measured, as it goes into JSON."""
    rows = [
        {
            "name": case.name,
            "label": LABELS[case.name],
            "length": case.length or None,
            "num": case.num,
            "rate": result.rate,
            **asdict(result),
        }
        for case, result in results.items()
    ]
    marks = []
    for mark in MARKS:
        ratio = mark.ratio(results)
        reached = None if ratio is None else ratio >= mark.threshold
        marks.append(
            {"name": mark.name, "ratio": ratio, "wanted": mark.threshold, "reached": reached}
        )
    return {
        "machine": machine(),
        "peers": PEERS,
        "plan": asdict(plan),
        "results": rows,
        "not_measured": absent,
        "marks": marks,
    }


def rates(title: str, cases: list[Case], results: Results) -> Table:
    """Cases side by side: how fast, and what compiling cost."""
    rows = []
    for case, result in ((case, results[case]) for case in cases if case in results):
        compiling = "" if result.compile_seconds is None else f"{result.compile_seconds:.2f}"
        cost = f"{1e9 / result.rate:,.2f}"
        rate = f"{result.rate / 1e6:,.3f}"
        rows.append([LABELS[case.name], f"{case.num:,}", rate, cost, compiling])
    return table(title, ("contestant", "envs", "M steps/s", "ns per step", "compile s"), rows)


def costs(title: str, names: tuple[str, ...], cases: list[Case], results: Results) -> Table:
    """Nanoseconds per step and environment; `cases` go through all the names size by size."""
    cells = [f"{1e9 / results[case].rate:,.2f}" if case in results else "" for case in cases]
    rows = []
    for start in range(0, len(cases), len(names)):
        size = f"{cases[start].length:,}", f"{cases[start].num:,}"
        rows.append([*size, *cells[start : start + len(names)]])
    return table(title, ("cells", "envs", *(LABELS[name] for name in names)), rows)


def verdicts(marks: list[dict[str, Any]]) -> Table:
    words = {None: "not measured", True: "yes", False: "no"}
    rows = [
        [
            mark["name"],
            "" if mark["ratio"] is None else f"{mark['ratio']:.2f}",
            f"{mark['wanted']:.3g}",
            words[mark["reached"]],
        ]
        for mark in marks
    ]
    return table("Marks", ("mark", "measured", "wanted", "reached"), rows)


def run(options: argparse.Namespace) -> None:
    plan = QUICK if options.quick else FULL
    if options.json not in (None, "-") and not Path(options.json).absolute().parent.is_dir():
        raise UsageError(f"there is no directory to write {options.json} into: make it first")
    pinned = ["--seconds", str(plan.seconds), "--pin"]
    free = pinned[:-1] if options.all_cores else pinned
    with contextlib.ExitStack() as stack:

        def start(*python: str, options: list[str]) -> Worker:
            worker = Worker([*python, SCRIPT, *options], UNCACHED)
            stack.callback(worker.close)
            return worker

        workers = dict.fromkeys(LABELS, start(sys.executable, options=free))
        workers |= dict.fromkeys(RAW, start(sys.executable, options=pinned))
        headline = DYNAMICS + ENVIRONMENTS
        if options.peers:
            python = str(peers_python(options.peers_venv))
            workers |= dict.fromkeys(FOREIGN, start(python, "-I", options=free))
        else:
            headline = [case for case in headline if case.name not in FOREIGN]
        log(f"{len(headline)} contestants in {plan.rounds} rounds")
        results, absent = take_turns(headline, plan.rounds, plan.seconds, workers)
        lengths = [Case(name, length=size) for size in plan.lengths for name in BY_LENGTH]
        batches = [Case(name, num=size) for size in plan.batches for name in BY_BATCH]
        fits = [case for case in batches if case.num <= LARGEST.get(case.name, case.num)]
        # A case that a mark compares gets no extra rounds here: its rival has none either.
        rest = [case for case in dict.fromkeys(lengths + fits) if case not in results]
        log(f"cost against length and batch: {len(rest)} cases in {plan.curve_rounds} rounds")
        results |= take_turns(rest, plan.curve_rounds, plan.seconds, workers)[0]
    if not options.peers:
        absent |= dict.fromkeys(FOREIGN, "left out by --no-peers")
    figures = {"all_cores": options.all_cores, **document(plan, results, absent)}
    console = Console(stderr=options.json == "-", highlight=False)
    console.print(rates("Raw dynamics, all equal to the bit; one core", DYNAMICS, results))
    cores = "all cores" if options.all_cores else "one core"
    console.print(rates(f"Environments; {cores}", ENVIRONMENTS, results))
    console.print(costs("ns per step against length", BY_LENGTH, lengths, results))
    console.print(costs("ns per step and environment against batch", BY_BATCH, batches, results))
    console.print(verdicts(figures["marks"]))
    write_figures(figures, options.json)


def main() -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="write every figure to FILE; - is stdout")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows it works")
    parser.add_argument(
        "--no-peers",
        dest="peers",
        action="store_false",
        help="leave gymnax and XLand-MiniGrid out, and install nothing",
    )
    parser.add_argument(
        "--peers-venv",
        type=Path,
        metavar="DIR",
        default=cache / "tapebench" / "peers",
        help="their virtual environment, made if missing (default: %(default)s)",
    )
    parser.add_argument(
        "--all-cores", action="store_true", help="do not bind the environments to one core"
    )
    options = parser.parse_args()
    return exit_code("throughput.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
