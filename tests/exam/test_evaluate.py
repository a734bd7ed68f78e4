import json
from collections import Counter
from importlib import resources

import numpy as np
import pytest

import tapebench
from tapebench import stats
from tapebench.exam import baselines, policy
from tapebench.exam.exam import make_exam
from tapebench.physics import exact, features
from tapebench.runs import evaluation, tracks
from tapebench.tasks import drawn, folds, splits


@pytest.fixture(scope="module")
def outcome():
    return evaluation.evaluate("flip-ones", length=16, horizon=16)


def test_the_score_is_what_its_episodes_say(outcome):
    document, run, exam = outcome.score, outcome.runs[0], outcome.exam
    json.dumps(document, allow_nan=False)
    split = splits.load("fps30")
    for subset, members in (("id", split.train), ("ood", split.test)):
        rows = np.isin(exam.rules, members)
        score = document[subset]
        assert score["success"] == run.success[rows].mean()
        assert score["final_distance"] == pytest.approx(run.final_distance[rows].mean())
        assert score["auc_distance"] == pytest.approx(run.auc_distance[rows].mean())
        assert score["return"] == pytest.approx(run.returns[rows].mean())
        assert score["soft_success"]["0.1"] == run.soft_success(0.1)[rows].mean()
        assert score["episodes"] == 20 * len(members)
        low, high = score["interval"]
        assert low < score["success"] < high
        assert score["normalised"] == pytest.approx(score["success"] / score["ceiling"])
        planner = document["lines"]["mpc"][subset]
        assert score["on"] == pytest.approx(100 * score["success"] / planner)
    assert document["drop"] == pytest.approx(document["id"]["success"] - document["ood"]["success"])
    parts = document["drop_composition"] + document["drop_rest"]
    assert parts == pytest.approx(document["drop"])
    kinds = document["by_type"]
    assert sum(side["rules"] for kind in kinds.values() for side in kind.values()) == 256
    assert document["seconds"] > 0


def test_the_ceiling_of_the_exam_is_near_that_of_all_tapes(outcome):
    shipped = exact.shipped_ceilings(16, 16)
    expected = np.mean(
        [shipped[rule].solvable_excluding_goal for rule in splits.load("fps30").train]
    )
    assert outcome.score["id"]["ceiling"] == pytest.approx(expected, abs=0.01)


def test_rows_are_the_episodes_one_by_one(outcome):
    table, run = outcome.rows(), outcome.runs[0]
    assert {len(column) for column in table.values()} == {256 * 20}
    row = 30 * 20 + 7
    assert (table["rule"][row], table["episode"][row], table["trial"][row]) == (30, 7, 0)
    assert table["type"][row] == features.feature_table()[30].type
    assert table["success"][row] == run.success[30, 7]
    assert table["return"][row] == pytest.approx(run.returns[30, 7], rel=1e-6)
    assert table["optimal_steps"][row] == outcome.optimal_steps[30, 7]
    assert (table["steps"][table["success"]] >= table["optimal_steps"][table["success"]]).all()


def test_several_seeds_have_an_interval_over_seeds():
    score = evaluation.evaluate("random", length=8, horizon=8, seeds=4, rules="test").score
    assert score["interval_over"] == "seeds"
    assert score["runs"] == 4
    assert score["id"] is None
    assert score["drop"] is None
    assert score["ood"]["episodes"] == 4 * 30 * 20


@pytest.mark.slow
def test_trials_are_scored_one_by_one():
    outcome = evaluation.evaluate(
        "bayes", length=8, horizon=8, trials=3, episodes=5, rules=[4, 30, 204]
    )
    by_trial = outcome.score["by_trial"]
    assert len(by_trial) == 3
    mean = np.mean([trial["id"] for trial in by_trial])
    assert mean == pytest.approx(outcome.score["id"]["success"])


