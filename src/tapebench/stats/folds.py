"""What it costs that a rule was not trained on, from folds: each rule is held out by one of them.

With one training a fold and every rule of the folds examined in all of them, each rule is seen by
all trainings but one. The cost is then paired by rule, and how good a run is cancels: it adds to
the seen side of the other folds' rules what it adds to the unseen side of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from tapebench.stats.intervals import CONFIDENCE, Interval, within_0_and_1
from tapebench.stats.unseen import Training

POWER = 0.8
"""The chance with which the smallest effect would have been found."""


@dataclass(frozen=True)
class FoldCost:
    """What it costs some rules not to have been trained on."""

    cost: Interval
    """Seen less unseen; the interval is over runs and rules."""
    seen: Interval
    """Mean over rules of the success of runs trained on them; the interval is over runs alone,
    about training again with these folds."""
    unseen: Interval
    """The same of runs that held them out."""
    smallest: float
    """The smallest true cost that such runs would tell from none in four cases of five."""
    rules: int
    runs: int


class Estimate(NamedTuple):
    """A mean with its standard error and degrees of freedom; arrays where scores have more axes."""

    mean: np.ndarray
    error: np.ndarray
    freedom: np.ndarray

    @property
    def half_width(self) -> np.ndarray:
        """How far the interval reaches to either side."""
        return stats.t.isf((1 - CONFIDENCE) / 2, self.freedom) * self.error

    @property
    def smallest(self) -> np.ndarray:
        """The smallest true cost that a two-sided test finds with the chance `POWER`."""
        return self.half_width + stats.t.isf(1 - POWER, self.freedom) * self.error


def cost_over_folds(
    trainings: Sequence[Training],
    *,
    rules: Collection[int] | None = None,
    kin: Callable[[int], object] = lambda rule: rule,
) -> FoldCost | None:
    """Mean over rules of the success of runs trained on a rule less that of runs that held it out.

    There is one training a fold, with two seeds or more. Of `rules`, by default all, those count
    that one of the trainings held out and all of them were asked about; None if that leaves a fold
    with fewer than two.

    The interval is Student's, over runs and rules: about training again with folds of other rules
    like these. Rules that have the same `kin`, such as mirror images, are one task seen twice, and
    count as one piece of evidence.
    """
    if len(trainings) < 2 or any(len(training.scores) < 2 for training in trainings):
        raise ValueError("two folds or more are needed, with two seeds or more of each")
    common = set.intersection(*(set(training.rules.tolist()) for training in trainings))
    if rules is not None:
        common &= set(rules)
    names = np.array(sorted(common), int)
    columns = [
        [training.rules.tolist().index(rule) for rule in names.tolist()] for training in trainings
    ]
    held_out = np.array(
        [training.held_out[indices] for training, indices in zip(trainings, columns, strict=True)]
    ).reshape(len(trainings), len(names))
    if (held_out.sum(axis=0) > 1).any():
        raise ValueError("a rule is held out by two trainings: these are no folds")
    within = np.flatnonzero(held_out.any(axis=0))
    fold = held_out[:, within].argmax(axis=0)
    labels = [kin(rule) for rule in names[within].tolist()]
    classes = np.array([labels.index(label) for label in labels], int)
    if any(len({*classes[fold == number].tolist()}) < 2 for number in range(len(trainings))):
        return None
    scores = [
        training.scores[:, np.array(indices)[within]]
        for training, indices in zip(trainings, columns, strict=True)
    ]
    cost = estimate_cost(scores, fold, classes)
    own, others = _weights(scores, fold)
    return FoldCost(
        cost=_interval(cost),
        seen=within_0_and_1(_interval(_over_runs(scores, others))),
        unseen=within_0_and_1(_interval(_over_runs(scores, own))),
        smallest=float(cost.smallest),
        rules=len(within),
        runs=sum(map(len, scores)),
    )


def estimate_cost(scores: Sequence[np.ndarray], fold: np.ndarray, classes: np.ndarray) -> Estimate:
    """The cost from success `[..., S, R]` in each fold, the `fold` that holds out each rule `[R]`,
    and the class of kin that it belongs to `[R]`.

    The variance has two parts. Runs: how the seeds of a fold differ in what they contribute, with
    all folds pooled, as they are alike by design. Rules: how classes of a fold differ in their
    cost, less what of that is luck of a run under a rule, which the runs' part has already. By
    simulation (`tests/stats/test_folds.py`) the interval covers what it says with 5 × 2 runs too,
    where the degrees of freedom of each fold on its own are too few.
    """
    own_weights, other_weights = _weights(scores, fold)
    weights, is_own = other_weights - own_weights, own_weights > 0
    runs = _over_runs(scores, weights)
    same_class = np.eye(classes.max() + 1)[classes]
    by_rule = sum(
        (weight * fold_scores).sum(axis=-2)
        for weight, fold_scores in zip(weights, scores, strict=True)
    )
    rules: np.ndarray = np.zeros(())
    noise, freedom_of_rules = rules, 0
    for own, weight, fold_scores in zip(is_own, weights, scores, strict=True):
        inflation = fold_scores.shape[-2] / (fold_scores.shape[-2] - 1)
        luck = fold_scores - fold_scores.mean(axis=-2, keepdims=True)
        for side in (own, ~own):
            noise = noise + inflation * _spread(luck * weight, side, same_class).sum(axis=-1)
        rules = rules + _spread(by_rule, own, same_class)
        freedom_of_rules += _num_classes(own, same_class) - 1
    parts = np.stack([np.square(runs.error), np.maximum(rules - noise, 0.0)])
    freedoms = np.array([float(runs.freedom), freedom_of_rules])
    variance = parts.sum(axis=0)
    # Without any spread there is nothing to be uncertain of, whatever the degrees of freedom.
    shares = parts / np.where(variance > 0, variance, 1.0)
    freedom = 1 / np.maximum((np.square(shares).T / freedoms).T.sum(axis=0), 1e-9)
    return Estimate(runs.mean, np.sqrt(variance), freedom)


def _weights(scores: Sequence[np.ndarray], fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a run of each fold counts for in the mean over rules unseen and seen, each `[F, R]`."""
    seeds = np.array([fold_scores.shape[-2] for fold_scores in scores])
    is_own = fold == np.arange(len(scores))[:, None]
    own = is_own / seeds[:, None] / len(fold)
    return own, ~is_own / (seeds.sum() - seeds[fold]) / len(fold)


