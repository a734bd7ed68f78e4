from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tapebench.base import files
from tapebench.exam import bounds, by_stratum
from tapebench.exam.exam import make_exam
from tapebench.physics import bayes, memoryless, strata
from tapebench.stats import Interval
from tapebench.tasks import splits

EXAM = make_exam(length=6, horizon=3, episodes=12)


def mean(part, group):
    return Interval(float(part.mean()), 0.0, 1.0)


def test_beyond_reflex_seen_and_unseen_come_first_and_every_rule_is_in_one_group():
    groups = by_stratum.groups(EXAM)
    kinds = strata.strata(EXAM.task.rules, 6, 3)
    assert [(group.stratum, group.side) for group in groups[:2]] == [
        ("beyond-reflex", "id"),
        ("beyond-reflex", "ood"),
    ]
    assert sorted(np.concatenate([group.rows for group in groups])) == list(range(256))
    for group in groups:
        assert {kinds[int(EXAM.rules[row])] for row in group.rows} == {group.stratum}
        assert set(EXAM.subsets[group.rows]) == {group.side}


def test_success_by_stratum_is_the_mean_over_its_rules_and_a_single_rule_is_no_stratum():
    beyond = [r for r, kind in strata.strata(EXAM.task.rules, 6, 3).items() if kind[0] == "b"]
    seen = [rule for rule in beyond if rule in EXAM.train][:3]
    unseen = [rule for rule in beyond if rule in EXAM.test][:1]
    exam = EXAM.only([*seen, *unseen])
    success = np.random.default_rng(0).random((2, len(exam.rules), 12))
    scores = by_stratum.success_by_stratum(success, exam, mean)
    assert [score.group.side for score in scores] == ["id", "ood"]
    assert scores[0].success.mean == success[:, exam.rows("id")].mean()
    assert scores[1].success is None
    by_rule = success.mean(axis=(0, 2))
    assert by_stratum.mean_by_stratum(by_rule, exam) == [by_rule[exam.rows("id")].mean(), None]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"noise": 0.1}, "without noise"),
        ({"goal": "random", "observe_goal": True}, "goal of zeros"),
        ({"length": 24, "horizon": 24}, "up to 16 cells"),
    ],
)
def test_tasks_without_strata_say_why(options, reason):
    exam = make_exam(**({"length": 6, "horizon": 3} | options))
    assert reason in by_stratum.why_unknown(exam)
    assert by_stratum.groups(exam) == []


def test_bounds_are_those_of_the_exam_and_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exam = make_exam(length=5, horizon=3, episodes=300, rules="test")
    found = bounds.bounds(exam)
    solution = bounds.ideal(exam)
    all_tapes = bayes.success_by_class(solution, list(exam.task.rules))
    weights = np.bincount(solution.ring.number)
    weights[solution.ring.number[0]] -= 1
    exact_mean = (all_tapes * weights).sum(axis=1).mean() / 31
    assert found.blind_ceiling.mean() == pytest.approx(exact_mean, abs=0.04)
    best = memoryless.search(bayes.parse_prior(exam.task.rules), 5, 3)
    assert found.memoryless.mean() == pytest.approx(best.value, abs=0.04)
    monkeypatch.setattr(bounds, "_solve", lambda exam, rules: pytest.fail("computed again"))
    kept = bounds.bounds(exam)
    assert np.array_equal(kept.blind_ceiling, found.blind_ceiling)
    assert np.array_equal(kept.memoryless, found.memoryless)


def test_bounds_by_stratum_are_of_players_that_play_for_it_alone():
    exam = make_exam(length=6, horizon=3, episodes=8)
    overall, within = bounds.bounds(exam), bounds.bounds_by_stratum(exam)
    of_rule = np.array([*by_stratum.strata_by_rule(exam).values()])
    for stratum in strata.STRATA:
        rows = np.flatnonzero(of_rule == stratum)
        assert within.blind_ceiling[rows].mean() >= overall.blind_ceiling[rows].mean()
        alone = bayes.solve(bayes.parse_prior(exam.rules[rows].tolist()), 6, 3)
        starts = alone.ring.number[exam.tapes()[:, 0]]
        value = alone.value[3][starts, bayes.NOTHING].mean() / len(rows)
        assert within.blind_ceiling[rows].mean() == pytest.approx(value)
        assert within.memoryless[rows].mean() <= value + 1e-12
    beyond = of_rule == "beyond-reflex"
    assert within.blind_ceiling[beyond].mean() > overall.blind_ceiling[beyond].mean() + 0.01
    assert within.memoryless[beyond].mean() > overall.memoryless[beyond].mean() + 0.01


def test_a_damaged_cache_of_bounds_is_computed_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exam = make_exam(length=5, horizon=2, episodes=4)
    found = bounds.bounds(exam)
    (file,) = (tmp_path / "tapebench" / "bounds").iterdir()
    for text in ("", "[]", '{"blind_ceiling": [1], "memoryless": [1]}', '{"memoryless": null}'):
        file.write_text(text)
        assert np.array_equal(bounds.bounds(exam).blind_ceiling, found.blind_ceiling)


def test_bounds_that_are_not_computed_are_not_a_number():
    found = bounds.bounds(make_exam(length=8, horizon=8, mask=[0]))
    assert np.isnan(found.blind_ceiling).all()
    assert np.isnan(found.memoryless).all()


PUBLISHED = {
    "full-pearl": 0.003,
    "full-rppo": 0.003,
    "full-rad": 0.011,
    "full-dqn": 0.015,
    "full-ppo": 0.015,
    "full-dreamer": 0.046,
    "full-networks-pearl-conv-pearl": 0.060,
    "full-networks-dqn-conv-dqn": 0.073,
    "full-networks-rppo-cells-rppo": 0.147,
    "long-networks-rppo-cells-rppo": 0.423,
}
"""Success on the training rules beyond reflex, by what flipping ones reaches on 20 tapes."""


@pytest.mark.parametrize("piece", PUBLISHED)
def test_published_runs_reach_what_was_recomputed_independently(piece):
    """With the strata that were used there, see ADR 20; with ours it is less, in the mean."""
    place = resources.files("tapebench").joinpath(f"data/results/{piece}-fps30.parquet")
    table = files.read_table(Path(str(place)))
    by_rule = np.array([table["success"][table["rule"] == rule].mean() for rule in range(256)])
    exam = make_exam()
    on_exam = splits.difficulties()["flip-ones L32"]
    ceilings = strata.measure(range(256), 32, 32)
    kinds = [strata.stratum(ceilings[rule].ceiling, on_exam[rule]) for rule in range(256)]
    rows = exam.rows("id")[np.array(kinds)[exam.rows("id")] == "beyond-reflex"]
    assert len(rows) == 69
    assert by_rule[rows].mean() == pytest.approx(PUBLISHED[piece], abs=0.0006)
    ours = by_stratum.mean_by_stratum(by_rule, exam)[0]
    assert ours < by_rule[rows].mean()
