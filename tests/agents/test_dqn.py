from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import (
    SMALL,
    check_delayed,
    fingerprint,
    observations,
    plain_network,
    play,
    small_agent,
    train_until,
    trained,
)
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import api, dqn, replay
from tapebench.exam.rollout import rollout
from tapebench.tasks.task import make_task


def test_the_target_is_that_of_a_hand_computation():
    batch = replay.Batch(
        obs=jnp.zeros((3, 1)),
        action=jnp.zeros(3, int),
        reward=jnp.array([1.0, -0.5, 2.0]),
        next_obs=jnp.zeros((3, 1)),
        ended=jnp.array([False, False, True]),
        steps=jnp.ones(3, int),
    )
    chooser = jnp.array([[3.0, 1.0], [0.0, 5.0], [9.0, 9.0]])
    judge = jnp.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
    config = dqn.Config(discount=0.5)
    np.testing.assert_array_equal(dqn.bellman(config, batch, chooser, judge), [6.0, 19.5, 2.0])
    config = replace(config, double=False)
    np.testing.assert_array_equal(dqn.bellman(config, batch, chooser, judge), [11.0, 19.5, 2.0])
    config, batch = replace(config, n_step=3), batch._replace(steps=jnp.array([3, 2, 1]))
    np.testing.assert_array_equal(dqn.bellman(config, batch, chooser, judge), [3.5, 9.5, 2.0])


def test_the_loss_moves_the_network_alone_and_only_at_the_action_taken():
    network, target = plain_network(jax.random.key(0)), plain_network(jax.random.key(1))
    obs = np.ones((1, 9), np.float32)
    batch = replay.Batch(
        obs, np.array([2]), np.array([7.0]), 0.5 * obs, np.array([False]), np.array([1])
    )
    wanted = 7.0 + 0.9 * target(0.5 * obs)[0, network(0.5 * obs)[0].argmax()]
    error = float(network(obs)[0, 2] - wanted)
    assert abs(error) > 1.0
    learn = jax.jit(
        jax.value_and_grad(partial(dqn.td_loss, dqn.Config(discount=0.9)), argnums=(0, 1))
    )
    loss, (moved, still) = learn(network, target, batch)
    np.testing.assert_allclose(loss, abs(error) - 0.5, rtol=1e-5)
    np.testing.assert_array_equal(np.flatnonzero(moved.head.bias), [2])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(still))


@pytest.mark.slow
def test_the_learning_rate_falls_with_updates():
    agent, _ = small_agent("dqn", chunk=200, total_steps=400, final_rate=0.5, learning_rate=1e-3)
    state = agent.init(jax.random.key(0))
    reported = []
    for _ in range(3):
        state, metrics = agent.train(state)
        reported.append(float(metrics["learning_rate"]))
    # The warmup of 100 steps comes first.
    done = np.array([101, 301, 501]) / 400
    np.testing.assert_allclose(reported, 1e-3 * (1 - 0.5 * done.clip(max=1)), rtol=0.01)


def test_exploration_falls_on_a_straight_line_and_stays():
    config = dqn.Config(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)
    shares = [float(dqn.epsilon(config, jnp.int32(n))) for n in (0, 500, 1000, 5000)]
    np.testing.assert_allclose(shares, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_random_actions_is_what_it_says(share):
    values = jnp.tile(jnp.array([0.0, 2.0, 1.0, -1.0]), (20_000, 1))
    action = dqn.explore(jax.random.key(0), values, jnp.float32(share))
    shares = np.bincount(action, minlength=4) / len(action)
    wanted = share / 4 + (1 - share) * np.array([0, 1, 0, 0])
    np.testing.assert_allclose(shares, wanted, atol=0.015)


@pytest.mark.slow
def test_the_target_network_lags_behind():
    config = dqn.Config(**SMALL["dqn"] | {"target_every": 3})
    env, params = envs.make(length=8, horizon=8)
    algorithm = dqn._algorithm("dqn", config, env, 9, None, None)
    stored = play(env, params, steps=20, num_envs=4, capacity=100)[0]
    update = jax.jit(algorithm.update)
    learner = jax.jit(algorithm.init)(jax.random.key(1))
    targets, networks = [fingerprint(learner.target)], [fingerprint(learner.network)]
    for number in range(7):
        learner, _ = update(jax.random.key(2 + number), learner, stored)
        targets.append(fingerprint(learner.target))
        networks.append(fingerprint(learner.network))
    assert len(set(networks)) == 8
    assert targets == [networks[n] for n in (0, 0, 0, 3, 3, 3, 6, 6)]


@pytest.mark.slow
def test_an_update_is_due_for_every_four_steps_after_the_warmup():
    agent, _ = small_agent("dqn")
    state = agent.init(jax.random.key(0))
    for chunk in (1, 2):
        state, metrics = agent.train(state)
        assert int(state.steps) == 1000 * chunk
        # The first is due as soon as 100 steps are done.
        assert int(state.learner.updates) == 250 * chunk - 24
    assert set(metrics) == {"episodes", "successes", "reward", "epsilon", "learning_rate", "loss"}
    assert all(metric.shape == () for metric in metrics.values())
    assert 1000 / 8 <= metrics["episodes"] <= 1000


def test_the_policy_takes_the_best_action_of_the_network():
    agent, _ = small_agent("dqn")
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).random((5, 9), np.float32)
    policy = agent.policy(state)
    _, action = policy.act(policy.init(None, 5), obs, None)
    np.testing.assert_array_equal(action, state.learner.network(obs).argmax(axis=-1))


def check_one_state(network):
    np.testing.assert_allclose(network(observations([0, 0, 0, 0])), [[1, 0, -0.5]], atol=0.05)


@pytest.mark.slow
def test_dqn_learns_known_values_but_not_what_only_the_context_says():
    check_one_state(trained("dqn", probes.make(probes.ONE_STATE), 2_000)[1].learner.network)
    check_delayed(trained("dqn", probes.make(probes.DELAYED), 6_000)[1].learner.network)
    network = trained("dqn", probes.make(probes.HIDDEN), 6_000)[1].learner.network
    values = network(observations([0, 0, 0, 0.5], [1, 1, 1, 0.5]))
    np.testing.assert_allclose(values[:, :2], np.zeros((2, 2)), atol=0.5)
    np.testing.assert_allclose(values[:, 2], [-1, -1], atol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "network", "steps"), [(4, "conv", 20_000), (0, "mlp", 60_000)])
def test_dqn_solves_a_fixed_rule(rule, network, steps):
    task = make_task(length=16, horizon=16, rules=rule)
    options = {"network": network, "epsilon_steps": steps // 2}
    agent = agents.make("dqn", *envs.make(task=task), **options)

    def check(state, metrics):
        assert rollout(agent.policy(state), task, episodes=200).success.mean() >= 0.95

    train_until(check, agent, steps)


def test_stored_arrays_are_named_by_their_place_in_the_state():
    agent, _ = small_agent("dqn")
    assert "learner.network.head.weight" in api.to_arrays(agent.init(jax.random.key(0)))


def test_too_large_a_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel must be at most the length, 8"):
        jax.eval_shape(small_agent("dqn", network="conv", kernel=9)[0].init, jax.random.key(0))