@pytest.mark.slow
def test_shipped_lines_are_what_the_policies_do():
    exam = make_exam(length=8, horizon=8)
    shipped = baselines.load(exam)
    part_of_exam = exam.only([0, 30, 110, 204])
    here = baselines.run_baselines(exam)
    for name in ("random", "flip-ones", "greedy"):
        for metric, by_rule in here[name].items():
            np.testing.assert_allclose(shipped[name][metric], by_rule, atol=1e-6)
    part = baselines.load(part_of_exam)
    np.testing.assert_array_equal(
        part["mpc"]["success"], shipped["mpc"]["success"][[0, 30, 110, 204]]
    )
    # The planner's samples are drawn for the whole batch, so it is compared on all rules.
    np.testing.assert_allclose(shipped["mpc"]["success"], here["mpc"]["success"], atol=1e-6)


def test_lines_that_cannot_sit_an_exam_are_left_out():
    exam = make_exam(length=8, horizon=4, goal="random", rules=[30, 4], episodes=2)
    by_name = baselines.load(exam)
    assert set(by_name) == {"random", "flip-ones"}
    outcome = evaluation.evaluate("random", exam)
    assert outcome.score["id"]["on"] is None
    assert outcome.score["id"]["ceiling"] is None


def test_a_reference_of_another_exam_is_refused():
    here, there = make_exam(), make_exam(horizon=64)
    reference = stats.Reference(0.4, there.identity, "mpc")
    with pytest.raises(ValueError, match="horizon is 32 for the score and 64 for mpc"):
        stats.oracle_normalised(0.2, here.identity, reference)


def test_the_score_does_not_depend_on_who_else_was_evaluated():
    exam = make_exam(length=8, horizon=8, rules=[0, 4, 30], episodes=4)
    first = evaluation.evaluate("random", exam).score
    evaluation.evaluate("greedy", exam)
    again = evaluation.evaluate("random", exam).score
    assert first | {"seconds": 0} == again | {"seconds": 0}


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="did you mean 'flip-ones'"):
        tapebench.evaluate("flip_ones")
    with pytest.raises(ValueError, match="not both: split"):
        evaluation.evaluate("random", make_exam(), split="fps30")
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        evaluation.evaluate("random", seeds=0)


def test_tracks_are_pinned():
    """A track is pre-registered: to change one, raise its version and note it in the changelog."""
    pinned = {name: (track.version, track.hash) for name, track in tracks.tracks().items()}
    assert pinned == PINNED_TRACKS
    text = resources.files("tapebench").joinpath("data/tracks.json").read_text()
    assert text == tracks.dump_tracks(tracks.make_tracks())


PINNED_TRACKS = {
    "full": (2, "93fc9efa23dddec4"),
    "core": (1, "d3257e7f6b55074a"),
    "lite": (3, "1c647d00f2b3e5a1"),
    "smoke": (1, "42ba9b9f6c4751be"),
    "ring2": (1, "93b51a72e982cb7d"),
    "life": (1, "6951ec0ce2968898"),
    "long": (2, "444dae053884da05"),
    "lite@2": (2, "a2be384ee7e9d6dd"),
    "inference@2": (2, "fa6413f39dcd16a7"),
}
"""The budget of `core` and `lite` is provisional, their exams are not."""

FOLD_EXAMS = [
    "22bb735a179a31ce",
    "ce0be792b3890aac",
    "9ea55c7249d6d70a",
    "08ad50dff23ff56a",
    "3740b9724f0ecd10",
]
"""Of `core`, fold by fold."""


def test_the_exams_over_folds_are_pinned_whatever_the_budget():
    core, lite = tracks.get_track("core"), tracks.get_track("lite")
    exams = [core.exam(split=split) for split in core.splits]
    assert [exam.hash for exam in exams] == FOLD_EXAMS
    assert [lite.exam(split=split).hash for split in lite.splits] == FOLD_EXAMS
    kinds = folds.core_strata()
    for exam in exams:
        assert (exam.task.length, exam.task.horizon) == (9, 4)
        assert sorted(exam.rules.tolist()) == sorted(
            rule for fold_exam in exams for rule in fold_exam.test
        )
        assert not any(kinds[rule] == "impossible" for rule in exam.rules.tolist())
        assert not set(exam.rules.tolist()) & set(folds.parts()[folds.NUM])


