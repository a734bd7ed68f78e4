"""What holds for every agent."""

import ast
import inspect
import itertools
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from learners import FROM_DATA, VALUE_BASED, fingerprint, small_agent
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import api, nn
from tapebench.base import seeding
from tapebench.exam.rollout import rollout


def networks(name):
    return getattr(agents.load(name)[0], "networks", nn.NETWORKS)


PLAYERS = tuple(name for name in agents.NAMES if name not in FROM_DATA)
"""Agents that play in environments as they learn."""


def every(*quick, of=agents.NAMES):
    """For all agents. Those not named here share so much with one that is that they can wait."""
    slow = pytest.mark.slow
    names = [name if name in quick else pytest.param(name, marks=slow) for name in of]
    return pytest.mark.parametrize("name", names)


def learned(state):
    """What the agent acts on: a network, or a model with one in it."""
    return getattr(state.learner, "network", None) or state.learner.model


def rules_met(state):
    """The rules of the environments, also of those in which more than the rule varies."""
    return set(np.asarray(getattr(state.env, "inner", state.env).rule).tolist())


# The registry.


def test_an_unknown_agent_or_option_suggests_the_nearest():
    with pytest.raises(ValueError, match="unknown agent 'dqm': did you mean 'dqn'"):
        agents.load("dqm")
    with pytest.raises(ValueError, match="unknown option of rad 'widht': did you mean 'width'"):
        agents.configure("rad", widht=3)
    with pytest.raises(ValueError, match="unknown network 'cnov': did you mean 'conv'"):
        agents.configure("dqn", network="cnov")
    with pytest.raises(ValueError, match="unknown augment 'shft': did you mean 'shift'"):
        agents.configure("curl", augment="shft")


@pytest.mark.slow
def test_listing_the_agents_imports_no_jax():
    code = "import sys, tapebench.agents as a; assert a.NAMES; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("dqn", {"width": 0}, "width must be a positive integer, not 0"),
        ("dqn", {"batch": 2.5}, "batch must be a positive integer, not 2.5"),
        ("dqn", {"discount": 1.5}, "discount must be from 0 to 1, not 1.5"),
        ("dqn", {"learning_rate": 0.0}, "learning_rate must be positive"),
        ("dqn", {"num_envs": 6}, "4 must divide 6"),
        ("dqn", {"num_envs": 16}, "chunk must be a multiple of 16, not 1000"),
        ("ppo", {"epochs": 0}, "epochs must be a positive integer, not 0"),
        ("ppo", {"trace": 1.5}, "trace must be from 0 to 1, not 1.5"),
        ("ppo", {"clip": 0.0}, "clip must be positive, not 0.0"),
        ("ppo", {"entropy_weight": -1.0}, "entropy_weight must not be negative, not -1.0"),
        ("ppo", {"num_envs": 64}, "multiple of num_envs × rollout, 1600, not 1000"),
        ("ppo", {"minibatches": 3}, "must divide num_envs × rollout, 1000, not 3"),
        ("ppo", {"network": "cells"}, "unknown network 'cells'"),
        ("ppo-dr", {"density_low": 0.8}, "density_low must be positive and at most density_high"),
        ("ppo-dr", {"noise_high": 2.0}, "noise_high must be from 0 to 1, not 2.0"),
        ("rppo", {"minibatches": 25}, "must divide num_envs, 40, not 25"),
        ("rppo", {"network": "cell"}, "did you mean 'cells'"),
        ("rppo", {"memory_size": 0}, "memory_size must be a positive integer"),
        ("automata", {"trust": 1.5}, "trust must be from 0 to 1, not 1.5"),
        ("automata", {"network": "tabel"}, "did you mean 'table'"),
        ("automata", {"learn": 1}, "learn must be true or false, not 1"),
        ("automata", {"num_envs": 6}, "multiple of steps_per_update, 4, not 6"),
        ("dreamer", {"imagination": 0}, "imagination must be a positive integer, not 0"),
        ("dreamer", {"unimix": 2.0}, "unimix must be from 0 to 1, not 2.0"),
        ("dreamer", {"free_nats": -1.0}, "free_nats must not be negative, not -1.0"),
        ("dreamer", {"num_envs": 7}, "steps_per_update must be a multiple of num_envs, 7"),
        ("dreamer", {"chunk": 1_001}, "chunk must be a multiple of steps_per_update"),
        ("dreamer", {"starts": 10_000}, "starts must be at most batch × sequence"),
        ("dreamer", {"warmup": 100}, "warmup must be at least num_envs × sequence"),
        ("bc", {"data": "optimla"}, "did you mean 'optimal'"),
        ("bc", {"labels": "best"}, "unknown labels 'best'"),
        ("bc", {"batch": 300}, "chunk must be a multiple of batch, 300, not 1000"),
        ("bc", {"layer_norm": 1}, "layer_norm must be true or false, not 1"),
        ("dpt", {"heads": 5}, "tokens must be a multiple of heads, 5, not 32"),
        ("dpt", {"earlier": 1.5}, "earlier must be from 0 to 1, not 1.5"),
        ("ad", {"context": 0}, "context must be a positive integer, not 0"),
        ("rppo", {"reset_memory": 1}, "reset_memory must be true or false, not 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name, overrides, message):
    with pytest.raises(ValueError, match=message):
        agents.configure(name, **overrides)


@pytest.mark.parametrize("name", agents.NAMES)
def test_evaluations_each_1000_and_each_10000_steps_fall_between_chunks(name):
    chunk = agents.configure(name).chunk
    assert 1_000 % chunk == 10_000 % chunk == 0


@pytest.mark.parametrize("name", agents.NAMES)
def test_every_setting_says_what_it_is_and_settings_are_values(name):
    config = agents.load(name)[0]
    assert hash(config()) == hash(config(width=config().width))
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0].body
    for line, after in itertools.pairwise(body):
        if isinstance(line, ast.AnnAssign):
            assert isinstance(after, ast.Expr), f"{line.target.id} of {name} has no comment"
            assert isinstance(after.value.value, str)


