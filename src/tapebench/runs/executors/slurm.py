"""Runs as a Slurm job array, through submitit.

Each job of the array goes once through the list of missing runs, beginning at its own index, and
makes those that are neither done nor locked by another: the results directory is the queue. So it
does not matter when a job starts, whether it is requeued, or how many there are. Each job appends
its reports to a file of its own, which the driver follows.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.runs import store, sweep, training
from tapebench.runs.executors import require
from tapebench.runs.sweep import Change, Failure
from tapebench.runs.training import RunSpec

ROUNDS = 3
"""Arrays that are submitted, if runs are still missing when all jobs of one have ended."""

INTERVAL = 1.0
"""Seconds between two reports of a job, and between two polls of the driver."""

ASK = 10.0
"""Seconds between two queries to Slurm."""


@dataclass(frozen=True)
class Slurm:
    """A job array. `cluster` is `slurm`, or `local` for processes of this machine."""

    jobs: int = 8
    minutes: int = 240
    """Time limit of a job; one that reaches it is requeued and resumes."""
    memory_gb: float = 3.0
    partition: str | None = None
    account: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Any other options of sbatch."""
    cluster: str = "slurm"
    name: str = "slurm"

    @property
    def slots(self) -> int:
        return self.jobs

    def run(
        self, specs: Sequence[RunSpec], root: Path, report: training.ReportProgress, change: Change
    ) -> list[Failure]:
        require("submitit", "slurm")
        failures: dict[str, str] = {}
        left = list(specs)
        for _ in range(ROUNDS):
            folder = root.resolve() / "slurm" / uuid.uuid4().hex[:12]
            failures |= _Array(self, folder, left, report, change).run()
            left = [spec for spec in sweep.missing(left, root) if str(spec.id) not in failures]
            if not left:
                break
        for spec in left:
            failures[str(spec.id)] = f"no job finished it: see {folder}"
            change(str(spec.id), "failed", failures[str(spec.id)])
        return [Failure(name, reason) for name, reason in failures.items()]

    def submit(self, folder: Path, count: int) -> list[Any]:
        """Submit an array of jobs."""
        import submitit

        try:
            executor = submitit.AutoExecutor(
                folder=folder / "jobs", cluster=self.cluster, slurm_max_num_timeout=100
            )
            executor.update_parameters(
                name="tape-bench",
                timeout_min=self.minutes,
                cpus_per_task=1,
                tasks_per_node=1,
                nodes=1,
                mem_gb=self.memory_gb,
                slurm_array_parallelism=count,
                slurm_additional_parameters={"requeue": True, **self._options()},
            )
            return list(
                executor.map_array(Drain(), [str(folder)] * count, range(count), [count] * count)
            )
        except (
            RuntimeError,
            subprocess.CalledProcessError,
            submitit.core.utils.FailedJobError,
        ) as error:
            message = " ".join(str(error).split())[:300]
            raise ValueError(f"Slurm takes no jobs ({message})") from None

    def _options(self) -> dict[str, str]:
        named = {"partition": self.partition, "account": self.account}
        return {key: value for key, value in named.items() if value} | dict(self.options)


