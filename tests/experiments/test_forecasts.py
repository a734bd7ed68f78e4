"""Forecasts of world models, against loops and against what must be so."""

import numpy as np
import pytest

from learners import SMALL
from tapebench.exam.exam import make_exam
from tapebench.experiments import forecasts
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.runs import training
from tapebench.runs.training import RunSpec

EXAM = {"length": 9, "horizon": 7, "episodes": 3, "rules": [0, 30, 90, 204]}


@pytest.fixture(scope="module")
def seen():
    return forecasts.record(make_exam(**EXAM))


def following(seen, row, episode, depth, rule):
    """The tape so many steps on, by the rule itself."""
    length = EXAM["length"]
    tape = space.pack(seen.tapes[row, episode].astype(np.uint8))
    for step in range(depth):
        cell = np.uint32(seen.action[row + step, episode])
        tape = elementary.step(tape, cell, np.uint32(rule), length)
    return space.unpack(tape, length)


def test_a_record_is_what_the_rules_make_of_the_flips(seen):
    assert seen.obs.shape == (8, 12, 10)
    rules = np.repeat(EXAM["rules"], 3)
    real = 0
    for episode, rule in enumerate(rules):
        for row in range(7):
            if seen.is_real[row + 1, episode]:
                real += 1
                wanted = following(seen, row, episode, 1, rule)
                np.testing.assert_array_equal(seen.tapes[row + 1, episode], wanted)
    assert real == seen.is_real[1:].sum()
    assert not seen.is_real[2:, :3].any()  # rule 0 reaches the goal at once
    assert seen.is_real[:, 3:6].all()


def test_means_by_rule_weigh_what_is_real(seen):
    rng = np.random.default_rng(0)
    values, weights = rng.random((8, 12)), rng.random((8, 12)) < 0.5
    weights[:, 3:6] = False
    means = seen.by_rule(values, weights)
    for rule in (0, 2, 3):
        columns = slice(3 * rule, 3 * rule + 3)
        assert means[rule] == pytest.approx(values[:, columns][weights[:, columns]].mean())
    assert np.isnan(means[1])


def test_the_filter_mixes_the_rules_that_fit(seen):
    candidates = (30, 90, 204, 45, 0)
    probabilities = forecasts.forecast_filter(candidates, seen, 4)
    assert probabilities.shape == (4, 8, 12, 9)
    # Before anything was seen, all of them alike.
    for depth in (1, 4):
        wanted = np.mean([following(seen, 0, 4, depth, rule) for rule in candidates], axis=0)
        np.testing.assert_allclose(probabilities[depth - 1, 0, 4], wanted, atol=1e-5)
    # Later only what fits what was seen.
    left = [
        rule
        for rule in candidates
        if all(
            (following(seen, row, 4, 1, rule) == seen.tapes[row + 1, 4]).all() for row in range(3)
        )
    ]
    assert left == [30]
    np.testing.assert_allclose(probabilities[1, 3, 4], following(seen, 3, 4, 2, 30), atol=1e-4)


def test_the_filter_is_soon_without_fault_and_doubt_with_all_rules(seen):
    forecast = forecasts.forecast_filter(tuple(range(256)), seen, 3)
    assessment = forecasts.assess(forecast, seen)
    assert assessment.error.shape == (3, 4)
    late = forecasts.assess(forecast[:, 3:], later(seen, 3))
    assert np.nanmax(late.error[0]) < np.nanmax(assessment.error[0])
    assert assessment.error[0, 1:3].all()
    assert not late.error[:, 1:3].any()  # rules 30 and 90 show all neighbourhoods soon
    # What it says of 0.5 to 1 comes true as often, about.
    assert assessment.calibration_error(np.arange(4)) < 0.1


def later(seen, row):
    """The record from a row on."""
    return forecasts.Record(seen.exam, seen.obs[row:], seen.action[row:], seen.is_real[row:])


