"""What episodes are worth: tables of them, and scores beside the lines everyone is read against.

A score is read next to what needs no learning (`random`, `flip-ones`, `greedy`), next to a planner
that knows the rule (`mpc`), and next to the exact ceiling. Those lines belong to an exam, not to
an agent: for the usual exams they are shipped rule by rule, for others they are run on the spot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tapebench import references, seating, stats
from tapebench.base import seeding
from tapebench.exam import SUBSETS, UNKNOWN, Exam
from tapebench.physics import features
from tapebench.rollout import Episodes, rollout

TOLERANCES = (1 / 32, 1 / 16, 0.1)
"""Final distances that count as soft success."""

METRICS: dict[str, Callable[[Episodes], np.ndarray]] = {
    "success": lambda episodes: episodes.success,
    "final_distance": lambda episodes: episodes.final_distance,
    "auc_distance": lambda episodes: episodes.auc_distance,
    "return": lambda episodes: episodes.returns,
    "steps": lambda episodes: episodes.steps,
    "soft_1_32": lambda episodes: episodes.soft_success(TOLERANCES[0]),
    "soft_1_16": lambda episodes: episodes.soft_success(TOLERANCES[1]),
    "soft_0_1": lambda episodes: episodes.soft_success(TOLERANCES[2]),
}
"""Column -> the metric `[R, E]`."""

SOFT = dict(zip(("soft_1_32", "soft_1_16", "soft_0_1"), map(str, TOLERANCES), strict=True))

LINES = ("random", "flip-ones", "greedy", "mpc")
PLANNER = "mpc"
"""The line that scores are normalised by: random shooting with the `min` objective."""

LINE_SEEDS = 3
"""Seeds of their own draws that a line is averaged over."""

SHIPPED_LINES = ((32, 32), (32, 64), (16, 16), (8, 8))
"""Lengths and horizons whose lines on the standard exam are shipped."""

Line = dict[str, np.ndarray]
"""A policy's mean of each metric, `[R]`."""


