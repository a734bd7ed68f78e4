import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import VecMonitor

from tapebench.sb3 import TapeVecEnv


def test_the_horizon_is_a_true_end_and_success_is_told():
    env = TapeVecEnv(2, length=8, horizon=2, rules=204)
    env.set_options({"tape": "11000000"})
    env.seed(0)
    assert env.reset().shape == (2, 9)
    env.step(np.array([0, 5]))
    obs, rewards, dones, infos = env.step(np.array([1, 5]))
    assert dones.tolist() == [True, True]
    assert [info["is_success"] for info in infos] == [True, False]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
    assert [info["distance"] for info in infos] == [0.0, 2 / 8]
    assert "rule" not in infos[0]
    assert infos[0]["terminal_observation"].tolist() == [0] * 8 + [1.0]
    assert (obs[:, -1] == 0).all()
    assert rewards.tolist() == [1.0, -2 / 8]


def test_an_episode_has_the_statistics_that_vec_monitor_gives():
    options = {"length": 8, "horizon": 4, "rules": [4, 204]}
    plain, monitored = TapeVecEnv(3, **options), VecMonitor(TapeVecEnv(3, **options))
    rng, count = np.random.default_rng(0), 0
    for env in (plain, monitored):
        env.seed(0)
        env.reset()
    for _ in range(12):
        actions = rng.integers(0, 8, 3)
        for ours, theirs in zip(plain.step(actions)[3], monitored.step(actions)[3], strict=True):
            assert ("episode" in ours) == ("episode" in theirs)
            if "episode" in ours:
                count += 1
                assert ours["episode"]["r"] == pytest.approx(theirs["episode"]["r"], abs=1e-6)
                assert ours["episode"]["l"] == theirs["episode"]["l"]
                assert 0 <= ours["episode"]["t"] < 60
    assert count >= 9
    plain.step(np.zeros(3, int))
    plain.reset()
    for _ in range(4):
        infos = plain.step(np.full(3, 7))[3]
    assert all(info["episode"]["l"] <= 4 for info in infos if info)


def test_returns_and_success_are_logged_without_a_wrapper():
    model = PPO("MlpPolicy", TapeVecEnv(4, length=8, horizon=8), n_steps=16, device="cpu", seed=0)
    model.learn(64)
    assert len(model.ep_info_buffer) >= 4
    assert len(model.ep_success_buffer) == len(model.ep_info_buffer)
    assert -8 <= np.mean([episode["r"] for episode in model.ep_info_buffer]) <= 1


def test_it_renders_where_it_was_asked_to():
    env = TapeVecEnv(3, length=8, horizon=4, render_mode="rgb_array")
    env.reset()
    images = env.get_images()
    assert [image.shape for image in images] == [(5 * 8, 8 * 8, 3)] * 3
    env.step(np.array([0, 1, 2]))
    assert (env.get_images()[0] != images[0]).any()
    assert env.render().shape == (2 * 5 * 8, 2 * 8 * 8, 3)
    assert env.metadata["render_modes"] == ["human", "rgb_array"]
    with pytest.warns(UserWarning, match="render_mode"):
        assert TapeVecEnv(2).render() is None


def test_options_are_for_all_and_the_rule_is_told_if_revealed():
    env = TapeVecEnv(2, length=8, rules=30, reveal_rule=True)
    env.reset()
    assert [info["rule"] for info in env.reset_infos] == [30, 30]
    env.set_options([{"rule": 30}, {"rule": 204}])
    with pytest.raises(ValueError, match="same for every environment"):
        env.reset()
    with pytest.raises(IndexError, match="environments are 0 to 1"):
        env.get_attr("task", indices=[7])


def test_seeds_fix_the_environment():
    def first(seed):
        env = TapeVecEnv(4)
        env.seed(seed)
        return env.reset()

    np.testing.assert_array_equal(first(3), first(3))
    assert (first(3) != first(4)).any()


def test_attributes_can_be_read_but_not_set():
    env = TapeVecEnv(3, length=8)
    assert [task.length for task in env.get_attr("task")] == [8, 8, 8]
    assert env.env_is_wrapped(object, indices=[0, 1]) == [False, False]
    with pytest.raises(AttributeError, match="make a new TapeVecEnv"):
        env.set_attr("task", None)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"family": "life", "shape": (4, 4), "rules": ["B3/S23", "B2/S"]},
        {"family": "ring2", "length": 8, "rules": "R2:2283010756"},
    ],
)
def test_stable_baselines3_trains_under_every_family(options):
    env = TapeVecEnv(4, horizon=8, **options)
    model = PPO("MlpPolicy", env, seed=0, device="cpu", n_steps=64, batch_size=64)
    model.learn(1000)
    assert model.predict(env.reset())[0].shape == (4,)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_stable_baselines3_learns_on_it(algorithm):
    options = {"n_steps": 64, "batch_size": 256} if algorithm is PPO else {"learning_starts": 500}
    env = TapeVecEnv(8, length=8, horizon=8, rules=4)
    model = algorithm("MlpPolicy", env, seed=0, device="cpu", **options)
    model.learn(6000)
    held = TapeVecEnv(200, length=8, horizon=8, rules=4)
    held.seed(1)
    obs = held.reset()
    finished = np.zeros(200, bool)
    succeeded = np.zeros(200, bool)
    for _ in range(8):
        obs, _, dones, infos = held.step(model.predict(obs, deterministic=True)[0])
        for index in np.flatnonzero(dones & ~finished):
            succeeded[index] = infos[index]["is_success"]
        finished |= dones
    assert finished.all()
    assert succeeded.mean() > 0.5


def test_the_rule_switches_and_the_last_one_is_told_if_revealed():
    env = TapeVecEnv(2, length=6, horizon=2, rules=[30, 204], switch=1, reveal_rule=True)
    env.set_options({"rule": 204, "tape": "111100", "switch_to": [30]})
    env.reset()
    assert [info["rule"] for info in env.reset_infos] == [204, 204]
    env.step(np.array([0, 1]))
    infos = env.step(np.array([0, 1]))[-1]
    assert [info["rule"] for info in infos] == [30, 30]
