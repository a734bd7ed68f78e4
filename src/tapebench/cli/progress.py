"""The live table of a sweep: which runs are at work, how far, and when all will be done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapebench.cli.console import screen

if TYPE_CHECKING:
    from tapebench.runs.plan import Plan


SHOWN = 24
"""Runs that the live table lists one by one; of more it shows sums."""


@dataclass
class _Group:
    """The runs of one agent, summed up."""

    total: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    """What one run should take."""
    took: float = 0.0
    """What the runs took together whose beginning and end were seen here."""
    seen: int = 0


@dataclass
class _Run:
    """A run that has reported something."""

    state: str
    began: float = 0.0
    step: int = 0
    steps: int = 0
    speed: float = 0.0
    scores: str = ""
    reason: str = ""


class LiveTable:
    """What the runs of a sweep are doing. Sums are kept on the way: there may be very many."""

    def __init__(self, planned: Plan, slots: int, talk: bool) -> None:
        import time

        self.clock = time.monotonic
        self.began = self.clock()
        self.slots, self.talk = slots, talk
        self.runs: dict[str, _Run] = {}
        self.names = [str(spec.id) for spec in planned.todo] if len(planned.todo) <= SHOWN else []
        self.groups: dict[str, _Group] = {}
        for spec in planned.specs:
            self.groups.setdefault(
                spec.agent, _Group(seconds=planned.seconds[spec.agent])
            ).total += 1
            self.groups[spec.agent].done += 1
        for spec in planned.todo:
            self.groups[spec.agent].done -= 1

    def report(self, event: dict[str, Any]) -> None:
        """A run at work says how far it is."""
        run = self.runs.setdefault(event["run"], _Run("running"))
        if run.state in ("done", "failed"):
            return
        run.step, run.steps, run.speed = event["step"], event["steps"], event["speed"]
        if "note" in event:
            print(f"tape: {event['run']}: {event['note']}", file=sys.stderr, flush=True)
        run.scores = "  ".join(
            f"{side.upper()} {event[side]:.3f}" for side in ("id", "ood") if side in event
        )

    def change(self, name: str, state: str, reason: str) -> None:
        """A run is in another state."""
        run = self.runs.setdefault(name, _Run(""))
        if run.state == state or run.state in ("done", "failed"):
            return
        run.state, run.reason = state, reason
        group = self.groups[name.split("/")[1]]
        if state == "running":
            run.began = self.clock()
        elif state == "done" and run.steps:
            group.took += self.clock() - run.began
            group.seen += 1
        group.done += state == "done"
        group.failed += state == "failed"
        if self.talk and state in ("done", "again", "failed"):
            ended = sum(group.done for group in self.groups.values())
            total = sum(group.total for group in self.groups.values())
            message = {"done": run.scores, "again": f"tried again: {reason}"}.get(state, reason)
            word = "" if state == "again" else f"{state}  "
            print(f"{ended}/{total}  {name}  {word}{message}".rstrip(), file=sys.stderr, flush=True)
        if state == "done" and not self.names:
            del self.runs[name]

    def left(self) -> float:
        """Estimated seconds until all is done, by what runs have taken so far."""
        took = sum(group.took for group in self.groups.values())
        should = sum(group.seconds * group.seen for group in self.groups.values())
        slower = took / should if should else 1.0
        takes = {
            agent: group.took / group.seen if group.seen else slower * group.seconds
            for agent, group in self.groups.items()
        }
        waiting = sum(
            takes[agent] * (group.total - group.done - group.failed)
            for agent, group in self.groups.items()
        )
        longest = 0.0
        for name, run in self.runs.items():
            if run.state in ("running", "again") and run.speed:
                rest = (run.steps - run.step) / run.speed
                waiting += rest - takes[name.split("/")[1]]
                longest = max(longest, rest)
        return max(waiting / self.slots, longest)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        from tapebench.runs.plan import duration

        done = sum(group.done for group in self.groups.values())
        total = sum(group.total for group in self.groups.values())
        spent = duration(self.clock() - self.began)
        head = f"{done}/{total} runs done, {spent} so far, about {duration(self.left())} left"
        table = self._each() if self.names else self._sums()
        return Group(table, Text(head, style="bold"))

    def _each(self) -> Any:
        table = _table("run", "state", "progress", "steps/s", "last evaluation")
        for name in self.names:
            run = self.runs.get(name, _Run("waiting"))
            note = run.reason if run.state in ("failed", "again") else run.scores
            speed = f"{run.speed:,.0f}" if run.speed else ""
            share = 1.0 if run.state == "done" else run.step / (run.steps or 1)
            table.add_row(name, run.state, _bar(share), speed, note, style=_STYLES.get(run.state))
        return table

    def _sums(self) -> Any:
        from rich.console import Group

        sums = _table("agent", "done", "failed", "progress")
        for agent, group in self.groups.items():
            style = "red" if group.failed else None
            done = f"{group.done:,}/{group.total:,}"
            failed = str(group.failed or "")
            sums.add_row(agent, done, failed, _bar(group.done / group.total), style=style)
        table = _table("run", "state", "progress", "steps/s", "last evaluation")
        lively = [item for item in self.runs.items() if item[1].state != "elsewhere"]
        for name, run in lively[-SHOWN:]:
            note = run.reason if run.state in ("failed", "again") else run.scores
            share = run.step / (run.steps or 1)
            style = _STYLES.get(run.state)
            table.add_row(name, run.state, _bar(share), f"{run.speed:,.0f}", note, style=style)
        return Group(sums, table)


_STYLES = {
    "failed": "red",
    "done": "green",
    "waiting": "dim",
    "elsewhere": "cyan",
    "again": "yellow",
}


def _table(*columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    first, *others = columns
    return Table(Column(first, no_wrap=True), *others, box=SIMPLE_HEAD, pad_edge=False)


def _bar(share: float) -> Any:
    from rich.progress_bar import ProgressBar

    return ProgressBar(total=1.0, completed=min(1.0, share), width=20)


@contextmanager
def live_table(planned: Plan, slots: int) -> Iterator[LiveTable]:
    """A live table on standard error if it is a terminal, else a line for each run that ends."""
    from rich.live import Live

    console = screen(stderr=True)
    table = LiveTable(planned, slots, talk=not console.is_terminal)
    if not console.is_terminal or not planned.todo:
        yield table
        return
    with Live(table, console=console, refresh_per_second=4, transient=True):
        yield table
