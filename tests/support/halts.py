"""Processes that stop themselves at a point of a run, so that an accident never comes too late.

A run of the tests is over within a second. Whoever waits for its reports and kills then may hit a
process that has nothing left to lose. So the process waits instead: just before it names a file,
with its content written aside, it stops until the test has done what it wants to.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HALTING = Path(__file__).parent / "halting"

LONGEST = 600.0
"""Seconds until a process comes to a point, most of which it would compile."""


class Halts:
    """Points at which a process that is started with `environment` stops, each once."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    @property
    def environment(self):
        path = os.pathsep.join([str(HALTING), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {"PYTHONPATH": path, "TAPE_HALTS": str(self.folder)}

    def add(self, run, file):
        """Whoever makes this run stops before that file, or the checkpoint of a step, is there."""
        name = f"{file:012d}.json" if isinstance(file, int) else file
        point = self.folder / f"{str(run).replace('/', '+')}+{name}"
        for last_time in self.folder.glob(f"{point.name}.*"):
            last_time.unlink()
        point.touch()
        return point

    @contextmanager
    def met(self, points, accident) -> Iterator[None]:
        """Call `accident(pids)` once all of the points have stopped a process.

        The processes that survive it go on. It is an error if the block ends before.
        """
        errors: list[BaseException] = []
        is_over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(points, accident, is_over, errors))
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
        if errors:
            raise errors[0]

    def _watch(self, points, accident, is_over, errors):
        pids = []
        try:
            pids = self.wait(points, lambda: not is_over.is_set())
            accident(pids)
        except BaseException as error:
            errors.append(error)
        finally:
            release(pids)

    def wait(self, points, is_awaited=lambda: True):
        """The processes that have stopped at these points, one each."""
        pids, until = [], time.monotonic() + LONGEST
        for point in points:
            while not (stopped := [pid for pid in self._pids(point) if state(pid) == "T"]):
                came_in_time = is_awaited() and time.monotonic() < until
                assert came_in_time, f"nobody came to {point.name}"
                time.sleep(0.005)
            pids += stopped
        return pids

    def end(self):
        """A test that failed may have left processes that nobody lets go on."""
        for path in self.folder.glob("*.[0-9]*"):
            if state(pid := int(path.suffix[1:])) == "T":
                os.kill(pid, signal.SIGKILL)

    def _pids(self, point):
        return [int(path.suffix[1:]) for path in self.folder.glob(f"{point.name}.[0-9]*")]


def release(pids):
    """Let processes go on, those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def state(pid):
    """How a process is, in the kernel's letters: T if it was stopped by a signal, Z if it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def wait_for_end(pid):
    while state(pid) != "Z":
        time.sleep(0.005)
