"""Runs as tasks of a Ray cluster.

Each run is one task on one core. Ray restarts a task whose process or node is lost, and it resumes
from the run's last checkpoint if that is visible on its node. If every node sees the
results directory, runs are written there; else they are made in a scratch directory of the node
and their files come back through Ray's object store, while the driver holds their locks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tapebench.base.files import BusyError, write_bytes
from tapebench.runs import store, sweep, training
from tapebench.runs.executors import require
from tapebench.runs.sweep import Change, Failure, Ledger, Order, Queue
from tapebench.runs.training import RunSpec

RETRIES = 5
"""How often Ray restarts a task whose process or node was lost."""

INTERVAL = 0.5
"""Seconds from one report of a task to the next."""

FAREWELL = 30.0
"""Seconds that interrupted tasks get to store their states."""


@dataclass(frozen=True)
class Ray:
    """A cluster: `auto` for the one that this machine is part of, `local` for one of its own.

    The latter only where there is no network, for measurements.
    """

    address: str = "auto"
    workers: int | None = None
    """Tasks at a time; by default as many as the cluster has cores."""
    bring_back: bool = False
    """Do not check whether the nodes see the results directory."""
    insecure: bool = False
    """Join a cluster without a token: whoever can reach it can run anything on it."""
    name: str = "ray"

    @property
    def slots(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))

    def run(
        self, specs: Sequence[RunSpec], root: Path, report: training.ReportProgress, change: Change
    ) -> list[Failure]:
        require("ray", "ray")
        with _connected(self.address, self.slots, self.insecure):
            return _Driver(self, root.resolve(), report, change).run(specs)


_OPEN = (
    "a Ray cluster without a token lets everybody run anything on it: "
    "`ray get-auth-token --generate` makes one, `export RAY_AUTH_MODE=token` on every node "
    "and here uses it; --insecure joins one without"
)

_KNOCK = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=30)
except AuthenticationError:
    print("refused")
"""


def _check_closed(address: str) -> None:
    """Refuse a cluster that accepts connections without a token.

    A cluster that needs no token accepts a driver with one, so another process tries without.
    It has to be another process, as Ray reads its settings once.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    knock = subprocess.run(
        [sys.executable, "-P", "-c", _KNOCK, address],
        env=ours | {"RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
    )
    if knock.stdout.split() != ["refused"]:
        raise ValueError(_OPEN)


@contextmanager
def _connected(address: str, cores: int, insecure: bool = False) -> Iterator[None]:
    is_asked = address != "local" and not insecure
    # Unless told so Ray uses no token, with `ray start` not even if there is one.
    if is_asked and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ValueError(_OPEN)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address}
    with ExitStack() as stack:
        if address == "local":
            _check_alone()
            stack.enter_context(_token())
            options |= {
                "num_cpus": cores,
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
            }
        import ray

        try:
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            message = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise ValueError(
                f"cannot join a Ray cluster at {address!r} ({message}): start one with "
                "`RAY_AUTH_MODE=token ray start --head`, and have its token here"
            ) from None
        stack.callback(ray.shutdown)
        if is_asked:
            _check_closed(ray.get_runtime_context().gcs_address)
        # Ray prints what its nodes complain about; standard output is for results.
        stack.enter_context(redirect_stdout(sys.stderr))
        yield


def _check_alone() -> None:
    """Refuse to start servers that others could reach.

    Ray listens on every address as soon as there is a way out of the machine, whatever it is told.
    """
    if {name for _, name in socket.if_nameindex()} != {"lo"}:
        raise ValueError(
            "a Ray of one's own would listen to the network: use --executor local, or start a "
            "cluster with `RAY_AUTH_MODE=token ray start --head` if you want that"
        )


@contextmanager
def _token() -> Iterator[None]:
    """Start clusters with a token that only this user can read."""
    file = Path(_token_directory().name) / "token"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(32))
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _token_directory() -> tempfile.TemporaryDirectory[str]:
    """One for the life of the process: Ray reads a token only once."""
    return tempfile.TemporaryDirectory()


class _Board:
    """An actor to which tasks report their progress, and which tells them to stop."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_stopping = False

    def tell(self, event: dict[str, Any]) -> bool:
        self.events.append(event)
        return self.is_stopping

    def drain(self) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        return events

    def stop(self) -> None:
        self.is_stopping = True


def _make(
    order: dict[str, Any], board: Any, token: str | None, begun: Mapping[str, bytes]
) -> dict[str, Any]:
    """The task: one attempt at a run.

    With a `token`, a file in the results directory, results go there. Without one they are made in
    a scratch directory, from what was `begun`, and the answer holds the `files`.
    """
    os.environ.update(sweep.SINGLE_THREAD)
    training.use_compilation_cache()
    root, name = Path(order["root"]), order["run"]
    if token is None:
        mark = hashlib.sha256(f"{order['driver']}:{root}".encode()).hexdigest()[:16]
        root = _scratch() / mark
        if begun and not (root / name).exists():
            _unpack(root / name, begun)
    elif not (root / token).is_file():
        return {"error": f"{platform.node()} does not see {root}: use --bring-back"}
    last, is_stopping = 0.0, False

    def report(event: dict[str, Any]) -> None:
        nonlocal last, is_stopping
        if time.monotonic() - last >= INTERVAL or event["step"] >= event["steps"]:
            import ray

            # A board that was lost with its node costs the display, not the run.
            with suppress(ray.exceptions.RayError):
                is_stopping = ray.get(board.tell.remote(event), timeout=10)
            last = time.monotonic()

    try:
        answer = sweep.make_run({**order, "root": str(root)}, report, lambda: is_stopping)
    except training.Stopped:
        answer = {"stopped": name}
    if token is None and (root / name).is_dir() and "busy" not in answer:
        answer["files"] = store.read_files(root / name)
        if "done" in answer:
            shutil.rmtree(root / name, ignore_errors=True)
    return answer


