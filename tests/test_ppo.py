import hashlib
import itertools
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
from tapebench import agents, dynamics, seeding
from tapebench import env as envs
from tapebench.agents import api, nn, ppo, ppo_dr, returns, rppo
from tapebench.rollout import rollout
from tapebench.task import make_task

NAMES = ("ppo", "ppo-dr", "rppo")
SMALL = {
    "width": 16,
    "depth": 1,
    "num_envs": 8,
    "rollout": 5,
    "epochs": 2,
    "minibatches": 2,
    "chunk": 80,
    "total_steps": 160,
    "final_rate": 0.5,
}
PROBE = SMALL | {
    "num_envs": 32,
    "rollout": 6,
    "chunk": 192 * 10,
    "learning_rate": 0.01,
    "total_steps": 30_000,
    "value_weight": 0.5,
    "entropy_weight": 0.001,
    "discount": 0.9,
    "trace": 0.8,
}
GAMMA = 0.9


def observations(*rows):
    return jnp.array(rows, jnp.float32)


def trained(name, probe, steps, **overrides):
    """An agent after so many steps in a probe, its state and what it reported last."""
    agent = agents.make(name, *probe, **PROBE | overrides)
    state, metrics = agent.init(seeding.key(0, name)), {}
    for _ in range(steps // agent.chunk):
        state, metrics = agent.train(state)
    return agent, state, metrics


def small_agent(name="ppo", rules="train", **overrides):
    """An agent for short tapes, the same program in every test."""
    task = make_task(length=8, horizon=8, rules=rules)
    return agents.make(name, *envs.make(task=task), **SMALL | overrides), task


def fingerprint(tree):
    digest = hashlib.sha256()
    for name, array in sorted(api.to_arrays(tree).items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def played(module, config, env, params, seed=0, rounds=1):
    """A fresh model, what it remembered at the start of the last round, and that round."""
    size = 1 + env.length
    algorithm = module._algorithm(*(["ppo"] if module is ppo else []), config, env, size)

    @jax.jit
    def run(key):
        model_key, env_key, key = jax.random.split(key, 3)
        model = algorithm.init(model_key)
        keys = jax.random.split(env_key, config.num_envs)
        obs, running = jax.vmap(env.reset, in_axes=(0, None))(keys, params)

        def play(last, key):
            after, segment, _ = ppo.play(key, config, env, algorithm, params, model, last)
            return after, (last[0], segment)

        first = algorithm.begin(config.num_envs), running, obs
        rows = jax.lax.scan(play, first, jax.random.split(key, rounds))[1]
        return model, *jax.tree.map(lambda leaf: leaf[-1], rows)

    return algorithm, *run(jax.random.key(seed))


@cache
def played_tapes(module, network):
    """A config and what `played` gives of the second round, which starts within episodes."""
    config = module.Config(**SMALL | {"network": network, "rollout": 12, "chunk": 96})
    return config, *played(module, config, *envs.make(length=8, horizon=7), rounds=2)


# Settings.


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
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
        ("rppo", {"reset_memory": 1}, "reset_memory must be true or false, not 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name, overrides, message):
    with pytest.raises(ValueError, match=message):
        agents.configure(name, **overrides)


@pytest.mark.parametrize("name", NAMES)
def test_evaluations_each_1000_and_each_10000_steps_fall_between_chunks(name):
    chunk = agents.configure(name).chunk
    assert 1_000 % chunk == 10_000 % chunk == 0


def test_the_learning_rate_falls_on_a_straight_line_and_stays():
    config = ppo.Config(learning_rate=2e-3, final_rate=0.1, total_steps=1000)
    rates = [float(ppo.learning_rate(config, jnp.int32(n))) for n in (0, 500, 1000, 5000)]
    np.testing.assert_allclose(rates, [2e-3, 1.1e-3, 2e-4, 2e-4], rtol=1e-5)
    agent, _ = small_agent()
    state = agent.init(jax.random.key(0))
    reported = []
    for _ in range(3):
        state, metrics = agent.train(state)
        reported.append(float(metrics["learning_rate"]))
    # Two rounds in a chunk, each at the rate it starts with.
    np.testing.assert_allclose(reported, [0.9375e-3, 0.6875e-3, 0.5e-3], rtol=1e-5)


# Advantages.


def slow_advantages(reward, value, ended, last, discount, trace):
    found, later, ahead = np.zeros_like(reward), 0.0, last
    for t in reversed(range(len(reward))):
        if ended[t]:
            later, ahead = 0.0, 0.0
        later = reward[t] + discount * ahead - value[t] + discount * trace * later
        found[t], ahead = later, value[t]
    return found


_advantages = jax.jit(returns.advantages)


@given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0, 1),
    trace=st.floats(0, 1),
    ends=st.floats(0, 1),
)
def test_advantages_equal_a_loop(seed, discount, trace, ends):
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, 7, 3)).astype(np.float32)
    last, ended = rng.normal(size=3).astype(np.float32), rng.random((7, 3)) < ends
    found = _advantages(reward, value, ended, last, discount, trace)
    for env in range(3):
        column = reward[:, env], value[:, env], ended[:, env], last[env]
        wanted = slow_advantages(*column, discount, trace)
        np.testing.assert_allclose(found[:, env], wanted, rtol=1e-4, atol=1e-5)


