"""The examples do what they say."""

from importlib import import_module
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tapebench.exam.exam import make_exam
from tapebench.exam.external import in_process
from tapebench.planning import belief
from tapebench.runs import board, evaluation

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def examples_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")


@pytest.mark.slow
def test_a_stable_baselines_model_takes_the_exam_by_the_factory_road():
    exam = make_exam(length=8, horizon=8)
    outcome = evaluation.evaluate("sb3_agent:make", exam)
    assert outcome.policy == "sb3_agent:make"
    by_chance = outcome.score["lines"]["random"]["id"]
    assert outcome.score["id"]["success"] > by_chance + 0.03, "it has learned something"


@pytest.mark.slow
def test_a_model_trained_on_the_registered_environment_plays_the_exam_as_it_plays_there():
    import torch
    from sb3_agent import Adapter
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    options = {"length": 8, "horizon": 8, "split": "fps30"}
    envs = make_vec_env("Tape-v1", n_envs=4, seed=0, env_kwargs=options | {"rules": "train"})
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=64, seed=0, device="cpu").learn(512)
    assert model.num_timesteps == 512
    exam = make_exam(**options, rules=[0, 4, 108, 204], episodes=3)
    outcome = evaluation.evaluate(Adapter(model), exam)
    assert outcome.policy == "Adapter"
    assert not outcome.sees_rule
    (run,) = outcome.runs
    for side, rules in (("id", exam.train), ("ood", exam.test)):
        assert len(rules) == 2
        on_these = run.success[np.isin(exam.rules, rules)]
        assert outcome.score[side]["success"] == pytest.approx(on_these.mean())
    env = gymnasium.make("Tape-v1", **options, rules="all")
    for index, rule in enumerate(exam.rules.tolist()):
        for episode in range(3):
            tapes, actions = run.trace(index, episode)
            obs, _ = env.reset(seed=0, options={"rule": rule, "tape": tapes[0]})
            played, ended = [], False
            while not ended:
                played.append(int(model.predict(obs, deterministic=True)[0]))
                obs, _, terminated, truncated, info = env.step(played[-1])
                ended = terminated or truncated
            assert played == actions.tolist()
            assert info["success"] == run.success[index, episode]


@pytest.mark.slow
def test_a_torch_agent_with_memory_takes_the_exam_in_its_own_process():
    exam = make_exam(length=16, horizon=16, trials=2, rules=[4, 30, 110, 204, 232], episodes=10)
    outcome = evaluation.evaluate("torch_agent:make", exam, subprocess=True)
    assert outcome.runs[0].success[exam.rules == 204].all()
    again = evaluation.evaluate("torch_agent:make", exam)
    np.testing.assert_array_equal(outcome.runs[0].cells, again.runs[0].cells)


def test_the_torch_agents_memory_finds_the_rule():
    import torch_agent

    exam = make_exam(rules=[30, 110, 150])
    policy = in_process(torch_agent.make(), "torch", exam.task)
    seen = belief.identify(policy, exam.task, episodes=5)
    assert seen.mass[:, :, 0] == pytest.approx(1 / 256, rel=1e-3)
    assert (seen.mass[:, :, -1] > 0.9).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "name"),
    [
        ("sb3_fold", {}, "sb3-ppo"),
        ("sb3_fold", {"recurrent": True}, "sb3-recurrent-ppo"),
        ("dqn_fold", {"learning_starts": 64}, "torch-dqn"),
    ],
)
def test_a_classic_agent_becomes_a_row_of_a_leaderboard(tmp_path, script, options, name):
    module = import_module(script)
    for fold in (0, 3):
        module.main(module.Config(fold=fold, steps=2048, out=tmp_path, **options))
    (standing,) = board.read(tmp_path).standings
    (row,) = standing.rows
    assert row.label == name
    assert row.splits == ("folds-0", "folds-3")
    assert row.unranked == "2 of 5 folds"
    assert row.remarks == ("not isolated",)


@pytest.mark.slow
def test_the_torch_dqn_learns():
    import dqn_fold

    exam = evaluation.exam_of("core")
    trained = evaluation.evaluate(dqn_fold.make(steps=20_000), exam)
    untrained = evaluation.evaluate(dqn_fold.make(steps=16), exam)
    assert trained.runs[0].success.mean() > untrained.runs[0].success.mean() + 0.05