def _over_runs(scores: Sequence[np.ndarray], weights: np.ndarray) -> Estimate:
    """A weighted sum with its standard error from how the seeds of a fold differ, folds pooled."""
    total: np.ndarray = np.zeros(())
    variance, freedom = total, 0
    for fold_scores, weight in zip(scores, weights, strict=True):
        sums, seeds = (fold_scores * weight).sum(axis=-1), fold_scores.shape[-2]
        total = total + sums.sum(axis=-1)
        variance = variance + seeds * np.var(sums, axis=-1, ddof=1)
        freedom += seeds - 1
    return Estimate(total, np.sqrt(variance), np.array(float(freedom)))


def _interval(estimate: Estimate) -> Interval:
    mean, half = float(estimate.mean), float(estimate.half_width)
    return Interval(mean, mean - half, mean + half)


def _spread(values: np.ndarray, members: np.ndarray, same_class: np.ndarray) -> np.ndarray:
    """The variance of a sum over some rules of `values[..., R]`, from how their classes differ."""
    centred = (values - values[..., members].mean(axis=-1, keepdims=True)) * members
    count = _num_classes(members, same_class)
    return count / (count - 1) * np.square(centred @ same_class).sum(axis=-1)


def _num_classes(members: np.ndarray, same_class: np.ndarray) -> int:
    return int(same_class[members].any(axis=0).sum())
