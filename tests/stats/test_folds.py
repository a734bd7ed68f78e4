"""The cost of unseen from folds: paired by rule, with an interval over runs and rules."""

import numpy as np
import pytest

from fold_runs import MIXES, Mix, simulate
from scores import generator, refused_in_one_line
from tapebench import stats

FOLDS, RULES = 5, np.arange(40)


def trainings(scores, folds=range(FOLDS), rules=RULES):
    """One a fold; rule r is held out by fold r % 5, and from 30 on by none."""
    return [
        stats.Training(of_fold, rules, (rules % FOLDS == fold) & (rules < 30))
        for fold, of_fold in zip(folds, scores, strict=True)
    ]


def table(rng, cost=0.0, luck=0.0, seeds=2):
    level, skill = rng.random(len(RULES)), rng.normal(0, luck, (FOLDS, seeds, 1))
    unseen = (np.arange(FOLDS)[:, None, None] == RULES % FOLDS) & (RULES < 30)
    return level + skill - cost * unseen


def test_the_cost_is_seen_less_unseen_paired_by_rule():
    scores = generator(1).random((FOLDS, 3, len(RULES)))
    cost = stats.cost_over_folds(trainings(scores))
    seen, unseen = [], []
    for rule in range(30):
        others = [fold for fold in range(FOLDS) if fold != rule % FOLDS]
        seen.append(scores[others, :, rule].mean())
        unseen.append(scores[rule % FOLDS, :, rule].mean())
    assert cost.seen.mean == pytest.approx(np.mean(seen))
    assert cost.unseen.mean == pytest.approx(np.mean(unseen))
    assert cost.unseen.low < cost.unseen.mean < cost.unseen.high
    assert cost.cost.mean == pytest.approx(np.mean(seen) - np.mean(unseen))
    assert cost.cost.low < cost.cost.mean < cost.cost.high
    assert cost.smallest > cost.cost.high - cost.cost.mean
    assert (cost.rules, cost.runs) == (30, 15)


def test_how_hard_rules_and_how_good_runs_are_cancels():
    cost = stats.cost_over_folds(trainings(table(generator(2), cost=0.1, luck=0.3)))
    assert cost.cost.mean == pytest.approx(0.1)
    assert cost.cost.high - cost.cost.low == pytest.approx(0, abs=1e-9)
    assert cost.smallest == pytest.approx(0, abs=1e-9)


def test_a_missing_fold_leaves_the_rules_of_the_others():
    scores = generator(3).random((FOLDS, 2, len(RULES)))
    whole = stats.cost_over_folds(trainings(scores))
    part = stats.cost_over_folds(trainings(scores[1:], range(1, FOLDS)))
    assert (part.rules, part.runs) == (24, 8)
    rules = [rule for rule in range(30) if rule % FOLDS]
    unseen = np.mean([scores[rule % FOLDS, :, rule].mean() for rule in rules])
    assert part.unseen.mean == pytest.approx(unseen)
    assert part.cost != whole.cost


def test_it_can_be_told_of_some_rules_in_any_order_with_unequal_seeds():
    rng = generator(4)
    scores = [rng.random((2 + fold % 2, len(RULES))) for fold in range(FOLDS)]
    some = range(15)
    cost = stats.cost_over_folds(trainings(scores), rules=some)
    assert (cost.rules, cost.runs) == (15, 12)
    few = [
        stats.Training(
            training.scores[:, ::-1][:, -15:], RULES[::-1][-15:], training.held_out[::-1][-15:]
        )
        for training in trainings(scores)
    ]
    assert stats.cost_over_folds(few) == cost
    assert stats.cost_over_folds(trainings(scores), rules=range(7)) is None


def test_mirror_images_are_evidence_once():
    rng = generator(5)
    held_out = np.array([np.arange(20) % FOLDS == fold for fold in range(FOLDS)])
    luck = rng.normal(0, 0.01, (FOLDS, 2, 20))
    half = rng.random(20) - rng.random(20) * held_out[:, None] + luck
    twice = np.repeat(half, 2, axis=2)
    alone = [
        stats.Training(of_fold, np.arange(20), own)
        for of_fold, own in zip(half, held_out, strict=True)
    ]
    pairs = [
        stats.Training(of_fold, RULES, np.repeat(own, 2))
        for of_fold, own in zip(twice, held_out, strict=True)
    ]
    once = stats.cost_over_folds(alone)
    together = stats.cost_over_folds(pairs, kin=lambda rule: rule // 2)
    assert together.cost.high == pytest.approx(once.cost.high, abs=1e-12)
    apart = stats.cost_over_folds(pairs).cost
    assert apart.high - apart.low < 0.9 * (once.cost.high - once.cost.low)


def test_what_cannot_be_told_from_is_refused():
    scores = np.zeros((FOLDS, 2, len(RULES)))
    refused_in_one_line(lambda: stats.cost_over_folds(trainings(scores[:, :1])), "two seeds")
    refused_in_one_line(lambda: stats.cost_over_folds(trainings(scores[:1], [0])), "two folds")
    twice = trainings(scores[:2], [0, 0])
    refused_in_one_line(lambda: stats.cost_over_folds(twice), "held out by two trainings")


# By simulation


@pytest.mark.parametrize("seeds", [2, 4])
@pytest.mark.parametrize("mix", ["usual", "runs alike, rules lose alike"])
def test_the_interval_covers_what_it_says(mix, seeds):
    share, _ = simulate(MIXES[mix], seeds, 1000, "beyond-reflex")
    assert 0.93 <= share <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 4])
@pytest.mark.parametrize("mix", MIXES)
def test_the_interval_covers_what_it_says_whatever_varies(mix, seeds):
    """The whole table of docs/protocol.md takes minutes: python tests/support/fold_runs.py."""
    share, _ = simulate(MIXES[mix], seeds, 1500, "beyond-reflex")
    assert 0.93 <= share <= 0.975


def test_with_mirror_images_as_separate_evidence_it_would_cover_too_little():
    mix = Mix(cost_of_rule=1.0, cost_of_run=0, run_and_rule=0)
    honest, _ = simulate(mix, 4, 1000, "beyond-reflex")
    wrong, _ = simulate(mix, 4, 1000, "beyond-reflex", classes_count=False)
    assert wrong < 0.92 < 0.93 <= honest


def test_the_smallest_effect_is_found_in_four_cases_of_five():
    _, guesses = simulate(Mix(cost=0.6), 2, 1000, "beyond-reflex", seed=1)
    smallest = float(np.mean([estimate.smallest.mean() for estimate in guesses]))
    # A cost of that size in success: about linear in logits, so the mix is scaled to it.
    mix = Mix(cost=0.6 * smallest / Mix(cost=0.6).truth)
    assert mix.truth == pytest.approx(smallest, abs=0.003)
    _, estimates = simulate(mix, 2, 1000, "beyond-reflex", seed=2)
    power = np.mean([estimate.mean > estimate.half_width for estimate in estimates])
    assert 0.7 < power < 0.88
