"""Metrics of episodes, and tables of them: one row per episode, or one per rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tapebench.base.shapes import Bool, Integer, Shaped
from tapebench.exam import seating
from tapebench.exam.exam import UNKNOWN, Exam
from tapebench.exam.rollout import Episodes

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


def rows(
    episodes: Episodes, exam: Exam, optimal_steps: Integer[np.ndarray, "R E"], **run: Any
) -> dict[str, Shaped[np.ndarray, " RE"]]:
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
        "rule": along_rules(_rule_column(exam)),
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


def rule_means(episodes: Episodes, exam: Exam, **run: Any) -> dict[str, Shaped[np.ndarray, " R"]]:
    """One row per rule: the mean of every metric over its episodes."""
    table = _constant(run, len(exam.rules))
    table |= {
        "split": np.full(len(exam.rules), exam.split, object),
        "subset": exam.subsets,
        "rule": _rule_column(exam),
        "type": exam.types,
        "episodes": np.full(len(exam.rules), exam.num_columns, np.int32),
        "seating": np.full(len(exam.rules), seating.VERSION, np.int8),
    }
    return table | {
        name: metric(episodes).mean(axis=1).astype(np.float32) for name, metric in METRICS.items()
    }


def counted(step: Integer[np.ndarray, " N"], last: int) -> Bool[np.ndarray, " N"]:
    """Which rows of a curve are of the last evaluations, those that count."""
    return np.isin(step, np.unique(step)[-last:])


def _rule_column(exam: Exam) -> np.ndarray:
    """Rules in the least space that all of their family fit in."""
    return exam.rules.astype(np.int16 if exam.task.family.num_rules <= 1 << 15 else np.int64)


def _constant(run: Mapping[str, Any], num: int) -> dict[str, np.ndarray]:
    return {
        name: np.full(num, value, object if isinstance(value, str) else None)
        for name, value in run.items()
    }