def test_an_older_track_is_called_by_its_version():
    assert tracks.get_track("lite@2").spec("dqn").track == "lite-2"
    assert tracks.get_track("lite@3") == tracks.get_track("lite")
    assert tracks.track_of({"track": "lite-2"}) == "lite@2"
    assert tracks.track_of({"track": "lite-3"}) == "lite"
    assert tracks.track_of({"track": "lite-1"}) == "lite@1"
    assert tracks.track_of({"track": "inference-2"}) == "inference@2"
    assert tracks.track_of({"track": "mine-1"}) == "mine"
    with pytest.raises(ValueError, match="inference has no current version: use inference@2"):
        tracks.get_track("inference")


def test_tracks_describe_exams_that_can_be_sat():
    for track in tracks.tracks().values():
        exam = track.exam()
        assert (exam.task.length, exam.task.horizon) == (track.length, track.horizon)
        assert track.steps % track.evaluate_every == 0
        assert track.steps // track.evaluate_every >= track.last
        assert track.exam(horizon=track.holdout_horizon).task.horizon > track.horizon
    assert tracks.get_track("lite").exam().task.hidden == 0
    assert tracks.get_track("inference@2").exam().task.hidden == 0b10001
    with pytest.raises(ValueError, match="did you mean 'smoke'"):
        tracks.get_track("smok")


@pytest.mark.parametrize("name", ["ring2", "life"])
def test_tracks_of_other_families_ask_about_as_many_rules_seen_as_unseen(name):
    track = tracks.get_track(name)
    spec, exam = track.spec("ppo"), track.exam()
    assert spec.exam.hash == exam.hash
    assert (spec.family, spec.task.space) == (name, exam.task.space)
    assert exam.test == splits.load(track.split).test
    assert len(exam.train) == len(exam.test) == 128
    assert (exam.optimal_steps()[::16] >= 0).all()  # solved from every tape
    kinds = drawn.strata(exam.universe)
    seen, unseen = (Counter(kinds[rule] for rule in side) for side in (exam.train, exam.test))
    assert all(abs(seen[kind] - unseen[kind]) <= 2 for kind in seen | unseen)


def test_family_and_shape_are_in_a_tracks_document_where_they_are_not_as_by_default():
    assert not {"family", "shape", "folds"} & set(tracks.get_track("full").fields)
    assert "shape" not in tracks.get_track("ring2").fields
    assert tracks.get_track("life").fields["shape"] == (5, 5)


def test_the_rules_of_lite_2_keep_the_mix_of_types_and_ceilings():
    lite, full = (tracks.get_track(name).exam() for name in ("lite@2", "full"))
    ceilings = splits.difficulties()["ceiling L16"]
    assert lite.test == full.test
    for kind in features.TYPES:
        shares = [np.mean(exam.types[exam.rows("id")] == kind) for exam in (lite, full)]
        assert shares[0] == pytest.approx(shares[1], abs=0.02)
    means = [ceilings[list(exam.train)].mean() for exam in (lite, full)]
    assert means[0] == pytest.approx(means[1], abs=0.02)


@pytest.mark.slow
def test_an_mlp_sits_the_whole_exam_in_seconds():
    import time

    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    weights = [
        jax.random.normal(jax.random.fold_in(key, layer), shape) / shape[0] ** 0.5
        for layer, shape in enumerate([(33, 256), (256, 256), (256, 32)])
    ]

    def act(memory, obs, stream):
        for layer in memory[:-1]:
            obs = jax.nn.relu(obs @ layer)
        return memory, jnp.argmax(obs @ memory[-1], axis=-1)

    mlp = policy.blind(policy.Policy("mlp", lambda rule, num: weights, act))
    began = time.monotonic()
    outcome = evaluation.evaluate(mlp)
    assert outcome.runs[0].success.size == 5120
    assert time.monotonic() - began < 20
