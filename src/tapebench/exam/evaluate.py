"""The one evaluator: whoever it is sits an exam, and an `Outcome` says what came of it.

`evaluate` takes a policy, an agent object, or the name of either; the `Outcome` knows its score,
its tables and its bundle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tapebench.base import files, frames
from tapebench.base.shapes import Float64, Int16, Shaped
from tapebench.exam import (
    baselines,
    bounds,
    bundle,
    external,
    lesion,
    metrics,
    regret,
    score,
    seating,
)
from tapebench.exam import policy as policies
from tapebench.exam.exam import Exam, make_exam
from tapebench.exam.external import AgentError
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import Episodes, Sitting, Steps, prepare
from tapebench.exam.seating import OWN, Conditions
from tapebench.physics import exact
from tapebench.tasks.task import Task

Progress = Callable[[str, int, int], Any]
"""`progress(stage, done, total)`."""


def _quietly(what: str, done: int, total: int) -> None:
    pass


class Label(NamedTuple):
    """Which seed of a policy, and how far it was trained: 0 steps if it needs no training."""

    seed: int
    step: int


class Entrant(NamedTuple):
    """Who sits the exam, and the seed of its draws while it does."""

    policy: Policy
    draws: int
    label: Label
    is_finite: bool = True


@dataclass(frozen=True)
class Trained:
    """Learned policies, each of which sits an exam once; `load` has them act in its task."""

    load: Callable[[Task], list[Entrant]]


@dataclass(frozen=True)
class Outcome:
    """A policy's episodes on an exam, and what they are read against."""

    policy: str
    sees_rule: bool
    exam: Exam
    runs: tuple[Episodes, ...]
    """One for each seed."""
    labels: tuple[Label, ...]
    """Whose each of them is."""
    seconds: float
    conditions: Conditions
    """How it was made, as seen from here."""
    diverged: int = 0
    """Of how many runs the weights are not finite."""
    losses: tuple[lesion.Losses, ...] = field(default=(), repr=False, compare=False)
    """What lesions of its memory cost each run, if that was asked."""
    no_lesion: str = ""
    """Why there are none, if it was asked."""
    progress: Progress = field(default=_quietly, repr=False, compare=False)
    """Told how far the three below are, which are found out when first asked for."""

    @cached_property
    def optimal_steps(self) -> Int16[np.ndarray, "R E"]:
        """The exact answers, see `Exam.optimal_steps`."""
        return self.exam.optimal_steps(self._counter("exact answers", len(self.exam.rules)))

    @cached_property
    def ceilings(self) -> Float64[np.ndarray, " R"]:
        """The best success possible, see `Exam.ceilings`."""
        counter = self._counter("exact ceilings", len(self.exam.rules))
        return self.exam.ceilings(self.optimal_steps, counter)

    @cached_property
    def baselines(self) -> dict[str, baselines.Baseline]:
        """What the baselines reach on this exam."""
        return baselines.load(self.exam, self._counter("baselines", len(baselines.NAMES)))

    def _counter(self, what: str, total: int) -> Callable[[Any], None]:
        done = iter(range(1, total + 1))
        return lambda _: self.progress(what, next(done), total)

    @cached_property
    def score(self) -> dict[str, Any]:
        """The result as one document, see `tapebench.exam.score`."""
        document = score.score(
            self.runs,
            self.exam,
            self.ceilings,
            self.baselines,
            policy=self.policy,
            sees_rule=self.sees_rule,
        )
        if not self.sees_rule and bounds.is_computed(self.exam):
            document["apart"] = regret.take_apart(self.runs, self.exam, self.optimal_steps)
        if self.losses or self.no_lesion:
            lesions = lesion.summarise(self.losses, self.exam) if self.losses else self.no_lesion
            document["lesions"] = lesions
        return document | {
            "conditions": self.conditions.as_dict(),
            "diverged": self.diverged,
            "seconds": round(self.seconds, 3),
        }

    def rows(self) -> dict[str, Shaped[np.ndarray, " SRE"]]:
        """One row per episode, of all seeds."""
        tables = [
            metrics.rows(
                run,
                self.exam,
                self.optimal_steps,
                experiment="evaluate",
                agent=self.policy,
                seed=label.seed,
                step=label.step,
            )
            for run, label in zip(self.runs, self.labels, strict=True)
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def to_pandas(self) -> Any:
        """`rows` as a `pandas.DataFrame`."""
        return frames.to_pandas(self.rows())

    def to_polars(self) -> Any:
        """`rows` as a `polars.DataFrame`."""
        return frames.to_polars(self.rows())

    def write_bundle(self, path: Path) -> None:
        """The actions of the one run as a bundle."""
        if len(self.runs) > 1:
            raise ValueError(f"a bundle holds one run, not the {len(self.runs)} of {self.policy}")
        about = {
            "policy": self.policy,
            "sees_rule": self.sees_rule,
            "provenance": files.provenance(self.seconds),
        }
        bundle.write(path, self.runs[0], self.exam, about, self.conditions)


class UnfinishedError(AgentError):
    """An agent failed on the way; `rows` are the episodes that it had finished, if any."""

    def __init__(self, error: AgentError, rows: dict[str, np.ndarray] | None) -> None:
        super().__init__(str(error), error.details)
        self.rows = rows


def evaluate(
    agent: Any,
    exam: Exam | None = None,
    *,
    name: str | None = None,
    seeds: int = 1,
    subprocess: bool = False,
    deadline: float = external.DEADLINE,
    lesions: bool | Sequence[int] = False,
    progress: Progress = _quietly,
    **options: Any,
) -> Outcome:
    """Evaluate an agent on an exam, given as such or by the `options` of `make_exam`.

    `agent` is a `Policy`, an object with `reset(num_envs)` and `act(obs)`, the name of a baseline,
    `package.module:factory`, or `Trained`; `name` is what results call it. `seeds` repeats the exam
    with other random draws of the agent. An agent that fails raises `UnfinishedError`, which holds
    the finished episodes.
    `lesions` measures what the agent owes to its memory, at the default steps or at those given,
    see `tapebench.exam.lesion`.

    An external agent plays the rows in an order drawn after it was made, and plays some of them
    again, to check that it treats each row on its own: see `Outcome.conditions`.
    """
    if exam is not None and options:
        raise ValueError(f"give an exam or its options, not both: {', '.join(options)}")
    exam = make_exam(**options) if exam is None else exam
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    steps = None if isinstance(lesions, bool) else lesion.check_steps(lesions, exam)
    began = time.monotonic()
    runs: list[Episodes] = []
    losses: list[lesion.Losses] = []
    no_lesion = ""
    with _entrants(agent, exam, name, seeds, subprocess, deadline) as (made, entrants, afresh):
        first = entrants[0].policy
        labels = tuple(entrant.label for entrant in entrants)
        # Each time in another order: an agent may remember who sat where.
        seats = [_seating(made, first, exam.task.length) for _ in entrants]
        rows_are = "not checked"

        def outcome(runs: Sequence[Episodes]) -> Outcome:
            order = "" if made == "by us" else seats[0].secret.hex()
            conditions = Conditions(made, rows_are, order)
            spent = time.monotonic() - began
            return Outcome(
                policy=name or first.name,
                sees_rule=first.sees_rule,
                exam=exam,
                runs=tuple(runs),
                labels=labels[: len(runs)],
                seconds=spent,
                conditions=conditions,
                diverged=sum(not entrant.is_finite for entrant in entrants),
                losses=tuple(losses),
                no_lesion=no_lesion,
                progress=progress,
            )

        for number, (policy, draws, *_) in enumerate(entrants, 1):
            note = "sitting the exam"
            if len(entrants) > 1:
                note += f", {number} of {len(entrants)}"
            sitting = prepare(
                policy,
                exam.task,
                None,
                exam.episodes,
                seed=draws,
                salt=exam.salt,
                trials=exam.trials,
            )
            played: list[tuple[np.ndarray, Steps]] = []
            batches = seats[number - 1].batches(sitting.num)
            try:
                for rows in batches:
                    played.append((rows, sitting.play(rows)))
                    progress(note, len(played), len(batches))
            except AgentError as error:
                done = [*runs, sitting.episodes(played)] if played else runs
                finished = outcome(done).rows() if done else None
                if finished is not None and played:
                    finished = _only_played(finished, exam, done, played)
                raise UnfinishedError(error, finished) from error
            runs.append(sitting.episodes(played))
            if made != "by us":
                seen = _check(sitting, seats[number - 1], played, afresh)
                # Of several times the worst is said.
                rows_are = max(rows_are, seen, key=_GRAVITY.index)
        if lesions is not False:
            try:
                for number, entrant in enumerate(entrants, 1):
                    losses.append(lesion.lesions(entrant.policy, exam, entrant.draws, steps))
                    progress("lesions", number, len(entrants))
            except lesion.NoLesionError as reason:
                no_lesion = str(reason)
        return outcome(runs)


_GRAVITY = ("not checked", "independent", "not repeatable", "pools rows")


Afresh = Callable[[], AbstractContextManager[Policy]]
"""Makes the policy another time, in a process of its own if it has one."""


def _check(
    sitting: Sitting,
    seats: seating.Seating,
    played: Sequence[tuple[np.ndarray, Steps]],
    afresh: Afresh | None,
) -> str:
    """`Sitting.check`; an agent that fails at what it has done before is not repeatable either."""
    try:
        return sitting.check(seats, played, afresh)
    except AgentError:
        return "not repeatable"


def _seating(made: str, policy: Policy, length: int) -> seating.Seating:
    """Ours sit in the usual order, others in one that is drawn now; who is compiled, all at once.

    Batches of ours are there to show progress. On tapes of some lengths `optimal` would search for
    the same answers again in each.
    """
    if made != "by us":
        drawn = seating.draw_seating()
        return drawn if policy.backend == "numpy" else replace(drawn, batch=None)
    is_searched = 16 < length <= exact.NUMPY_CELLS
    at_once = policy.backend == "jax" or is_searched
    return OWN if at_once else replace(OWN, batch=_OWN_BATCH)


_OWN_BATCH = 1024


def _only_played(
    table: dict[str, np.ndarray],
    exam: Exam,
    done: Sequence[Episodes],
    played: Sequence[tuple[np.ndarray, Steps]],
) -> dict[str, np.ndarray]:
    """The rows of a table of all episodes, without those that the last run has not played."""
    is_played = np.zeros(len(exam.rules) * exam.episodes, bool)
    for rows, _ in played:
        is_played[rows] = True
    last = np.tile(is_played.reshape(len(exam.rules), 1, -1), (1, exam.trials, 1)).ravel()
    keep = np.concatenate([np.ones((len(done) - 1) * last.size, bool), last])
    return {name: column[keep] for name, column in table.items()}


@contextmanager
def _entrants(
    agent: Any, exam: Exam, name: str | None, seeds: int, subprocess: bool, deadline: float
) -> Iterator[tuple[str, list[Entrant], Afresh | None]]:
    """Where they act (one of `seating.MADE`), everyone who sits the exam, and what makes the policy
    another time, where that can be done.

    That is one policy with several seeds, or learned ones.
    """

    def untrained(policy: Policy) -> list[Entrant]:
        return [Entrant(policy, seed, Label(seed, 0)) for seed in range(seeds)]

    if isinstance(agent, Trained):
        yield "by us", agent.load(exam.task), None
    elif isinstance(agent, str) and ":" in agent and subprocess:
        afresh = partial(external.in_subprocess, agent, name or agent, exam.task, deadline)
        with afresh() as policy:
            yield "in a process of its own", untrained(policy), afresh
    else:
        made: str = "in this process"
        again: Afresh | None = None
        if isinstance(agent, Policy):
            policy = agent
        elif not isinstance(agent, str):
            policy = external.in_process(agent, name or type(agent).__name__, exam.task)
        elif ":" in agent:
            again = partial(_in_process, agent, name or agent, exam.task)
            policy = external.in_process(external.make_agent(agent), name or agent, exam.task)
        else:
            policy, made = policies.make(agent, exam.task, exam.origin), "by us"
        yield made, untrained(policy), again


@contextmanager
def _in_process(spec: str, name: str, task: Task) -> Iterator[Policy]:
    yield external.in_process(external.make_agent(spec), name, task)
