"""The adapter's own behaviour. What gymnax and its clients make of it is in `tests/clients`."""

import importlib
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gymnax_standin
from tapebench import env as envs
from tapebench.base import seeding

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def adapter():
    """`tapebench.gymnax`, on a stand-in where there is no gymnax."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in gymnax_standin.modules().items():
            patch.setitem(sys.modules, name, module)
        patch.delitem(sys.modules, "tapebench.gymnax", raising=False)
        yield importlib.import_module("tapebench.gymnax")
        sys.modules.pop("tapebench.gymnax")


def test_without_gymnax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    monkeypatch.delitem(sys.modules, "tapebench.gymnax", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'tapebench\[gymnax\]'"):
        importlib.import_module("tapebench.gymnax")


def play(env, params, num_steps=40, seed=0):
    """All that `num_steps` random steps gave."""
    _, state = env.reset(jax.random.key(seed), params)
    outputs = []
    for t, key in enumerate(jax.random.split(jax.random.key(seed + 1), num_steps)):
        given = state
        outputs.append((key, given, t % env.num_actions, env.step(key, given, t % env.num_actions)))
        state = outputs[-1][-1][1]
    return outputs


def same(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    "options",
    [
        {"rules": "test", "horizon": 5},
        {"noise": 0.3, "version": 0, "reveal_rule": True, "horizon": 5},
        {"switch": 2, "horizon": 5, "packed": True},
    ],
)
def test_a_step_is_that_of_tapebenchs_environment_drawing_from_its_key(adapter, options):
    env, params = adapter.make(length=6, **options)
    core, core_params = envs.make(length=6, **{"version": 1} | options)
    same(params, core_params)
    ends = 0
    for key, state, action, (obs, after, paid, terminated, truncated, info) in play(env, params):
        own = envs.EnvState(**vars(state) | {"stream": seeding.stream(key)})
        wanted = core.step(None, own, action, core_params)
        same(
            (obs, vars(after), paid, terminated, truncated),
            (*wanted[:1], vars(wanted[1]), *wanted[2:5]),
        )
        assert info.keys() == wanted[5].keys() | {"terminated", "truncated", "discount"}
        same({name: info[name] for name in wanted[5]}, wanted[5])
        assert info["discount"] == 1 - terminated
        ends += bool(terminated | truncated)
    assert ends > 3


def test_randomness_is_that_of_the_keys(adapter):
    env, params = adapter.make(length=16, noise=0.2)
    _, state = env.reset(KEY, params)
    keys = jax.random.split(KEY, 20)
    after = jax.vmap(env.step, (0, None, None))(keys, state, 0)[1]
    assert len(np.unique(after.tape)) == 20
    last = state.replace(time=31)
    fresh = jax.vmap(env.step, (0, None, None))(keys, last, 0)[1]
    assert (fresh.time == 0).all()
    assert len(np.unique(fresh.tape)) == 20
    same(env.step(KEY, state, 3), env.step(KEY, state, 3))


def test_parameters_default_to_those_that_the_environment_was_made_with(adapter):
    env, params = adapter.make(length=8, horizon=64, rules="test", split="matched30")
    assert (params.max_steps_in_episode, params.num_rules) == (64, 30)
    same(env.reset(KEY), env.reset(KEY, params))
    _, state = env.reset(KEY)
    same(env.step(KEY, state, 2), env.step(KEY, state, 2, params))
    other, _ = adapter.make(length=8, rules="train")
    assert other.default_params.num_rules == 226
    drawn = jax.vmap(env.reset)(jax.random.split(KEY, 100))[1].rule
    assert set(np.unique(drawn)) <= set(np.asarray(params.rules[:30]))


def test_params_and_states_are_replaced_under_gymnaxs_names_without_a_new_compilation(adapter):
    env, params = adapter.make(length=8)
    shorter = params.replace(max_steps_in_episode=3, noise=0.5)
    assert shorter.horizon == shorter.max_steps_in_episode == 3
    assert [leaf.dtype for leaf in jax.tree.leaves(shorter)] == [
        leaf.dtype for leaf in jax.tree.leaves(params)
    ]
    assert isinstance(replace(params, noise=jnp.float32(0)), adapter.EnvParams)
    _, state = env.reset(KEY, shorter)
    assert state.time == state.t == 0
    assert state.replace(time=2).t == 2


@pytest.mark.parametrize("version", [0, 1])
def test_without_auto_reset_the_end_is_in_the_state(adapter, version):
    env, params = adapter.make(length=8, horizon=2, rules=204, version=version)
    assert env.name == f"Tape-v{version}"
    _, state = env.reset_env(KEY, params)
    state = state.replace(tape=jnp.array([7], jnp.uint32))
    _, state, _, terminated, info = env.step_env(KEY, state, 0, params)
    assert not terminated
    assert not env.is_truncated(state, params)
    obs, state, _, terminated, info = env.step_env(KEY, state, 1, params)
    assert state.time == 2
    assert (terminated, env.is_truncated(state, params)) == (version == 1, version == 0)
    assert env.is_terminated(state, params) == terminated
    assert info["discount"] == 1 - version
    same((env.get_obs(state), env.observe(KEY, state, 1, params)), (obs, obs))
    *_, success, _ = env.step_env(KEY, state.replace(tape=jnp.array([4], jnp.uint32)), 2, params)
    assert success


@pytest.mark.parametrize("version", [0, 1])
def test_the_older_interface_gives_five_values_and_numbers_alone(adapter, version):
    new, params = adapter.make(length=6, horizon=3, version=version)
    old, _ = adapter.make(length=6, horizon=3, version=version, legacy=True)
    for key, state, action, (obs, after, paid, terminated, truncated, info) in play(
        new, params, 12
    ):
        given = old.step(key, state, action, params)
        del info["final_observation"]
        same(given, (obs, after, paid, terminated | truncated, info))
        assert {np.shape(value) for value in given[-1].values()} == {()}
        _, ended, _, is_over, _ = old.step_env(key, state, action, params)
        assert is_over == (terminated | truncated)
        assert old.is_terminal(ended, params) == is_over


def test_spaces_are_gymnaxs(adapter):
    spaces = importlib.import_module("gymnax").environments.spaces
    env, params = adapter.make(length=40, packed=True, observe_goal=True)
    parts = env.observation_space(params).spaces
    assert set(parts) == {"tape", "time", "goal"}
    assert np.asarray(parts["tape"].high).tolist() == [2**32 - 1, 255]
    env, params = adapter.make(length=8)
    assert isinstance(env.action_space(params), spaces.Discrete)
    assert env.action_space().n == env.num_actions == 8
    box = env.observation_space(params)
    assert isinstance(box, spaces.Box)
    assert (box.low, box.high, box.shape, box.dtype) == (0.0, 1.0, (9,), np.float32)
    assert env.obs_shape == (9,)


def test_both_versions_are_registered(adapter):
    assert {"Tape-v0", "Tape-v1"} <= set(importlib.import_module("gymnax").registered_envs)
