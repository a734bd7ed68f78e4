import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from scores import RULES_ID, RULES_OOD, generator, refused_in_one_line, run, tables
from tapebench import stats


def test_a_t_interval_equals_scipy():
    values = generator().random(7)
    interval = stats.t_interval(values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(
        [interval.mean, interval.low, interval.high], [values.mean(), low, high]
    )


@given(tables(most=19))
def test_below_twenty_seeds_the_interval_is_students_and_ignores_the_order_of_seeds(scores):
    interval = stats.seed_interval(scores, generator())
    expected = stats.t_interval(scores.mean(axis=1))
    again = stats.seed_interval(scores[::-1], generator(1))
    for other in (expected, again):
        np.testing.assert_allclose(
            [interval.mean, interval.low, interval.high],
            [other.mean, other.low, other.high],
            atol=1e-9,
        )
    assert interval.low <= interval.mean <= interval.high


def test_nineteen_seeds_draw_nothing():
    rng, scores = generator(1), generator(1).random((19, 24))
    for statistic in (stats.seed_mean, stats.iqm):
        stats.seed_interval(scores, rng, statistic)
    stats.hierarchical_interval(scores, rng)
    assert rng.random() == generator(1).random()


def test_from_twenty_seeds_on_it_is_the_percentile_bootstrap_of_whole_seeds():
    scores = generator(1).random((20, 5))
    interval = stats.seed_interval(scores, generator(2))
    drawn = generator(2).integers(0, 20, (2000, 20))
    low, high = np.quantile(scores[drawn].mean(axis=(1, 2)), [0.025, 0.975])
    np.testing.assert_allclose([interval.low, interval.high], [low, high])
    assert interval.mean == pytest.approx(scores.mean())


@pytest.mark.parametrize("seeds", [2, 19, 25])
def test_a_statistic_per_seed_and_the_same_of_the_whole_table_agree(seeds):
    scores = generator(3).random((seeds, 6))
    per_seed = stats.seed_interval(scores, generator(4), stats.micro_average)
    whole = stats.seed_interval(scores, generator(4), np.mean)
    np.testing.assert_allclose(
        [per_seed.mean, per_seed.low, per_seed.high], [whole.mean, whole.low, whole.high]
    )


@pytest.mark.parametrize("seeds", [5, 22])
def test_a_statistic_of_the_whole_table_sees_resampled_rows(seeds):
    scores = np.sort(generator(5).random((seeds, 4)), axis=0)
    seen = []

    def watch(table):
        seen.append(table)
        return stats.iqm(table)

    interval = stats.seed_interval(scores, generator(6), watch)
    assert interval.mean == stats.iqm(scores)
    assert interval.low < interval.mean < interval.high
    rows = {tuple(row) for row in scores}
    assert all(tuple(row) in rows for table in seen for row in table)
    assert {len(table) for table in seen} == ({4, 5} if seeds == 5 else {22})


def test_a_paired_interval_is_that_of_the_differences():
    rng = generator(7)
    for seeds in (6, 24):
        a, b = rng.random((seeds, 30)), rng.random((seeds, 4))
        interval = stats.paired_interval(a, b, generator(8))
        of_all = stats.paired_interval(a, b, generator(8), np.mean)
        expected = stats.seed_interval(a.mean(axis=1) - b.mean(axis=1), generator(8))
        for other in (interval, of_all):
            np.testing.assert_allclose(
                [other.mean, other.low, other.high], [expected.mean, expected.low, expected.high]
            )


def test_pairing_takes_the_luck_that_both_sides_share_out_of_the_interval():
    on_id, on_ood = run(generator(9), 20, RULES_ID, RULES_OOD)
    paired = stats.paired_interval(on_id, on_ood, generator())
    unpaired = stats.welch(on_id, on_ood).difference
    assert paired.high - paired.low < 0.7 * (unpaired.high - unpaired.low)


def test_seeds_and_rules_together_vary_more_than_seeds_alone():
    for seeds in (5, 20):
        (scores,) = run(generator(10), seeds, RULES_ID)
        narrow = stats.seed_interval(scores, generator())
        wide = stats.hierarchical_interval(scores, generator())
        assert wide.mean == pytest.approx(narrow.mean)
        assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_with_few_seeds_the_hierarchical_interval_adds_both_variances():
    scores = generator(11).random((4, 6))
    interval = stats.hierarchical_interval(scores, generator())
    seed, rule = (scores.mean(axis=axis).var(ddof=1) / n for axis, n in ((1, 4), (0, 6)))
    freedom = (seed + rule) ** 2 / (seed**2 / 3 + rule**2 / 5)
    ends = scipy.stats.t.interval(0.95, freedom, scores.mean(), np.sqrt(seed + rule))
    np.testing.assert_allclose([interval.low, interval.high], ends)
    rows_alone = np.repeat(scores[:, :1], 6, axis=1)
    interval, plain = stats.hierarchical_interval(rows_alone, generator()), rows_alone[:, 0]
    assert interval.low == pytest.approx(stats.t_interval(plain).low)


def test_resampling_rows_and_columns_has_the_variance_that_theory_gives():
    scores = generator(12).random((25, 40))
    interval = stats.hierarchical_interval(scores, generator())
    row, column = scores.mean(axis=1).var() / 25, scores.mean(axis=0).var() / 40
    both = scores.var() / 1000
    together = row + column + (both - row / 40 - column / 25)
    assert (interval.high - interval.low) / 3.92 == pytest.approx(np.sqrt(together), rel=0.06)


@given(tables(least=2, most=14), st.integers(0, 99))
def test_the_same_generator_gives_the_same_bytes(scores, seed):
    def everything(rng):
        other = scores[::-1] / 2
        profile = stats.performance_profile(scores, [0.2, 0.5], rng)
        return [
            stats.seed_interval(scores, rng),
            stats.paired_interval(scores, other, rng),
            stats.probability_of_improvement(scores, other, rng),
            profile.low.tobytes() + profile.high.tobytes(),
        ]

    assert everything(generator(seed)) == everything(generator(seed))


def test_another_generator_gives_another_bootstrap():
    scores = generator(13).random((22, 21))
    for interval in (stats.seed_interval, stats.hierarchical_interval):
        assert interval(scores, generator(1)) == interval(scores, generator(1))
        assert interval(scores, generator(1)) != interval(scores, generator(2))


def test_a_sample_without_spread_has_an_interval_without_width():
    for seeds in (1, 2, 5, 20):
        point = stats.Interval(0.25, 0.25, 0.25)
        for statistic in (stats.seed_mean, stats.iqm):
            assert stats.seed_interval(np.full((seeds, 3), 0.25), generator(), statistic) == point
    assert stats.hierarchical_interval(np.full((3, 4), 0.25), generator()) == point
    assert str(point) == "0.250 [0.250, 0.250]"


def test_the_drop_of_one_run_has_the_interval_of_two_sides_that_share_their_tapes():
    rng = np.random.default_rng(0)
    tape_luck = rng.normal(size=40)
    seen = 1.0 + tape_luck + rng.normal(size=(60, 1)) + np.zeros((60, 40))
    held_out = 0.5 + tape_luck + rng.normal(size=(30, 1)) + np.zeros((30, 40))
    interval = stats.drop_bootstrap(seen, held_out, np.random.default_rng(1))
    assert interval.mean == pytest.approx(seen.mean() - held_out.mean())
    # What both sides share cancels: the width is that of the two means over rules alone.
    error = np.hypot(seen[:, 0].std() / 60**0.5, held_out[:, 0].std() / 30**0.5)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    with pytest.raises(ValueError, match="use one exam"):
        stats.drop_bootstrap(seen, held_out[:, 1:], rng)


def test_one_rule_or_one_tape_is_enough_for_a_bootstrap():
    rng = np.random.default_rng(0)
    assert stats.rule_tape_bootstrap(np.full((1, 1), 0.5), rng) == stats.Interval(0.5, 0.5, 0.5)
    one_rule = stats.rule_tape_bootstrap(np.arange(20.0)[None], rng)
    assert one_rule.low < one_rule.mean < one_rule.high
    assert stats.drop_bootstrap(np.ones((1, 1)), np.zeros((1, 1)), rng).mean == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.t_interval([]), r"values have shape \(0,\)"),
        (lambda: stats.t_interval(np.zeros((2, 2))), "1 axes are needed"),
        (lambda: stats.seed_interval(np.zeros((0, 3)), generator()), "with values in it"),
        (lambda: stats.seed_interval([0.1, np.nan], generator()), "nan or infinity"),
        (lambda: stats.seed_interval(0.5, generator()), "with values in it"),
        (lambda: stats.seed_interval(np.zeros((3, 2)), generator(), lambda s: s), "one per seed"),
        (
            lambda: stats.paired_interval([1, 2], [1, 2, 3], generator()),
            "cannot pair 2 seeds with 3",
        ),
        (lambda: stats.hierarchical_interval(np.zeros(3), generator()), "2 axes are needed"),
        (lambda: stats.hierarchical_interval(np.zeros((1, 3)), generator()), "one of seeds"),
        (lambda: stats.hierarchical_interval(np.zeros((3, 1)), generator()), "one of rules"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    refused_in_one_line(call, message)


@pytest.mark.slow
def test_importing_the_statistics_imports_no_jax():
    code = "import sys; from tapebench import stats; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
