"""Where the runs of a sweep are made: this machine's cores or its GPU, a Ray cluster, or Slurm.

An executor is a value with a `run`. All of them lock runs in the results directory, so a sweep may
be stopped under one executor and resumed under another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from tapebench.runs import sweep, training
from tapebench.runs.sweep import Change, Failure
from tapebench.runs.training import RunSpec

NAMES = ("local", "vmap", "ray", "slurm")


class Executor(Protocol):
    """Makes runs. When interrupted, it stores states from which they resume."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int:
        """Runs at a time, as far as known before the start."""
        ...

    def run(
        self, specs: Sequence[RunSpec], root: Path, report: training.ReportProgress, change: Change
    ) -> list[Failure]:
        """Make every run and return those that failed."""
        ...


@dataclass(frozen=True)
class Local:
    """Long-lived processes of this machine, one for each core."""

    workers: int | None = None
    name: str = "local"

    @property
    def slots(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))

    def run(
        self, specs: Sequence[RunSpec], root: Path, report: training.ReportProgress, change: Change
    ) -> list[Failure]:
        return sweep.run_all(specs, root, workers=self.workers, report=report, change=change)


def require(package: str, extra: str) -> None:
    """Raise unless a package is installed, naming the extra that brings it."""
    if find_spec(package) is None:
        raise ValueError(f"--executor {extra} needs {package}: pip install 'tapebench[{extra}]'")
