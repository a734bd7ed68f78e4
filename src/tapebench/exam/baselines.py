"""Baselines: what needs no training reaches on an exam, for every score to be read next to.

They are `random`, `flip-ones` and `greedy`, and a planner that knows the rule (`mpc`). They belong
to an exam, not to an agent: for the usual exams they are shipped rule by rule, for others they are
run on the spot, and kept beside the runs that are compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import tapebench
from tapebench.base import files, seeding
from tapebench.base.shapes import Float64
from tapebench.exam import bounds, seating
from tapebench.exam import policy as policies
from tapebench.exam.exam import Exam
from tapebench.exam.metrics import METRICS
from tapebench.exam.rollout import rollout
from tapebench.tasks.universe import ELEMENTARY

NAMES = ("random", "flip-ones", "greedy", "mpc")
PLANNER = "mpc"
"""The baseline that scores are normalised by: random shooting with the `min` objective."""

BLIND_PLANNER = "belief-planner"
"""What bounds the best blind play from below where that is not computed."""

SEEDS = 3
"""Seeds of their own draws that a baseline is averaged over."""

KEPT_EPISODES = 10_000
"""Episodes of an exam from which its baselines are kept."""

SHIPPED = ((32, 32), (32, 64), (16, 16), (8, 8))
"""Lengths and horizons whose baselines on the standard exam are shipped."""

Baseline = dict[str, Float64[np.ndarray, " R"]]
"""A policy's mean of each metric."""


def load(exam: Exam, progress: Callable[[str], Any] = lambda name: None) -> dict[str, Baseline]:
    """What each baseline reaches on this exam, rule by rule; one that cannot sit it is left out.

    Those of large exams, which take a minute, are kept in the user's cache.
    """
    shipped = load_shipped(exam)
    if shipped is not None:
        return shipped
    if len(exam.rules) * exam.num_columns < KEPT_EPISODES:
        return run_baselines(exam, progress)
    return files.remember(
        f"lines/{exam.hash}-{tapebench.__version__}.json",
        lambda: _document(exam, run_baselines(exam, progress)),
        partial(_parse, exam),
    )


def of_track(exam: Exam) -> tuple[str, ...]:
    """The baselines that a track is read beside: on the larger families also `BLIND_PLANNER`, which
    may take minutes."""
    return (*NAMES, BLIND_PLANNER) if bounds.is_bracketed(exam) else NAMES


def run_baselines(
    exam: Exam,
    progress: Callable[[str], Any] = lambda name: None,
    names: Sequence[str] = NAMES,
) -> dict[str, Baseline]:
    """`load`, run here and now; or others by name."""
    baselines = {}
    for name in names:
        try:
            policy = policies.make(name, exam.task)
        except ValueError:
            continue
        baselines[name] = run_one(policy, exam)
        progress(name)
    return baselines


def run_one(policy: Any, exam: Exam) -> Baseline:
    """A policy's mean of each metric over episodes and `SEEDS` seeds, `[R]`."""
    runs = [
        rollout(
            policy, exam.task, None, exam.episodes, seed=seed, salt=exam.salt, trials=exam.trials
        )
        for seed in range(SEEDS)
    ]
    return {
        name: np.mean([metric(run).mean(axis=1) for run in runs], axis=0)
        for name, metric in METRICS.items()
    }


def load_shipped(exam: Exam) -> dict[str, Baseline] | None:
    """`load` where they are shipped, else None: nothing is run."""
    task = exam.task
    is_usual = (
        (task.length, task.horizon) in SHIPPED
        and (exam.salt, exam.trials, task.goal, task.noise, task.hidden) == ("", 1, 0, 0.0, 0)
        and (task.reward, task.success_bonus, task.observe_goal) == ("distance", 1.0, False)
        and not task.schedule.switches
        and task.family == ELEMENTARY.family
    )
    if not is_usual:
        return None
    shipped = _read_shipped(task.length, task.horizon)
    versions = shipped["exam_version"], shipped.get("seating")
    is_current = versions == (seeding.EXAM_VERSION, seating.VERSION)
    if not is_current or shipped["episodes"] != exam.episodes:
        return None
    return {
        name: {metric: np.array(by_rule)[exam.rules] for metric, by_rule in baseline.items()}
        for name, baseline in shipped["lines"].items()
    }


@cache
def _read_shipped(length: int, horizon: int) -> Any:
    file = resources.files("tapebench").joinpath(f"data/lines/L{length}-H{horizon}.json")
    return json.loads(file.read_text())


def dump(exam: Exam, baselines: Mapping[str, Baseline]) -> str:
    """Baselines on all rules as the text of a file under `data/lines/`: one metric per line."""
    head = {
        "exam_version": seeding.EXAM_VERSION,
        "seating": seating.VERSION,
        "length": exam.task.length,
        "horizon": exam.task.horizon,
        "episodes": exam.episodes,
        "seeds": SEEDS,
    }
    policies = ",\n".join(
        f'    "{name}": {{\n'
        + ",\n".join(
            f'      "{metric}": {json.dumps([round(float(value), 6) for value in by_rule])}'
            for metric, by_rule in baseline.items()
        )
        + "\n    }"
        for name, baseline in baselines.items()
    )
    return f'{json.dumps(head)[:-1]},\n  "lines": {{\n{policies}\n  }}\n}}\n'


def load_stored(exam: Exam, root: Path) -> dict[str, Baseline] | None:
    """The baselines of an exam, kept beside the runs or shipped; None if they have not been
    measured."""
    file = root / "lines" / f"{exam.hash}.json"
    if not file.is_file():
        return load_shipped(exam)
    try:
        document = files.read_object(file)
        baselines = _parse(exam, document)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise files.DamageError(f"{file} is damaged") from None
    return baselines if document.get("seating") == seating.VERSION else load_shipped(exam)


def _parse(exam: Exam, document: Mapping[str, Any]) -> dict[str, Baseline]:
    """What `_document` made a document of; an error where that is not whole."""
    baselines = {
        name: {metric: np.array(by_rule, float) for metric, by_rule in baseline.items()}
        for name, baseline in document["lines"].items()
    }
    for baseline in baselines.values():
        for values in (baseline["success"], *baseline.values()):
            if values.shape != (len(exam.rules),):
                raise ValueError("these are baselines of another exam")
    return baselines


def _document(exam: Exam, baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    plain = {
        name: {metric: by_rule.tolist() for metric, by_rule in baseline.items()}
        for name, baseline in baselines.items()
    }
    return {"exam": exam.identity, "seating": seating.VERSION, "lines": plain}


def load_or_run(
    exam: Exam, root: Path, progress: Callable[[str], Any] = lambda name: None
) -> dict[str, Baseline]:
    """What needs no training on this exam; run on the spot once if it is not shipped, then kept."""
    try:
        known = load_stored(exam, root)
    except files.DamageError:
        known = None
    if known is None:
        known = run_baselines(exam, progress)
        store_baselines(exam, known, root)
    return known


def store_baselines(exam: Exam, baselines: Mapping[str, Baseline], root: Path) -> None:
    """Write the baselines of an exam beside the runs."""
    file = root / "lines" / f"{exam.hash}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(file, _document(exam, baselines))
