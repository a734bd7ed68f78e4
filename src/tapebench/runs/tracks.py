"""Tracks: tasks, exams and budgets that are fixed before any result is seen.

A track is called by its name, `lite`. What was published under an older version keeps its name with
the version, `lite@2`: it stays readable and can be run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np

from tapebench.base.names import one_of
from tapebench.exam.exam import Exam, make_exam
from tapebench.runs import training
from tapebench.tasks import drawn, folds, splits
from tapebench.tasks.universe import ELEMENTARY

DRAWN_HORIZON = 8
"""The steps that the tracks `ring2` and `life` have: one of `universe.HORIZONS`, see ADR 35."""


UNSAID = ("family", "shape", "folds")
"""Fields that are in a track's document only where they are not as by default, so that tracks from
before there were these keep their hashes."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """A pre-registered budget: everything that must be fixed before any result is seen."""

    name: str
    version: int
    about: str
    family: str = ELEMENTARY.family.name
    length: int
    """Cells of the tape; of a torus its `shape` says how many."""
    shape: tuple[int, ...] | None = None
    """Sides of a torus; None for a ring."""
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
    folds: tuple[str, ...] = ()
    """Splits that are trained with in turn, `split` first; empty for that one alone. Their runs
    are read as one set, in which every rule is held out by some."""

    @property
    def label(self) -> str:
        """What it is called: with its version if that is an older one."""
        is_old = (self.name, self.version) in OLDER
        return f"{self.name}@{self.version}" if is_old else self.name

    @property
    def splits(self) -> tuple[str, ...]:
        """Every split that is trained with."""
        return self.folds or (self.split,)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The track as a document, without those of `UNSAID` that are as by default."""
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in UNSAID or value != getattr(type(self), key)
        }

    @cached_property
    def hash(self) -> str:
        """The track in 16 letters; its wording does not count."""
        counted = {key: value for key, value in self.fields.items() if key != "about"}
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]

    def rules_of(self, split: str) -> tuple[int, ...] | None:
        """Rules that evaluations ask about with another split: as many, chosen the same way."""
        other, own = splits.load(split), splits.load(self.split)
        if self.rules is None or other in map(splits.load, self.splits):
            return self.rules
        seen = len(set(self.rules) - set(own.test))
        return _representative(other, min(seen, len(other.train)))

    def exam(self, **changes: Any) -> Exam:
        """The exam of this track; `changes` are options of `make_exam`, such as another split."""
        options: dict[str, Any] = {
            "split": self.split,
            **self._space,
            "horizon": self.horizon,
            "mask": list(self.mask) or None,
            "episodes": self.episodes,
            "rules": None if self.rules is None else list(self.rules),
        }
        return make_exam(**options | changes)

    @property
    def _space(self) -> dict[str, Any]:
        """Family and space as options of `make_exam`."""
        length = self.length if self.shape is None else None
        return {"family": self.family, "length": length, "shape": self.shape}

    def spec(self, agent: str, seed: int = 0, **changes: Any) -> training.RunSpec:
        """A run of this track; `changes` are fields of `RunSpec`, such as another split."""
        split = changes.get("split") or self.split
        fields: dict[str, Any] = {
            "split": split,
            "family": self.family,
            "length": self.length,
            "shape": self.shape,
            "horizon": self.horizon,
            "mask": self.mask,
            "steps": self.steps,
            "evaluate_every": self.evaluate_every,
            "episodes": self.episodes,
            "last": self.last,
            "rules": self.rules_of(split),
            "track": f"{self.name}-{self.version}",
        }
        return training.RunSpec(agent=agent, seed=seed, **fields | changes)


AGENTS = ("dqn", "rad", "curl", "pearl", "ppo", "ppo-dr", "dreamer")
"""The paper's learned baselines."""

OURS = ("rppo", "automata")
"""What the paper names as missing: memory across the episode, and a model that infers the law."""

ADDED = ("pqn", "rpqn", "drqn")
"""Q-learning in rounds, and Q-learning with a memory of the episode: on the tracks over folds."""

QUICKEST = ("ppo", "ppo-dr", "pqn", "rpqn", "automata", "rppo")
"""Those of all that train fastest, by `data/speeds.json`: on the tracks of the larger families."""

NUM_SEEN = 128
"""Training rules that evaluations on the larger families ask about, as many as are unseen."""

