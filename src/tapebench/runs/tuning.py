"""A search for an agent's settings, by successive halving and never on rules of any result.

Every trial trains on four pieces of the part `folds-tuning` and is judged on the fifth. Seed k
holds out piece k mod 5, so trials of a rung are judged on the same rules. All trials have two
seeds; the best third goes on to four, and the best third of these to eight. Judged is success on
the beyond-reflex rules held out, and the return there where that is equal.

The document of a search is written whenever a run ends and holds every finished run, so a search
resumes from it on any machine: what is in it is not run again. A search can be given less time and
more of it later.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents
from tapebench.base import files, seeding
from tapebench.exam import by_stratum, metrics
from tapebench.runs import sweep
from tapebench.runs.tracks import get_track
from tapebench.runs.training import RunSpec
from tapebench.tasks import folds

SEEDS = (2, 4, 8)
"""Of every trial on the first, second and third rung."""

SHARE = 3
"""One trial in so many goes on to the next rung."""

HOURS = 1.5
"""Core-hours that each agent's search may take."""

PATIENCE = 100
"""Draws for each trial after which there are no other combinations, or hardly any."""

PROBES = 6
"""Trials whose first seed says how long a run takes, and so how many trials there are."""

STRATUM = "beyond-reflex"

Options = Mapping[str, Any]
Row = dict[str, Any]
"""A finished run: seed, scores and the seconds of a core that it took."""


@dataclass(frozen=True)
class Search:
    """What is searched, and how long."""

    agent: str
    fixed: Options
    """Options that every trial has."""
    first: Options
    """What the agent had by default of the searched options when the search began: trial 0."""
    space: Mapping[str, tuple[Any, ...]]
    steps: int
    trials: int
    """On the first rung. More of them leave those that there were as they are."""
    rows: dict[int, list[Row]] = field(default_factory=dict)
    """Finished runs by trial."""

    def options(self) -> list[Options]:
        """What each trial sets; no combination comes twice."""
        seen = [dict(self.first)]
        drawn: list[Options] = [{**self.fixed, **self.first}]
        number = 0
        while len(drawn) < self.trials and number < PATIENCE * self.trials:
            number += 1
            trial = {
                name: values[int(seeding.generator(number, "tune", name).integers(len(values)))]
                for name, values in self.space.items()
            }
            if trial not in seen and _is_valid(self.agent, {**self.fixed, **trial}):
                seen.append(trial)
                drawn.append({**self.fixed, **trial})
        return drawn

    def specs(self, trial: int, options: Options, seeds: int) -> list[RunSpec]:
        """The runs of a trial that are not finished."""
        done = {row["seed"] for row in self.rows.get(trial, [])}
        return [self.spec(options, seed) for seed in range(seeds) if seed not in done]

    def spec(self, options: Options, seed: int) -> RunSpec:
        """A run of a trial."""
        core = get_track("core")
        text = json.dumps(options, sort_keys=True)
        return RunSpec(
            agent=self.agent,
            seed=seed,
            experiment=f"tune-{hashlib.sha256(text.encode()).hexdigest()[:8]}-{self.steps}",
            split=f"folds-tuning-{seed % folds.NUM}",
            options=options,
            length=core.length,
            horizon=core.horizon,
            steps=self.steps,
            evaluate_every=self.steps // 10,
            episodes=core.episodes,
            last=core.last,
        )

    def order(self, seeds: int) -> list[int]:
        """Trials that have so many seeds, the best first."""
        rungs = {
            trial: [row for row in rows if row["seed"] < seeds] for trial, rows in self.rows.items()
        }
        complete = [trial for trial, rows in rungs.items() if len(rows) == seeds]
        return sorted(complete, key=lambda trial: (*_worth(rungs[trial]), -trial), reverse=True)

    def document(self) -> dict[str, Any]:
        """All of it, the finished runs too."""
        options = self.options()
        return {
            "kind": "halving",
            "agent": self.agent,
            "steps": self.steps,
            "fixed": dict(self.fixed),
            "first": dict(self.first),
            "space": {name: list(values) for name, values in self.space.items()},
            "trials": [
                {"trial": trial, "options": dict(options[trial]), "runs": rows}
                for trial, rows in sorted(self.rows.items())
            ],
            "planned": self.trials,
            "seconds": round(sum(row["seconds"] for rows in self.rows.values() for row in rows)),
        }


def from_document(document: Mapping[str, Any]) -> Search:
    """The search that a document holds."""
    search = Search(
        agent=document["agent"],
        fixed=document["fixed"],
        first=document["first"],
        space={name: tuple(values) for name, values in document["space"].items()},
        steps=document["steps"],
        trials=document["planned"],
        rows={entry["trial"]: list(entry["runs"]) for entry in document["trials"]},
    )
    options = search.options()
    for entry in document["trials"]:
        if options[entry["trial"]] != entry["options"]:
            raise ValueError(
                f"trial {entry['trial']} of {search.agent} had other options than this version "
                "draws: begin another document"
            )
    return search


