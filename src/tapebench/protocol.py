"""How a number is made: who sits which exam, and the tracks that fix budgets in advance.

`evaluate` takes a policy, an agent object, or the name of either, through the one evaluator to an
`Outcome`, which knows its score, its tables and its bundle.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tapebench import bundle, guest, references, score, seating, training
from tapebench.base import files
from tapebench.base.names import one_of
from tapebench.exam import Exam, make_exam
from tapebench.guest import AgentError
from tapebench.physics import exact, features
from tapebench.policy import Policy
from tapebench.rollout import Episodes, Sitting, Steps, prepare
from tapebench.seating import OWN, Conditions
from tapebench.tasks import splits

Progress = Callable[[str, int, int], Any]
"""Told what is being done, how much of it is, and how much there is."""


def _quietly(what: str, done: int, total: int) -> None:
    pass


class Label(NamedTuple):
    """Which seed of a policy, and how far it was trained: 0 steps if it needs no training."""

    seed: int
    step: int


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
    progress: Progress = field(default=_quietly, repr=False, compare=False)
    """Told how far the two below are, which are found out when first asked for."""

    @cached_property
    def optimal_steps(self) -> np.ndarray:
        """The exact answers, see `Exam.optimal_steps`."""
        return self.exam.optimal_steps(self._counter("exact answers", len(self.exam.rules)))

    @cached_property
    def lines(self) -> dict[str, score.Line]:
        """What the reference lines reach on this exam."""
        return score.lines(self.exam, self._counter("reference lines", len(score.LINES)))

    def _counter(self, what: str, total: int) -> Callable[[Any], None]:
        done = iter(range(1, total + 1))
        return lambda _: self.progress(what, next(done), total)

    @cached_property
    def score(self) -> dict[str, Any]:
        """The result as one document, see `tapebench.score.score`."""
        document = score.score(
            self.runs,
            self.exam,
            self.optimal_steps,
            self.lines,
            policy=self.policy,
            sees_rule=self.sees_rule,
        )
        return document | {
            "conditions": self.conditions.as_dict(),
            "diverged": self.diverged,
            "seconds": round(self.seconds, 3),
        }

    def rows(self) -> dict[str, np.ndarray]:
        """One row per episode, of all seeds."""
        tables = [
            score.rows(
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
    who: Any,
    exam: Exam | None = None,
    *,
    name: str | None = None,
    seeds: int = 1,
    subprocess: bool = False,
    deadline: float = guest.DEADLINE,
    progress: Progress = _quietly,
    **options: Any,
) -> Outcome:
    """Have `who` sit an exam (or the one that `options` of `make_exam` describe).

    `who` is a `Policy`, an object with `reset(num_envs)` and `act(obs)`, the name of a policy that
    needs no training, `package.module:factory`, or a directory of runs, each of which sits it once.
    `seeds` repeats it with other draws of its own. An agent that fails raises `UnfinishedError`,
    which holds what was done.

    Whoever comes from outside is seated in an order drawn now, after it was made, and plays some
    rows again, to see whether it keeps them apart: see `Outcome.conditions`.
    """
    if exam is not None and options:
        raise ValueError(f"give an exam or its options, not both: {', '.join(options)}")
    exam = make_exam(**options) if exam is None else exam
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    began = time.monotonic()
    runs: list[Episodes] = []
    with _entrants(who, exam, name, seeds, subprocess, deadline) as (made, entrants, afresh):
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
                policy=first.name,
                sees_rule=first.sees_rule,
                exam=exam,
                runs=tuple(runs),
                labels=labels[: len(runs)],
                seconds=spent,
                conditions=conditions,
                diverged=sum(not entrant.is_finite for entrant in entrants),
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
        drawn = seating.draw()
        return drawn if policy.backend == "numpy" else replace(drawn, batch=None)
    is_searched = 16 < length <= exact.NUMPY_LENGTH
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


class _Entrant(NamedTuple):
    """Who sits the exam, and the seed of its draws while it does."""

    policy: Policy
    draws: int
    label: Label
    is_finite: bool = True


@contextmanager
def _entrants(
    who: Any, exam: Exam, name: str | None, seeds: int, subprocess: bool, deadline: float
) -> Iterator[tuple[str, list[_Entrant], Afresh | None]]:
    """Where they act (one of `seating.MADE`), everyone who sits the exam, and what makes the policy
    another time, where that can be done.

    That is the runs in a directory, or a policy with several seeds.
    """
    length = exam.task.length

    def untrained(policy: Policy) -> list[_Entrant]:
        return [_Entrant(policy, seed, Label(seed, 0)) for seed in range(seeds)]

    if isinstance(who, Path) or (isinstance(who, str) and Path(who).is_dir()):
        # Drawn from as in training, so that the last evaluation there is found again.
        yield (
            "by us",
            [
                _Entrant(run.policy, 0, Label(run.spec.seed, run.step), run.is_finite)
                for run in training.load_runs(Path(who), exam.task)
            ],
            None,
        )
    elif isinstance(who, str) and ":" in who and subprocess:
        afresh = partial(guest.in_subprocess, who, name or who, length, deadline)
        with afresh() as policy:
            yield "in a process of its own", untrained(policy), afresh
    else:
        made: str = "in this process"
        again: Afresh | None = None
        if isinstance(who, Policy):
            policy = who
        elif not isinstance(who, str):
            policy = guest.in_process(who, name or type(who).__name__, length)
        elif ":" in who:
            again = partial(_in_process, who, name or who, length)
            policy = guest.in_process(guest.make_agent(who), name or who, length)
        else:
            policy, made = references.make(who, exam.task, exam.origin), "by us"
        yield made, untrained(policy), again


@contextmanager
def _in_process(spec: str, name: str, length: int) -> Iterator[Policy]:
    yield guest.in_process(guest.make_agent(spec), name, length)


@dataclass(frozen=True, kw_only=True)
class Track:
    """A pre-registered budget: everything that must be fixed before any result is seen."""

    name: str
    version: int
    about: str
    length: int
    horizon: int
    holdout_horizon: int
    """Trained agents are also examined with this many steps."""
    mask: tuple[int, ...]
    """Cells hidden from the observation."""
    split: str
    agents: tuple[str, ...]
    seeds: int
    steps: int
    """Environment steps of training; auto-reset steps are not counted."""
    evaluate_every: int
    episodes: int
    """Start tapes for every rule."""
    last: int
    """Checkpoints at the end that are averaged for each seed."""
    rules: tuple[int, ...] | None
    """Rules that evaluations ask about; None for all of both sides."""

    @cached_property
    def hash(self) -> str:
        """The track in 16 letters; its wording does not count."""
        counted = {key: value for key, value in asdict(self).items() if key != "about"}
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]

    def rules_of(self, split: str) -> tuple[int, ...] | None:
        """Rules that evaluations ask about with another split: as many, chosen the same way."""
        chosen, own = splits.load(split), splits.load(self.split)
        if self.rules is None or chosen == own:
            return self.rules
        seen = len(set(self.rules) - set(own.test))
        return _representative(chosen, min(seen, len(chosen.train)))

    def exam(self, **changes: Any) -> Exam:
        """The exam of this track; `changes` are options of `make_exam`, such as another split."""
        given: dict[str, Any] = {
            "split": self.split,
            "length": self.length,
            "horizon": self.horizon,
            "mask": list(self.mask) or None,
            "episodes": self.episodes,
            "rules": None if self.rules is None else list(self.rules),
        }
        return make_exam(**given | changes)

    def spec(self, agent: str, seed: int = 0, **changes: Any) -> training.RunSpec:
        """A run of this track; `changes` are fields of `RunSpec`, such as another split."""
        split = changes.get("split") or self.split
        given: dict[str, Any] = {
            "split": split,
            "length": self.length,
            "horizon": self.horizon,
            "mask": self.mask,
            "steps": self.steps,
            "evaluate_every": self.evaluate_every,
            "episodes": self.episodes,
            "last": self.last,
            "rules": self.rules_of(split),
            "track": f"{self.name}-{self.version}",
        }
        return training.RunSpec(agent=agent, seed=seed, **given | changes)


AGENTS = ("dqn", "rad", "curl", "pearl", "ppo", "ppo-dr", "dreamer")
"""The paper's learned baselines."""