def test_advantages_of_a_hand_example():
    reward, value = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[0.5], [1.0], [3.0]])
    ended, last = jnp.array([[False], [True], [False]]), jnp.array([10.0])
    found = returns.advantages(reward, value, ended, last, 0.5, 0.5)
    # The errors are 1 + 0.5 - 0.5, 2 - 1 and 4 + 5 - 3; only the first has a successor.
    np.testing.assert_array_equal(found[:, 0], [1.0 + 0.25 * 1.0, 1.0, 6.0])


def test_targets_in_a_probe_are_its_known_returns():
    env, params = probes.make(probes.DELAYED)
    config = ppo.Config(**PROBE | {"trace": 1.0})
    _, _, _, segment = played(ppo, config, env, params)
    action, target = np.asarray(segment.action), np.asarray(segment.target)
    for first in (0, 3):
        won = action[first] == 1
        assert 0 < won.sum() < len(won)
        for t in range(3):
            np.testing.assert_allclose(target[first + t], GAMMA ** (2 - t) * won, atol=1e-5)
    assert abs(segment.advantage.mean()) < 1e-5
    np.testing.assert_allclose(segment.advantage.std(), 1.0, rtol=1e-4)


# The objective.


def test_the_clipped_objective_of_a_hand_example():
    ratio = jnp.array([1.1, 1.5, 1.5, 0.5, 0.5, 0.9])
    advantage = jnp.array([2.0, 2.0, -2.0, 2.0, -2.0, -2.0])
    found = ppo.clipped(ratio, advantage, 0.2)
    # Too far in the wanted direction pays no more; too far in the other is paid for in full.
    np.testing.assert_allclose(found, [2.2, 2.4, -3.0, 1.0, -1.6, -1.8], rtol=1e-6)
    slope = jax.grad(lambda ratio: ppo.clipped(ratio, advantage, 0.2).sum())(ratio)
    np.testing.assert_array_equal(slope, [2, 0, -2, 2, 0, -2])


