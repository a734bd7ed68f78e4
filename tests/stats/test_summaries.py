import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from scores import generator, refused_in_one_line, tables, unit
from tapebench import stats


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.micro_average(np.zeros((2, 3)), [1, 2]), "episode counts have shape"),
        (lambda: stats.macro_average(np.zeros((2, 3)), ["a", "b"]), "types have shape"),
        (lambda: stats.iqm([]), "scores have shape"),
        (lambda: stats.optimality_gap(np.zeros((2, 3)), [1, 1]), "targets have shape"),
        (lambda: stats.ceiling_normalised(np.zeros((2, 3)), [1]), "ceilings have shape"),
        (lambda: stats.solvable_only(np.zeros(2), [1, np.nan]), "ceilings contain nan"),
        (lambda: stats.performance_profile(np.zeros(3), [], generator()), "thresholds have shape"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    refused_in_one_line(call, message)