OURS = ("rppo", "automata")
"""What the paper names as missing: memory across the episode, and a model that infers the law."""


def make_tracks() -> tuple[Track, ...]:
    """The tracks from scratch. `tracks` reads the shipped copy of them."""
    full = Track(
        name="full",
        version=2,
        about="The paper's protocol: 20 seeds, 200,000 steps, every rule.",
        length=32,
        horizon=32,
        holdout_horizon=64,
        mask=(),
        split="fps30",
        agents=AGENTS + OURS,
        seeds=20,
        steps=200_000,
        evaluate_every=10_000,
        episodes=20,
        last=3,
        rules=None,
    )
    small = {"length": 8, "horizon": 8, "holdout_horizon": 16}
    return (
        full,
        _vary(
            full,
            name="lite",
            about="Every baseline in a quarter of an hour: fewer seeds, steps, episodes and rules.",
            seeds=5,
            steps=50_000,
            episodes=10,
            rules=_representative(splits.load("fps30"), 60),
        ),
        _vary(
            full,
            name="smoke",
            version=1,
            about="Does everything run? Four agents on eight cells, in a minute or two.",
            agents=("dqn", "rad", "pearl", "ppo"),
            seeds=2,
            steps=4_000,
            evaluate_every=1_000,
            episodes=5,
            **small,
        ),
        _vary(
            full,
            name="long",
            about="What 25 times the budget buys.",
            agents=(*AGENTS, "rppo"),
            seeds=5,
            steps=5_000_000,
            evaluate_every=250_000,
        ),
        _vary(
            full,
            name="inference",
            about="Eight cells, two of them hidden: here the rule has to be found out.",
            mask=(0, 4),
            **small,
        ),
    )


