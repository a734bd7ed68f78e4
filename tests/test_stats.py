import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tapebench import stats

SEED_SPREAD = 0.7
RULES_ID = np.linspace(-4, 3, 24)
RULES_OOD = np.linspace(-5, 1, 9)
"""How hard each rule is, as a logit."""

unit = st.floats(0, 1, width=32)


def generator(seed=0):
    return np.random.default_rng(seed)


def tables(least=1, most=12, rules=7):
    """Scores of some seeds on at most so many rules."""
    shapes = st.tuples(st.integers(least, most), st.integers(1, rules))
    return shapes.flatmap(lambda shape: arrays.arrays(float, shape, elements=unit))


def chance(logits):
    return 1 / (1 + np.exp(-logits))


def normal_mean(function, spread):
    """The mean of `function` of a normal variable, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    values = [function(spread * node) for node in nodes]
    return float(np.average(values, weights=weights))


def run(rng, seeds, *rule_sets):
    """Success `[S, R]` on each rule set: 20 episodes, given a seed's luck and a rule's hardness."""
    luck = rng.normal(0, SEED_SPREAD, (seeds, 1))
    return [rng.binomial(20, chance(rules + luck)) / 20 for rules in rule_sets]


def true_mean(rules):
    return normal_mean(lambda luck: chance(rules + luck).mean(), SEED_SPREAD)


def coverage(truth, intervals):
    return np.mean([interval.low <= truth <= interval.high for interval in intervals])


def bootstrap_of_mean(values, rng, resamples=400):
    found = scipy.stats.bootstrap(
        (values.ravel(),), np.mean, n_resamples=resamples, method="percentile", rng=rng
    )
    mean = float(values.mean())
    return stats.Interval(mean, *map(float, found.confidence_interval))


# Intervals


def test_a_t_interval_equals_scipy():
    values = generator().random(7)
    found = stats.t_interval(values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean, found.low, found.high], [values.mean(), low, high])


@given(tables(most=9))
def test_below_ten_seeds_the_interval_is_students_and_ignores_the_order_of_seeds(scores):
    found = stats.seed_interval(scores, generator())
    expected = stats.t_interval(scores.mean(axis=1))
    again = stats.seed_interval(scores[::-1], generator(1))
    for other in (expected, again):
        np.testing.assert_allclose(
            [found.mean, found.low, found.high], [other.mean, other.low, other.high], atol=1e-9
        )
    assert found.low <= found.mean <= found.high


def test_nine_seeds_draw_nothing():
    rng, scores = generator(1), generator(1).random((9, 12))
    for statistic in (stats.seed_mean, stats.iqm):
        stats.seed_interval(scores, rng, statistic)
    stats.hierarchical_interval(scores, rng)
    assert rng.random() == generator(1).random()


def test_from_ten_seeds_on_it_is_the_percentile_bootstrap_of_whole_seeds():
    scores = generator(1).random((10, 5))
    found = stats.seed_interval(scores, generator(2))
    drawn = generator(2).integers(0, 10, (2000, 10))
    low, high = np.quantile(scores[drawn].mean(axis=(1, 2)), [0.025, 0.975])
    np.testing.assert_allclose([found.low, found.high], [low, high])
    assert found.mean == pytest.approx(scores.mean())


@pytest.mark.parametrize("seeds", [2, 9, 15])
def test_a_statistic_per_seed_and_the_same_of_the_whole_table_agree(seeds):
    scores = generator(3).random((seeds, 6))
    per_seed = stats.seed_interval(scores, generator(4), stats.micro_average)
    whole = stats.seed_interval(scores, generator(4), np.mean)
    np.testing.assert_allclose(
        [per_seed.mean, per_seed.low, per_seed.high], [whole.mean, whole.low, whole.high]
    )


@pytest.mark.parametrize("seeds", [5, 12])
def test_a_statistic_of_the_whole_table_sees_resampled_rows(seeds):
    scores = np.sort(generator(5).random((seeds, 4)), axis=0)
    seen = []

    def watch(table):
        seen.append(table)
        return stats.iqm(table)

    found = stats.seed_interval(scores, generator(6), watch)
    assert found.mean == stats.iqm(scores)
    assert found.low < found.mean < found.high
    rows = {tuple(row) for row in scores}
    assert all(tuple(row) in rows for table in seen for row in table)
    assert {len(table) for table in seen} == ({4, 5} if seeds == 5 else {12})


def test_a_paired_interval_is_that_of_the_differences():
    rng = generator(7)
    for seeds in (6, 14):
        a, b = rng.random((seeds, 30)), rng.random((seeds, 4))
        found = stats.paired_interval(a, b, generator(8))
        of_all = stats.paired_interval(a, b, generator(8), np.mean)
        expected = stats.seed_interval(a.mean(axis=1) - b.mean(axis=1), generator(8))
        for other in (found, of_all):
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
    found = stats.hierarchical_interval(scores, generator())
    seed, rule = (scores.mean(axis=axis).var(ddof=1) / n for axis, n in ((1, 4), (0, 6)))
    freedom = (seed + rule) ** 2 / (seed**2 / 3 + rule**2 / 5)
    ends = scipy.stats.t.interval(0.95, freedom, scores.mean(), np.sqrt(seed + rule))
    np.testing.assert_allclose([found.low, found.high], ends)
    rows_alone = np.repeat(scores[:, :1], 6, axis=1)
    found, plain = stats.hierarchical_interval(rows_alone, generator()), rows_alone[:, 0]
    assert found.low == pytest.approx(stats.t_interval(plain).low)


def test_resampling_rows_and_columns_has_the_variance_that_theory_gives():
    scores = generator(12).random((25, 40))
    found = stats.hierarchical_interval(scores, generator())
    row, column = scores.mean(axis=1).var() / 25, scores.mean(axis=0).var() / 40
    both = scores.var() / 1000
    together = row + column + (both - row / 40 - column / 25)
    assert (found.high - found.low) / 3.92 == pytest.approx(np.sqrt(together), rel=0.06)


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
    scores = generator(13).random((12, 11))
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


# Coverage, by simulation: a seed's luck moves all its scores at once


def test_with_five_seeds_the_interval_covers_what_it_says():
    rng = generator(20)
    intervals = [stats.seed_interval(run(rng, 5, RULES_ID)[0], rng) for _ in range(2000)]
    assert 0.91 < coverage(true_mean(RULES_ID), intervals) < 0.97


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


def test_resampling_cells_instead_of_seeds_would_cover_far_too_little():
    rng, rules = generator(25), np.linspace(-4, 3, 226)
    intervals = [bootstrap_of_mean(run(rng, 20, rules)[0], rng, 200) for _ in range(200)]
    assert coverage(true_mean(rules), intervals) < 0.6


def test_with_five_seeds_a_percentile_bootstrap_would_cover_too_little():
    rng = generator(26)
    intervals = [bootstrap_of_mean(run(rng, 5, RULES_ID)[0].mean(axis=1), rng) for _ in range(1000)]
    assert coverage(true_mean(RULES_ID), intervals) < 0.89


# Tests


def test_welch_equals_scipy_on_the_means_of_seeds():
    a, b = generator(30).random((5, 8)), generator(31).random((7, 8)) / 2
    expected = scipy.stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False)
    found = stats.welch(a, b)
    np.testing.assert_allclose(
        [found.t, found.p, found.df], [expected.statistic, expected.pvalue, expected.df]
    )
    assert found.difference.mean == pytest.approx(a.mean() - b.mean())
    assert (found.difference.low > 0 or found.difference.high < 0) == (found.p < 0.05)
    assert stats.welch(b, a).t == -found.t


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


# Summaries


@given(tables())
def test_averages_agree_where_every_type_has_as_many_rules(scores):
    doubled = np.concatenate([scores, scores**2], axis=1)
    kinds = ["chaotic"] * scores.shape[1] + ["stable"] * scores.shape[1]
    np.testing.assert_allclose(
        stats.micro_average(doubled), stats.macro_average(doubled, kinds), atol=1e-12
    )
    each_once = np.arange(scores.shape[1])
    np.testing.assert_allclose(
        stats.macro_average(scores, each_once), stats.micro_average(scores), atol=1e-12
    )


def test_a_macro_average_weighs_types_and_a_micro_average_what_was_sat():
    scores = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.5]])
    kinds = ["stable", "chaotic", "chaotic", "chaotic"]
    np.testing.assert_allclose(stats.micro_average(scores), [0.25, 0.5])
    np.testing.assert_allclose(stats.macro_average(scores, kinds), [0.5, 0.5])
    np.testing.assert_allclose(stats.micro_average(scores, [3, 1, 0, 0]), [0.75, 0.625])
    assert stats.macro_average(scores[0], kinds).shape == ()


@given(arrays.arrays(float, st.integers(1, 40), elements=unit))
def test_the_iqm_lies_between_the_quartiles(scores):
    low, high = np.quantile(scores, [0.25, 0.75])
    assert low - 1e-12 <= stats.iqm(scores) <= high + 1e-12
    assert stats.iqm(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25))


def test_the_iqm_is_the_mean_of_the_middle_half():
    assert stats.iqm(np.array([[9.0, 2.0, -50.0, 3.0], [1.0, 80.0, 4.0, 0.0]])) == 2.5


def test_the_optimality_gap_is_the_mean_shortfall():
    scores = np.array([[0.2, 0.9], [1.0, 0.0]])
    np.testing.assert_allclose(stats.optimality_gap(scores), [0.45, 0.5])
    np.testing.assert_allclose(stats.optimality_gap(scores, 0.5), [0.15, 0.25])
    np.testing.assert_allclose(stats.optimality_gap(scores, [0.3, 0.0]), [0.05, 0.0])


def test_a_performance_profile_is_the_share_above_each_threshold():
    scores, thresholds = generator(40).random((12, 30)), np.linspace(0, 1, 11)
    profile = stats.performance_profile(scores, thresholds, generator(41))
    np.testing.assert_allclose(profile.share, [(scores > tau).mean() for tau in thresholds])
    lone = stats.seed_interval((scores > thresholds[3]).mean(axis=1), generator(41))
    np.testing.assert_allclose([profile.low[3], profile.high[3]], [lone.low, lone.high])
    np.testing.assert_allclose(
        np.trapezoid(profile.share, thresholds), scores.mean(), atol=0.02
    )  # the area under it is the mean


def test_a_score_at_the_threshold_is_not_above_it():
    profile = stats.performance_profile([[0.0, 0.5], [0.0, 1.0]], [0.0, 0.5, 1.0], generator())
    assert profile.share.tolist() == [0.5, 0.25, 0]


@given(tables(), st.lists(unit, min_size=1, max_size=4))
def test_a_profile_falls_and_its_band_stays_between_zero_and_one(scores, thresholds):
    profile = stats.performance_profile(scores, np.sort(thresholds), generator())
    assert (np.diff(profile.share) <= 0).all()
    assert (profile.low >= 0).all()
    assert (profile.high <= 1).all()
    assert (profile.low <= profile.share + 1e-12).all()


def test_probability_of_improvement_is_mann_whitneys_u():
    rng = generator(42)
    a, b = rng.integers(0, 6, (5, 9)) / 5, rng.integers(0, 5, (7, 9)) / 5
    found = stats.probability_of_improvement(a, b, rng)
    u = scipy.stats.mannwhitneyu(a, b, axis=0, method="asymptotic").statistic
    assert found.mean == pytest.approx((u / 35).mean())
    other_way = stats.probability_of_improvement(b, a, rng)
    assert other_way.mean == pytest.approx(1 - found.mean)
    assert other_way.low == pytest.approx(1 - found.high)
    assert stats.probability_of_improvement(a + 9, b, rng) == stats.Interval(1, 1, 1)
    assert stats.probability_of_improvement(a[:, 0], a[:, 0], rng).mean == 0.5


@pytest.mark.parametrize(("seeds", "simulations"), [(5, 600), (20, 200)])
def test_the_interval_of_the_probability_of_improvement_covers_it(seeds, simulations):
    rng = generator(43)
    a, b = rng.normal(0.5, 1, (simulations, seeds, 1)), rng.normal(0, 1, (simulations, seeds, 1))
    truth = scipy.stats.norm.cdf(0.5 / np.sqrt(2))
    intervals = [stats.probability_of_improvement(*pair, rng) for pair in zip(a, b, strict=True)]
    assert 0.88 < coverage(truth, intervals) < 0.98


# Against ceilings and references


def test_normalised_by_the_ceiling_a_perfect_agent_has_one():
    ceilings = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(
        stats.ceiling_normalised([ceilings, ceilings / 2], ceilings), [1, 0.5]
    )
    assert np.isnan(stats.ceiling_normalised(np.zeros((2, 3)), np.zeros(3))).all()


def test_rules_solvable_from_next_to_no_tape_are_not_solvable():
    scores, ceilings = np.array([[0.0, 0.5, 1.0]]), np.array([2.0**-32, 0.4, 1.0])
    np.testing.assert_allclose(stats.solvable_only(scores, ceilings), [0.75])
    np.testing.assert_allclose(stats.solvable_only(scores, ceilings, above=0.0), [0.5])
    np.testing.assert_allclose(stats.solvable_only(scores, ceilings, above=0.4), [1.0])
    with pytest.raises(ValueError, match="no rule has a ceiling above 1"):
        stats.solvable_only(scores, ceilings, above=1)


PROTOCOL = {"length": 32, "horizon": 32, "split": "main/ood", "exam": "standard", "episodes": 20}


def test_on_is_per_cent_of_the_reference():
    reference = stats.Reference(0.25, PROTOCOL, "mpc")
    assert stats.oracle_normalised(0.1, dict(PROTOCOL), reference) == pytest.approx(40)
    np.testing.assert_allclose(
        stats.oracle_normalised(np.array([0.0, 0.5]), PROTOCOL, reference), [0, 200]
    )


@pytest.mark.parametrize("name", PROTOCOL)
def test_on_refuses_a_reference_from_another_protocol(name):
    reference = stats.Reference(0.25, {**PROTOCOL, name: "other"}, "mpc")
    shown = f"{name} is {PROTOCOL[name]!r} for the score and 'other' for mpc"
    with pytest.raises(ValueError, match=shown) as caught:
        stats.oracle_normalised(0.1, PROTOCOL, reference)
    assert str(caught.value).count(" is ") == 1
    less = {field: value for field, value in PROTOCOL.items() if field != name}
    with pytest.raises(ValueError, match=name):
        stats.oracle_normalised(0.1, PROTOCOL, stats.Reference(0.25, less, "mpc"))
    with pytest.raises(ValueError, match=name):
        stats.oracle_normalised(0.1, less, stats.Reference(0.25, PROTOCOL, "mpc"))


def test_on_refuses_protocols_that_do_not_say_enough_and_references_that_never_succeed():
    with pytest.raises(ValueError, match="horizon, split, exam"):
        stats.oracle_normalised(0.1, {}, stats.Reference(0.25, {}, "mpc"))
    with pytest.raises(ValueError, match=r"mpc succeeds 0\.0 of the time"):
        stats.oracle_normalised(0.1, PROTOCOL, stats.Reference(0.0, PROTOCOL, "mpc"))


# The drop


@st.composite
def sides(draw, seeds):
    num = draw(st.integers(1, 8))
    ceilings = draw(
        arrays.arrays(float, num, elements=st.sampled_from([0.0, 2.0**-32, 0.1, 0.6, 1.0]))
    )
    kinds = draw(
        st.lists(st.sampled_from(["chaotic", "periodic", "stable"]), min_size=num, max_size=num)
    )
    return stats.Side(draw(arrays.arrays(float, (seeds, num), elements=unit)), ceilings, kinds)


@given(st.sampled_from([1, 3, 11]).flatmap(lambda s: st.tuples(sides(s), sides(s))))
def test_the_parts_of_the_drop_add_up_in_total_and_over_strata(both):
    seen, held_out = both
    drop = stats.decompose_drop(seen, held_out, generator())
    assert drop.total.mean == pytest.approx(seen.scores.mean() - held_out.scores.mean(), abs=1e-9)
    assert drop.composition.mean + drop.rest.mean == pytest.approx(drop.total.mean, abs=1e-9)
    for part in ("composition", "rest"):
        summed = sum(getattr(stratum, part) for stratum in drop.strata)
        assert summed == pytest.approx(getattr(drop, part).mean, abs=1e-9)
    assert sum(stratum.rules_id for stratum in drop.strata) == seen.scores.shape[1]
    assert sum(stratum.rules_ood for stratum in drop.strata) == held_out.scores.shape[1]
    paired = stats.paired_interval(seen.scores, held_out.scores, generator())
    assert drop.total.low == pytest.approx(paired.low, abs=1e-9)


@given(st.sampled_from([2, 4]).flatmap(sides))
def test_a_rule_set_against_itself_drops_nothing_for_either_reason(side):
    drop = stats.decompose_drop(side, side, generator())
    for part in (drop.total, drop.composition, drop.rest):
        np.testing.assert_allclose([part.mean, part.low, part.high], 0, atol=1e-9)


def test_equal_skill_on_another_mix_of_types_and_ceilings_is_all_composition():
    skill = {"chaotic": 0.2, "periodic": 0.5, "stable": 0.9}
    luck = np.array([[0.8], [1.0], [1.1]])

    def side(kinds, ceilings):
        return stats.Side(
            luck * [skill[k] * c for k, c in zip(kinds, ceilings, strict=True)], ceilings, kinds
        )

    seen = side(["stable", "stable", "chaotic", "periodic", "stable"], [1.0, 0.5, 1.0, 0.8, 0.0])
    held_out = side(["chaotic", "chaotic", "stable", "stable"], [1.0, 1.0, 0.2, 1e-9])
    drop = stats.decompose_drop(seen, held_out, generator())
    assert drop.total.mean > 0.2
    assert drop.rest.mean == pytest.approx(0, abs=1e-9)
    assert drop.rest.high - drop.rest.low == pytest.approx(0, abs=1e-8)
    assert drop.composition.high - drop.composition.low > 0.1


def test_less_skill_on_the_same_mix_is_all_rest():
    kinds, ceilings = ["chaotic", "stable", "stable", "chaotic"], [1.0, 1.0, 0.5, 0.0]
    scores = np.array([[0.4, 0.8, 0.3, 0.0], [0.6, 0.9, 0.1, 0.0]])
    drop = stats.decompose_drop(
        stats.Side(scores, ceilings, kinds), stats.Side(scores / 2, ceilings, kinds), generator()
    )
    assert drop.composition.mean == pytest.approx(0)
    assert drop.rest.mean == pytest.approx(scores.mean() / 2)


def test_with_ceilings_of_one_it_is_kitagawas_decomposition():
    rng = generator(50)
    kinds_id, kinds_ood = np.array(list("aabbbbc")), np.array(list("abbccc"))
    on_id, on_ood = rng.random((3, 7)), rng.random((3, 6))
    drop = stats.decompose_drop(
        stats.Side(on_id, np.ones(7), kinds_id), stats.Side(on_ood, np.ones(6), kinds_ood), rng
    )
    composition = rest = 0.0
    for kind in "abc":
        weight_id, weight_ood = (kinds_id == kind).mean(), (kinds_ood == kind).mean()
        mean_id, mean_ood = on_id[:, kinds_id == kind].mean(), on_ood[:, kinds_ood == kind].mean()
        composition += (weight_id - weight_ood) * mean_id
        rest += weight_ood * (mean_id - mean_ood)
    assert drop.composition.mean == pytest.approx(composition)
    assert drop.rest.mean == pytest.approx(rest)


def test_a_stratum_without_seen_rules_borrows_skill_and_says_where():
    seen = stats.Side([[0.6, 0.2, 0.4]], [1.0, 1.0, 0.5], ["stable", "chaotic", "chaotic"])
    held_out = stats.Side([[0.1, 0.3, 0.0]], [1.0, 0.25, 0.0], ["periodic", "stable", "stable"])
    drop = stats.decompose_drop(seen, held_out, generator())
    rows = {(row.kind, row.level): row for row in drop.strata}
    borrowed = rows["periodic", "full"]
    assert (borrowed.basis, borrowed.expected_ood) == ("level", pytest.approx(0.4))
    assert np.isnan(borrowed.success_id)
    assert rows["stable", "partial"].basis == "level"
    assert rows["stable", "partial"].expected_ood == pytest.approx(0.4 * 0.25 / 0.5)
    impossible = rows["stable", "none"]
    assert (impossible.basis, impossible.expected_ood) == ("all", 0)
    unused = rows["chaotic", "full"]
    assert (unused.basis, unused.rules_ood, unused.rest) == ("type", 0, 0)
    assert np.isnan(unused.expected_ood)


def test_ceilings_next_to_none_and_next_to_full_count_as_such():
    side = stats.Side(np.zeros((1, 5)), [0, 2.0**-17, 0.5, 1 - 2.0**-17, 1], list("abcde"))
    assert side.levels.tolist() == ["none", "none", "partial", "full", "full"]


def test_luck_above_a_small_ceiling_is_not_scaled_beyond_the_possible():
    seen = stats.Side([[0.05, 0.9]], [0.002, 1.0], ["stable", "stable"])
    held_out = stats.Side([[0.5]], [0.9], ["stable"])
    (row,) = [
        row for row in stats.decompose_drop(seen, held_out, generator()).strata if row.rules_ood
    ]
    assert row.expected_ood == pytest.approx(0.9)


def test_the_drop_of_different_seeds_is_refused():
    a, b = (stats.Side(np.zeros((s, 1)), [1.0], ["stable"]) for s in (2, 3))
    with pytest.raises(ValueError, match="the sides have 2 and 3 seeds"):
        stats.decompose_drop(a, b, generator())


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
    found = (scipy.stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05).mean()
    assert found == pytest.approx(stats.power_of(12, 0.9, 1), abs=0.02)
    found = (scipy.stats.ttest_1samp(a[:, :6], 0, axis=1).pvalue < 0.05).mean()
    assert found == pytest.approx(stats.power_of(6, 0.9, 1, paired=True), abs=0.02)


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


# Bad input


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
        (lambda: stats.welch([0.1], [0.1, 0.2]), "at least two seeds a side"),
        (lambda: stats.holm([]), "p-values have shape"),
        (lambda: stats.holm([0.1, np.nan]), "p-values contain nan"),
        (lambda: stats.holm([0.1, 1.1]), "between 0 and 1"),
        (lambda: stats.micro_average(np.zeros((2, 3)), [1, 2]), "episode counts have shape"),
        (lambda: stats.macro_average(np.zeros((2, 3)), ["a", "b"]), "types have shape"),
        (lambda: stats.iqm([]), "scores have shape"),
        (lambda: stats.optimality_gap(np.zeros((2, 3)), [1, 1]), "targets have shape"),
        (lambda: stats.ceiling_normalised(np.zeros((2, 3)), [1]), "ceilings have shape"),
        (lambda: stats.solvable_only(np.zeros(2), [1, np.nan]), "ceilings contain nan"),
        (lambda: stats.performance_profile(np.zeros(3), [], generator()), "thresholds have shape"),
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
        (lambda: stats.Side(np.zeros(3), np.ones(3), list("abc")), "2 axes are needed"),
        (lambda: stats.Side(np.zeros((1, 3)), np.ones(2), list("abc")), "ceilings have shape"),
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
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_importing_the_statistics_imports_no_jax():
    code = "import sys; from tapebench import stats; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_drop_of_one_run_has_the_interval_of_two_sides_that_share_their_tapes():
    rng = np.random.default_rng(0)
    tape_luck = rng.normal(size=40)
    seen = 1.0 + tape_luck + rng.normal(size=(60, 1)) + np.zeros((60, 40))
    held_out = 0.5 + tape_luck + rng.normal(size=(30, 1)) + np.zeros((30, 40))
    found = stats.drop_bootstrap(seen, held_out, np.random.default_rng(1))
    assert found.mean == pytest.approx(seen.mean() - held_out.mean())
    # What both sides share cancels: the width is that of the two means over rules alone.
    error = np.hypot(seen[:, 0].std() / 60**0.5, held_out[:, 0].std() / 30**0.5)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    with pytest.raises(ValueError, match="use one exam"):
        stats.drop_bootstrap(seen, held_out[:, 1:], rng)


def test_one_rule_or_one_tape_is_enough_for_a_bootstrap():
    rng = np.random.default_rng(0)
    assert stats.rule_tape_bootstrap(np.full((1, 1), 0.5), rng) == stats.Interval(0.5, 0.5, 0.5)
    one_rule = stats.rule_tape_bootstrap(np.arange(20.0)[None], rng)
    assert one_rule.low < one_rule.mean < one_rule.high
    assert stats.drop_bootstrap(np.ones((1, 1)), np.zeros((1, 1)), rng).mean == 1
