"""gymnax's own wrappers, rejax and Stoa on the adapter, unmodified."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rejax
from gymnax import wrappers
from gymnax.experimental.rollout import RolloutWrapper
from stoa.env_adapters.gymnax import GymnaxToStoa

import tapebench.gymnax

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def made():
    return gymnax.make("Tape-v1", length=8, horizon=6, rules="test", split="matched30")


def test_an_environment_is_made_by_name_with_its_options(made):
    env, params = made
    assert env.name == "Tape-v1"
    assert (params.max_steps_in_episode, params.num_rules) == (6, 30)
    assert isinstance(env.action_space(params), gymnax.environments.spaces.Discrete)
    action = env.action_space(params).sample(KEY)
    assert env.action_space(params).contains(action)
    obs, state = env.reset(KEY)
    assert env.observation_space(params).contains(obs)
    assert gymnax.make("Tape-v0")[0].name == "Tape-v0"
    assert isinstance(env, gymnax.environments.environment.Environment)
    assert env.discount(state, params) == 1.0


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.FlattenObservationWrapper,
        wrappers.LogWrapper,
        lambda env: wrappers.StickyActionWrapper(env, 0.3),
        lambda env: wrappers.LogWrapper(wrappers.FlattenObservationWrapper(env)),
    ],
)
def test_wrappers_take_it_in_compiled_loops(made, wrap):
    env, params = made
    wrapped = wrap(env)
    keys = jax.random.split(KEY, 5)
    obs, state = jax.vmap(wrapped.reset, (0, None))(keys, params)

    def body(state, key):
        stepped = jax.vmap(wrapped.step, (0, 0, None, None))
        obs, state, _, terminated, truncated, info = stepped(
            jax.random.split(key, 5), state, jnp.int32(3), params
        )
        return state, (obs, terminated, truncated, info)

    _, (obs, terminated, truncated, info) = jax.lax.scan(body, state, jax.random.split(KEY, 12))
    assert obs.shape == info["final_observation"].shape == (12, 5, 9)
    assert terminated.sum() >= 10
    assert not truncated.any()
    assert wrapped.observation_space(params).shape == (9,)


def test_log_wrapper_counts_the_episodes(made):
    env, params = made
    params = params.replace(max_steps_in_episode=2)
    wrapped = wrappers.LogWrapper(env)
    _, state = wrapped.reset(KEY, params)
    paid = []
    for key in jax.random.split(KEY, 2):
        _, state, reward, terminated, _, info = wrapped.step(key, state, 0, params)
        paid.append(float(reward))
        if terminated:
            break
    assert info["returned_episode"]
    assert info["returned_episode_lengths"] == len(paid)
    assert info["returned_episode_returns"] == pytest.approx(sum(paid))


def test_the_first_version_truncates_at_the_horizon():
    env, params = gymnax.make("Tape-v0", length=8, rules=204)
    params = params.replace(max_steps_in_episode=1)
    _, state = env.reset(KEY, params)
    state = state.replace(tape=jnp.array([7], jnp.uint32))
    *_, terminated, truncated, info = env.step(KEY, state, 0, params)
    assert (bool(terminated), bool(truncated)) == (False, True)
    assert info["discount"] == 1.0


def test_gymnaxs_faces_of_other_libraries(made):
    env, params = made
    single = wrappers.GymnaxToGymWrapper(env, params, 0)
    obs, _ = single.reset(seed=1)
    assert single.observation_space.contains(np.asarray(obs))
    assert len(single.step(single.action_space.sample())) == 5
    vector = wrappers.GymnaxToVectorGymWrapper(env, 4, params, 0)
    assert vector.reset()[0].shape == (4, 9)
    assert vector.step(vector.action_space.sample())[1].shape == (4,)
    dm = wrappers.GymnaxToDmEnvWrapper(env)
    assert dm.step(KEY, dm.reset(KEY, params), 0, params).discount in (0.0, 1.0)
    legacy = wrappers.LegacyStepAPIWrapper(env)
    assert len(legacy.step(KEY, legacy.reset(KEY)[1], 0)) == 5


def test_rollouts_take_as_many_steps_as_an_episode_has(made):
    keys = jax.random.split(KEY, 3)
    env, params = made
    assert RolloutWrapper(env=env, env_params=params).batch_rollout(keys, None)[0].shape[:2] == (
        3,
        6,
    )
    shorter = RolloutWrapper(env=env, env_params={"max_steps_in_episode": 4})
    assert shorter.batch_rollout(keys, None)[0].shape == (3, 4, 9)
    named = RolloutWrapper(env_name="Tape-v1", env_kwargs={"length": 8, "horizon": 7})
    assert named.batch_rollout(keys, None)[0].shape == (3, 7, 9)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "pqn"])
def test_rejax_learns_on_it(algorithm):
    env, params = tapebench.gymnax.make(length=8, horizon=8, rules=4, legacy=True)
    made = rejax.get_algo(algorithm).create(
        env=env, env_params=params, total_timesteps=16_384, eval_freq=8192
    )
    assert made.discrete
    _, (lengths, returns) = jax.jit(made.train)(KEY)
    assert (lengths <= 8).all()
    means = np.asarray(returns).mean(axis=-1)
    assert means[-1] > means[0]


def test_rejax_finds_what_was_registered():
    name = "test-rejax"
    gymnax.register(name, lambda: tapebench.gymnax.make(length=8, rules=4, legacy=True)[0])
    made = rejax.get_algo("ppo").create(env=name, total_timesteps=1024, eval_freq=1024)
    assert made.env_params.num_rules == 1


def test_stoa_steps_it():
    env = GymnaxToStoa(*tapebench.gymnax.make(length=8, horizon=3, rules=204, legacy=True))
    assert env.action_space().num_values == 8
    assert env.observation_space().shape == (9,)
    state, timestep = env.reset(KEY)
    step = jax.jit(env.step)
    for _ in range(3):
        state, timestep = step(state, jnp.int32(0))
    assert timestep.step_type == 2 or timestep.discount == 0.0
    assert {"success", "distance"} <= timestep.extras.keys()


def test_info_can_be_averaged_as_purejaxql_does():
    env, params = tapebench.gymnax.make(length=8, horizon=3, legacy=True)
    _, state = env.reset(KEY, params)
    *_, done, info = env.step(KEY, state, 0, params)
    kept = jax.tree.map(lambda value: jnp.nanmean(jnp.where(done, value, jnp.nan)), info)
    assert {np.shape(value) for value in kept.values()} == {()}
