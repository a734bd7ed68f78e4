"""How often intervals hold the truth, by simulation: a seed's luck moves all its scores at once.

The table of coverages in docs/protocol.md is what these tests find.
"""

import numpy as np
import pytest
import scipy.stats

from scores import (
    RULES_ID,
    RULES_OOD,
    SEED_SPREAD,
    chance,
    coverage,
    generator,
    normal_mean,
    run,
    true_mean,
)
from tapebench import stats


def bootstrap_of_mean(values, rng, resamples=400):
    bootstrap = scipy.stats.bootstrap(
        (values.ravel(),), np.mean, n_resamples=resamples, method="percentile", rng=rng
    )
    mean = float(values.mean())
    return stats.Interval(mean, *map(float, bootstrap.confidence_interval))


def test_with_five_seeds_the_interval_covers_what_it_says():
    rng = generator(20)
    intervals = [stats.seed_interval(run(rng, 5, RULES_ID)[0], rng) for _ in range(2000)]
    assert 0.91 < coverage(true_mean(RULES_ID), intervals) < 0.97


@pytest.mark.slow
def test_with_ten_seeds_the_interval_covers_what_it_says_and_a_bootstrap_would_not():
    rng, intervals, bootstraps = generator(28), [], []
    for _ in range(3000):
        (scores,) = run(rng, 10, RULES_ID)
        intervals.append(stats.seed_interval(scores, rng))
        bootstraps.append(bootstrap_of_mean(scores.mean(axis=1), rng))
    assert 0.93 < coverage(true_mean(RULES_ID), intervals) < 0.965
    # About 0.897 where 0.95 is claimed: the reason for Student's t below twenty seeds.
    assert coverage(true_mean(RULES_ID), bootstraps) < 0.915


@pytest.mark.slow
def test_with_twenty_seeds_the_interval_covers_what_it_says():
    rng = generator(21)
    intervals = [stats.seed_interval(run(rng, 20, RULES_ID)[0], rng) for _ in range(1500)]
    assert 0.91 < coverage(true_mean(RULES_ID), intervals) < 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "simulations"), [(5, 2000), (20, 1000)])
def test_the_interval_of_the_drop_covers_what_it_says(seeds, simulations):
    rng = generator(22)
    pairs = [run(rng, seeds, RULES_ID, RULES_OOD) for _ in range(simulations)]
    intervals = [stats.paired_interval(*pair, rng) for pair in pairs]
    assert 0.91 < coverage(true_mean(RULES_ID) - true_mean(RULES_OOD), intervals) < 0.97


def test_with_five_seeds_the_jackknifed_iqm_covers_what_it_says():
    rng = generator(23)
    truth = stats.iqm(run(rng, 40_000, RULES_ID)[0])
    intervals = [stats.seed_interval(run(rng, 5, RULES_ID)[0], rng, stats.iqm) for _ in range(600)]
    assert 0.91 < coverage(truth, intervals) < 0.97


@pytest.mark.parametrize(("seeds", "simulations"), [(5, 600), (20, 200)])
def test_new_seeds_and_new_rules_are_covered_by_the_hierarchical_interval_alone(seeds, simulations):
    rng, hardness = generator(24), 2.0
    spread = float(np.hypot(hardness, SEED_SPREAD))
    truth = normal_mean(lambda logit: chance(logit - 1), spread)
    runs = [run(rng, seeds, rng.normal(-1, hardness, 24))[0] for _ in range(simulations)]
    hierarchical = coverage(truth, [stats.hierarchical_interval(scores, rng) for scores in runs])
    assert 0.88 < hierarchical < 0.985
    seeds_alone = coverage(truth, [stats.seed_interval(scores, rng) for scores in runs])
    assert seeds_alone < hierarchical - 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "simulations"),
    [(30, 2000), pytest.param(226, 1000, marks=pytest.mark.nightly)],
)
def test_new_rules_and_new_tapes_are_covered_without_a_training_seed(rules, simulations):
    # Most rules are hopeless or easy and the tape matters little, as with policies that learn
    # nothing: the mean is 0.27, with a spread of 0.39 over rules and of 0.03 over tapes.
    rng, usual, hardness, tape_luck = generator(27), -5.0, 8.0, 0.7
    truth = normal_mean(lambda logit: chance(usual + logit), float(np.hypot(hardness, tape_luck)))
    intervals, by_cells = [], []
    for number in range(simulations):
        logits = rng.normal(usual, hardness, (rules, 1)) + rng.normal(0, tape_luck, 20)
        success = (rng.random((rules, 20)) < chance(logits)).astype(float)
        intervals.append(stats.rule_tape_bootstrap(success, rng))
        if number < 200:
            by_cells.append(bootstrap_of_mean(success, generator(), 200))
    # 0.943 with 30 rules, 0.954 with 226.
    assert 0.93 < coverage(truth, intervals) < 0.97
    assert coverage(truth, by_cells) < 0.6


def test_resampling_cells_instead_of_seeds_would_cover_far_too_little():
    rng, rules = generator(25), np.linspace(-4, 3, 226)
    intervals = [bootstrap_of_mean(run(rng, 20, rules)[0], rng, 200) for _ in range(200)]
    assert coverage(true_mean(rules), intervals) < 0.6


def test_with_five_seeds_a_percentile_bootstrap_would_cover_too_little():
    rng = generator(26)
    intervals = [bootstrap_of_mean(run(rng, 5, RULES_ID)[0].mean(axis=1), rng) for _ in range(1000)]
    assert coverage(true_mean(RULES_ID), intervals) < 0.89


@pytest.mark.parametrize(("seeds", "simulations"), [(5, 600), (20, 200)])
def test_the_interval_of_the_probability_of_improvement_covers_it(seeds, simulations):
    rng = generator(43)
    a, b = rng.normal(0.5, 1, (simulations, seeds, 1)), rng.normal(0, 1, (simulations, seeds, 1))
    truth = scipy.stats.norm.cdf(0.5 / np.sqrt(2))
    intervals = [stats.probability_of_improvement(*pair, rng) for pair in zip(a, b, strict=True)]
    assert 0.88 < coverage(truth, intervals) < 0.98