def test_the_loss_of_a_hand_example():
    config = ppo.Config(clip=0.2, value_weight=0.5, entropy_weight=0.1)
    logits = jnp.log(jnp.array([[[0.5, 0.5], [0.9, 0.1]]]))
    batch = ppo.Segment(
        obs=jnp.zeros((1, 2, 1)),
        action=jnp.array([[0, 1]]),
        log_prob=jnp.log(jnp.array([[0.25, 0.1]])),
        advantage=jnp.array([[1.0, -1.0]]),
        target=jnp.array([[3.0, 0.0]]),
    )
    total, parts = ppo.loss(config, logits, jnp.array([[1.0, 1.0]]), batch)
    entropies = [np.log(2), -0.9 * np.log(0.9) - 0.1 * np.log(0.1)]
    wanted = {
        "policy_loss": -(1.2 - 1.0) / 2,
        "value_loss": 0.5 * (4 + 1) / 2,
        "entropy": np.mean(entropies),
        "kl": (2 - 1 - np.log(2)) / 2,
        "clipped": 0.5,
    }
    for name, part in wanted.items():
        np.testing.assert_allclose(parts[name], part, rtol=1e-5, err_msg=name)
    sums = wanted["policy_loss"] + 0.5 * wanted["value_loss"] - 0.1 * wanted["entropy"]
    np.testing.assert_allclose(total, sums, rtol=1e-5)


def test_advantages_that_are_all_alike_teach_nothing():
    np.testing.assert_array_equal(ppo.normalise(jnp.full((3, 2), 7.0)), np.zeros((3, 2)))


def test_actions_are_drawn_as_likely_as_they_are():
    wanted = np.array([[0.0, 0.1, 0.2, 0.7], [0.25, 0.25, 0.5, 0.0]])
    logits = jnp.log(jnp.float32(wanted)).repeat(20_000, axis=0)
    action = np.asarray(jax.jit(ppo.sample)(jax.random.key(0), logits)).reshape(2, -1)
    for row, shares in zip(action, wanted, strict=True):
        found = np.bincount(row, minlength=4) / 20_000
        np.testing.assert_allclose(found, shares, atol=0.015)
        assert (found > 0).tolist() == (shares > 0).tolist()


