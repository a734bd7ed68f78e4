"""Runs side by side in one program: the seeds of a setting, vmapped.

Meant for a GPU, which one small network does not fill; tested on a CPU alone. Everything happens in
this process, on JAX's default device. A core of its own for each run, as `sweep` gives it, is
faster where there are only cores.

A run's rows do not depend on which seeds share the program, but the last bits may depend on how
many: a device sums batches of another size in another order. Provenance says how many.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tapebench.base import files
from tapebench.runs import store, sweep, training
from tapebench.runs.sweep import Change, Failure, Ledger, Order, Queue
from tapebench.runs.training import RunSpec

TOGETHER = 8
"""Runs at a time by default."""


@dataclass(frozen=True)
class Vmap:
    """This process, with up to `together` runs of one setting in one program."""

    together: int = TOGETHER
    log: str | None = None
    anew: bool = False
    name: str = "vmap"

    @property
    def slots(self) -> int:
        return self.together

    def run(
        self,
        specs: Sequence[RunSpec],
        root: Path,
        report: training.ReportProgress,
        change: Change = sweep.unwatched,
    ) -> list[Failure]:
        if self.together < 1:
            raise ValueError(f"together must be at least 1, not {self.together}")
        if self.log is not None:
            sweep.check_logger(self.log)
        training.use_compilation_cache()
        queue = Queue(specs)
        ledger = Ledger(queue, change)
        with _heeded_interrupts() as is_asked_to_stop:
            while queue:
                orders = gather(queue, self.together)
                if orders:
                    self._make(orders, root, ledger, report, is_asked_to_stop)
                elif is_asked_to_stop():
                    raise training.Stopped
                else:
                    time.sleep(queue.pause or 0.0)
        return ledger.failures

    def _make(
        self,
        orders: Sequence[Order],
        root: Path,
        ledger: Ledger,
        report: training.ReportProgress,
        stop: Callable[[], bool],
    ) -> None:
        """One attempt at some runs that differ in their seeds alone."""
        with ExitStack() as held:
            held_orders, runs = [], []
            for order in orders:
                spec, is_first = order.spec, order.attempt == 1
                try:
                    opened = held.enter_context(
                        store.open_run(root, spec.id, spec.as_dict(), anew=self.anew and is_first)
                    )
                except files.BusyError:
                    ledger.settle(order, {"busy": True})
                    continue
                except ValueError as error:
                    ledger.settle(order, {"error": str(error)})
                    continue
                ledger.change(str(spec.id), "running", "")
                log, close_log = sweep.open_log(self.log, spec, root)
                held.callback(close_log)
                held_orders.append(order)
                runs.append(training.OpenRun(spec, opened, log))
            try:
                training.run_together(runs, report=report, stop=stop)
                answer = {}
            except Exception as error:
                for run in runs:
                    with (run.opened.path / sweep.LOG).open("a") as file:
                        traceback.print_exc(file=file)
                answer = {"error": sweep.in_a_line(error)}
        for order in held_orders:
            ledger.settle(order, answer)


def gather(queue: Queue, most: int) -> list[Order]:
    """The next run, and those after it that differ from it in their seeds alone.

    A run that failed together with others is retried alone.
    """
    orders: list[Order] = []
    while len(orders) < most and (order := queue.take(orders[0].spec.agent if orders else None)):
        if orders and not _is_alike(orders[0], order):
            queue.put(order)
            break
        orders.append(order)
        if order.attempt > 1:
            break
    return orders


def _is_alike(a: Order, b: Order) -> bool:
    return a.attempt == b.attempt and replace(a.spec, seed=0) == replace(b.spec, seed=0)


@contextmanager
def _heeded_interrupts() -> Iterator[Callable[[], bool]]:
    """Record Ctrl-C instead of raising it, so that runs can store their states."""
    is_interrupted = False

    def heed(number: int, frame: object) -> None:
        nonlocal is_interrupted
        if not is_interrupted:
            print("tape: storing the states of the runs", file=sys.stderr)
        is_interrupted = True

    before = signal.signal(signal.SIGINT, heed)
    try:
        yield lambda: is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
