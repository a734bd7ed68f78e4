"""Many runs: which of them are missing, and processes that make them.

A worker is a process of its own, bound to one core and single-threaded, that makes one run after
another and so keeps its compiled programs warm. Small networks gain nothing from more threads, and
the result of a run does not depend on what runs beside it. Orders and answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tapebench import store, training
from tapebench.training import RunSpec

ATTEMPTS = 2
"""How often a run is begun whose worker dies under it, before it is given up."""

SINGLE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}

LOGGERS = ("tensorboard", "wandb")


def missing(specs: Iterable[RunSpec], root: Path) -> list[RunSpec]:
    """The runs that are not done, in the given order, each once."""
    wanted = {str(spec.id): spec for spec in specs}
    return [spec for name, spec in wanted.items() if not (root / name / store.MARKER).is_file()]


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    run: str
    reason: str


def run_all(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    workers: int | None = None,
    report: training.Report = lambda event: None,
    log: str | None = None,
    anew: bool = False,
) -> list[Failure]:
    """Make every run, some at a time; those that failed.

    Interrupted, the workers store their states, and the same call goes on from there.
    """
    if log is not None:
        check_logger(log)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers or len(cores), len(specs))
    waiting = deque((spec, 1) for spec in specs)
    failures: list[Failure] = []
    crew = [_Worker(cores[number % len(cores)]) for number in range(count)]
    try:
        with selectors.DefaultSelector() as selector:
            for worker in crew:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
                worker.give(waiting, root, log, anew)
            while any(worker.busy for worker in crew):
                events = [
                    (entry.data, event)
                    for entry, _ in selector.select()
                    for event in entry.data.listen()
                ]
                for worker, event in events:
                    if "step" in event:
                        report(event)
                        continue
                    spec, attempt = worker.busy
                    worker.busy = None
                    if "error" in event:
                        failures.append(Failure(str(spec.id), event["error"]))
                    elif "died" in event:
                        selector.unregister(worker.answers)
                        worker.close()
                        worker.start()
                        selector.register(worker.answers, selectors.EVENT_READ, worker)
                        if attempt < ATTEMPTS:
                            waiting.appendleft((spec, attempt + 1))
                        else:
                            reason = f"its process ended twice ({_ending(event['died'])})"
                            failures.append(Failure(str(spec.id), reason))
                    worker.give(waiting, root, log, anew)
    finally:
        for worker in crew:
            worker.close()
    return failures


def _ending(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


class _Worker:
    """A worker process, seen from the parent."""

    def __init__(self, core: int) -> None:
        self.core = core
        self.busy: tuple[RunSpec, int] | None = None
        self.start()

    def start(self) -> None:
        self.heard = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tapebench.sweep", str(self.core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **SINGLE_THREAD},
        )

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def listen(self) -> list[dict[str, Any]]:
        """What the worker has said since; that it died, if nothing more will come."""
        data = os.read(self.answers.fileno(), 1 << 16)
        if not data:
            return [{"died": self.process.wait()}]
        *lines, self.heard = (self.heard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def give(
        self, waiting: deque[tuple[RunSpec, int]], root: Path, log: str | None, anew: bool
    ) -> None:
        """Hand over the next run, if there is one."""
        if not waiting:
            return
        self.busy = spec, attempt = waiting.popleft()
        # A second attempt goes on from where the first one died.
        order = {"spec": asdict(spec), "root": str(root), "log": log, "anew": anew and attempt == 1}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """Let the worker end: it stores the state of the run it is in, and goes."""
        if self.process.poll() is None and self.busy:
            self.process.send_signal(signal.SIGINT)
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        # It may still be telling how far it is: read on, lest it wait for a full pipe.
        while os.read(self.answers.fileno(), 1 << 16):
            pass
        self.answers.close()
        self.process.wait()


def check_logger(name: str) -> None:
    """Refuse a logger that is unknown or not installed."""
    from importlib.util import find_spec

    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}: use {' or '.join(LOGGERS)}")
    module = {"tensorboard": "tensorboardX", "wandb": "wandb"}[name]
    if find_spec(module) is None:
        raise ValueError(f"logging to {name} needs {module}: pip install 'tapebench[tracking]'")


def open_log(
    name: str | None, spec: RunSpec, root: Path
) -> tuple[Callable[[int, dict[str, float]], Any], Callable[[], Any]]:
    """What takes a run's scalars, and what closes it."""
    if name == "tensorboard":
        from tensorboardX import SummaryWriter

        writer = SummaryWriter(str(root / str(spec.id) / "tensorboard"))

        def write(step: int, scalars: dict[str, float]) -> None:
            for key, value in scalars.items():
                writer.add_scalar(key, value, step)

        return write, writer.close
    if name == "wandb":
        import wandb

        tracked = wandb.init(
            project="tapebench",
            name=str(spec.id),
            dir=str(root),
            config=spec.as_dict(),
            mode=None if os.environ.get("WANDB_API_KEY") else "offline",
        )
        return lambda step, scalars: tracked.log(scalars, step=step), tracked.finish
    return lambda step, scalars: None, lambda: None


def work(core: int) -> None:
    """A worker's life: take orders from standard input until there are no more."""
    os.sched_setaffinity(0, {core})
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asked_to_stop = False

    def stop(number: int, frame: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    def answer(event: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(event) + "\n")
        except BrokenPipeError:
            stop(0, None)  # nobody listens any more

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    training.use_compilation_cache()
    for line in sys.stdin:
        order = json.loads(line)
        root = Path(order["root"])
        try:
            spec = training.from_dict(order["spec"])
            log, close_log = open_log(order["log"], spec, root)
            try:
                training.run(
                    spec,
                    root,
                    report=answer,
                    stop=lambda: asked_to_stop,
                    log=log,
                    anew=order["anew"],
                )
            finally:
                close_log()
            answer({"done": str(spec.id)})
        except training.Stopped:
            return
        except (ValueError, MemoryError) as error:
            answer({"error": " ".join(str(error).split()) or type(error).__name__})


if __name__ == "__main__":
    work(int(sys.argv[1]))
