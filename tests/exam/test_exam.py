import json

import numpy as np
import pytest

from tapebench.exam import baselines, bounds, policy, rollout
from tapebench.exam.exam import IMPOSSIBLE, UNKNOWN, from_identity, make_exam
from tapebench.physics import exact
from tapebench.physics.families import elementary
from tapebench.planning import beam
from tapebench.runs import evaluation
from tapebench.tasks import splits


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rules": "test"},
        {"rules": "train", "episodes": 3, "trials": 4},
        {"split": "matched30", "exam": "fresh:2026", "horizon": 64},
        {"length": 8, "horizon": 9, "mask": [0, 4], "noise": 0.25, "goal": "00110011"},
        {"goal": "random", "observe_goal": True, "reward": "sparse", "success_bonus": 3.0},
        {"length": 8, "horizon": 8, "switch": [2, 5], "rules": "test"},
    ],
)
def test_an_identity_stands_for_its_exam(options):
    made = make_exam(**options)
    again = from_identity(json.loads(json.dumps(made.identity)))
    assert again == made
    assert again.hash == made.hash


def test_what_makes_results_incomparable_changes_the_hash():
    hashes = {
        make_exam(**options).hash
        for options in (
            {},
            {"split": "matched30"},
            {"exam": "fresh:a"},
            {"exam": "fresh:b"},
            {"episodes": 19},
            {"trials": 2},
            {"horizon": 64},
            {"length": 16},
            {"rules": "test"},
            {"noise": 0.1},
            {"mask": [1]},
            {"goal": "1" * 32},
            {"reward": "sparse"},
            {"switch": 4},
            {"switch": [4, 8]},
        )
    }
    assert len(hashes) == 15


def test_the_standard_exams_are_pinned():
    assert make_exam().hash == "7987a172d53e1f85"
    assert make_exam(split="matched30").hash == "b4d9e49d46a11908"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"exam": "fresh"}, "use standard, or fresh:SALT"),
        ({"exam": "fresh:"}, "use standard, or fresh:SALT"),
        ({"exam": "hard"}, "use standard, or fresh:SALT"),
        ({"episodes": 0}, "episodes must be a positive integer"),
        ({"episodes": 10**9}, "are more than 100000"),
        ({"trials": 1.5}, "trials must be a positive integer"),
        ({"split": "fsp30"}, "did you mean 'fps30'"),
        ({"rules": [300]}, "300"),
        ({"switch": 4, "trials": 2}, "trials repeat one rule"),
        ({"switch": 4, "rules": [30, 0, 22]}, "rule 30 has no other training rule to switch to"),
        ({"switch": 32}, "choose steps from 1 to 31"),
    ],
)
def test_an_impossible_exam_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_exam(**options)


def test_a_rule_on_neither_side_cannot_be_asked(tmp_path):
    split = splits.Split("mine", (0, 1, 2), (3, 4))
    assert make_exam(split=split).rules.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="rule 9 is on neither side of mine"):
        make_exam(split=split, rules=[0, 9])


def test_a_part_of_an_exam_still_knows_what_is_trained_on():
    split = splits.Split("mine", (0, 1, 2, 30), (3, 4))
    held_out = make_exam(split=split, rules="test", length=8, horizon=8)
    assert held_out.origin.train == (0, 1, 2, 30)
    outcome = evaluation.evaluate("bayes-train", held_out)
    assert outcome.policy == "bayes-train"


def test_subsets_and_parts():
    made = make_exam(rules=[0, 4, 30, 110, 204])
    inside = set(splits.load("fps30").train)
    assert [s == "id" for s in made.subsets] == [rule in inside for rule in made.rules]
    part = made.only([30, 110])
    assert part.rules.tolist() == [30, 110]
    assert set(part.train) | set(part.test) == {30, 110}
    np.testing.assert_array_equal(part.tapes(), made.tapes())


