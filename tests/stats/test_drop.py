import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from scores import generator, refused_in_one_line, unit
from tapebench import stats


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.Side(np.zeros(3), np.ones(3), list("abc")), "2 axes are needed"),
        (lambda: stats.Side(np.zeros((1, 3)), np.ones(2), list("abc")), "ceilings have shape"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    refused_in_one_line(call, message)