class Drain:
    """What a job does. Called again, it continues with the runs that are left."""

    def __call__(self, folder: str, index: int, count: int) -> None:
        os.environ.update(sweep.SINGLE_THREAD)
        training.use_compilation_cache()
        with (Path(folder) / f"events-{index}.jsonl").open("a", buffering=1) as events:
            _Worker(Path(folder), events).go(index, count)

    def checkpoint(self, folder: str, index: int, count: int) -> Any:
        """Called by submitit when the job is preempted or out of time: queue it again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, folder, index, count)


class _Worker:
    def __init__(self, folder: Path, events: Any) -> None:
        self.folder, self.events = folder, events
        self.last = 0.0

    def go(self, index: int, count: int) -> None:
        lines = (self.folder / "runs.jsonl").read_text().splitlines()
        first = index * len(lines) // count
        for line in lines[first:] + lines[:first]:
            order = json.loads(line)
            name = order["run"]
            grave = self.folder / "failed" / name.replace("/", "+")
            if store.is_finished(Path(order["root"]) / name) or grave.is_file():
                continue
            for attempt in range(1, sweep.ATTEMPTS + 1):
                answer = sweep.make_run(order, self.report, lambda: False)
                if "error" not in answer:
                    break
                is_last = attempt == sweep.ATTEMPTS
                if is_last:
                    grave.parent.mkdir(exist_ok=True)
                    files.write_text(grave, answer["error"])
                self.say(run=name, state="failed" if is_last else "again", reason=answer["error"])
            if "done" in answer:
                self.say(run=name, state="done")

    def report(self, event: dict[str, Any]) -> None:
        if time.monotonic() - self.last >= INTERVAL or event["step"] >= event["steps"]:
            self.say(**event)
            self.last = time.monotonic()

    def say(self, **event: Any) -> None:
        self.events.write(json.dumps(event) + "\n")


class _Array:
    """One array of jobs, followed until it has ended."""

    def __init__(
        self,
        executor: Slurm,
        folder: Path,
        specs: Sequence[RunSpec],
        report: training.ReportProgress,
        change: Change,
    ) -> None:
        self.executor, self.folder = executor, folder
        self.report, self.change = report, change
        self.count = min(executor.jobs, len(specs))
        self.left = {str(spec.id) for spec in specs}
        self.failures: dict[str, str] = {}
        self.read = [0] * self.count
        self.last_query = time.monotonic()
        root = folder.parents[1]
        # submitit keeps its jobs as pickles in there, and runs what it reads.
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.chmod(0o700)
        folder.mkdir()
        orders = (
            json.dumps({"run": str(spec.id), "root": str(root), "spec": asdict(spec)})
            for spec in specs
        )
        files.write_text(folder / "runs.jsonl", "\n".join(orders) + "\n")

    def run(self) -> dict[str, str]:
        """Follow the jobs until no run is left, or no job; the runs that failed and why."""
        jobs = self.executor.submit(self.folder, self.count)
        try:
            while self.left and not self._have_ended(jobs):
                time.sleep(INTERVAL)
                self._follow()
            self._follow()
        except KeyboardInterrupt:
            for job in jobs:
                job.cancel(check=False)
            raise
        finally:
            self._see_off(jobs)
        return self.failures

    def _see_off(self, jobs: Sequence[Any]) -> None:
        """Wait for local processes to exit."""
        until = time.monotonic() + ASK
        while self.executor.cluster == "local" and time.monotonic() < until:
            if all(job.done() for job in jobs):
                return
            time.sleep(INTERVAL / 10)

    def _follow(self) -> None:
        for event in self._news():
            if "step" in event:
                self.change(event["run"], "running", "")
                self.report(event)
                continue
            if event["state"] in ("done", "failed"):
                self.left.discard(event["run"])
            if event["state"] == "failed":
                self.failures[event["run"]] = event["reason"]
            self.change(event["run"], event["state"], event.get("reason", ""))

    def _news(self) -> Iterator[dict[str, Any]]:
        """Complete lines that the jobs have appended since the last poll."""
        for index in range(self.count):
            file = self.folder / f"events-{index}.jsonl"
            if not file.is_file():
                continue
            with file.open("rb") as events:
                events.seek(self.read[index])
                data = events.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.read[index] += len(whole)
            for line in whole.splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # cut short by a killed job that came back

    def _have_ended(self, jobs: Sequence[Any]) -> bool:
        if self.executor.cluster != "slurm":
            return all(job.done() for job in jobs)
        if time.monotonic() - self.last_query < ASK:
            return False
        self.last_query = time.monotonic()
        # Without accounting Slurm forgets jobs, and submitit would wait for their results for ever.
        ids = ",".join(sorted({job.job_id.split("_")[0] for job in jobs}))
        queue = subprocess.run(
            ["squeue", "--noheader", "--format=%T", f"--jobs={ids}"],
            capture_output=True,
            text=True,
        )
        is_unknown = queue.returncode != 0 and "Invalid job id" in queue.stderr
        return is_unknown or (queue.returncode == 0 and not queue.stdout.strip())