def test_an_assessment_by_a_loop(seen):
    rng = np.random.default_rng(1)
    forecast = rng.random((2, 8, 12, 9)).astype(np.float32)
    assessment = forecasts.assess(forecast, seen)
    rule = 1
    errors, bits, whole, sure, right = [], [], [], [], []
    for episode in range(3, 6):
        for row in range(6):
            two = (forecast[1, row, episode] > 0.5) == seen.tapes[row + 2, episode]
            errors.append(1 - two.mean())
        for row in range(7):
            chance, tape = forecast[0, row, episode], seen.tapes[row + 1, episode]
            bits.append(-np.log2(np.where(tape, chance, 1 - chance)).mean())
            whole.append(((chance > 0.5) == tape).all())
            sure += np.maximum(chance, 1 - chance).tolist()
            right += ((chance > 0.5) == tape).tolist()
    assert assessment.error[1, rule] == pytest.approx(np.mean(errors))
    assert assessment.bits[rule] == pytest.approx(np.mean(bits), rel=1e-5)
    assert assessment.whole[rule] == pytest.approx(np.mean(whole))
    sure, right = np.array(sure), np.array(right)
    share, confidence, truth = assessment.calibration(np.array([rule]))
    inside = (sure >= 0.7) & (sure < 0.75)
    assert share[4] == pytest.approx(inside.mean())
    assert confidence[4] == pytest.approx(sure[inside].mean(), rel=1e-5)
    assert truth[4] == pytest.approx(right[inside].mean())
    assert assessment.calibration_error(np.arange(4)) > 0.1


def test_a_model_that_knows_when_it_is_wrong_is_told_from_one_that_does_not(seen):
    rng = np.random.default_rng(2)
    wrong = rng.random(seen.tapes.shape) < rng.random((8, 12, 1)) / 2
    coming = np.roll(seen.tapes, -1, axis=0) > 0.5
    guess = coming ^ wrong
    doubt = wrong.mean(axis=-1, keepdims=True) * 0.45 + 0.01
    knows = np.where(guess, 1 - doubt, doubt)[None].astype(np.float32)
    blind = np.where(guess, 0.9, 0.1)[None].astype(np.float32)
    assert np.nanmin(forecasts.assess(knows, seen).warned[1:]) > 0.8
    assert np.isnan(forecasts.assess(blind, seen).warned).all()
    np.testing.assert_array_equal(
        forecasts.assess(knows, seen).error, forecasts.assess(blind, seen).error
    )


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["dreamer", "automata"])
def test_the_model_of_a_run(tmp_path, agent):
    spec = RunSpec(
        agent=agent,
        seed=0,
        options=SMALL[agent],
        length=9,
        horizon=7,
        steps=160,
        evaluate_every=80,
        episodes=1,
        last=1,
        rules=(30, 90, 204),
    )
    path = training.run(spec, tmp_path)
    seen = forecasts.record(make_exam(**EXAM))
    model = forecasts.load_model(path)
    forecast = model(seen, 3)
    assert forecast.shape == (3, 8, 12, 9)
    assert ((forecast >= 0) & (forecast <= 1)).all()
    np.testing.assert_array_equal(forecast, forecasts.load_model(path)(seen, 3))
    # It tells from the past alone: another future, the same forecast.
    other = forecasts.Record(seen.exam, seen.obs.copy(), seen.action, seen.is_real)
    other.obs[5:, :, :9] = 1 - other.obs[5:, :, :9]
    changed = model(other, 3)
    np.testing.assert_allclose(changed[0, :5], forecast[0, :5], atol=1e-6)
    assert not np.allclose(changed[0, 5], forecast[0, 5])


@pytest.mark.slow
def test_an_agent_without_a_model_is_refused(tmp_path):
    spec = RunSpec(
        agent="ppo",
        seed=0,
        options=SMALL["ppo"],
        length=9,
        horizon=7,
        steps=160,
        evaluate_every=80,
        episodes=1,
        last=1,
        rules=(30,),
    )
    path = training.run(spec, tmp_path)
    with pytest.raises(ValueError, match="ppo has no model of the world"):
        forecasts.load_model(path)