def rows(
    episodes: Episodes, exam: Exam, optimal_steps: np.ndarray, **run: Any
) -> dict[str, np.ndarray]:
    """One row per episode. `run` are columns that say whose they are: agent, seed, step, ..."""
    shape = episodes.success.shape
    column = np.arange(shape[1])

    def along_rules(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, shape[1])

    table = _constant(run, episodes.success.size)
    table |= {
        "split": np.full(episodes.success.size, exam.split, object),
        "exam": np.full(episodes.success.size, exam.name, object),
        "subset": along_rules(exam.subsets),
        "rule": along_rules(exam.rules).astype(np.int16),
        "type": along_rules(exam.types),
        "episode": np.tile(column % exam.episodes, shape[0]).astype(np.int32),
        "trial": np.tile(column // exam.episodes, shape[0]).astype(np.int16),
        "length": np.full(episodes.success.size, exam.task.length, np.int16),
        "horizon": np.full(episodes.success.size, exam.task.horizon, np.int32),
        "seating": np.full(episodes.success.size, seating.VERSION, np.int8),
    }
    for name, metric in METRICS.items():
        values = metric(episodes).ravel()
        table[name] = values.astype(np.float32) if values.dtype.kind == "f" else values
    known = np.where(optimal_steps == UNKNOWN, np.nan, optimal_steps)
    table["optimal_steps"] = known.astype(np.float32).ravel()
    return table


def rule_means(episodes: Episodes, exam: Exam, **run: Any) -> dict[str, np.ndarray]:
    """One row per rule: the mean of every metric over its episodes."""
    table = _constant(run, len(exam.rules))
    table |= {
        "split": np.full(len(exam.rules), exam.split, object),
        "subset": exam.subsets,
        "rule": exam.rules.astype(np.int16),
        "type": exam.types,
        "episodes": np.full(len(exam.rules), exam.num_columns, np.int32),
        "seating": np.full(len(exam.rules), seating.VERSION, np.int8),
    }
    return table | {
        name: metric(episodes).mean(axis=1).astype(np.float32) for name, metric in METRICS.items()
    }


def counted(step: np.ndarray, last: int) -> np.ndarray:
    """Which rows of a curve are of the last evaluations, those that count."""
    return np.isin(step, np.unique(step)[-last:])


def _constant(run: Mapping[str, Any], num: int) -> dict[str, np.ndarray]:
    return {
        name: np.full(num, value, object if isinstance(value, str) else None)
        for name, value in run.items()
    }


def lines(exam: Exam, progress: Callable[[str], Any] = lambda name: None) -> dict[str, Line]:
    """What the lines reach on this exam, rule by rule; those that cannot sit it are left out."""
    shipped = shipped_lines(exam)
    return run_lines(exam, progress) if shipped is None else shipped


def run_lines(exam: Exam, progress: Callable[[str], Any] = lambda name: None) -> dict[str, Line]:
    """`lines`, run here and now."""
    found = {}
    for name in LINES:
        try:
            policy = references.make(name, exam.task)
        except ValueError:
            continue
        found[name] = run_line(policy, exam)
        progress(name)
    return found


def run_line(policy: Any, exam: Exam) -> Line:
    """A policy's mean of each metric over episodes and `LINE_SEEDS` seeds, `[R]`."""
    runs = [
        rollout(
            policy, exam.task, None, exam.episodes, seed=seed, salt=exam.salt, trials=exam.trials
        )
        for seed in range(LINE_SEEDS)
    ]
    return {
        name: np.mean([metric(run).mean(axis=1) for run in runs], axis=0)
        for name, metric in METRICS.items()
    }


def shipped_lines(exam: Exam) -> dict[str, Line] | None:
    """`lines` where they are shipped, else None: nothing is run."""
    task = exam.task
    is_usual = (
        (task.length, task.horizon) in SHIPPED_LINES
        and (exam.salt, exam.trials, task.goal, task.noise, task.hidden) == ("", 1, 0, 0.0, 0)
        and (task.reward, task.success_bonus, task.observe_goal) == ("distance", 1.0, False)
    )
    if not is_usual:
        return None
    shipped = _load_lines(task.length, task.horizon)
    versions = shipped["exam_version"], shipped.get("seating")
    is_current = versions == (seeding.EXAM_VERSION, seating.VERSION)
    if not is_current or shipped["episodes"] != exam.episodes:
        return None
    return {
        name: {metric: np.array(by_rule)[exam.rules] for metric, by_rule in line.items()}
        for name, line in shipped["lines"].items()
    }


@cache
def _load_lines(length: int, horizon: int) -> Any:
    file = resources.files("tapebench").joinpath(f"data/lines/L{length}-H{horizon}.json")
    return json.loads(file.read_text())


def dump_lines(exam: Exam, found: Mapping[str, Line]) -> str:
    """Lines on all rules as the text of a file under `data/lines/`: one metric per line."""
    head = {
        "exam_version": seeding.EXAM_VERSION,
        "seating": seating.VERSION,
        "length": exam.task.length,
        "horizon": exam.task.horizon,
        "episodes": exam.episodes,
        "seeds": LINE_SEEDS,
    }
    policies = ",\n".join(
        f'    "{name}": {{\n'
        + ",\n".join(
            f'      "{metric}": {json.dumps([round(float(value), 6) for value in by_rule])}'
            for metric, by_rule in line.items()
        )
        + "\n    }"
        for name, line in found.items()
    )
    return f'{json.dumps(head)[:-1]},\n  "lines": {{\n{policies}\n  }}\n}}\n'


def score(
    runs: Sequence[Episodes],
    exam: Exam,
    optimal_steps: np.ndarray,
    beside: Mapping[str, Line],
    *,
    policy: str,
    sees_rule: bool,
) -> dict[str, Any]:
    """The whole result as one document. `runs` are one or several training seeds.

    With one run the interval is about which rules and tapes were asked; with several it is about
    the seeds. `interval_over` says which.
    """
    ceilings = exam.ceilings(optimal_steps)
    document: dict[str, Any] = {
        "policy": policy,
        "sees_rule": sees_rule,
        "split": exam.split,
        "exam": exam.name,
        "exam_hash": exam.hash,
        "length": exam.task.length,
        "horizon": exam.task.horizon,
        "episodes_per_rule": exam.episodes,
        "trials": exam.trials,
        "runs": len(runs),
        "interval_over": "seeds" if len(runs) > 1 else "rules and tapes",
    }
    for subset in SUBSETS:
        document[subset] = _score_subset(runs, exam, ceilings, beside, subset)
    document |= _drop(runs, exam, ceilings)
    document["by_type"] = _by_type(runs, exam, ceilings)
    if exam.trials > 1:
        document["by_trial"] = _by_trial(runs, exam)
    document["lines"] = {
        name: {
            subset: _mean(line["success"][exam.rows(subset)])
            for subset in SUBSETS
            if len(exam.rows(subset))
        }
        for name, line in beside.items()
    }
    return document


def _score_subset(
    runs: Sequence[Episodes],
    exam: Exam,
    ceilings: np.ndarray,
    beside: Mapping[str, Line],
    subset: str,
) -> dict[str, Any] | None:
    at = exam.rows(subset)
    if not len(at):
        return None
    means = {
        name: float(np.mean([metric(run)[at].mean() for run in runs]))
        for name, metric in METRICS.items()
    }
    success = np.array([run.success[at] for run in runs], float)
    interval = _interval(success, subset)
    ceiling = float(ceilings[at].mean())
    per_rule = success.mean(axis=(0, 2))
    found: dict[str, Any] = {name: value for name, value in means.items() if name not in SOFT}
    found["soft_success"] = {label: means[name] for name, label in SOFT.items()}
    found["interval"] = [interval.low, interval.high]
    found["macro_success"] = float(stats.macro_average(per_rule, exam.types[at]))
    found["on"] = _normalised_by_planner(means["success"], exam, beside, at)
    found["ceiling"] = None if np.isnan(ceiling) else ceiling
    found["normalised"] = None if np.isnan(ceiling) or not ceiling else means["success"] / ceiling
    is_solvable = ceilings[at] > stats.NEGLIGIBLE
    is_known = not np.isnan(ceiling) and is_solvable.any()
    found["success_on_solvable"] = float(per_rule[is_solvable].mean()) if is_known else None
    found["rules"] = len(at)
    found["episodes"] = int(success.size)
    return found


def _normalised_by_planner(
    success: float, exam: Exam, beside: Mapping[str, Line], at: np.ndarray
) -> float | None:
    if PLANNER not in beside:
        return None
    reached = float(beside[PLANNER]["success"][at].mean())
    if not reached:
        return None
    reference = stats.Reference(reached, exam.identity, PLANNER)
    return float(stats.oracle_normalised(success, exam.identity, reference))


def _interval(success: np.ndarray, *names: str) -> stats.Interval:
    """Of `success[S, R, E]`: over seeds if there are several, else over rules and tapes."""
    rng = seeding.generator(0, "score", *names)
    if len(success) > 1:
        return stats.seed_interval(success.mean(axis=2), rng)
    return stats.rule_tape_bootstrap(success[0], rng)


def _drop(runs: Sequence[Episodes], exam: Exam, ceilings: np.ndarray) -> dict[str, Any]:
    """The ID-OOD difference in success, its interval, and the part the rules themselves make."""
    inside, outside = exam.rows("id"), exam.rows("ood")
    if not len(inside) or not len(outside):
        return {"drop": None, "drop_interval": None, "drop_composition": None, "drop_rest": None}
    success = np.array([run.success for run in runs], float)
    rng = seeding.generator(0, "score", "drop")
    if len(runs) > 1:
        seeds = success.mean(axis=2)
        drop = stats.paired_interval(seeds[:, inside], seeds[:, outside], rng)
    else:
        drop = stats.drop_bootstrap(success[0, inside], success[0, outside], rng)
    found: dict[str, Any] = {"drop": drop.mean, "drop_interval": [drop.low, drop.high]}
    if np.isnan(ceilings).any():
        return found | {"drop_composition": None, "drop_rest": None}
    seen, held_out = (
        stats.Side(success[:, at].mean(axis=2), ceilings[at], exam.types[at])
        for at in (inside, outside)
    )
    parts = stats.decompose_drop(seen, held_out, rng)
    return found | {"drop_composition": parts.composition.mean, "drop_rest": parts.rest.mean}


def _by_type(
    runs: Sequence[Episodes], exam: Exam, ceilings: np.ndarray
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind in features.TYPES:
        for subset in SUBSETS:
            at = np.flatnonzero((exam.types == kind) & (exam.subsets == subset))
            if not len(at):
                continue
            success = np.array([run.success[at] for run in runs], float)
            interval = _interval(success, kind, subset)
            found.setdefault(kind, {})[subset] = {
                "success": float(success.mean()),
                "interval": [interval.low, interval.high],
                "return": float(np.mean([run.returns[at].mean() for run in runs])),
                "ceiling": _mean(ceilings[at]),
                "rules": len(at),
                "episodes": int(success.size),
            }
    return found


def _by_trial(runs: Sequence[Episodes], exam: Exam) -> list[dict[str, float]]:
    success = np.array([run.by_trial(run.success) for run in runs], float)
    return [
        {
            subset: float(success[:, trial, exam.rows(subset)].mean())
            for subset in SUBSETS
            if len(exam.rows(subset))
        }
        for trial in range(exam.trials)
    ]


def _mean(values: np.ndarray) -> float | None:
    mean = float(values.mean())
    return None if np.isnan(mean) else mean