def _vary(track: Track, **changes: Any) -> Track:
    return Track(**asdict(track) | changes)


def _representative(split: splits.Split, count: int) -> tuple[int, ...]:
    """All held-out rules and `count` training rules that mirror the mix of all of those.

    A systematic sample: sorted by type, then by exact ceiling, every so-many-th rule is taken.
    """
    ceilings = splits.difficulties()["ceiling L16"]
    table = features.table()
    order = sorted(split.train, key=lambda rule: (table[rule].type, ceilings[rule], rule))
    places = (np.arange(count) + 0.5) * len(order) / count
    return tuple(sorted([*split.test, *(order[int(place)] for place in places)]))


def dump_tracks(found: Sequence[Track]) -> str:
    """Tracks as the text of `data/tracks.json`: one field per line."""
    parts = []
    for track in found:
        fields = {**asdict(track), "hash": track.hash}
        lines = ",\n".join(f'    "{key}": {json.dumps(value)}' for key, value in fields.items())
        parts.append(f'  "{track.name}": {{\n{lines}\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


@cache
def tracks() -> dict[str, Track]:
    """The shipped tracks by name."""
    text = resources.files("tapebench").joinpath("data/tracks.json").read_text()
    found = {}
    for name, fields in json.loads(text).items():
        shipped_hash = fields.pop("hash")
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        found[name] = Track(**fields | lists)
        assert found[name].hash == shipped_hash, f"track {name} was changed"
    return found


def get_track(name: str) -> Track:
    """A track by name; an unknown name suggests the nearest."""
    return tracks()[one_of("track", name, tracks())]