def _scratch() -> Path:
    """A directory of this node that only this user can write to."""
    folder = Path(tempfile.gettempdir()) / f"tapebench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise ValueError(f"{folder} belongs to somebody else: set TMPDIR")
    return folder


def _unpack(path: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path / name, data)


def _sees(path: str) -> bool:
    return Path(path).is_file()


@dataclass
class _Held:
    """A run at work, and the lock that the driver holds on it while results come back."""

    order: Order
    lock: ExitStack
    opened: store.Run | None = None


class _Driver:
    """One sweep, seen from the process that was started by the user."""

    def __init__(
        self, executor: Ray, root: Path, report: training.ReportProgress, change: Change
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray: Any = ray
        self.executor, self.root = executor, root
        self.report, self.change = report, change
        this_node = NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self.board: Any = (
            ray.remote(_Board).options(num_cpus=0, scheduling_strategy=this_node).remote()
        )
        self.task = ray.remote(_make).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": sweep.SINGLE_THREAD}
        )
        self.at_work: dict[Any, _Held] = {}
        self.counted = 0.0
        self.cores = 1

    def run(self, specs: Sequence[RunSpec]) -> list[Failure]:
        queue = Queue(specs)
        ledger = Ledger(queue, self.change)
        token = f".seen-{uuid.uuid4().hex}"
        (self.root / token).touch()
        try:
            self.token = token if self._is_shared(token) else None
            while queue or self.at_work:
                while len(self.at_work) < self._limit() and (order := queue.take()):
                    self._submit(order, ledger)
                self._listen(ledger, queue.pause)
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            (self.root / token).unlink(missing_ok=True)
            for held in self.at_work.values():
                held.lock.close()
        return ledger.failures

    def _is_shared(self, token: str) -> bool:
        """Whether every node sees a file of the results directory."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self.executor.bring_back:
            return False
        look = self.ray.remote(_sees)
        answers = [
            look.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(str(self.root / token))
            for node in self.ray.nodes()
            if node["Alive"]
        ]
        try:
            return all(self.ray.get(answers, timeout=120))
        except self.ray.exceptions.RayError:
            return False

    def _limit(self) -> int:
        if self.executor.workers:
            return self.executor.workers
        if time.monotonic() - self.counted > 2:  # nodes come and go
            self.cores = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.counted = time.monotonic()
        return self.cores

    def _submit(self, order: Order, ledger: Ledger) -> None:
        spec = order.spec
        held, begun = _Held(order, ExitStack()), {}
        if self.token is None:
            try:
                held.opened = held.lock.enter_context(
                    store.open_run(self.root, spec.id, spec.as_dict())
                )
            except BusyError:
                return ledger.settle(order, {"busy": True})
            except ValueError as error:
                return ledger.settle(order, {"error": str(error)})
            if held.opened.is_done:
                held.lock.close()
                return ledger.settle(order, {})
            begun = store.read_files(held.opened.path)
        request = {
            "spec": json.loads(json.dumps(asdict(spec))),
            "run": str(spec.id),
            "root": str(self.root),
            "driver": platform.node(),
        }
        self.change(str(spec.id), "running", "")
        self.at_work[self.task.remote(request, self.board, self.token, begun)] = held
        return None

    def _listen(self, ledger: Ledger, pause: float | None) -> None:
        """Wait a moment for tasks to end, and collect their reports."""
        if not self.at_work:
            time.sleep(min(pause or 0.0, sweep.PATIENCE))
            return
        ready, _ = self.ray.wait(list(self.at_work), timeout=INTERVAL)
        with suppress(self.ray.exceptions.RayError):
            for event in self.ray.get(self.board.drain.remote(), timeout=10):
                self.report(event)
        for ref in ready:
            held = self.at_work.pop(ref)
            ledger.settle(held.order, self._take(ref, held))

    def _take(self, ref: Any, held: _Held) -> dict[str, Any]:
        """The answer of a task, once its files are stored."""
        with held.lock:
            try:
                answer: dict[str, Any] = self.ray.get(ref)
                if held.opened is not None and "files" in answer:
                    held.opened.receive(answer["files"])
            except self.ray.exceptions.RayError as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                # Of an error in a task the last line says what it was, as in any trace.
                is_ours = isinstance(error, self.ray.exceptions.RayTaskError)
                message = lines[-1 if is_ours else 0] if lines else ""
                return {"error": f"{type(error).__name__}: {message}"[:300]}
            except ValueError as error:
                return {"error": str(error)}
        return answer

    def _stop(self) -> None:
        """Tell the tasks to store their states and end."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.get(self.board.stop.remote(), timeout=10)
            refs = list(self.at_work)
            if refs:
                self.ray.wait(refs, num_returns=len(refs), timeout=FAREWELL)
            for ref, held in self.at_work.items():
                if self.ray.wait([ref], timeout=0)[0]:
                    self._take(ref, held)
