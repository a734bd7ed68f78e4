"""A table as one number or one curve: averages, profiles, and scores against what is possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tapebench.stats.intervals import mean_intervals, within_0_and_1
from tapebench.stats.tables import NEGLIGIBLE, check, per_rule


def micro_average(scores: np.ndarray, episodes: np.ndarray | None = None) -> np.ndarray:
    """Mean of `scores[..., R]` over rules as they come: the headline number.

    A type with many rules weighs much. `episodes[R]` says how often each rule was sat, if that
    differs; the average is then over episodes.
    """
    scores = check(scores, "scores")
    weights = None if episodes is None else per_rule(episodes, scores, "episode counts")
    return np.asarray(np.average(scores, axis=-1, weights=weights))


def macro_average(scores: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Mean over types of the mean of `scores[..., R]` over the rules of a type, by `kinds[R]`.

    Each type that occurs weighs the same, so two rule sets of different mix can be compared. A
    type with two rules then weighs as much as one with a hundred, and is as noisy as two rules.
    """
    scores = check(scores, "scores")
    kinds = per_rule(kinds, scores, "types", str)
    means = [scores[..., kinds == kind].mean(axis=-1) for kind in np.unique(kinds)]
    return np.asarray(np.mean(means, axis=0))


def iqm(scores: np.ndarray) -> float:
    """Interquartile mean: of all runs × rules, the mean of the middle half.

    Robust to a few wild runs. Where more than a quarter of the rules are impossible, as at the
    default size, the quarter cut off below is theirs alone and bad runs stay in.
    """
    # The same number as `trim_mean`, whose argument checks take ten times as long as the sum.
    return float(stats.trimboth(check(scores, "scores"), 0.25, axis=None).mean())


def optimality_gap(scores: np.ndarray, target: np.ndarray | float = 1.0) -> np.ndarray:
    """Mean shortfall of `scores[..., R]` below `target`; what exceeds it does not make up for it.

    `target` may be the exact ceilings `[R]`, so that impossible rules count as no shortfall.
    """
    scores = check(scores, "scores")
    if np.ndim(target):
        target = per_rule(target, scores, "targets")
    return np.asarray(np.maximum(target - scores, 0).mean(axis=-1))


def ceiling_normalised(scores: np.ndarray, ceilings: np.ndarray) -> np.ndarray:
    """Mean success over mean exact ceiling, of `scores[..., R]`; nan if all ceilings are zero.

    A ratio of means, since a rule with ceiling zero has no ratio of its own. It can exceed 1 by
    luck where the ceiling is over all tapes and the exam has twenty of them.
    """
    scores = check(scores, "scores")
    ceiling = per_rule(ceilings, scores, "ceilings").mean()
    return np.asarray(scores.mean(axis=-1) / (ceiling if ceiling > 0 else np.nan))


def solvable_only(
    scores: np.ndarray, ceilings: np.ndarray, above: float = NEGLIGIBLE
) -> np.ndarray:
    """Mean of `scores[..., R]` over the rules whose ceiling is above `above`."""
    scores = check(scores, "scores")
    solvable = per_rule(ceilings, scores, "ceilings") > above
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
    scores, thresholds = check(scores, "scores"), check(thresholds, "thresholds", axes=1)
    cells = scores.reshape(len(scores), -1)
    shares = np.stack([(cells > threshold).mean(axis=1) for threshold in thresholds], axis=1)
    band = [within_0_and_1(interval) for interval in mean_intervals(shares, rng)]
    share, low, high = np.array([(point.mean, point.low, point.high) for point in band]).T
    return Profile(thresholds, share, low, high)


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
