"""Intervals: over seeds, over seeds and rules, over rules and tapes; and the bootstrap they share.

An interval over seeds is about training again on *these* rules with *this* exam. A claim about
rules in general needs `hierarchical_interval`, which is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from tapebench.stats.tables import check, seed_mean

RESAMPLES = 2000
CONFIDENCE = 0.95

FEW = 20
"""Below this many seeds Student's t replaces the bootstrap, which covers 85% with 5 of them and 90%
with 10."""

Statistic = Callable[[np.ndarray], Any]
"""Of scores `[S, ...]`: one value per seed, `[S]`, to be averaged; or one value of them all."""


@dataclass(frozen=True)
class Interval:
    """A mean (or another statistic) and the ends of its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def t_interval(values: np.ndarray) -> Interval:
    """Student's interval for the mean of independent values; of one value, just that value."""
    values = check(values, "values", axes=1)
    mean = float(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(mean, mean, mean)
    return _student(mean, _error_of_mean(values), len(values) - 1)


def seed_interval(
    scores: np.ndarray, rng: np.random.Generator, statistic: Statistic = seed_mean
) -> Interval:
    """Interval for a statistic of `scores[S, ...]` over training seeds.

    From 20 seeds on a percentile bootstrap of whole seeds, below them Student's t. Neither is
    exact: with 20 seeds the bootstrap of a mean covers about 93%. One seed gives an interval
    without width, which says that nothing is known, not that all is.

    A statistic of the whole table, such as `iqm`, gets its t interval from the leave-one-seed-out
    jackknife, which for a mean is the ordinary t interval. It has to be smooth: not a median.
    """
    scores = check(scores, "scores")
    return _over_seeds(lambda seeds: statistic(scores[seeds]), len(scores), rng)


def paired_interval(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator, statistic: Statistic = seed_mean
) -> Interval:
    """Interval for `statistic(a) - statistic(b)` where row s of both belongs to the same seed.

    For the ID–OOD drop of one agent (a is ID; the numbers of rules may differ), and for two agents
    run on the same seeds. Pairing helps as far as the rows vary together; it is valid anyway.
    """
    a, b = check(a, "scores"), check(b, "scores")
    if len(a) != len(b):
        raise ValueError(
            f"cannot pair {len(a)} seeds with {len(b)}: keep the seeds that both have, or use welch"
        )
    return _over_seeds(
        lambda seeds: np.subtract(statistic(a[seeds]), statistic(b[seeds])), len(a), rng
    )


def hierarchical_interval(scores: np.ndarray, rng: np.random.Generator) -> Interval:
    """Interval for the mean of `scores[S, R]` over seeds *and* rules, both drawn anew.

    For claims about rules like these, of which the R at hand are a sample. Rows and columns are
    resampled independently, since every seed sits every rule; it covers about 92% with 20 seeds
    and 24 rules. With fewer than 20 of either it is a t interval with the variances of the two
    added and Satterthwaite's degrees of freedom. For two agents pass the difference of their
    tables.
    """
    return crossed_interval(check(scores, "scores", axes=2), rng, ("seeds", "rules"))


def rule_tape_bootstrap(
    scores: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Percentile interval for the mean of `scores[R, E]`, resampling rules and tapes alike.

    For policies without a training seed, rules and start tapes are what varies. Every rule has the
    same tapes, so rows and columns are resampled, never single entries.
    """
    return _crossed_bootstrap(check(scores, "scores", axes=2), rng, resamples)


def drop_bootstrap(seen: np.ndarray, held_out: np.ndarray, rng: np.random.Generator) -> Interval:
    """`rule_tape_bootstrap` for mean(seen) - mean(held_out), `[R, E]` and `[R', E]`.

    The rules of the two sides are drawn apart; the tapes, which both sides sit, together.
    """
    seen, held_out = (check(side, "scores", axes=2) for side in (seen, held_out))
    if seen.shape[1] != held_out.shape[1]:
        raise ValueError(
            f"one side has {seen.shape[1]} tapes and the other {held_out.shape[1]}: use one exam"
        )

    def drop(
        rows: np.ndarray, held_out_rows: np.ndarray, columns: np.ndarray, axis: int
    ) -> np.ndarray:
        id_means, ood_means = (
            _shares(rows, len(seen)) @ seen,
            _shares(held_out_rows, len(held_out)) @ held_out,
        )
        return ((id_means - ood_means) * _shares(columns, seen.shape[1])).sum(axis=axis)

    places = tuple(map(_at_least_two, (len(seen), len(held_out), seen.shape[1])))
    low, high = _percentiles(places, drop, rng)
    return Interval(float(seen.mean() - held_out.mean()), float(low), float(high))


# For the other modules of this package


def mean_intervals(values: np.ndarray, rng: np.random.Generator) -> list[Interval]:
    """Interval for the mean of every column of `values[S, K]`, from the same resamples."""
    if len(values) < FEW:
        return [t_interval(column) for column in values.T]
    ends = _percentiles((values,), np.mean, rng)
    return [Interval(*map(float, ends)) for ends in zip(values.mean(axis=0), *ends, strict=True)]


def crossed_interval(
    table: np.ndarray, rng: np.random.Generator, names: tuple[str, str]
) -> Interval:
    """Interval for the mean of a table whose rows and whose columns are both samples."""
    for size, name in zip(table.shape, names, strict=True):
        if size < 2:
            raise ValueError(f"one of {name} says nothing about their spread: at least two needed")
    if min(table.shape) >= FEW:
        return _crossed_bootstrap(table, rng, RESAMPLES)
    errors = [_error_of_mean(table.mean(axis=axis)) for axis in (1, 0)]
    return t_of_parts(float(table.mean()), errors, [size - 1 for size in table.shape])


def t_of_parts(mean: float, errors: Sequence[float], freedoms: Sequence[int]) -> Interval:
    """The t interval of a mean whose error is the sum of independent ones, by Satterthwaite."""
    error = float(np.sqrt(np.square(errors).sum()))
    shares = np.square(np.array(errors) / (error or 1.0))
    freedom = 1 / float((shares**2 / np.array(freedoms)).sum() or 1.0)
    return _student(mean, error, freedom)


def within_0_and_1(interval: Interval) -> Interval:
    """A share cannot leave 0 to 1, though a t interval can."""
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


# The machinery


def _over_seeds(of: Statistic, seeds: int, rng: np.random.Generator) -> Interval:
    """Interval for `of(rows)`, a function of which seeds there are."""
    everyone = np.arange(seeds)
    whole = np.asarray(of(everyone), float)
    if whole.shape == (seeds,):
        return mean_intervals(whole[:, None], rng)[0]
    if whole.ndim:
        raise ValueError(
            f"the statistic gave shape {whole.shape}: it has to give one value, or one per seed"
        )
    estimate = float(whole)
    if seeds >= FEW:

        def of_each(drawn: np.ndarray, axis: int) -> np.ndarray:
            return np.apply_along_axis(of, axis, drawn)

        low, high = _percentiles((everyone,), of_each, rng)
        return Interval(estimate, float(low), float(high))
    if seeds == 1:
        return Interval(estimate, estimate, estimate)
    without = np.array([of(np.delete(everyone, seed)) for seed in everyone])
    spread = _error_of_mean((seeds - 1) * without)
    return _student(estimate, spread, seeds - 1)


def _percentiles(
    samples: tuple[np.ndarray, ...],
    statistic: Callable[..., Any],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> tuple[Any, Any]:
    """Ends of the percentile bootstrap; each sample is drawn from along its first axis."""
    bootstrap = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        vectorized=True,
        axis=0,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=rng,
    )
    return bootstrap.confidence_interval.low, bootstrap.confidence_interval.high


def _crossed_bootstrap(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Interval:
    """Percentile interval for the mean of a table, rows and columns drawn independently."""

    def mean(rows: np.ndarray, columns: np.ndarray, axis: int) -> np.ndarray:
        row_weight, column_weight = map(_shares, (rows, columns), table.shape)
        return ((row_weight @ table) * column_weight).sum(axis=axis)

    low, high = _percentiles(tuple(map(_at_least_two, table.shape)), mean, rng, resamples)
    return Interval(float(table.mean()), float(low), float(high))


def _at_least_two(size: int) -> np.ndarray:
    """Places to draw from. SciPy refuses a sample of one, which there is only one way to draw."""
    return np.arange(size) if size > 1 else np.zeros(2, int)


def _shares(drawn: np.ndarray, size: int) -> np.ndarray:
    """How large a part of each row of `drawn[B, N]` is 0, is 1, and so on: `[B, size]`."""
    offset = size * np.arange(len(drawn))[:, None]
    counts = np.bincount((drawn + offset).ravel(), minlength=len(drawn) * size)
    return counts.reshape(-1, size) / drawn.shape[1]


def _student(mean: float, error: float, freedom: float) -> Interval:
    """The t interval of that standard error; without error, the mean alone."""
    half = _quantile(freedom) * error if error > 0 else 0.0
    return Interval(mean, mean - half, mean + half)


def _error_of_mean(values: np.ndarray) -> float:
    """The standard error of a mean; `scipy.stats.sem` takes a hundred times as long to say it."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


@cache
def _quantile(freedom: float) -> float:
    """How many standard errors a t interval reaches to either side."""
    return float(stats.t.isf((1 - CONFIDENCE) / 2, freedom))