@pytest.mark.parametrize("name", agents.NAMES)
def test_packed_observations_are_refused(name):
    with pytest.raises(ValueError, match="without packed"):
        agents.make(name, *envs.make(packed=True))


# Runs.


@pytest.mark.slow
@every("dqn", "ppo", of=PLAYERS)
def test_twenty_seeds_give_twenty_different_runs(name):
    agent, _ = small_agent(name)
    keys = [seeding.key(seed, name) for seed in range(20)]
    states = [agent.init(key) for key in keys]
    assert len({fingerprint(learned(state)) for state in states}) == 20
    assert len({fingerprint(state.env) for state in states}) == 20
    states = [agent.train(agent.init(key))[0] for key in keys[:2]]
    assert len({fingerprint(learned(state)) for state in states}) == 2
    if name in VALUE_BASED:
        assert len({fingerprint(state.replay.action) for state in states}) == 2


@every("dqn", "ppo", "ppo-dr", "rppo", "dreamer", "automata", "dpt")
def test_the_same_seed_gives_the_same_bytes(name):
    agent, _ = small_agent(name)
    again, _ = small_agent(name)
    first, metrics = agent.train(agent.init(seeding.key(3, name)))
    other, _ = agent.train(agent.init(seeding.key(4, name)))
    second, _ = again.train(again.init(seeding.key(3, name)))
    assert fingerprint(first) == fingerprint(second) != fingerprint(other)
    assert int(first.steps) == agent.chunk
    assert all(metric.shape == () for metric in metrics.values())


