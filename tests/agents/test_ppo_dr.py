from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import fingerprint, small_agent
from tapebench import env as envs
from tapebench.agents import api, ppo_dr
from tapebench.base import seeding
from tapebench.exam.rollout import rollout


def varied_env(params_of=None, **ranges):
    defaults = {"density": (0.3, 0.7), "horizon": (0.5, 1.5), "noise_high": 0.01}
    env, params = envs.make(length=16, horizon=16, **params_of or {})
    return env, ppo_dr.VariedEnv(env=env, **defaults | ranges), params


@pytest.mark.slow
def test_an_episode_varies_in_everything_but_its_rule():
    env, varied, params = varied_env()

    @jax.jit
    def begin(key, params):
        streams = jax.vmap(seeding.stream)(jax.random.split(key, 3_000))
        starts = (jax.vmap(start, in_axes=(0, None)) for start in (env.start, varied.start))
        return [start(streams, params) for start in starts]

    plain, state = begin(jax.random.key(0), params)
    np.testing.assert_array_equal(state.inner.rule, plain.rule)
    variation = jax.tree.map(np.asarray, state.variation)
    for values, low, high in (
        (variation.start_density, 0.3, 0.7),
        (variation.horizon, 8, 24),
        (variation.noise, 0.0, 0.01),
    ):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        np.testing.assert_allclose(values.mean(), (low + high) / 2, rtol=0.03)
    ones = np.unpackbits(np.asarray(state.inner.tape).view(np.uint8), axis=-1).sum(axis=-1)
    assert np.corrcoef(ones, variation.start_density)[0, 1] > 0.5
    assert abs(np.corrcoef(variation.horizon, variation.start_density)[0, 1]) < 0.1
    assert abs(np.corrcoef(variation.noise, np.asarray(state.inner.rule))[0, 1]) < 0.1


@pytest.mark.slow
def test_an_episode_keeps_its_variation_and_the_next_has_another():
    _, varied, params = varied_env({"rules": 204})
    step = jax.jit(varied.step)
    obs, state = varied.reset(jax.random.key(1), params)
    lasted = []
    for _ in range(4):
        horizon, t, ended = int(state.variation.horizon), 0, False
        while not ended:
            np.testing.assert_allclose(obs[-1], t / horizon, rtol=1e-6)
            before = state.variation
            obs, state, _, terminated, truncated, info = step(None, state, jnp.int32(0), params)
            t, ended = t + 1, bool(terminated | truncated)
            if not ended:
                assert fingerprint(before) == fingerprint(state.variation)
        assert truncated
        assert info["final_observation"][-1] == 1.0
        assert t == horizon
        lasted.append(fingerprint(before))
    assert len(set(lasted)) == 4


@pytest.mark.slow
def test_without_ranges_it_is_ppo():
    nothing = {"horizon_low": 1.0, "horizon_high": 1.0, "noise_high": 0.0}
    fixed = {"density_low": 0.5, "density_high": 0.5} | nothing
    plain, _ = small_agent("ppo")
    varied, _ = small_agent("ppo-dr", **fixed)
    state, metrics = plain.train(plain.init(jax.random.key(0)))
    other, others = varied.train(varied.init(jax.random.key(0)))
    assert fingerprint(state.env) == fingerprint(other.env.inner)
    for name, array in api.to_arrays(state.learner).items():
        np.testing.assert_allclose(array, api.to_arrays(other.learner)[name], atol=1e-5)
    assert metrics["episodes"] == others["episodes"]


@pytest.mark.slow
def test_the_exam_of_ppo_dr_is_that_of_ppo():
    agent, task = small_agent("ppo-dr")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    plain, _ = small_agent("ppo")
    like = plain.init(jax.random.key(1))
    same = replace(like, learner=replace(like.learner, model=state.learner.model))
    mine = rollout(agent.policy(state), task, rules=[4, 51], episodes=5)
    other = rollout(plain.policy(same), task, rules=[4, 51], episodes=5)
    np.testing.assert_array_equal(mine.cells, other.cells)
    np.testing.assert_array_equal(mine.wrong, other.wrong)
    assert mine.steps.max() == task.horizon