def begin(
    agent: str,
    fixed: Options,
    root: Path,
    *,
    steps: int = 200_000,
    hours: float = HOURS,
    workers: int | None = None,
) -> Search:
    """A search with as many trials as the first seeds of a few say that there is time for."""
    space = search_space(agent)
    defaults = vars(agents.configure(agent, **fixed))
    first = {name: defaults[name] for name in space}
    few = Search(agent, fixed, first, space, steps, PROBES)
    specs = [few.spec(options, 0) for options in few.options()]
    _make(specs, root, workers)
    few.rows.update({trial: [read_run(spec, root)] for trial, spec in enumerate(specs)})
    trials = affordable(mean_seconds(few), hours)
    kept = {trial: rows for trial, rows in few.rows.items() if trial < trials}
    return replace(few, trials=trials, rows=kept)


def extend(search: Search, hours: float) -> Search:
    """The search with as many trials as there is time for in so many core-hours in all, and never
    fewer than it has.

    What was found is kept; rungs that were complete become longer ones that are not.
    """
    return replace(search, trials=max(search.trials, affordable(mean_seconds(search), hours)))


def mean_seconds(search: Search) -> float:
    """Of a run on the first rung, where the dear settings are as frequent as they are drawn."""
    first = [row["seconds"] for rows in search.rows.values() for row in rows[: SEEDS[0]]]
    return float(np.mean(first))


def search_space(agent: str) -> Mapping[str, tuple[Any, ...]]:
    """The values that an agent's `Config` lists for its search."""
    space: Mapping[str, tuple[Any, ...]] = getattr(agents.load(agent)[0], "SEARCH", {})
    if not space:
        raise ValueError(f"the Config of {agent} has no SEARCH: name the values to search there")
    return space


def rungs(trials: int) -> list[tuple[int, int]]:
    """Trials and seeds on each rung."""
    return [
        (max(1, math.ceil(trials / SHARE**number)), seeds) for number, seeds in enumerate(SEEDS)
    ]


def num_runs(trials: int) -> int:
    """How many runs a search with so many trials takes."""
    before = 0
    total = 0
    for count, seeds in rungs(trials):
        total += count * (seeds - before)
        before = seeds
    return total


def affordable(seconds: float, hours: float) -> int:
    """The trials of the largest search of these core-hours, if a run takes so many seconds."""
    trials = 1
    while num_runs(trials + 1) * seconds <= hours * 3600:
        trials += 1
    return trials


def run(
    search: Search,
    root: Path,
    write: Callable[[Search], None],
    *,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Search:
    """Make what is left of a search; `write` is called whenever a run has ended."""
    options = search.options()
    every = range(len(options))
    for number, (count, seeds) in enumerate(rungs(len(options))):
        chosen = every if not number else search.order(SEEDS[number - 1])[:count]
        waiting = {
            str(spec.id): (trial, spec)
            for trial in chosen
            for spec in search.specs(trial, options[trial], seeds)
        }
        left = len(waiting)
        tell(f"{len(chosen)} trials with {seeds} seeds: {left} runs to make")

        def settle(name: str, state: str, reason: str, waiting: dict[str, Any] = waiting) -> None:
            if state != "done" or name not in waiting:
                return
            trial, spec = waiting.pop(name)
            search.rows.setdefault(trial, []).append(row := read_run(spec, root))
            search.rows[trial].sort(key=lambda row: row["seed"])
            write(search)
            tell(
                f"trial {trial}, seed {row['seed']}: {row[STRATUM]:.3f} in {row['seconds']:.0f} s, "
                f"{len(waiting)} left on this rung"
            )

        todo = {
            str(spec.id) for spec in sweep.missing([spec for _, spec in waiting.values()], root)
        }
        for name in waiting.keys() - todo:
            settle(name, "done", "")
        _make([spec for _, spec in waiting.values()], root, workers, settle)
    return search


def _make(
    specs: Sequence[RunSpec],
    root: Path,
    workers: int | None,
    change: sweep.Change = sweep.unwatched,
) -> None:
    todo = sweep.missing(specs, root)
    failures = sweep.run_all(todo, root, workers=workers, change=change) if todo else []
    if failures:
        raise RuntimeError(f"{failures[0].run}: {failures[0].reason}")


def read_run(spec: RunSpec, root: Path) -> Row:
    """What a finished run says of its trial."""
    folder, exam = root / str(spec.id), spec.exam
    curve = files.read_table(folder / "curve.parquet")
    took = files.read_object(folder / "provenance.json")
    counts = metrics.counted(curve["step"], spec.last)
    kinds = by_stratum.strata_by_rule(exam)
    is_beyond = np.array([kinds[rule] == STRATUM for rule in curve["rule"].tolist()])
    held_out = counts & (curve["subset"] == "ood")

    def mean(name: str, rows: np.ndarray) -> float:
        return round(float(curve[name][rows].mean(dtype=float)), 6)

    return {
        "seed": spec.seed,
        STRATUM: mean("success", held_out & is_beyond),
        "return": mean("return", held_out & is_beyond),
        "validation": mean("success", held_out),
        "training": mean("success", counts & (curve["subset"] == "id")),
        "seconds": round(took["core_seconds"], 1),
    }


def _worth(rows: Sequence[Row]) -> tuple[float, float]:
    success, paid = (float(np.mean([row[name] for row in rows])) for name in (STRATUM, "return"))
    return success, paid


def _is_valid(agent: str, options: Options) -> bool:
    try:
        agents.configure(agent, **options)
    except ValueError:
        return False
    return True