@pytest.mark.slow
@every("dqn")
def test_two_halves_make_a_whole(name):
    whole, _ = small_agent(name)
    half, _ = small_agent(name, chunk=whole.chunk // 2)
    state, _ = whole.train(whole.init(jax.random.key(0)))
    halves = half.init(jax.random.key(0))
    for _ in range(2):
        halves, _ = half.train(halves)
    assert fingerprint(state) == fingerprint(halves)


@pytest.mark.slow
@pytest.mark.parametrize("name", agents.NAMES)
def test_a_state_goes_through_arrays_and_back(name):
    agent, _ = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    arrays = api.to_arrays(state)
    assert all(type(array) is np.ndarray and array.dtype.kind in "uif" for array in arrays.values())
    shape = jax.eval_shape(agent.init, jax.random.key(0))
    back = api.from_arrays(shape, {name: array.copy() for name, array in arrays.items()})
    assert fingerprint(back) == fingerprint(state)
    # On through storage, it is as if there had been none.
    assert fingerprint(agent.train(back)[0]) == fingerprint(agent.train(state)[0])
    with pytest.raises(ValueError, match="'steps' is only on one side"):
        api.from_arrays(shape, {k: v for k, v in arrays.items() if k != "steps"})
    with pytest.raises(ValueError, match=r"'steps' is int32\[1\], not int32\[\]"):
        api.from_arrays(shape, arrays | {"steps": np.zeros(1, np.int32)})


@pytest.mark.parametrize("name", agents.NAMES)
def test_a_policy_needs_only_what_was_learned(name):
    agent, _ = small_agent(name)
    state = agent.init(jax.random.key(0))
    arrays, shape = api.to_arrays(state), jax.eval_shape(agent.init, jax.random.key(0))
    weights = api.learned(arrays)
    assert 0 < len(weights) < len(arrays)
    memories = [
        jax.tree.leaves(agent.policy(api.from_learned(shape, tensors)).init(None, 2))
        for tensors in (arrays, weights)
    ]
    for whole, part in zip(*memories, strict=True):
        np.testing.assert_array_equal(whole, part)
    with pytest.raises(ValueError, match="only on one side"):
        api.from_learned(shape, dict(list(weights.items())[1:]))


@pytest.mark.parametrize(
    ("name", "network"), [(name, network) for name in agents.NAMES for network in networks(name)]
)
def test_a_state_is_nothing_but_arrays(name, network):
    agent, _ = small_agent(name, network=network)
    for leaf in jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0))):
        assert isinstance(leaf, jax.ShapeDtypeStruct)
        assert leaf.dtype.name in ("float32", "int32", "uint32", "uint16", "key<fry>")


@every("dqn", "ppo", of=PLAYERS)
def test_agents_of_equal_settings_share_programs_whatever_their_rules(name):
    agent, _ = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    programs = agent.train.func._cache_size()
    other, _ = small_agent(name, rules=30)
    others, _ = other.train(other.init(jax.random.key(0)))
    assert other.train.func is agent.train.func
    assert other.train.func._cache_size() == programs > 0
    assert rules_met(others) == {30}
    assert other.policy(others).act is agent.policy(state).act


@pytest.mark.slow
@pytest.mark.parametrize("name", agents.NAMES)
def test_a_policy_outlives_the_state_it_came_from_and_is_blind(name):
    agent, task = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    assert policy.name == agent.name == name
    assert not policy.sees_rule
    held = fingerprint(policy.init(None, 2))
    before = rollout(policy, task, rules=[4, 110], episodes=3)
    state, _ = agent.train(state)
    after = rollout(policy, task, rules=[4, 110], episodes=3)
    np.testing.assert_array_equal(before.cells, after.cells)
    assert fingerprint(policy.init(None, 2)) == held
    assert fingerprint(agent.policy(state).init(None, 2)) != held
    if name in VALUE_BASED:
        later = rollout(agent.policy(state), task, rules=[4, 110], episodes=3)
        assert (later.cells != after.cells).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYERS)
def test_held_out_rules_never_reach_training(name):
    agent, task = small_agent(name)
    train = set(task.rules)
    assert len(train) == 226
    params = envs.make(task=task)[1]
    assert set(np.asarray(params.rules[: int(params.num_rules)]).tolist()) == train
    state = agent.init(jax.random.key(0))
    met = rules_met(state)
    for _ in range(20):
        state, _ = agent.train(state)
        met |= rules_met(state)
    assert met <= train
    assert len(met) > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", agents.NAMES)
def test_what_training_reports_is_said_and_no_more(name):
    agent, _ = small_agent(name)
    _, metrics = jax.eval_shape(agent.train, jax.eval_shape(agent.init, jax.random.key(0)))
    assert set(agents.load(name)[0].METRICS) == set(metrics)


@pytest.mark.parametrize("name", agents.NAMES)
def test_what_tuning_searches_are_options_that_the_agent_takes(name):
    config, _ = agents.load(name)
    options = [(option, value) for option, values in config.SEARCH.items() for value in values]
    assert len(options) >= 4
    for option, value in options:
        assert getattr(agents.configure(name, **{option: value}), option) == value
