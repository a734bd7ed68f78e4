import json

import numpy as np
import pytest

from tapebench.exam import rollout
from tapebench.exam.exam import IMPOSSIBLE, UNKNOWN, from_identity, make_exam
from tapebench.physics import exact
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
        )
    }
    assert len(hashes) == 13


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
    told = evaluation.evaluate("bayes-train", held_out, name="x")
    assert told.policy == "bayes-train"


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
            found = from_identity(identity)
        except ValueError as refusal:
            refused += "\n" not in str(refusal)
        else:
            # Some values describe another exam, which is fine; none may be bent into one.
            assert found.identity == identity
    assert refused > 100