@pytest.mark.parametrize("num", [1, 8, 40])
def test_every_order_is_as_likely_as_another(num):
    orders = np.asarray(ppo.shuffle(jax.random.key(num), 4_000, num))
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(num), (4_000, 1)))
    for place in {0, num // 2, num - 1}:
        counts = np.bincount(orders[:, place], minlength=num)
        assert abs(counts * num / 4_000 - 1).max() < 5 * np.sqrt(num / 4_000)


@pytest.mark.parametrize(
    ("module", "network"), [(ppo, "mlp"), (ppo, "conv"), (rppo, "gru"), (rppo, "cells")]
)
def test_what_was_played_is_as_likely_when_it_is_first_learnt_from(module, network):
    config, algorithm, model, start, segment = played_tapes(module, network)
    logits, value = jax.jit(algorithm.unroll)(model, start, segment.obs, segment.action)
    change = ppo.log_prob(logits, segment.action) - segment.log_prob
    np.testing.assert_allclose(change, np.zeros((12, 8)), atol=1e-5)
    parts = ppo.loss(config, logits, value, segment)[1]
    np.testing.assert_allclose(parts["policy_loss"], 0.0, atol=1e-5)
    assert parts["clipped"] == 0
    np.testing.assert_allclose(parts["entropy"], np.log(8), rtol=1e-3)


def test_minibatches_of_an_epoch_are_every_step_once():
    config = ppo.Config(**SMALL | {"epochs": 1, "minibatches": 4})
    steps = jnp.arange(40.0).reshape(5, 8)
    segment = ppo.Segment(steps[..., None], *[jnp.zeros((5, 8), int)] * 2, steps, steps)
    met = []

    def unroll(model, memory, obs, action):
        jax.debug.callback(lambda rows: met.append(np.asarray(rows).ravel().tolist()), obs)
        return jnp.zeros((*action.shape, 3)) + model, jnp.zeros(action.shape)

    for is_recurrent, pieces in ((False, 40), (True, 8)):
        algorithm = ppo.Algorithm("", None, None, None, None, unroll, None, is_recurrent)
        model = jnp.float32(0)
        learner = ppo.Learner(model, ppo.optimiser(config, 0.0).init(model), jnp.int32(0))
        learner, _ = ppo.learn(
            jax.random.key(0), config, algorithm, jnp.float32(0), learner, (), segment
        )
        jax.effects_barrier()
        assert int(learner.updates) == len(met) == 4
        order = list(itertools.chain(*met))
        assert sorted(order) == list(range(40)) != order
        if is_recurrent:
            columns = [np.array(rows).reshape(5, -1) for rows in met]
            assert all((np.diff(rows, axis=0) == pieces).all() for rows in columns)
        met.clear()


# Networks.


def turn(obs, by):
    return np.concatenate([np.roll(obs[..., :-1], by, axis=-1), obs[..., -1:]], axis=-1)


def test_the_convolutions_logits_turn_with_the_tape_and_its_value_stays():
    config = ppo.Config(**SMALL | {"network": "conv", "depth": 2})
    model = ppo.make_model(jax.random.key(0), "conv", config, envs.TapeEnv(length=16), 17)
    obs = np.random.default_rng(0).random((4, 17), np.float32)
    see = jax.jit(lambda obs: model(obs))
    (logits, value), (turned, same) = see(obs), see(turn(obs, 5))
    np.testing.assert_allclose(turned, np.roll(logits, 5, axis=-1), atol=1e-6)
    np.testing.assert_allclose(same, value, atol=1e-6)
    assert np.ptp(np.asarray(logits)[0]) > 1e-5
    assert np.ptp(value) > 1e-3


@pytest.mark.parametrize("network", nn.NETWORKS)
def test_a_policy_starts_close_to_uniform(network):
    config = ppo.Config(network=network)
    model = ppo.make_model(jax.random.key(0), network, config, envs.TapeEnv(), 33)
    logits, _ = jax.jit(lambda obs: model(obs))(
        np.random.default_rng(0).random((50, 33), np.float32)
    )
    assert float(ppo.entropy(logits).min()) > np.log(32) - 1e-3


# Runs.


def test_twenty_seeds_give_twenty_different_runs():
    agent, _ = small_agent()
    states = [agent.init(seeding.key(seed, "ppo")) for seed in range(20)]
    assert len({fingerprint(state.learner.model) for state in states}) == 20
    assert len({fingerprint(state.env) for state in states}) == 20
    states = [agent.train(state)[0] for state in states]
    assert len({fingerprint(state.learner.model) for state in states}) == 20


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes(name):
    agent, _ = small_agent(name)
    again, _ = small_agent(name)
    first, metrics = agent.train(agent.init(seeding.key(3, name)))
    other, _ = agent.train(agent.init(seeding.key(4, name)))
    second, _ = again.train(again.init(seeding.key(3, name)))
    assert fingerprint(first) == fingerprint(second) != fingerprint(other)
    assert int(first.steps) == 80
    assert int(first.learner.updates) == 8
    assert all(metric.shape == () for metric in metrics.values())
    # On through storage, it is as if there had been none.
    arrays = api.to_arrays(first)
    assert all(type(array) is np.ndarray and array.dtype.kind in "uif" for array in arrays.values())
    shape = jax.eval_shape(agent.init, jax.random.key(0))
    back = api.from_arrays(shape, {name: array.copy() for name, array in arrays.items()})
    assert fingerprint(agent.train(back)[0]) == fingerprint(agent.train(first)[0])


@pytest.mark.slow
def test_two_halves_make_a_whole():
    whole, _ = small_agent()
    half, _ = small_agent(chunk=40)
    state, _ = whole.train(whole.init(jax.random.key(0)))
    halves = half.init(jax.random.key(0))
    for _ in range(2):
        halves, _ = half.train(halves)
    assert fingerprint(state) == fingerprint(halves)


def test_agents_of_equal_settings_share_programs_whatever_their_rules():
    agent, _ = small_agent()
    state, _ = agent.train(agent.init(jax.random.key(0)))
    programs = ppo._train._cache_size()
    other, _ = small_agent(rules=30)
    others, _ = other.train(other.init(jax.random.key(0)))
    assert ppo._train._cache_size() == programs
    assert (others.env.rule == 30).all()
    assert other.policy(others).act is agent.policy(state).act


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_outlives_its_state_is_blind_and_takes_the_likeliest_action(name):
    agent, task = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    assert policy.name == agent.name == name
    assert not policy.sees_rule
    before = rollout(policy, task, rules=[4, 110], episodes=3)
    agent.train(state)
    after = rollout(policy, task, rules=[4, 110], episodes=3)
    np.testing.assert_array_equal(before.cells, after.cells)
    obs = np.random.default_rng(0).integers(2, size=(5, 9)).astype(np.float32)
    obs[:, 8] = 0.0
    (model, memory), action = policy.act(policy.init(None, 5), obs, None)
    logits = model.body(obs, memory.hidden)[0] if name == "rppo" else model(obs)[0]
    np.testing.assert_array_equal(action, logits.argmax(axis=-1))


@pytest.mark.parametrize("name", NAMES)
def test_held_out_rules_never_reach_training(name):
    agent, task = small_agent(name)
    state = agent.init(jax.random.key(0))
    met = set()
    for _ in range(80):
        state, _ = agent.train(state)
        met |= set(
            np.asarray(state.env.inner.rule if name == "ppo-dr" else state.env.rule).tolist()
        )
    assert met <= set(task.rules)
    assert len(met) > 100


# Domain randomisation.


def varied_env(params_of=None, **ranges):
    defaults = {"density": (0.3, 0.7), "horizon": (0.5, 1.5), "noise_high": 0.01}
    env, params = envs.make(length=16, horizon=16, **params_of or {})
    return env, ppo_dr.VariedEnv(env=env, **defaults | ranges), params


def test_an_episode_varies_in_everything_but_its_rule():
    env, varied, params = varied_env()

    @jax.jit
    def begin(key, params):
        streams = jax.vmap(seeding.stream)(jax.random.split(key, 3_000))
        starts = (jax.vmap(start, in_axes=(0, None)) for start in (env.start, varied.start))
        return [start(streams, params) for start in starts]

    plain, state = begin(jax.random.key(0), params)
    np.testing.assert_array_equal(state.inner.rule, plain.rule)
    found = jax.tree.map(np.asarray, state.variation)
    for values, low, high in (
        (found.start_density, 0.3, 0.7),
        (found.horizon, 8, 24),
        (found.noise, 0.0, 0.01),
    ):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        np.testing.assert_allclose(values.mean(), (low + high) / 2, rtol=0.03)
    ones = np.unpackbits(np.asarray(state.inner.tape).view(np.uint8), axis=-1).sum(axis=-1)
    assert np.corrcoef(ones, found.start_density)[0, 1] > 0.5
    assert abs(np.corrcoef(found.horizon, found.start_density)[0, 1]) < 0.1
    assert abs(np.corrcoef(found.noise, np.asarray(state.inner.rule))[0, 1]) < 0.1


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
    plain, _ = small_agent()
    varied, _ = small_agent("ppo-dr", **fixed)
    state, metrics = plain.train(plain.init(jax.random.key(0)))
    other, others = varied.train(varied.init(jax.random.key(0)))
    assert fingerprint(state.env) == fingerprint(other.env.inner)
    for name, array in api.to_arrays(state.learner).items():
        np.testing.assert_allclose(array, api.to_arrays(other.learner)[name], atol=1e-5)
    assert metrics["episodes"] == others["episodes"]


def test_the_exam_of_ppo_dr_is_that_of_ppo():
    agent, task = small_agent("ppo-dr")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    plain, _ = small_agent()
    like = plain.init(jax.random.key(1))
    same = replace(like, learner=replace(like.learner, model=state.learner.model))
    mine = rollout(agent.policy(state), task, rules=[4, 51], episodes=5)
    other = rollout(plain.policy(same), task, rules=[4, 51], episodes=5)
    np.testing.assert_array_equal(mine.cells, other.cells)
    np.testing.assert_array_equal(mine.wrong, other.wrong)
    assert mine.steps.max() == task.horizon


# Recurrent PPO.


def test_the_gated_unit_is_that_of_equinox():
    inputs, recurrent = nn.layers(jax.random.key(0), (3, 12), (4, 12))
    cell = eqx.nn.GRUCell(3, 4, key=jax.random.key(1))
    bias = inputs.bias + jnp.append(recurrent.bias[:8], jnp.zeros(4))
    leaves = (inputs.weight, recurrent.weight, bias, recurrent.bias[8:])
    cell = eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n), cell, leaves)
    rng = np.random.default_rng(0)
    x, hidden = rng.normal(size=(5, 2, 3)), rng.normal(size=(2, 4))
    forgets = np.zeros((5, 2), bool)
    forgets[2, 1] = True
    unit = jax.jit(lambda *rows: rppo.Gru(inputs, recurrent)(*rows))
    found, advance = unit(jnp.float32(hidden), jnp.float32(x), forgets), jax.jit(jax.vmap(cell))
    for t in range(5):
        hidden = np.where(forgets[t][:, None], 0.0, hidden)
        hidden = advance(jnp.float32(x[t]), jnp.float32(hidden))
        np.testing.assert_allclose(found[t], hidden, atol=1e-6)


