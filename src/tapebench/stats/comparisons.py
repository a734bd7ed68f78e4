"""One agent against another: do they differ, how often is one better, how many seeds to tell?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from tapebench.stats.intervals import CONFIDENCE, Interval, crossed_interval, within_0_and_1
from tapebench.stats.tables import check, seed_mean


@dataclass(frozen=True)
class Comparison:
    """Welch's test of two agents: two-sided p, and the interval of the difference it implies."""

    difference: Interval
    t: float
    df: float
    p: float


def welch(a: np.ndarray, b: np.ndarray) -> Comparison:
    """Do the means of two agents differ? Seeds are independent, variances need not be equal.

    Takes `[S]` or `[S, ...]`; the numbers of seeds may differ. Without any spread on either side
    (every seed at 0, say) there is no noise to test against: p is then 1 for equal means, else 0.
    """
    a, b = seed_mean(check(a, "scores")), seed_mean(check(b, "scores"))
    if min(len(a), len(b)) < 2:
        raise ValueError("Welch's test needs at least two seeds a side: run more seeds")
    if _is_constant(a) and _is_constant(b):
        gap = float(a[0] - b[0])
        is_equal = _is_constant(np.array([a[0], b[0]]))
        t = 0.0 if is_equal else float(np.copysign(np.inf, gap))
        return Comparison(Interval(gap, gap, gap), t, float(len(a) + len(b) - 2), float(is_equal))
    with warnings.catch_warnings():
        # Of one agent all seeds may be equal, if it draws nothing: its spread is zero, and right.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        test = stats.ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(CONFIDENCE)
    difference = Interval(float(a.mean() - b.mean()), float(low), float(high))
    return Comparison(difference, float(test.statistic), float(test.df), float(test.pvalue))


def holm(pvalues: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values, in the order given: compare them with alpha as they are.

    Holds the chance of any false finding among all of `pvalues` at alpha, however the tests depend
    on each other. Pass every test of a table at once; correcting row by row corrects nothing.
    """
    pvalues = check(pvalues, "p-values", axes=1)
    if pvalues.min() < 0 or pvalues.max() > 1:
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(pvalues)
    remaining = len(pvalues) - np.arange(len(pvalues))
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(np.maximum.accumulate(pvalues[order] * remaining), 1)
    return adjusted


def told_apart(scores: Mapping[str, np.ndarray], alpha: float = 0.05) -> set[frozenset[str]]:
    """The pairs of agents whose means differ by Welch's test, corrected by Holm for all pairs.

    `scores` are `[S]` or `[S, ...]` by agent; those with a single seed are told from nobody.
    """
    pairs = list(combinations([name for name, own in scores.items() if len(own) > 1], 2))
    if not pairs:
        return set()
    corrected = holm(np.array([welch(scores[a], scores[b]).p for a, b in pairs]))
    return {frozenset(pair) for pair, p in zip(pairs, corrected, strict=True) if p <= alpha}


def probability_of_improvement(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Interval:
    """How likely a run of A beats a run of B on a rule, ties counting half; mean over rules.

    Of `a[S, R]` and `b[S, R]` on the same rules; the seeds are unpaired and may differ in number.
    It counts wins, not their size. Where every run of A beats every run of B the interval has no
    width: the runs at hand cannot tell 1 from nearly 1.
    """
    a, b = check(a, "scores"), check(b, "scores")
    if a.shape[1:] != b.shape[1:]:
        raise ValueError(
            f"scores per seed have shapes {a.shape[1:]} and {b.shape[1:]}: use the same rules"
        )
    a, b = a.reshape(len(a), 1, -1), b.reshape(1, len(b), -1)
    wins = ((a > b) + 0.5 * (a == b)).mean(axis=-1)
    return within_0_and_1(crossed_interval(wins, rng, ("seeds of A", "seeds of B")))


# Power


def pooled_sd(*groups: np.ndarray) -> float:
    """Standard deviation between seeds, pooled over agents; each group is `[S]` or `[S, ...]`.

    Of one group, its own; for a paired plan pass the differences. From five seeds the truth is
    anywhere between 0.6 and 2.9 times this, so a plan made from few runs is a rough one.
    """
    values = [seed_mean(check(group, "scores")) for group in groups]
    freedom = sum(len(group) - 1 for group in values)
    if freedom < 1:
        raise ValueError("a spread needs at least two seeds of one agent: run more seeds")
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in values)
    return float(np.sqrt(squares / freedom))


def power_of(
    seeds: int, difference: float, sd: float, *, paired: bool = False, alpha: float = 0.05
) -> float:
    """Chance that a two-sided t test at `alpha` finds a true difference with `seeds` a side.

    `sd` is that of seeds, the same on both sides; with `paired`, that of the paired differences.
    """
    if seeds < 2:
        raise ValueError(f"a test needs at least two seeds a side, not {seeds}")
    if not (0 <= sd < np.inf and np.isfinite(difference)):
        raise ValueError("the difference and sd have to be finite, and sd not negative")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not {alpha}")
    if sd == 0:
        return float(difference != 0)
    df = seeds - 1 if paired else 2 * seeds - 2
    shift = abs(difference) / sd * np.sqrt(seeds if paired else seeds / 2)
    critical = stats.t.isf(alpha / 2, df)
    # SciPy gives nan for tails too thin to compute: far above the critical value, or far below.
    right_way = stats.nct.sf(critical, df, shift)
    wrong_way = stats.nct.cdf(-critical, df, shift)
    return float(
        (1.0 if np.isnan(right_way) else right_way) + (0.0 if np.isnan(wrong_way) else wrong_way)
    )


def seeds_needed(
    difference: float,
    sd: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    paired: bool = False,
) -> int:
    """Fewest seeds a side (or pairs) that find a true difference with chance `power`."""
    if difference == 0:
        raise ValueError("no number of seeds finds a difference of zero: name the smallest of use")
    if not 0 < power < 1:
        raise ValueError(f"power lies between 0 and 1, not {power}")

    def is_enough(seeds: int) -> bool:
        return power_of(seeds, difference, sd, paired=paired, alpha=alpha) >= power

    enough = 2
    while not is_enough(enough):
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough


def _is_constant(values: np.ndarray) -> bool:
    """Whether the values differ by no more than rounding."""
    return bool(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())))
