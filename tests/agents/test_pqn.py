import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import (
    PROBE,
    check_delayed,
    observations,
    probed,
    small_agent,
    train_until,
    trained,
)
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import nn, pqn
from tapebench.exam.rollout import rollout
from tapebench.physics.space import Space
from tapebench.tasks.task import make_task


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_targets_are_returns_that_end_with_their_episode(trace):
    config = pqn.Config(discount=0.5, trace=trace)
    reward = jnp.array([[1.0], [2.0], [4.0]])
    ended = jnp.array([[0.0], [1.0], [0.0]])
    best, following = jnp.array([[10.0], [20.0], [30.0]]), jnp.array([8.0])
    last = 4.0 + 0.5 * 8.0
    first = 1.0 + 0.5 * ((1 - trace) * 20.0 + trace * 2.0)
    targets = pqn.targets(config, reward, ended, best, following)
    np.testing.assert_allclose(targets[:, 0], [first, 2.0, last], rtol=1e-6)


def test_the_loss_is_of_the_actions_that_were_taken():
    values = jnp.array([[[1.0, 5.0], [2.0, 7.0]]])
    squared, watched = pqn.loss(values, jnp.array([[1, 0]]), jnp.array([[4.0, 4.0]]))
    np.testing.assert_allclose(squared, (1.0 + 4.0) / 2)
    np.testing.assert_allclose(watched["value"], 3.5)


@pytest.mark.parametrize("network", ["mlp", "conv"])
def test_normalised_layers_have_mean_zero_and_variance_one(network):
    sizes = {"space": Space((8,)), "observation_size": 9, "num_actions": 8, "kernel": 3, "depth": 2}
    made = nn.make(
        jax.random.key(0), network, width=64, channels=64, layer_norm=True, dueling=True, **sizes
    )
    x = jnp.asarray(np.random.default_rng(0).normal(3.0, 5.0, (7, 64)), jnp.float32)
    for norm in made.norms:
        out = norm(x)
        np.testing.assert_allclose(out.mean(axis=-1), np.zeros(7), atol=1e-5)
        np.testing.assert_allclose(out.std(axis=-1), np.ones(7), rtol=1e-3)
    assert len(made.norms) == (2 if network == "mlp" else 3)
    plain = nn.make(jax.random.key(0), network, width=64, channels=64, dueling=True, **sizes)
    assert plain.norms == ()


def test_the_policy_takes_the_best_action_of_the_network():
    agent, _ = small_agent("pqn")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    obs = np.random.default_rng(0).integers(2, size=(5, 9)).astype(np.float32)
    obs[:, 8] = 0.0
    (network, _), action = policy.act(policy.init(None, 5), obs, None)
    np.testing.assert_array_equal(action, network(obs).argmax(axis=-1))


@pytest.mark.slow
def test_exploration_falls_and_is_reported():
    agent, _ = small_agent("pqn", epsilon_steps=160, epsilon_end=0.2)
    state, shares = agent.init(jax.random.key(0)), []
    for _ in range(3):
        state, metrics = agent.train(state)
        shares.append(float(metrics["epsilon"]))
    # Two rounds of 40 steps in a chunk, each with the share that it starts with.
    np.testing.assert_allclose(shares, [0.9, 0.5, 0.2], atol=1e-6)


def test_minibatches_have_to_divide_what_is_learned_from():
    agents.configure("pqn", network="conv", num_envs=10, rollout=10, minibatches=20)
    with pytest.raises(ValueError, match="minibatches must divide num_envs, 10, not 20"):
        agents.configure("rpqn", num_envs=10, rollout=10, minibatches=20)
    with pytest.raises(ValueError, match="minibatches must divide num_envs × rollout, 100, not 8"):
        agents.configure("pqn", network="conv", num_envs=10, rollout=10, minibatches=8)


@pytest.mark.slow
def test_pqn_learns_known_values():
    def check_delays(state, metrics):
        check_delayed(state.learner.model)

    assert PROBE["pqn"]["discount"] == PROBE["dqn"]["discount"]
    train_until(check_delays, probed("pqn", probes.make(probes.DELAYED)), 192 * 200)
    network = trained("pqn", probes.make(probes.ONE_STATE), 192 * 60)[1].learner.model
    np.testing.assert_allclose(network(observations([0, 0, 0, 0])), [[1, 0, -0.5]], atol=0.05)


@pytest.mark.slow
def test_pqn_without_memory_cannot_know_what_only_the_context_says():
    network = trained("pqn", probes.make(probes.HIDDEN), 192 * 100)[1].learner.model
    values = network(observations([0, 0, 0, 0.5], [1, 1, 1, 0.5]))
    np.testing.assert_allclose(values[:, :2], np.zeros((2, 2)), atol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "probe"), [("gru", "recall"), ("cells", "marked"), ("entries", "marked")]
)
def test_pqn_with_memory_solves_what_needs_it(network, probe):
    options = {"network": network, "memory_size": 16, "encoder_width": 16, "trace": 0.5}
    made = {"recall": probes.make_recall, "marked": probes.make_marked}[probe]()
    # Exploration has to end: a random step in between pays as well, but the last one does not.
    agent = probed("rpqn", made, epsilon_end=0.1, **options)
    horizon = int(made[1].horizon)

    def check(state, metrics):
        assert horizon * metrics["reward"] > 0.75

    train_until(check, agent, 192 * 200)


@pytest.mark.slow
def test_pqn_solves_a_fixed_rule():
    task = make_task(length=16, horizon=16, rules=4)
    agent = agents.make("pqn", *envs.make(task=task), epsilon_steps=10_000)

    def check(state, metrics):
        assert rollout(agent.policy(state), task, episodes=200).success.mean() >= 0.95

    train_until(check, agent, 40_000)
