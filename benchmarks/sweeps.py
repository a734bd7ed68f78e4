"""What a second core is worth to a sweep, and what Ray costs a run.

    python benchmarks/sweeps.py [--json FILE] [--quick] [--no-ray]

A sweep of eight runs of DQN at 32 cells is made with one worker and with two, in turn over several
rounds; the best round of each counts. Programs are compiled before, so that it is the work that is
measured and not the filling of the cache. Then the same runs go through a Ray instance of this
machine with as many workers; what is more, divided by the runs and times the workers, is the
overhead of a run. Starting Ray is measured apart. As Ray would listen to the network, all of this
happens in a namespace with loopback alone; where there is none to be had, Ray is left out. Only on
a quiet machine do the figures mean anything: each worker wants a core of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import UsageError, exit_code, log, machine, table, write_figures
from tapebench.runs import sweep
from tapebench.runs.executors import Executor, Local
from tapebench.runs.training import RunSpec

RUNS = 8
SPEC = RunSpec(
    agent="dqn",
    seed=0,
    experiment="sweeps",
    steps=50_000,
    evaluate_every=10_000,
    episodes=10,
    last=3,
    track="lite-1",
)


@dataclass(frozen=True)
class Mark:
    """A figure that the project promises."""

    name: str
    threshold: float
    measured: float

    @property
    def reached(self) -> bool:
        return self.measured >= self.threshold


class Clock:
    """Seconds from the first report of a sweep, when its workers are at work, to its end."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first: float | None = None

    def report(self, event: dict[str, Any]) -> None:
        self.first = self.first or time.monotonic()

    def seconds(self) -> tuple[float, float]:
        """From start to end, and from the first report to the end."""
        now = time.monotonic()
        return now - self.began, now - (self.first or now)


def measure(executor: Executor, specs: list[RunSpec], folder: Path) -> tuple[float, float]:
    """Make the runs in an empty directory."""
    root = Path(tempfile.mkdtemp(dir=folder))
    clock = Clock()
    failures = executor.run(specs, root, clock.report, sweep.unwatched)
    spent = clock.seconds()
    shutil.rmtree(root)
    if failures:
        raise UsageError(f"{failures[0].run} failed: {failures[0].reason}")
    return spent


def run(options: argparse.Namespace) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        raise UsageError("two cores are needed to compare with one")
    spec = replace(SPEC, steps=2_000, evaluate_every=1_000, last=1) if options.quick else SPEC
    specs = [replace(spec, seed=seed) for seed in range(2 if options.quick else RUNS)]
    rounds = 1 if options.quick else 3
    contestants: dict[str, Executor] = {"one worker": Local(1), "two workers": Local(2)}
    if not options.no_ray and find_spec("ray"):
        from tapebench.runs.executors.ray import Ray

        contestants["ray, two workers"] = Ray("local", 2)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        sweep.run_all(specs[:2], Path(folder) / "warm", workers=1)
        for number in range(rounds):
            for name, executor in contestants.items():
                log(f"round {number + 1}/{rounds}: {name}")
                seconds[name].append(measure(executor, specs, Path(folder)))
    whole = {name: min(spent for spent, _ in times) for name, times in seconds.items()}
    at_work = {name: min(spent for _, spent in times) for name, times in seconds.items()}
    speed_up = whole["one worker"] / whole["two workers"]
    marks = [Mark("two cores against one", 1.8, speed_up)]
    console = Console(stderr=options.json == "-", highlight=False)
    rows = [
        [name, f"{whole[name]:.1f}", f"{at_work[name]:.1f}", f"{len(specs) / whole[name] * 60:.1f}"]
        for name in contestants
    ]
    columns = ("executor", "seconds", "without start-up", "runs a minute")
    console.print(table(f"A sweep of {len(specs)} runs", columns, rows))
    overhead = None
    if "ray, two workers" in contestants:
        more = at_work["ray, two workers"] - at_work["two workers"]
        overhead = 2 * more / len(specs)
        start_up = whole["ray, two workers"] - at_work["ray, two workers"]
        console.print(f"Ray: {overhead:+.2f} s a run against local; {start_up:.1f} s to start")
    verdicts = [
        [mark.name, f"{mark.measured:.2f}", f"{mark.threshold:g}", "yes" if mark.reached else "no"]
        for mark in marks
    ]
    console.print(table("Marks", ("mark", "measured", "wanted", "reached"), verdicts))
    document = {
        "machine": machine(),
        "runs": len(specs),
        "spec": asdict(spec),
        "seconds": seconds,
        "ray_overhead_per_run": overhead,
        "marks": [asdict(mark) | {"reached": mark.reached} for mark in marks],
    }
    write_figures(document, options.json)


def namespace() -> list[str] | None:
    """What to put before a command so that it finds no network; None if that cannot be done."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = ["unshare", *user, *spaces, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True)
    except OSError:
        return None
    return None if done.returncode else command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--json", metavar="FILE", help="write every figure to FILE; - is stdout")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--no-ray", action="store_true", help="only this machine's own workers")
    options = parser.parse_args()
    is_alone = {name for _, name in socket.if_nameindex()} == {"lo"}
    if find_spec("ray") and not options.no_ray and not is_alone:
        if before := namespace():
            return subprocess.run([*before, sys.executable, *sys.argv]).returncode
        log("there is no namespace to be had: Ray is left out")
        options.no_ray = True
    return exit_code("sweeps.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
