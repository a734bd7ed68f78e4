"""Many runs: which of them are missing, and processes that make them.

A worker is a process of its own, bound to one core and single-threaded, that makes one run after
another and so keeps its compiled programs warm. Small networks gain nothing from more threads, and
the result of a run does not depend on other runs. Orders and answers are lines of JSON.

The results directory is all that sweeps have in common: a run with a marker is done, and one whose
lock is held is being made by somebody else. So several sweeps on one directory share the work.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import netrc
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from tapebench.base import files
from tapebench.runs import store, training
from tapebench.runs.training import RunSpec

ATTEMPTS = 2
"""Attempts at a run that fails or whose worker dies."""

PATIENCE = 1.0
"""Seconds before a run that another process holds is tried again."""

LOG = store.LOG
"""In a run's directory: what was printed while it was made, and why it failed."""

SINGLE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}

LOGGERS = ("tensorboard", "wandb")


def missing(specs: Iterable[RunSpec], root: Path) -> list[RunSpec]:
    """The runs that are not finished and sound, in the given order, each once."""
    specs_by_name = {str(spec.id): spec for spec in specs}
    # Plain strings: there may be a hundred thousand.
    return [
        spec
        for name, spec in specs_by_name.items()
        if not store.is_finished(f"{root}{os.sep}{name}")
    ]


def damaged(specs: Iterable[RunSpec], root: Path) -> dict[str, str]:
    """Those of these runs that were finished and are damaged now, each with the reason."""
    reasons = {
        str(spec.id): store.damage(root / str(spec.id))
        for spec in specs
        if store.has_marker(root / str(spec.id))
    }
    return {name: reason for name, reason in reasons.items() if reason}


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    run: str
    reason: str


Change = Callable[[str, str, str], Any]
"""`change(run, state, reason)`: a run is `running`, `elsewhere` (another process makes it), tried
`again`, `failed` or `done`."""


def unwatched(run: str, state: str, reason: str) -> None:
    """A `Change` that does nothing."""


class Order(NamedTuple):
    """A run to make, and which attempt it is."""

    spec: RunSpec
    attempt: int = 1


