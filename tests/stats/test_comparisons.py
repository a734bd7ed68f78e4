import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from scores import generator, refused_in_one_line, unit
from tapebench import stats


def test_welch_equals_scipy_on_the_means_of_seeds():
    a, b = generator(30).random((5, 8)), generator(31).random((7, 8)) / 2
    expected = scipy.stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False)
    test = stats.welch(a, b)
    np.testing.assert_allclose(
        [test.t, test.p, test.df], [expected.statistic, expected.pvalue, expected.df]
    )
    assert test.difference.mean == pytest.approx(a.mean() - b.mean())
    assert (test.difference.low > 0 or test.difference.high < 0) == (test.p < 0.05)
    assert stats.welch(b, a).t == -test.t


def test_welch_without_any_spread_still_answers():
    zeros, thirds = np.zeros(4), np.full((3, 6), 1 / 3)
    same = stats.welch(zeros, zeros[:3])
    assert (same.p, same.t, same.df) == (1, 0, 5)
    assert stats.welch(thirds, thirds[:, :5] + 1e-17).p == 1
    apart = stats.welch(zeros, thirds)
    assert (apart.p, apart.t) == (0, -np.inf)
    assert 0 < stats.welch(zeros, [0.0, 0.1, 0.2]).p < 1


def test_holm_by_hand():
    np.testing.assert_allclose(stats.holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    np.testing.assert_allclose(stats.holm([0.01, 0.9, 0.8, 0.02]), [0.04, 1, 1, 0.06])
    np.testing.assert_allclose(stats.holm([0.2]), [0.2])


@given(st.lists(unit, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_keeps_the_order_lies_between_raw_and_bonferroni_and_rejects_step_by_step(raw, random):
    raw = np.array(raw)
    adjusted = stats.holm(raw)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(raw * len(raw), 1)).all()
    assert (np.diff(adjusted[np.argsort(raw)]) >= 0).all()
    shuffle = random.sample(range(len(raw)), len(raw))
    np.testing.assert_array_equal(stats.holm(raw[shuffle]), adjusted[shuffle])
    rejected = set()
    for step, index in enumerate(np.argsort(raw)):
        if raw[index] * (len(raw) - step) > 0.05:
            break
        rejected.add(index)
    assert rejected == set(np.flatnonzero(adjusted <= 0.05))


def test_holm_holds_the_chance_of_any_false_finding():
    rng = generator(32)
    reference, agents = rng.normal(size=(3000, 8, 1)), rng.normal(size=(3000, 8, 6))
    raw = scipy.stats.ttest_ind(agents, reference, axis=1).pvalue
    adjusted = np.array([stats.holm(row) for row in raw])
    assert (raw < 0.05).any(axis=1).mean() > 0.15
    assert (adjusted < 0.05).any(axis=1).mean() < 0.06


def test_probability_of_improvement_is_mann_whitneys_u():
    rng = generator(42)
    a, b = rng.integers(0, 6, (5, 9)) / 5, rng.integers(0, 5, (7, 9)) / 5
    improvement = stats.probability_of_improvement(a, b, rng)
    u = scipy.stats.mannwhitneyu(a, b, axis=0, method="asymptotic").statistic
    assert improvement.mean == pytest.approx((u / 35).mean())
    other_way = stats.probability_of_improvement(b, a, rng)
    assert other_way.mean == pytest.approx(1 - improvement.mean)
    assert other_way.low == pytest.approx(1 - improvement.high)
    assert stats.probability_of_improvement(a + 9, b, rng) == stats.Interval(1, 1, 1)
    assert stats.probability_of_improvement(a[:, 0], a[:, 0], rng).mean == 0.5


# Power


@pytest.mark.parametrize(
    ("effect", "power", "paired", "published"),
    [
        (0.2, 0.8, False, 394),
        (0.5, 0.8, False, 64),
        (0.8, 0.8, False, 26),
        (0.5, 0.95, False, 105),
        (0.5, 0.8, True, 34),
        (0.8, 0.8, True, 15),
        (0.2, 0.8, True, 199),
    ],
)
def test_the_seeds_needed_are_those_of_published_tables(effect, power, paired, published):
    assert stats.seeds_needed(effect * 0.03, 0.03, power=power, paired=paired) == published
    assert stats.seeds_needed(-effect, 1, power=power, paired=paired) == published


@given(st.floats(0.05, 50), st.sampled_from([0.5, 0.8, 0.99]), st.booleans())
def test_one_seed_fewer_than_needed_is_too_few(effect, power, paired):
    needed = stats.seeds_needed(effect, 1.0, power=power, paired=paired)
    assert stats.power_of(needed, effect, 1.0, paired=paired) >= power
    assert needed == 2 or stats.power_of(needed - 1, effect, 1.0, paired=paired) < power


def test_power_equals_the_share_of_simulated_tests_that_find_the_difference():
    rng = generator(60)
    a, b = rng.normal(0.9, 1, (6000, 12)), rng.normal(0, 1, (6000, 12))
    power = (scipy.stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05).mean()
    assert power == pytest.approx(stats.power_of(12, 0.9, 1), abs=0.02)
    power = (scipy.stats.ttest_1samp(a[:, :6], 0, axis=1).pvalue < 0.05).mean()
    assert power == pytest.approx(stats.power_of(6, 0.9, 1, paired=True), abs=0.02)


def test_power_at_the_extremes():
    assert stats.power_of(5, 0.0, 1.0) == pytest.approx(0.05)
    for effect in (6, 20, 37, 100, 1e6):
        assert stats.power_of(10, effect, 1.0) == pytest.approx(1)
    assert (stats.power_of(2, 0.1, 0.0), stats.power_of(2, 0.0, 0.0)) == (1, 0)
    normal = 2 * (scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(0.2)) ** 2 / 0.005**2
    assert stats.seeds_needed(0.005, 1.0) == pytest.approx(normal, rel=1e-4)


def test_the_pooled_spread_of_stored_runs():
    a, b = generator(61).random((4, 3)), generator(62).random((9, 3))
    means = a.mean(axis=1), b.mean(axis=1)
    assert stats.pooled_sd(a) == pytest.approx(means[0].std(ddof=1))
    expected = np.sqrt((3 * means[0].var(ddof=1) + 8 * means[1].var(ddof=1)) / 11)
    assert stats.pooled_sd(a, b) == pytest.approx(expected)
    t = (means[0].mean() - means[1].mean()) / expected / np.sqrt(1 / 4 + 1 / 9)
    assert t == pytest.approx(scipy.stats.ttest_ind(*means).statistic)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.welch([0.1], [0.1, 0.2]), "at least two seeds a side"),
        (lambda: stats.holm([]), "p-values have shape"),
        (lambda: stats.holm([0.1, np.nan]), "p-values contain nan"),
        (lambda: stats.holm([0.1, 1.1]), "between 0 and 1"),
        (
            lambda: stats.probability_of_improvement(
                np.zeros((2, 3)), np.zeros((2, 4)), generator()
            ),
            "use the same rules",
        ),
        (
            lambda: stats.probability_of_improvement([0.1], [0.1, 0.2], generator()),
            "one of seeds of A",
        ),
        (lambda: stats.pooled_sd([0.1], [0.2]), "at least two seeds"),
        (lambda: stats.power_of(1, 0.1, 0.1), "at least two seeds"),
        (lambda: stats.power_of(5, 0.1, -1), "not negative"),
        (lambda: stats.power_of(5, 0.1, 1, alpha=5), "alpha"),
        (lambda: stats.seeds_needed(0, 1), "difference of zero"),
        (lambda: stats.seeds_needed(0.1, 1, power=80), "power"),
        (lambda: stats.seeds_needed(np.nan, 1), "finite"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    refused_in_one_line(call, message)


def test_an_agent_without_any_spread_is_compared_with_one_that_has_some():
    test = stats.welch(np.full(5, 0.3), np.array([0.1, 0.2, 0.3, 0.2, 0.1]))
    assert 0 < test.p < 0.05
    assert test.difference.mean == pytest.approx(0.12)


def test_pairs_are_told_apart_by_welch_with_holm_for_all_of_them():
    rng = generator(60)
    scores = {name: rng.normal(mean, 1, 20) for name, mean in (("a", 0), ("b", 0.1), ("c", 5))}
    scores["alone"] = np.array([100.0])
    assert stats.told_apart(scores) == {frozenset("ac"), frozenset("bc")}
    assert stats.told_apart({"a": scores["a"], "alone": scores["alone"]}) == set()
