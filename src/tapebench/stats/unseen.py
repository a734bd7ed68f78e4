"""What it costs that a rule was not trained on: the same rules, seen by some and not by others.

The drop from seen to held-out rules compares different rules, and which ones were held out decides
much of it. Two trainings that held out different rules allow a paired comparison: the same rule,
trained on and held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import sem

from tapebench.stats.intervals import Interval, t_of_parts
from tapebench.stats.tables import check, per_rule


@dataclass(frozen=True)
class Training:
    """The results of one agent trained on one rule set."""

    scores: np.ndarray
    """Success, `[S, R]`."""
    rules: np.ndarray
    """Which rules the columns are, int `[R]`."""
    held_out: np.ndarray
    """Which of these it was not trained on, bool `[R]`."""

    def __post_init__(self) -> None:
        scores = check(self.scores, "scores", axes=2)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "rules", per_rule(self.rules, scores, "rules", int))
        object.__setattr__(self, "held_out", per_rule(self.held_out, scores, "sides", bool))
        if len({*self.rules.tolist()}) != len(self.rules):
            raise ValueError("a rule has two columns: keep one")


def drop_over_rules(training: Training) -> Interval:
    """Mean success on seen rules less that on held-out ones, with an interval over seeds *and*
    rules: about training again with other rules like these on either side."""
    masks = ~training.held_out, training.held_out
    sides = [training.scores[:, side] for side in masks]
    if min(side.shape[1] for side in sides) < 2 or len(training.scores) < 2:
        raise ValueError("two seeds and two rules on each side are needed to tell of their spread")
    by_seed = sides[0].mean(axis=1) - sides[1].mean(axis=1)
    samples = [by_seed, *(side.mean(axis=0) for side in sides)]
    return t_of_parts(
        float(by_seed.mean()),
        [float(sem(sample)) for sample in samples],
        [len(sample) - 1 for sample in samples],
    )


def cost_of_unseen(trainings: Sequence[Training], of: int | None = None) -> Interval | None:
    """Success that is lost on a rule because it was not trained on.

    Of a training A and another B take the rules that A held out and B was trained on: by how much
    is B better there? B may just be the better training, so subtract by how much it is better on
    rules that both were trained on. This is the mean of that difference of differences over all
    pairs, or with `of` over those where A is this one; None if no pair has rules of both kinds.

    The interval is over seeds *and* rules: it is about training again with rules like these held
    out. It is Student's, with the variances of the two added and what both of them hold counted
    once.
    """
    if any(len(training.scores) < 2 for training in trainings):
        raise ValueError("each training needs two seeds or more, to show their spread")
    if not trainings:
        return None
    known = np.unique(np.concatenate([training.rules for training in trainings]))
    is_asked = np.array([np.isin(known, training.rules) for training in trainings])
    held_out = np.array(
        [np.isin(known, training.rules[training.held_out]) for training in trainings]
    )
    seen = is_asked & ~held_out
    means = np.zeros(is_asked.shape)
    for row, training in enumerate(trainings):
        means[row, np.searchsorted(known, training.rules)] = training.scores.mean(axis=0)

    weights, spread = np.zeros(is_asked.shape), np.zeros(len(known))
    pairs, crossed = 0, np.zeros(len(known), bool)
    for a in range(len(trainings)) if of is None else (of,):
        for b in range(len(trainings)):
            groups = held_out[a] & seen[b], seen[a] & seen[b]
            if a == b or min(group.sum() for group in groups) < 2:
                continue
            better = means[b] - means[a]
            for sign, group in zip((1, -1), groups, strict=True):
                count = group.sum()
                weights[b, group] += sign / count
                weights[a, group] -= sign / count
                off = better[group] - better[group].mean()
                spread[group] += sign * off / np.sqrt(count * (count - 1))
            pairs, crossed = pairs + 1, crossed | groups[0]
    if not pairs:
        return None
    seeds, noise = [], 0.0
    for training, weight in zip(trainings, weights / pairs, strict=True):
        count = len(training.scores)
        own = weight[np.searchsorted(known, training.rules)] / np.sqrt(count * (count - 1))
        luck = training.scores - training.scores.mean(axis=0)
        seeds.append(float(np.linalg.norm(luck @ own)))
        # What of it is not the seed's, but of this seed under this rule, is in `spread` as well.
        noise += float((own**2 * (luck - luck.mean(axis=1, keepdims=True)) ** 2).sum())
    rules = np.sqrt(max(float((spread**2).sum()) / pairs**2 - noise, 0.0))
    return t_of_parts(
        float((weights * means).sum()) / pairs,
        [*seeds, float(rules)],
        [*(len(training.scores) - 1 for training in trainings), int(crossed.sum()) - 1],
    )