@pytest.mark.parametrize("network", ["gru", "cells"])
def test_a_sequence_is_what_single_steps_make_of_it(network):
    _, algorithm, model, start, segment = played_tapes(rppo, network)
    is_first = np.asarray(segment.obs[..., 8] == 0)
    assert not is_first[0].all()
    assert is_first[1:].any(axis=0).all()
    logits, value = jax.jit(algorithm.unroll)(model, start, segment.obs, segment.action)
    see, memory = jax.jit(algorithm.see), start
    for t in range(12):
        memory, row, worth = see(model, memory, segment.obs[t])
        memory = algorithm.note(memory, segment.action[t])
        np.testing.assert_allclose(logits[t], row, atol=1e-6)
        np.testing.assert_allclose(value[t], worth, atol=1e-5)
        # And where an episode starts, what was before does not matter.
        _, anew, worth_anew = see(model, algorithm.begin(8), segment.obs[t])
        np.testing.assert_allclose(row[is_first[t]], anew[is_first[t]], atol=1e-6)
        assert np.abs(np.asarray(worth - worth_anew))[~is_first[t]].min(initial=1.0) > 1e-6


@pytest.mark.parametrize("network", ["gru", "cells"])
def test_nothing_leaks_over_the_end_of_an_episode(network):
    config = rppo.Config(**SMALL | {"network": network})
    env = envs.TapeEnv(length=8)
    algorithm = rppo._algorithm(config, env, 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    obs = rng.integers(2, size=(6, 2, 9)).astype(np.float32)
    # The first starts anew in row 3, the second goes on.
    obs[..., 8] = np.array([[4, 5, 6, 0, 1, 2], [1, 2, 3, 4, 5, 6]]).T / 8
    action = rng.integers(8, size=(6, 2))
    start = rppo.Memory(jnp.float32(rng.normal(size=(2, 64))), obs[0], action[0])
    unroll = jax.jit(algorithm.unroll)
    wanted = unroll(model, start, obs, action)
    other = obs.copy()
    other[:3, :, :8] = 1.0 - other[:3, :, :8]
    changed = action.copy()
    changed[:3] = (changed[:3] + 1) % 8
    elsewhere = start._replace(hidden=-start.hidden)
    for past in ((elsewhere, obs, action), (start, other, action), (start, obs, changed)):
        for found, before in zip(unroll(model, *past), wanted, strict=True):
            np.testing.assert_array_equal(found[3:, 0], before[3:, 0])
            assert (np.asarray(found)[3:, 1] != before[3:, 1]).all(axis=-1).any()


def test_gradients_reach_the_first_step_of_a_piece():
    config = rppo.Config(**SMALL)
    algorithm = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    obs = np.random.default_rng(0).integers(2, size=(5, 1, 9)).astype(np.float32)
    obs[..., 8] = np.arange(5)[:, None] / 8

    def last_value(obs):
        memory = algorithm.begin(1)
        return algorithm.unroll(model, memory, obs, jnp.zeros((5, 1), int))[1][-1, 0]

    assert np.abs(jax.jit(jax.grad(last_value))(obs)[0]).max() > 1e-6


def test_the_cases_of_a_transition_are_the_bits_of_its_rule():
    rng = np.random.default_rng(0)
    tape, rule = rng.integers(2, size=(40, 16)), rng.integers(256, size=40)
    after = dynamics.unpack(dynamics.evolve(dynamics.pack(tape), rule, 16), 16)
    found = np.asarray(nn.cases(jnp.float32(tape), jnp.float32(after)))
    np.testing.assert_array_equal(found.sum(axis=-1), np.ones((40, 16)))
    hood, value = np.divmod(found.argmax(axis=-1), 2)
    np.testing.assert_array_equal(value, (rule[:, None] >> hood) & 1)
    left, right = np.roll(tape, 1, axis=1), np.roll(tape, -1, axis=1)
    np.testing.assert_array_equal(hood, 4 * left + 2 * tape + right)


def test_the_cells_turn_with_the_tape():
    config = rppo.Config(**SMALL | {"network": "cells", "depth": 2})
    algorithm = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    obs = rng.integers(2, size=(4, 3, 9)).astype(np.float32)
    obs[..., 8] = np.arange(4)[:, None] / 8
    action = rng.integers(8, size=(4, 3))
    run, memory = jax.jit(lambda *x: model.run(*x)), algorithm.begin(3)
    logits, value, hidden = run(memory, obs, action[:-1])
    turned, same, too = run(memory, turn(obs, 3), (action[:-1] + 3) % 8)
    np.testing.assert_allclose(turned, np.roll(logits, 3, axis=-1), atol=1e-6)
    np.testing.assert_allclose(same, value, atol=1e-5)
    np.testing.assert_allclose(too, hidden, atol=1e-6)
    # The evidence is of the tape after the flip: another action is another memory.
    other = run(memory, obs, (action[:-1] + 1) % 8)[2]
    assert np.abs(np.asarray(other - hidden))[1:].max() > 1e-4


def test_the_reward_that_is_shown_is_the_distance_to_what_is_observed():
    obs = observations([1, 0, 1, 1, 0.5], [0, 0, 0, 0, 0.25])
    np.testing.assert_allclose(rppo.distance(obs, 4), [0.75, 0.0])
    with_goal = jnp.concatenate([obs, observations([1, 1, 1, 1], [1, 0, 0, 0])], axis=-1)
    np.testing.assert_allclose(rppo.distance(with_goal, 4), [0.25, 0.25])


@pytest.mark.parametrize("reset", [True, False])
def test_memory_is_kept_across_trials_only_if_told_so(reset):
    config = rppo.Config(**SMALL | {"reset_memory": reset})
    algorithm = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)

    def see(memory, time, seed):
        cells = np.random.default_rng(seed).integers(2, size=(2, 8))
        obs = np.concatenate([cells, [[time]] * 2], axis=1).astype(np.float32)
        return algorithm.act(memory, obs, None)[0]

    fresh = model, algorithm.begin(2)
    memory = see(see(fresh, 0.0, 1), 0.125, 2)
    again, anew = see(memory, 0.0, 3)[1], see(fresh, 0.0, 3)[1]
    assert np.allclose(again.hidden, anew.hidden) == reset
    # Either way no step is seen from the end of the one to the start of the other.
    stranger = memory[1]._replace(obs=jnp.float32(rng.random((2, 9))), action=jnp.array([5, 6]))
    other = see((model, stranger), 0.0, 3)[1]
    np.testing.assert_array_equal(again.hidden, other.hidden)