def test_optimal_steps_are_what_the_optimal_policy_takes():
    made = make_exam(length=10, horizon=7, rules=[4, 30, 45, 110, 204], trials=2, episodes=8)
    steps = made.optimal_steps()
    played = rollout.rollout(beam.optimal(made.task), made.task, None, 16)
    np.testing.assert_array_equal(steps >= 0, played.success)
    np.testing.assert_array_equal(steps[steps >= 0], played.steps[steps >= 0])
    assert (steps == IMPOSSIBLE).any()
    np.testing.assert_array_equal(made.ceilings(steps), played.success.mean(axis=1))


def test_no_answer_rests_on_minus_one_wrapping_around(monkeypatch):
    """NumPy 2.5 refuses -1 next to unsigned integers, which older ones turn into 65535."""
    where = np.where

    def strict_where(condition, *choices):
        is_unsigned = any(np.asarray(choice).dtype.kind == "u" for choice in choices)
        assert not (is_unsigned and any(type(choice) is int and choice < 0 for choice in choices))
        return where(condition, *choices)

    monkeypatch.setattr(np, "where", strict_where)
    assert (make_exam(rules=[0, 255], length=8, horizon=4).optimal_steps() == IMPOSSIBLE).any()


def test_answers_at_the_standard_size_are_the_shipped_ones():
    rules = sorted(exact.exam_answers())[:6]
    made = make_exam(rules=rules)
    steps = made.optimal_steps()
    for row, rule in enumerate(made.rules):
        shipped = exact.exam_answers()[int(rule)]["exam_steps"]
        assert [None if s == IMPOSSIBLE else s for s in steps[row]] == shipped
    shorter = make_exam(rules=rules, horizon=5).optimal_steps()
    np.testing.assert_array_equal(shorter, np.where(steps > 5, IMPOSSIBLE, steps))


def test_a_longer_horizon_keeps_what_is_proved_and_no_more():
    steps = make_exam(rules=[0, 30], horizon=64).optimal_steps()
    assert (steps >= 0).all(), "rules 0 and 30 are solvable from everywhere"
    unsettled = {"histogram": [1, 5, *[1] * 31], "length": 32, "horizon": 32}
    assert exact.is_settled(unsettled, 32)
    assert not exact.is_settled(unsettled, 33)
    assert exact.is_settled(unsettled | {"histogram": [1, 5]}, 64)
    assert exact.is_settled(unsettled | {"histogram": [1, *[0] * 31, 2**32 - 1]}, 64)


@pytest.mark.parametrize(
    "options",
    [
        {"noise": 0.1},
        {"goal": "random"},
        {"length": 32, "exam": "fresh:x", "rules": [30]},
        {"length": 40},
        {"episodes": 30, "rules": [30]},
    ],
)
def test_what_is_not_known_is_not_claimed(options):
    made = make_exam(**options)
    steps = made.optimal_steps()
    assert (steps == UNKNOWN).any()


def test_a_fresh_exam_has_the_ceiling_of_all_tapes():
    made = make_exam(exam="fresh:x", rules=[30, 204])
    ceilings = made.ceilings(made.optimal_steps())
    assert ceilings[0] == 1
    assert np.isnan(make_exam(length=40, rules=[30]).ceilings(np.full((1, 20), UNKNOWN))).all()


def test_under_noise_the_ceiling_is_the_best_chance_from_the_exams_own_tapes():
    made = make_exam(length=6, horizon=4, noise=0.05, rules=[30, 110, 204, 90], episodes=100)
    ceilings = made.ceilings(made.optimal_steps())
    for rule, ceiling in zip(made.rules.tolist(), ceilings, strict=True):
        chances = exact.chances_under_noise(rule, 6, 4, 0.05)
        assert ceiling == pytest.approx(chances[made.tapes()[:, 0]].mean())
        assert ceiling == pytest.approx(exact.success_under_noise(rule, 6, 4, 0.05), abs=0.1)
    planned = rollout.rollout(policy.make("mpc", made.task), made.task, episodes=100)
    reached = planned.success.mean(axis=1)
    assert (reached < ceilings + 3 * 0.5 / 10).all()
    assert reached.mean() > 0.8 * ceilings.mean()
    too_long = make_exam(length=18, noise=0.05, rules=[30])
    assert np.isnan(too_long.ceilings(too_long.optimal_steps())).all()