class Queue:
    """Runs that wait for a worker."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self._waiting: dict[str, deque[Order]] = {}
        self._later: list[tuple[float, int, Order]] = []
        self._count = 0
        for spec in specs:
            self._waiting.setdefault(spec.agent, deque()).append(Order(spec))

    def __bool__(self) -> bool:
        return bool(self._waiting or self._later)

    def take(self, warm: str | None = None, others: Iterable[str] = ()) -> Order | None:
        """The next run: of the agent that is `warm`, else of one that no other worker trains."""
        while self._later and self._later[0][0] <= time.monotonic():
            self.put(heapq.heappop(self._later)[2])
        if not self._waiting:
            return None
        taken = set(others)
        free = (agent for agent in self._waiting if agent not in taken)
        agent = warm if warm in self._waiting else next(free, next(iter(self._waiting)))
        assert agent is not None
        order = self._waiting[agent].popleft()
        if not self._waiting[agent]:
            del self._waiting[agent]
        return order

    def put(self, order: Order) -> None:
        """Queue a run, to be made next."""
        self._waiting.setdefault(order.spec.agent, deque()).appendleft(order)

    def put_off(self, order: Order) -> None:
        """Postpone a run that another process holds."""
        self._count += 1
        heapq.heappush(self._later, (time.monotonic() + PATIENCE, self._count, order))

    @property
    def pause(self) -> float | None:
        """Seconds until a postponed run is due; None if there is none."""
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else None


class Ledger:
    """How the runs of a sweep ended, and which are tried again. All executors keep one."""

    def __init__(self, queue: Queue, change: Change) -> None:
        self.queue, self.change = queue, change
        self.failures: list[Failure] = []

    def settle(self, order: Order, answer: Mapping[str, Any]) -> None:
        """Record how an attempt ended: `done`, `busy` or `error`."""
        name = str(order.spec.id)
        if "busy" in answer:
            self.queue.put_off(order)
            self.change(name, "elsewhere", "")
        elif "error" not in answer:
            self.change(name, "done", "")
        elif order.attempt < ATTEMPTS:
            self.queue.put(order._replace(attempt=order.attempt + 1))
            self.change(name, "again", answer["error"])
        else:
            self.failures.append(Failure(name, answer["error"]))
            self.change(name, "failed", answer["error"])


def run_all(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    workers: int | None = None,
    report: training.ReportProgress = lambda event: None,
    change: Change = unwatched,
    log: str | None = None,
    anew: bool = False,
) -> list[Failure]:
    """Make every run, `workers` at a time, and return those that failed.

    When interrupted, the workers store their states, and the same call resumes from there. Runs
    that another process is making are waited for, and taken over if it dies.
    """
    if log is not None:
        check_logger(log)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers or len(cores), len(specs))
    queue = Queue(specs)
    ledger = Ledger(queue, change)
    # Each would like another core first, and takes the next one if somebody has it.
    starts = [number % len(cores) for number in range(count)]
    crew = [_Worker([*cores[start:], *cores[:start]]) for start in starts]

    def give(worker: _Worker) -> None:
        others = [other.warm for other in crew if other is not worker and other.warm]
        order = queue.take(worker.warm, others)
        if order is not None:
            change(str(order.spec.id), "running", "")
            worker.give(order, root, log, anew)

    try:
        with selectors.DefaultSelector() as selector:
            for worker in crew:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
                give(worker)
            while queue or any(worker.busy for worker in crew):
                is_anyone_idle = any(not worker.busy for worker in crew)
                ready = selector.select(queue.pause if is_anyone_idle else None)
                events = [(entry.data, event) for entry, _ in ready for event in entry.data.hear()]
                for worker, event in events:
                    if "step" in event:
                        report(event)
                        continue
                    if "died" in event:
                        selector.unregister(worker.answers)
                        event = {"error": worker.exit_message(event["died"])}
                        worker.close()
                        worker.start()
                        selector.register(worker.answers, selectors.EVENT_READ, worker)
                    if worker.busy:
                        order, worker.busy = worker.busy, None
                        ledger.settle(order, event)
                for worker in crew:
                    if not worker.busy:
                        give(worker)
    finally:
        for worker in crew:
            worker.ask_to_end()
        for worker in crew:
            worker.close()
    return ledger.failures


class _Worker:
    """A worker process, seen from the parent. It keeps to one of its cores, see `take_core`."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = cores
        self.busy: Order | None = None
        self.log = Path(os.devnull)
        self.log_size = 0
        self.start()

    def start(self) -> None:
        self.heard = b""
        self.warm: str | None = None
        self.process = subprocess.Popen(
            # -P: what lies in the current directory is not for Python to import.
            [sys.executable, "-P", "-m", "tapebench.runs.sweep", *map(str, self.cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **SINGLE_THREAD},
        )

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def hear(self) -> list[dict[str, Any]]:
        """The worker's new messages; that it died, if there will be no more."""
        data = os.read(self.answers.fileno(), 1 << 16)
        if not data:
            return [{"died": self.process.wait()}]
        *lines, self.heard = (self.heard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def give(self, order: Order, root: Path, log: str | None, anew: bool) -> None:
        """Send the worker a run."""
        spec, attempt = order
        self.busy, self.warm = order, spec.agent
        self.log = root / str(spec.id) / LOG
        self.log_size = self.log.stat().st_size if self.log.is_file() else 0
        # A second attempt goes on from where the first one died.
        request = {
            "spec": asdict(spec),
            "root": str(root),
            "log": log,
            "anew": anew and attempt == 1,
        }
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, as we shall hear
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def exit_message(self, code: int) -> str:
        """Exit code or signal, and the last line it printed."""
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        last = last_line(self.log, self.log_size)
        return f"its process ended {how}" + (f": {last}" if last else "")

    def ask_to_end(self) -> None:
        """Tell the worker to store the state of its run and exit."""
        if self.process.poll() is None and self.busy:
            self.process.send_signal(signal.SIGINT)
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def close(self) -> None:
        """Ask it to end, and wait until it has."""
        self.ask_to_end()
        # It may still be telling how far it is: read on, lest it wait for a full pipe.
        while os.read(self.answers.fileno(), 1 << 16):
            pass
        self.answers.close()
        self.process.wait()


def last_line(path: Path, start: int = 0) -> str:
    """The last line of a file that is not empty, of what comes after `start`; shortened."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def check_logger(name: str) -> None:
    """Refuse a logger that is unknown or not installed."""
    from importlib.util import find_spec

    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}: use {' or '.join(LOGGERS)}")
    module = {"tensorboard": "tensorboardX", "wandb": "wandb"}[name]
    if find_spec(module) is None:
        raise ValueError(f"logging to {name} needs {module}: pip install 'tapebench[tracking]'")


def open_log(name: str | None, spec: RunSpec, root: Path) -> tuple[training.Log, Callable[[], Any]]:
    """A function that logs a run's scalars, and one that closes the log."""
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
            mode=_wandb_mode(wandb.setup().settings),
        )
        return lambda step, scalars: tracked.log(scalars, step=step), tracked.finish
    return lambda step, scalars: None, lambda: None


def _wandb_mode(settings: Any) -> Literal["offline"] | None:
    """Offline for those who have no account: wandb would ask, and a worker cannot answer.

    Nothing, which leaves it to wandb, for those who chose a mode, in the environment or in a file,
    or who have logged in.
    """
    is_chosen = settings.mode != "online" or bool(os.environ.get("WANDB_MODE"))
    if is_chosen or settings.api_key or settings.identity_token_file:
        return None
    with suppress(OSError, netrc.NetrcParseError):
        logins = netrc.netrc(os.environ.get("NETRC"))
        if logins.authenticators(urlsplit(settings.base_url).hostname or ""):
            return None
    return "offline"


def make_run(
    order: Mapping[str, Any],
    report: training.ReportProgress,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """One attempt at a run, for any executor: whether it is `done`, `busy` or an `error`.

    What it prints goes to the run's log, and so does the trace of an error. `Stopped` if asked to.
    """
    root = Path(order["root"])
    try:
        spec = training.from_dict(order["spec"])
        with _logged(root / str(spec.id) / LOG):
            try:
                log, close_log = open_log(order.get("log"), spec, root)
                try:
                    training.run(
                        spec, root, report=report, stop=stop, log=log, anew=order.get("anew", False)
                    )
                finally:
                    close_log()
            except files.BusyError:
                return {"busy": str(spec.id)}
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()
                raise
        return {"done": str(spec.id)}
    except Exception as error:
        return {"error": in_a_line(error)}


def in_a_line(error: Exception) -> str:
    """An error's message in a line, with its type unless it is a `ValueError`."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    message = " ".join(str(error).split())[:300]
    if isinstance(error, ValueError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Append all output to a file, that of native libraries too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        with suppress(OSError):
            if not path.stat().st_size:
                path.unlink()


def take_core(cores: Sequence[int]) -> IO[str] | None:
    """Keep this process to the first of these cores that no other worker of this user has taken.

    If all are taken, to the first of them: to one in any case, since XLA compiles for as many as
    there are, and two add up in another order. A core is taken as long as the file is open.
    """
    folder = files.user_cache() / "cores"
    for core in cores:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / f"{core}.lock").open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            os.sched_setaffinity(0, {core})
            return file
    os.sched_setaffinity(0, {cores[0]})
    return None


def work(cores: Sequence[int]) -> None:
    """A worker's main loop: take orders from standard input until there are no more."""
    taken = take_core(cores)  # noqa: F841
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
        try:
            answer(make_run(json.loads(line), answer, lambda: asked_to_stop))
        except training.Stopped:
            return
        if asked_to_stop:
            return


if __name__ == "__main__":
    work([int(core) for core in sys.argv[1:]])
