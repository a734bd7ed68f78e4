"""Results against one another, wherever each comes from."""

import json

import numpy as np
import pytest

from commands import tape
from tapebench import stats
from tapebench.exam import by_stratum
from tapebench.exam.exam import make_exam
from tapebench.runs import compare, evaluation, published, store
from tapebench.runs.results import load_results
from tapebench.runs.store import RunId, open_run


def stored_runs(root, agent, successes, exam):
    """Finished runs whose every episode's success is drawn with the given probability."""
    for seed, probability in enumerate(successes):
        rng = np.random.default_rng(seed)
        run_id = RunId("main", agent, "fps30", seed)
        with open_run(root, run_id, {"exam": exam.identity}) as run:
            shape = (len(exam.rules), exam.episodes)
            outcomes = rng.random(shape) < probability
            run.write(
                "eval",
                {
                    "seed": np.full(outcomes.size, seed),
                    "rule": np.repeat(exam.rules, exam.episodes),
                    "trial": np.zeros(outcomes.size, int),
                    "episode": np.tile(np.arange(exam.episodes), len(exam.rules)),
                    "success": outcomes.ravel(),
                },
            )
            run.finish({"ood": {"success": float(probability)}})


def test_stored_agents_are_compared_by_seeds(tmp_path):
    exam = make_exam(length=8, horizon=8, episodes=10)
    stored_runs(tmp_path, "dqn", [0.5, 0.55, 0.52, 0.51], exam)
    stored_runs(tmp_path, "ppo", [0.3, 0.32, 0.35, 0.31], exam)
    a, b = (
        compare.evaluate_or_load(str(tmp_path / "main" / name), exam) for name in ("dqn", "ppo")
    )
    assert a.success.shape == (4, 256, 10)
    found = compare.compare(a, b)
    assert found["interval_over"] == "seeds"
    row = found["id"]
    assert row["a"] - row["b"] == pytest.approx(row["difference"])
    assert row["interval"][0] > 0.1
    low, high = row["interval_over_rules_too"]
    assert low < row["difference"] < high
    assert row["p"] <= row["p_holm"] < 0.01
    assert row["improvement"] > 0.7
    with pytest.raises(ValueError, match="several agents"):
        compare.evaluate_or_load(str(tmp_path), exam)


def test_runs_without_episodes_are_refused_with_what_to_do(tmp_path):
    exam = make_exam(length=8, horizon=8, episodes=10)
    spec = {"agent": "dqn", "seed": 0, "exam": exam.identity}
    with store.open_run(tmp_path, store.RunId("main", "dqn", "fps30", 0), spec) as run:
        run.finish({"ood": {"success": 0.5}})
    with pytest.raises(ValueError, match=r"hold no episodes.*tape train makes them again"):
        compare.evaluate_or_load(str(tmp_path), exam)


@pytest.mark.slow
def test_policies_are_compared_on_the_same_episodes(tmp_path):
    exam = make_exam(length=8, horizon=8, rules=[0, 4, 30, 204, 232])
    evaluation.evaluate("flip-ones", exam).write_bundle(tmp_path / "b")
    a = compare.evaluate_or_load("random", exam)
    b = compare.evaluate_or_load(str(tmp_path / "b"), exam)
    same = compare.compare(b, b)
    assert same["id"]["interval"] == [0, 0]
    found = compare.compare(a, b)
    assert found["id"]["difference"] < 0
    assert found["id"]["rules_won"] == 0 < found["id"]["rules_lost"]
    for group in by_stratum.groups(exam):
        row = found["by_stratum"][group.stratum][group.side]
        if len(group.rows) < 2:
            assert row is None
        else:
            gap = a.success[:, group.rows].mean() - b.success[:, group.rows].mean()
            assert row["difference"] == pytest.approx(gap)
            assert row["interval"][0] <= gap <= row["interval"][1]
            assert row["rules"] == len(group.rows)
    assert any(row for sides in found["by_stratum"].values() for row in sides.values())
    other = compare.evaluate_or_load("random", make_exam(length=8, horizon=9, rules=[0, 4]))
    with pytest.raises(ValueError, match=r"sat different exams: .*horizon"):
        compare.compare(a, other)


def test_power_is_read_from_stored_runs(tmp_path):
    exam = make_exam(length=8, horizon=8, episodes=1, rules=[0])
    stored_runs(tmp_path, "dqn", [0.50, 0.54, 0.46], exam)
    stored = load_results(tmp_path)
    (row,) = compare.power(stored, "ood_success", 0.04, 0.8)
    assert row["sd"] == pytest.approx(0.04)
    assert row["seeds_needed"] == stats.seeds_needed(0.04, 0.04) == 17
    with pytest.raises(ValueError, match="did you mean 'ood_success'"):
        compare.power(stored, "ood_sucess", 0.04, 0.8)


def bundle_on(path, **options):
    exam = make_exam(**options)
    evaluation.evaluate("flip-ones", exam, name="mine").write_bundle(path)
    return exam


def test_a_bundle_and_a_published_agent_are_paired_by_rule(capsys, tmp_path):
    exam = bundle_on(tmp_path / "mine.tape")
    code, out, _ = tape(capsys, "compare", "mine.tape", "published:dqn", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["a"], found["b"]) == ("mine", "published dqn")
    assert (found["paired_by"], found["interval_over"]) == ("rules", "rules")
    stored = load_results(published.directory() / "full/dqn/fps30")
    assert found["ood"]["b"] == pytest.approx(np.mean([run["ood_success"] for run in stored.runs]))
    assert found["ood"]["rules"] == len(exam.test)
    _, out, _ = tape(capsys, "compare", "mine.tape", "published:dqn")
    assert "rule by rule, as published results keep means by rule" in " ".join(out.split())


def test_the_network_and_the_track_of_a_published_agent_can_be_named():
    exam = make_exam()
    for name, runs in {
        "dqn": "full/dqn/fps30",
        "dqn-mlp": "full/dqn/fps30",
        "dqn-conv": "full-networks-dqn-conv/dqn/fps30",
        "ppo": "full/ppo/fps30",
        "long/ppo": "long/ppo/fps30",
    }.items():
        assert published.runs_of(name, exam) == published.directory() / runs
    with pytest.raises(ValueError, match="unknown published agent 'dqm'"):
        published.runs_of("dqm", exam)


def test_policies_sit_the_exam_of_the_bundle_that_they_are_compared_with(capsys, tmp_path):
    bundle_on(tmp_path / "mine.tape", length=8, horizon=4, episodes=2, rules=[0, 30])
    code, out, _ = tape(capsys, "compare", "random", "mine.tape", "--json")
    assert code == 0
    assert json.loads(out)["paired_by"] == "episodes"
    code, _, error = tape(capsys, "compare", "random", "mine.tape", "--length", "9")
    assert code == 2
    assert "sat different exams" in error
    code, _, error = tape(capsys, "compare", "mine.tape", "published:dqn")
    assert code == 2
    assert error.count("\n") == 1
    assert "published:dqn did not sit this exam (fps30, L = 8, H = 4, 2 tapes per rule)" in error
