"""Statistics that hold: intervals, tests and summaries on tables of results. Imports no JAX.

Scores are `[S]`, or `[S, R]` where a row is one training seed and a column one rule. The seed is
the unit of evidence: all scores of a seed share its luck, so whole rows are resampled, never
cells. Intervals are 95%. Whatever draws takes an `rng`; the same generator gives the same bytes.

An interval over seeds is about training again on *these* rules with *this* exam. A claim about
rules in general needs `hierarchical_interval`, which is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 2000
CONFIDENCE = 0.95

FEW = 10
"""Below this many seeds Student's t replaces the bootstrap, which covers 85% with 5 of them."""

NEGLIGIBLE = 1e-3
"""A ceiling below this counts as none, and one this close to 1 as full.

Zero would not do: the goal itself reaches the goal, so a share of all tapes is never zero, and at
L = 32 more than a hundred rules are solvable only from under one tape in ten thousand.
"""

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


# Intervals


def t_interval(values: np.ndarray) -> Interval:
    """Student's interval for the mean of independent values; of one value, just that value."""
    values = _check(values, "values", axes=1)
    mean = float(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(mean, mean, mean)
    return _student(mean, float(stats.sem(values)), len(values) - 1)


def seed_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of every seed over all its other axes, `[S]`."""
    return scores.reshape(len(scores), -1).mean(axis=1)


def seed_interval(
    scores: np.ndarray, rng: np.random.Generator, statistic: Statistic = seed_mean
) -> Interval:
    """Interval for a statistic of `scores[S, ...]` over training seeds.

    From 10 seeds on a percentile bootstrap of whole seeds, below them Student's t. Neither is
    exact: with 10 seeds the bootstrap of a mean covers about 90%, with 20 about 93%. One seed
    gives an interval without width, which says that nothing is known, not that all is.

    A statistic of the whole table, such as `iqm`, gets its t interval from the leave-one-seed-out
    jackknife, which for a mean is the ordinary t interval. It has to be smooth: not a median.
    """
    scores = _check(scores, "scores")
    return _over_seeds(lambda seeds: statistic(scores[seeds]), len(scores), rng)


def paired_interval(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator, statistic: Statistic = seed_mean
) -> Interval:
    """Interval for `statistic(a) - statistic(b)` where row s of both belongs to the same seed.

    For the ID–OOD drop of one agent (a is ID; the numbers of rules may differ), and for two agents
    run on the same seeds. Pairing helps as far as the rows vary together; it is valid anyway.
    """
    a, b = _check(a, "scores"), _check(b, "scores")
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
    and 24 rules. With fewer than 10 of either it is a t interval with the variances of the two
    added and Satterthwaite's degrees of freedom. For two agents pass the difference of their
    tables.
    """
    return _crossed(_check(scores, "scores", axes=2), rng, ("seeds", "rules"))


def rule_tape_bootstrap(
    scores: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Percentile interval for the mean of `scores[R, E]`, resampling rules and tapes alike.

    For policies without a training seed the chance lies in which rules and which start tapes they
    were asked about. Every rule sits the same tapes, so rows and columns are drawn, never cells.
    """
    return _crossed_bootstrap(_check(scores, "scores", axes=2), rng, resamples)


def drop_bootstrap(seen: np.ndarray, held_out: np.ndarray, rng: np.random.Generator) -> Interval:
    """`rule_tape_bootstrap` for mean(seen) - mean(held_out), `[R, E]` and `[R', E]`.

    The rules of the two sides are drawn apart; the tapes, which both sides sit, together.
    """
    seen, held_out = (_check(side, "scores", axes=2) for side in (seen, held_out))
    if seen.shape[1] != held_out.shape[1]:
        raise ValueError(
            f"one side sat {seen.shape[1]} tapes and the other {held_out.shape[1]}: use one exam"
        )

    def drop(rows: np.ndarray, others: np.ndarray, columns: np.ndarray, axis: int) -> np.ndarray:
        ours, theirs = _shares(rows, len(seen)) @ seen, _shares(others, len(held_out)) @ held_out
        return ((ours - theirs) * _shares(columns, seen.shape[1])).sum(axis=axis)

    places = tuple(map(_at_least_two, (len(seen), len(held_out), seen.shape[1])))
    low, high = _percentiles(places, drop, rng)
    return Interval(float(seen.mean() - held_out.mean()), float(low), float(high))


# Tests


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
    a, b = seed_mean(_check(a, "scores")), seed_mean(_check(b, "scores"))
    if min(len(a), len(b)) < 2:
        raise ValueError("Welch's test needs at least two seeds a side: run more seeds")
    if _is_constant(a) and _is_constant(b):
        gap = float(a[0] - b[0])
        is_equal = _is_constant(np.array([a[0], b[0]]))
        t = 0.0 if is_equal else float(np.copysign(np.inf, gap))
        return Comparison(Interval(gap, gap, gap), t, float(len(a) + len(b) - 2), float(is_equal))
    test = stats.ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(CONFIDENCE)
    difference = Interval(float(a.mean() - b.mean()), float(low), float(high))
    return Comparison(difference, float(test.statistic), float(test.df), float(test.pvalue))


def holm(pvalues: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values, in the order given: compare them with alpha as they are.

    Holds the chance of any false finding among all of `pvalues` at alpha, however the tests depend
    on each other. Pass every test of a table at once; correcting row by row corrects nothing.
    """
    pvalues = _check(pvalues, "p-values", axes=1)
    if pvalues.min() < 0 or pvalues.max() > 1:
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(pvalues)
    remaining = len(pvalues) - np.arange(len(pvalues))
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(np.maximum.accumulate(pvalues[order] * remaining), 1)
    return adjusted


# Summaries of a table


def micro_average(scores: np.ndarray, episodes: np.ndarray | None = None) -> np.ndarray:
    """Mean of `scores[..., R]` over rules as they come: the headline number.

    A type with many rules weighs much. `episodes[R]` says how often each rule was sat, if that
    differs; the average is then over episodes.
    """
    scores = _check(scores, "scores")
    weights = None if episodes is None else _per_rule(episodes, scores, "episode counts")
    return np.asarray(np.average(scores, axis=-1, weights=weights))


def macro_average(scores: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Mean over types of the mean of `scores[..., R]` over the rules of a type, by `kinds[R]`.

    Each type that occurs weighs the same, so two rule sets of different mix can be compared. A
    type with two rules then weighs as much as one with a hundred, and is as noisy as two rules.
    """
    scores = _check(scores, "scores")
    kinds = _per_rule(kinds, scores, "types", str)
    means = [scores[..., kinds == kind].mean(axis=-1) for kind in np.unique(kinds)]
    return np.asarray(np.mean(means, axis=0))


def iqm(scores: np.ndarray) -> float:
    """Interquartile mean: of all runs × rules, the mean of the middle half.

    Robust to a few wild runs. Where more than a quarter of the rules are impossible, as at the
    default size, the quarter cut off below is theirs alone and bad runs stay in.
    """
    # The same number as `trim_mean`, whose argument checks take ten times as long as the sum.
    return float(stats.trimboth(_check(scores, "scores"), 0.25, axis=None).mean())


def optimality_gap(scores: np.ndarray, target: np.ndarray | float = 1.0) -> np.ndarray:
    """Mean shortfall of `scores[..., R]` below `target`; what exceeds it does not make up for it.

    `target` may be the exact ceilings `[R]`, so that impossible rules count as no shortfall.
    """
    scores = _check(scores, "scores")
    if np.ndim(target):
        target = _per_rule(target, scores, "targets")
    return np.asarray(np.maximum(target - scores, 0).mean(axis=-1))


def ceiling_normalised(scores: np.ndarray, ceilings: np.ndarray) -> np.ndarray:
    """Mean success over mean exact ceiling, of `scores[..., R]`; nan if all ceilings are zero.

    A ratio of means, since a rule with ceiling zero has no ratio of its own. It can exceed 1 by
    luck where the ceiling is over all tapes and the exam has twenty of them.
    """
    scores = _check(scores, "scores")
    ceiling = _per_rule(ceilings, scores, "ceilings").mean()
    return np.asarray(scores.mean(axis=-1) / (ceiling if ceiling > 0 else np.nan))


def solvable_only(
    scores: np.ndarray, ceilings: np.ndarray, above: float = NEGLIGIBLE
) -> np.ndarray:
    """Mean of `scores[..., R]` over the rules whose ceiling is above `above`."""
    scores = _check(scores, "scores")
    solvable = _per_rule(ceilings, scores, "ceilings") > above
    if not solvable.any():
        raise ValueError(f"no rule has a ceiling above {above}: there is nothing to average")
    return np.asarray(scores[..., solvable].mean(axis=-1))


@dataclass(frozen=True)
class Profile:
    """The share of runs × rules that score above each threshold, with a pointwise 95% band."""

    thresholds: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray


def performance_profile(
    scores: np.ndarray, thresholds: np.ndarray, rng: np.random.Generator
) -> Profile:
    """How the scores `[S, ...]` are distributed, where a mean would hide it.

    Above is strict, so the share at threshold 0 is that of the rules solved at all. The band holds
    at each threshold, not for the whole curve at once.
    """
    scores, thresholds = _check(scores, "scores"), _check(thresholds, "thresholds", axes=1)
    cells = scores.reshape(len(scores), -1)
    shares = np.stack([(cells > threshold).mean(axis=1) for threshold in thresholds], axis=1)
    band = [_within_0_and_1(interval) for interval in _mean_intervals(shares, rng)]
    share, low, high = np.array([(point.mean, point.low, point.high) for point in band]).T
    return Profile(thresholds, share, low, high)


def probability_of_improvement(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Interval:
    """How likely a run of A beats a run of B on a rule, ties counting half; mean over rules.

    Of `a[S, R]` and `b[S, R]` on the same rules; the seeds are unpaired and may differ in number.
    It counts wins, not their size. Where every run of A beats every run of B the interval has no
    width: the runs at hand cannot tell 1 from nearly 1.
    """
    a, b = _check(a, "scores"), _check(b, "scores")
    if a.shape[1:] != b.shape[1:]:
        raise ValueError(
            f"scores per seed have shapes {a.shape[1:]} and {b.shape[1:]}: use the same rules"
        )
    a, b = a.reshape(len(a), 1, -1), b.reshape(1, len(b), -1)
    wins = ((a > b) + 0.5 * (a == b)).mean(axis=-1)
    return _within_0_and_1(_crossed(wins, rng, ("seeds of A", "seeds of B")))


# Against a reference


@dataclass(frozen=True)
class Reference:
    """What a reference policy reaches, and under which protocol."""

    success: float
    protocol: Mapping[str, Any]
    """What the number depends on, by name: at least horizon, split and exam."""
    policy: str
    """Who: ON means nothing without its planner, budget and objective."""


PROTOCOL = ("horizon", "split", "exam")
"""What a protocol has to name. All else it names has to match too."""


def oracle_normalised(success: Any, protocol: Mapping[str, Any], reference: Reference) -> Any:
    """ON(p) = 100 p / p_reference, for one success rate or an array of them.

    The reference may well be beaten, so this is no percentage of what is possible: that is
    `ceiling_normalised`. Refuses a reference measured under another protocol.
    """
    missing = [name for name in PROTOCOL if not (name in protocol and name in reference.protocol)]
    if missing:
        raise ValueError(f"ON needs to know {', '.join(missing)} of both protocols: name them")
    differing = [
        f"{name} is {protocol.get(name, 'not given')!r} for the score"
        f" and {reference.protocol.get(name, 'not given')!r} for {reference.policy}"
        for name in dict.fromkeys([*protocol, *reference.protocol])
        if name not in protocol
        or name not in reference.protocol
        or protocol[name] != reference.protocol[name]
    ]
    if differing:
        raise ValueError(f"ON needs one protocol: {'; '.join(differing)}: measure the reference so")
    if not reference.success > 0:
        raise ValueError(
            f"{reference.policy} succeeds {reference.success} of the time: nothing to divide by"
        )
    return 100 * success / reference.success


# The drop, taken apart


@dataclass(frozen=True)
class Side:
    """The results of one agent on one rule set, and what is known of its rules."""

    scores: np.ndarray
    """Success, `[S, R]`."""
    ceilings: np.ndarray
    """Exact ceilings, `[R]`."""
    kinds: np.ndarray
    """Types, str `[R]`."""

    def __post_init__(self) -> None:
        scores = _check(self.scores, "scores", axes=2)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "ceilings", _per_rule(self.ceilings, scores, "ceilings"))
        object.__setattr__(self, "kinds", _per_rule(self.kinds, scores, "types", str))

    @property
    def levels(self) -> np.ndarray:
        """Whether a rule's ceiling is `none`, `partial` or `full`."""
        is_none, is_full = self.ceilings < NEGLIGIBLE, self.ceilings > 1 - NEGLIGIBLE
        return np.select([is_none, is_full], ["none", "full"], "partial")


@dataclass(frozen=True)
class Stratum:
    """Rules of one type and ceiling level on both sides; nan where a side has none of them."""

    kind: str
    level: str
    """Of the ceiling: `none`, `partial` or `full`."""
    rules_id: int
    rules_ood: int
    success_id: float
    success_ood: float
    expected_ood: float
    """Success on the held-out rules with the skill shown on seen ones."""
    basis: str
    """Where that skill was read: on seen rules of this `type`, of this `level`, or on `all`."""
    composition: float
    """This stratum's part of the drop's composition; the strata sum to it."""
    rest: float
    """This stratum's part of the rest of the drop; the strata sum to it."""


@dataclass(frozen=True)
class Drop:
    """The ID–OOD drop and its two parts, which add up to it."""

    total: Interval
    composition: Interval
    """What an equally skilled agent would drop, because the held-out rules are others."""
    rest: Interval
    """What is left: less skill on held-out rules than on seen rules of the same stratum."""
    strata: tuple[Stratum, ...]


def decompose_drop(seen: Side, held_out: Side, rng: np.random.Generator) -> Drop:
    """Split mean(ID) - mean(OOD) into what the rule sets explain and the rest.

    Two rule sets differ in types and in ceilings, so even an agent that generalises perfectly
    scores differently on them. Rules are put into strata, type × ceiling level. What the agent
    would reach on the held-out rules of a stratum is read from the seen ones: their success times
    the ratio of the mean ceilings. With `expected` the mean of that over all held-out rules,

        composition = mean(ID) - expected        rest = expected - mean(OOD)

    which is the decomposition of Kitagawa and of Oaxaca and Blinder with ID as the standard. A
    stratum without seen rules borrows the skill of all seen rules of its ceiling level, or else of
    all: the row's `basis` says so, and such rows deserve suspicion.

    Limits. The rest is no pure measure of generalisation: rules differ in difficulty within a
    stratum too, and with 30 held-out rules that chance is large. The split depends on the standard
    (OOD's skill on ID's mix would give other parts). The intervals resample seeds, the same ones
    for all three, and take both rule sets as given.
    """
    if len(seen.scores) != len(held_out.scores):
        raise ValueError(
            f"the sides have {len(seen.scores)} and {len(held_out.scores)} seeds: use the same ones"
        )
    keys_id = list(zip(seen.kinds.tolist(), seen.levels.tolist(), strict=True))
    keys_ood = list(zip(held_out.kinds.tolist(), held_out.levels.tolist(), strict=True))
    strata = []
    expected = np.zeros(len(seen.scores))
    for kind, level in sorted({*keys_id, *keys_ood}):
        inside = np.array([key == (kind, level) for key in keys_id])
        outside = np.array([key == (kind, level) for key in keys_ood])
        basis, like = "type", inside
        if not like.any():
            basis, like = "level", seen.levels == level
        if not like.any():
            basis, like = "all", np.full(len(inside), True)
        reached = _carry_over(seen, like, held_out, outside)
        share_id, share_ood = inside.mean(), outside.mean()
        on_id, on_ood = _mean_where(seen, inside), _mean_where(held_out, outside)
        expected += share_ood * reached
        strata.append(
            Stratum(
                kind=kind,
                level=level,
                rules_id=int(inside.sum()),
                rules_ood=int(outside.sum()),
                success_id=on_id,
                success_ood=on_ood,
                expected_ood=float(reached.mean()) if outside.any() else np.nan,
                basis=basis,
                composition=float(np.nansum([share_id * on_id, -share_ood * reached.mean()])),
                rest=float(np.nansum([share_ood * reached.mean(), -share_ood * on_ood])),
            )
        )
    reached_id, reached_ood = seed_mean(seen.scores), seed_mean(held_out.scores)
    parts = [reached_id - reached_ood, reached_id - expected, expected - reached_ood]
    total, composition, rest = _mean_intervals(np.stack(parts, axis=1), rng)
    return Drop(total, composition, rest, tuple(strata))


def _carry_over(seen: Side, like: np.ndarray, held_out: Side, there: np.ndarray) -> np.ndarray:
    """Success `[S]` on held-out rules `there` with the skill shown on seen rules `like`."""
    success = seen.scores[:, like].mean(axis=1)
    ceiling = seen.ceilings[like].mean()
    if ceiling < NEGLIGIBLE or not there.any():
        return success
    target = held_out.ceilings[there].mean()
    # Exam luck above a small ceiling must not be scaled up beyond what is possible.
    return np.minimum(success * (target / ceiling), np.maximum(success, target))


def _mean_where(side: Side, mask: np.ndarray) -> float:
    return float(side.scores[:, mask].mean()) if mask.any() else np.nan


# Power


def pooled_sd(*groups: np.ndarray) -> float:
    """Standard deviation between seeds, pooled over agents; each group is `[S]` or `[S, ...]`.

    Of one group, its own; for a paired plan pass the differences. From five seeds the truth is
    anywhere between 0.6 and 2.9 times this, so a plan made from few runs is a rough one.
    """
    values = [seed_mean(_check(group, "scores")) for group in groups]
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
    found = stats.nct.sf(critical, df, shift)
    wrong_way = stats.nct.cdf(-critical, df, shift)
    return float((1.0 if np.isnan(found) else found) + (0.0 if np.isnan(wrong_way) else wrong_way))


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


# The machinery


def _over_seeds(of: Statistic, seeds: int, rng: np.random.Generator) -> Interval:
    """Interval for `of(rows)`, a function of which seeds there are."""
    everyone = np.arange(seeds)
    whole = np.asarray(of(everyone), float)
    if whole.shape == (seeds,):
        return _mean_intervals(whole[:, None], rng)[0]
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
    spread = float(stats.sem((seeds - 1) * without))
    return _student(estimate, spread, seeds - 1)


def _mean_intervals(values: np.ndarray, rng: np.random.Generator) -> list[Interval]:
    """Interval for the mean of every column of `values[S, K]`, from the same resamples."""
    if len(values) < FEW:
        return [t_interval(column) for column in values.T]
    ends = _percentiles((values,), np.mean, rng)
    return [Interval(*map(float, ends)) for ends in zip(values.mean(axis=0), *ends, strict=True)]


def _percentiles(
    samples: tuple[np.ndarray, ...],
    statistic: Callable[..., Any],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> tuple[Any, Any]:
    """Ends of the percentile bootstrap; each sample is drawn from along its first axis."""
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        vectorized=True,
        axis=0,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=rng,
    )
    return found.confidence_interval.low, found.confidence_interval.high


def _crossed(table: np.ndarray, rng: np.random.Generator, names: tuple[str, str]) -> Interval:
    """Interval for the mean of a table whose rows and whose columns are both samples."""
    for size, name in zip(table.shape, names, strict=True):
        if size < 2:
            raise ValueError(f"one of {name} tells nothing of their spread: at least two needed")
    if min(table.shape) >= FEW:
        return _crossed_bootstrap(table, rng, RESAMPLES)
    errors = np.array([stats.sem(table.mean(axis=1)), stats.sem(table.mean(axis=0))])
    error = float(np.hypot(*errors))
    shares = (errors / (error or 1.0)) ** 2
    freedom = 1 / float((shares**2 / (np.array(table.shape) - 1)).sum() or 1.0)
    return _student(float(table.mean()), error, freedom)


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
    half = float(stats.t.isf((1 - CONFIDENCE) / 2, freedom)) * error if error > 0 else 0.0
    return Interval(mean, mean - half, mean + half)


def _within_0_and_1(interval: Interval) -> Interval:
    """A share cannot leave 0 to 1, though a t interval can."""
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def _is_constant(values: np.ndarray) -> bool:
    """Whether the values differ by no more than rounding."""
    return bool(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())))


def _check(values: Any, what: str, axes: int | None = None) -> np.ndarray:
    """As a float array that has numbers in it, all of them finite."""
    array = np.asarray(values, float)
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{what} have shape {array.shape}: {axes} axes are needed")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{what} have shape {array.shape}: an array with values in it is needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} contain nan or infinity: leave out the runs that failed")
    return array


def _per_rule(values: Any, scores: np.ndarray, what: str, dtype: type = float) -> np.ndarray:
    """As an array with an entry for every rule of `scores[..., R]`."""
    array: np.ndarray = np.asarray(values, dtype)
    if array.shape != scores.shape[-1:]:
        raise ValueError(
            f"{what} have shape {array.shape}, the scores {scores.shape[-1]} rules: give one a rule"
        )
    return array if dtype is str else _check(array, what)
