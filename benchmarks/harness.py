"""What the benchmarks share: workers to measure in, and how figures are shown and kept."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table


class UsageError(Exception):
    """What was asked for cannot be done; the message says what to change."""


class Worker:
    """A process that answers each line it is sent with a line of JSON.

    It has a session of its own, so that Ctrl-C reaches only us. All compute on the same kind of
    device.
    """

    def __init__(self, command: list[str], settings: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"} | settings,
        )

    def ask(self, question: str, about: str) -> Any:
        """Send a line and wait for the answer."""
        self.tell(question)
        return self.answer(about)

    def tell(self, question: str) -> None:
        """Send a line; the answer is asked for later."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            print(question, file=self._process.stdin)

    def answer(self, about: str) -> Any:
        """The next line; if there is none, the error names what was measured."""
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the worker that measured {about} failed, see above")
        return json.loads(line)

    def close(self) -> None:
        """End the process at once, with whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    packages = ("jax", "jaxlib", "numpy", "gymnasium")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def table(title: str, header: tuple[str, ...], rows: list[list[str]]) -> Table:
    rich_table = Table(title=title, title_justify="left")
    for column in header:
        rich_table.add_column(column, justify="left" if column == header[0] else "right")
    for row in rows:
        rich_table.add_row(*row)
    return rich_table


def write_figures(figures: dict[str, Any], where: str | None) -> None:
    """Every figure as JSON into a file, to standard output (`-`), or nowhere."""
    if where == "-":
        print(json.dumps(figures, indent=2))
    elif where:
        partial = Path(f"{where}.partial")
        partial.write_text(json.dumps(figures, indent=2) + "\n")
        partial.replace(where)


def exit_code(name: str, benchmark: Callable[[], None]) -> int:
    """Run a benchmark; what goes wrong is one line, and the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        benchmark()
    except UsageError as error:
        log(f"{name}: {error}")
        return 2
    except RuntimeError as error:
        log(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        log("interrupted")
        return 128 + signal.SIGINT
    return 0