OLDER = (("lite", 2), ("inference", 2))
"""Name and version of tracks that are not current: published results are of them."""


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
    ring2 = _vary(
        full,
        name="ring2",
        version=1,
        about="Rules of five cells on a ring of 16, each solved from every tape within the "
        "horizon: the ceiling is 1 on both sides. The six agents that train fastest.",
        family="ring2",
        length=16,
        agents=QUICKEST,
        seeds=3,
        evaluate_every=20_000,
        **_of_drawn("ring2", DRAWN_HORIZON),
    )
    core = _vary(
        full,
        name="core",
        version=1,
        about="Nine cells and four steps, where acting on the law is worth most, over five folds. "
        "Task, exam and folds are fixed; steps, seeds and agents are provisional.",
        length=folds.LENGTH,
        horizon=folds.HORIZON,
        holdout_horizon=2 * folds.HORIZON,
        split=folds.NAMES[0],
        folds=folds.NAMES,
        agents=(*AGENTS, *ADDED, *OURS),
        rules=tuple(sorted(rule for part in folds.parts()[: folds.NUM] for rule in part)),
        seeds=4,
    )
    return (
        full,
        core,
        _vary(
            core,
            name="lite",
            version=3,
            about="A short core: every baseline over five folds in about ten minutes. Task, exam "
            "and folds are fixed; steps, seeds and agents are provisional.",
            seeds=2,
            steps=20_000,
            evaluate_every=2_000,
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
        ring2,
        _vary(
            ring2,
            name="life",
            about="Life-like rules on a torus of 5 × 5, each solved from every board within the "
            "horizon: the ceiling is 1 on both sides. The six agents that train fastest.",
            family="life",
            length=25,
            shape=(5, 5),
            **_of_drawn("life", DRAWN_HORIZON),
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
            name="lite",
            about="Every baseline in a quarter of an hour: fewer seeds, steps, episodes and rules.",
            seeds=5,
            steps=50_000,
            episodes=10,
            rules=_representative(splits.load("fps30"), 60),
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


def _of_drawn(family: str, horizon: int) -> dict[str, Any]:
    """Horizon, split and rules of a track of one of the larger families."""
    split = splits.load(f"{family}-H{horizon}-matched")
    return {
        "horizon": horizon,
        "holdout_horizon": 2 * horizon,
        "split": split.name,
        "rules": _representative(split, NUM_SEEN),
    }


def _representative(split: splits.Split, count: int) -> tuple[int, ...]:
    """All held-out rules and `count` training rules that mirror the mix of all of those.

    A systematic sample: sorted by type, then by exact ceiling, every so-many-th rule is taken; of
    drawn rules by stratum, then by mean optimal steps.
    """
    if split.universe.horizon is not None:
        return tuple(
            sorted([*split.test, *drawn.take(split.universe, split.train, count, "evaluated")])
        )
    ceilings = splits.difficulties()["ceiling L16"]
    known = split.universe.features
    order = sorted(split.train, key=lambda rule: (known[rule].type, ceilings[rule], rule))
    places = (np.arange(count) + 0.5) * len(order) / count
    return tuple(sorted([*split.test, *(order[int(place)] for place in places)]))


def dump_tracks(every: Sequence[Track]) -> str:
    """Tracks as the text of `data/tracks.json`: one field per line."""
    parts = []
    for track in every:
        fields = {**track.fields, "hash": track.hash}
        lines = ",\n".join(f'    "{key}": {json.dumps(value)}' for key, value in fields.items())
        parts.append(f'  "{track.label}": {{\n{lines}\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


@cache
def tracks() -> dict[str, Track]:
    """The shipped tracks by what they are called."""
    text = resources.files("tapebench").joinpath("data/tracks.json").read_text()
    by_label = {}
    for label, fields in json.loads(text).items():
        shipped_hash = fields.pop("hash")
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        by_label[label] = Track(**fields | lists)
        assert by_label[label].hash == shipped_hash, f"track {label} was changed"
    return by_label


def get_track(name: str) -> Track:
    """A track by what it is called; an unknown name suggests the nearest."""
    known = tracks()
    current = known.get(name.partition("@")[0])
    if current is not None and name == f"{current.name}@{current.version}":
        return current
    if name not in known and (older := [label for label in known if label.startswith(f"{name}@")]):
        raise ValueError(f"track {name} has no current version: use {older[-1]}")
    return known[one_of("track", name, known)]


def track_of(spec: Mapping[str, Any]) -> str:
    """What the track whose budget a run had is called; empty if it had none."""
    name, version = _origin(spec)
    known = tracks()
    current = known.get(name)
    is_current = current is not None and str(current.version) == version
    is_ours = current is not None or any(label.startswith(f"{name}@") for label in known)
    return f"{name}@{version}" if is_ours and not is_current else name


def is_setting(spec: Mapping[str, Any]) -> bool:
    """Whether a run was made for an experiment, such as `lite-reward-...`, and not for a track."""
    name, _ = _origin(spec)
    return bool(name) and str(spec.get("experiment")).startswith(f"{name}-")


def _origin(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Name and version of the track that a run names."""
    name, _, version = str(spec.get("track") or "").rpartition("-")
    return name, version