def test_malformed_identities_are_refused_in_one_line():
    good = make_exam(length=8, horizon=8).identity
    broken = [None, 3, [], {}, {"version": 1}, good | {"extra": 1}]
    for key in good:
        for value in (None, -1, "x", [], {}, [None], 1e300, True):
            if good[key] != value:
                broken.append({**good, key: value})
    refused = 0
    for identity in broken:
        try:
            exam = from_identity(identity)
        except ValueError as refusal:
            refused += "\n" not in str(refusal)
        else:
            # Some values describe another exam, which is fine; none may be bent into one.
            assert exam.identity == identity
    assert refused > 100


MIXED = {"length": 6, "horizon": 5, "episodes": 4, "rules": [30, 45, 22, 0, 4]}
"""Three rules that are trained on and two that are held out."""


def acting_rules(exam):
    """The rules of each row, time by time, `[R, E, H]`: as the evaluator has them."""
    start = rollout.exam_start(exam.task, exam.rules, exam.episodes, exam.salt).trial(0)
    t = np.arange(exam.task.horizon)[:, None]
    acting = exam.task.schedule.rule_at(t, start.rule, start.later.T)
    return acting.T.reshape(len(exam.rules), exam.episodes, -1)


def test_rows_switch_within_their_side_and_every_rule_comes_as_often_as_any():
    exam = make_exam(switch=[2, 3], **MIXED)
    acting = acting_rules(exam)
    assert (acting[..., :2] == exam.rules[:, None, None]).all()
    assert (np.diff(acting, axis=-1) != 0).all(axis=(0, 1)).tolist() == [False, True, True, False]
    for side in (exam.train, exam.test):
        rows = acting[np.isin(exam.rules, side)]
        np.testing.assert_array_equal(
            np.sort(rows, axis=0), np.broadcast_to(np.array(side)[:, None, None], rows.shape)
        )
    np.testing.assert_array_equal(acting, acting_rules(make_exam(switch=[2, 3], **MIXED)))
    fresh = acting_rules(make_exam(switch=[2, 3], exam="fresh:x", **MIXED))
    assert (acting != fresh).any()
    part = exam.only([30, 45])
    assert set(acting_rules(part).ravel()) == {30, 45}
    assert part == from_identity(part.identity)


def test_an_exam_that_never_switches_says_nothing_of_it():
    assert "switch" not in make_exam().identity
    assert make_exam(switch=None) == make_exam(switch=[]) == make_exam()


def test_optimal_steps_of_rows_that_switch_are_those_of_trying_everything():
    exam = make_exam(switch=2, **MIXED)
    optimal_steps = exam.optimal_steps()
    acting = acting_rules(exam)
    for row, column in np.ndindex(*optimal_steps.shape):
        tapes, steps = {int(exam.tapes()[column, 0])}, IMPOSSIBLE
        for taken, rule in enumerate(acting[row, column], 1):
            tapes = {elementary.step(tape, c, int(rule), 6) for tape in tapes for c in range(6)}
            if 0 in tapes:
                steps = taken
                break
        assert optimal_steps[row, column] == steps
    stays = make_exam(**MIXED).optimal_steps()
    assert (optimal_steps != stays).any()
    np.testing.assert_array_equal(exam.ceilings(optimal_steps), (optimal_steps >= 0).mean(axis=1))


def test_no_answer_of_a_single_rule_is_given_for_rules_that_switch():
    for length in (24, 32):
        exam = make_exam(length=length, horizon=length, switch=5, rules=[30, 45, 204])
        steps = exam.optimal_steps()
        assert (steps == UNKNOWN).all()
        assert np.isnan(exam.ceilings(steps)).all()
    plain = make_exam(length=8, horizon=8)
    assert baselines.load_shipped(plain) is not None
    switching = make_exam(length=8, horizon=8, switch=4)
    assert baselines.load_shipped(switching) is None
    assert bounds.is_computed(plain)
    assert not bounds.is_computed(switching)
