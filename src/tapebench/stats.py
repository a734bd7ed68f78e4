"""Statistics that hold: intervals and tests on tables of results. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def t_interval(values: np.ndarray) -> Interval:
    """Student's interval for the mean of independent values; of one value, just that value."""
    mean = float(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(mean, mean, mean)
    error = float(stats.sem(values))
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, loc=mean, scale=error)
    return Interval(mean, float(low), float(high))


def rule_tape_bootstrap(
    scores: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Percentile interval for the mean of `scores[R, E]`, resampling rules and tapes alike.

    For policies without a training seed the chance lies in which rules and which start tapes they
    were asked about. Every rule sits the same tapes, so rows and columns are drawn, never cells.
    """
    rules, tapes = scores.shape
    means = np.empty(resamples)
    for number in range(resamples):
        weight = np.bincount(rng.integers(rules, size=rules), minlength=rules) / rules
        means[number] = (weight @ scores)[rng.integers(tapes, size=tapes)].mean()
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(scores.mean()), float(low), float(high))