# Every agent learns values that are known.


def test_ppo_learns_the_value_and_the_action_of_a_single_state():
    _, state, metrics = trained("ppo", probes.make(probes.ONE_STATE), 192 * 40)
    logits, value = state.learner.model(observations([0, 0, 0, 0]))
    np.testing.assert_allclose(jax.nn.softmax(logits), [[1, 0, 0]], atol=0.05)
    np.testing.assert_allclose(value, [1.0], atol=0.05)
    assert metrics["reward"] > 0.95


def test_ppo_discounts_a_delayed_reward():
    _, state, metrics = trained("ppo", probes.make(probes.DELAYED), 192 * 80)
    logits, value = state.learner.model(
        observations([0, 0, 0, 0], [1, 1, 1, 1 / 3], [1, 1, 1, 2 / 3])
    )
    assert jax.nn.softmax(logits)[0, 1] > 0.95
    np.testing.assert_allclose(value, [GAMMA**2, GAMMA, 1.0], atol=0.05)
    np.testing.assert_allclose(3 * metrics["reward"], 1.0, atol=0.05)


def test_ppo_names_the_cell_that_is_set():
    _, state, _ = trained("ppo", probes.make(probes.POINTER), 192 * 60)
    logits, value = state.learner.model(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(jax.nn.softmax(logits), np.eye(3), atol=0.1)
    np.testing.assert_allclose(value, np.ones(3), atol=0.1)


def recalls(agent, state):
    """The last actions of the greedy policy after zeros and after ones, and their values."""
    policy = agent.policy(state)
    memory = policy.init(None, 2)
    for t, cells in enumerate(([[0] * 3, [1] * 3], [[0] * 3] * 2, [[0] * 3] * 2)):
        obs = observations(*[[*row, t / 3] for row in cells])
        memory, action = policy.act(memory, obs, None)
    return action, memory, obs


RECALL = {"trace": 1.0, "memory_size": 16, "encoder_width": 16}


@pytest.mark.slow
def test_rppo_solves_the_memory_probe():
    agent, state, metrics = trained("rppo", probes.make_recall(), 192 * 120, **RECALL)
    assert 3 * metrics["reward"] > 0.9
    action, (model, memory), obs = recalls(agent, state)
    np.testing.assert_array_equal(action, [0, 1])
    _, value = model.body(obs, memory.hidden)
    np.testing.assert_allclose(value, [1.0, 1.0], atol=0.15)


@pytest.mark.slow
def test_ppo_cannot_solve_the_memory_probe():
    agent, state, metrics = trained("ppo", probes.make_recall(), 192 * 120, trace=1.0)
    assert abs(3 * metrics["reward"]) < 0.2
    action, (model, _), obs = recalls(agent, state)
    assert action[0] == action[1]
    np.testing.assert_allclose(model(obs)[1], [0.0, 0.0], atol=0.4)


@pytest.mark.slow
def test_the_cells_learn_what_only_the_last_step_says():
    options = {"network": "cells", "memory_size": 16, "encoder_width": 16, "trace": 1.0}
    agent, state, metrics = trained("rppo", probes.make_marked(), 192 * 120, **options)
    assert 2 * metrics["reward"] > 0.9
    policy = agent.policy(state)
    marks = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 1], [0, 1, 1]])
    kept = np.array([[True], [False], [True], [False]])
    first = observations(*[[*row, 0.0] for row in marks])
    second = observations(*[[*row, 0.5] for row in np.where(kept, marks, 1 - marks)])
    memory, _ = policy.act(policy.init(None, 4), first, None)
    (model, inner), action = policy.act(memory, second, None)
    np.testing.assert_array_equal(action, [1, 2, 0, 1])
    np.testing.assert_allclose(model.body(second, inner.hidden)[1], np.ones(4), atol=0.2)


# And to solve tapes.


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "network", "steps"), [(4, "mlp", 30_000), (0, "conv", 10_000)])
def test_ppo_solves_a_fixed_rule(rule, network, steps):
    task = make_task(length=16, horizon=16, rules=rule)
    agent = agents.make("ppo", *envs.make(task=task), network=network)
    state = agent.init(seeding.key(0, "ppo"))
    for _ in range(steps // agent.chunk):
        state, _ = agent.train(state)
    assert rollout(agent.policy(state), task, episodes=200).success.mean() >= 0.95
