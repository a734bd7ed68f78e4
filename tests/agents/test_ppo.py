import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import (
    PROBE,
    SMALL,
    observations,
    played,
    played_tapes,
    small_agent,
    train_until,
    trained,
    turn,
)
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import api, nn, ppo, rppo
from tapebench.exam.rollout import rollout
from tapebench.tasks.task import make_task

GAMMA = PROBE["ppo"]["discount"]


@pytest.mark.slow
def test_the_learning_rate_falls_on_a_straight_line_and_stays():
    config = ppo.Config(learning_rate=2e-3, final_rate=0.1, total_steps=1000)
    rates = [float(api.learning_rate(config, jnp.int32(n))) for n in (0, 500, 1000, 5000)]
    np.testing.assert_allclose(rates, [2e-3, 1.1e-3, 2e-4, 2e-4], rtol=1e-5)
    agent, _ = small_agent("ppo", learning_rate=1e-3)
    state = agent.init(jax.random.key(0))
    reported = []
    for _ in range(3):
        state, metrics = agent.train(state)
        reported.append(float(metrics["learning_rate"]))
    # Two rounds in a chunk, each at the rate it starts with.
    np.testing.assert_allclose(reported, [0.9375e-3, 0.6875e-3, 0.5e-3], rtol=1e-5)


def test_targets_in_a_probe_are_its_known_returns():
    env, params = probes.make(probes.DELAYED)
    config = ppo.Config(**PROBE["ppo"] | {"trace": 1.0})
    _, _, _, segment = played(ppo, config, env, params)
    action, target = np.asarray(segment.action), np.asarray(segment.targets.value)
    for first in (0, 3):
        won = action[first] == 1
        assert 0 < won.sum() < len(won)
        for t in range(3):
            np.testing.assert_allclose(target[first + t], GAMMA ** (2 - t) * won, atol=1e-5)
    assert abs(segment.targets.advantage.mean()) < 1e-5
    np.testing.assert_allclose(segment.targets.advantage.std(), 1.0, rtol=1e-4)


def test_the_clipped_objective_of_a_hand_example():
    ratio = jnp.array([1.1, 1.5, 1.5, 0.5, 0.5, 0.9])
    advantage = jnp.array([2.0, 2.0, -2.0, 2.0, -2.0, -2.0])
    objective = ppo.clipped(ratio, advantage, 0.2)
    # Too far in the wanted direction pays no more; too far in the other is paid for in full.
    np.testing.assert_allclose(objective, [2.2, 2.4, -3.0, 1.0, -1.6, -1.8], rtol=1e-6)
    slope = jax.grad(lambda ratio: ppo.clipped(ratio, advantage, 0.2).sum())(ratio)
    np.testing.assert_array_equal(slope, [2, 0, -2, 2, 0, -2])


def test_the_loss_of_a_hand_example():
    config = ppo.Config(clip=0.2, value_weight=0.5, entropy_weight=0.1)
    logits = jnp.log(jnp.array([[[0.5, 0.5], [0.9, 0.1]]]))
    action = jnp.array([[0, 1]])
    targets = ppo.Targets(
        log_prob=jnp.log(jnp.array([[0.25, 0.1]])),
        advantage=jnp.array([[1.0, -1.0]]),
        value=jnp.array([[3.0, 0.0]]),
    )
    total, parts = ppo.loss(config, logits, jnp.array([[1.0, 1.0]]), action, targets)
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
        frequencies = np.bincount(row, minlength=4) / 20_000
        np.testing.assert_allclose(frequencies, shares, atol=0.015)
        assert (frequencies > 0).tolist() == (shares > 0).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "network"), [(ppo, "mlp"), (ppo, "conv"), (rppo, "gru"), (rppo, "entries")]
)
def test_what_was_played_is_as_likely_when_it_is_first_learned_from(module, network):
    config, algorithm, model, start, segment = played_tapes(module, network)
    logits, value = jax.jit(algorithm.unroll)(model, start, segment.obs, segment.action)
    change = ppo.log_prob(logits, segment.action) - segment.targets.log_prob
    np.testing.assert_allclose(change, np.zeros((12, 8)), atol=1e-5)
    parts = ppo.loss(config, logits, value, segment.action, segment.targets)[1]
    np.testing.assert_allclose(parts["policy_loss"], 0.0, atol=1e-5)
    assert parts["clipped"] == 0
    np.testing.assert_allclose(parts["entropy"], np.log(8), rtol=1e-3)


def test_the_convolutions_logits_turn_with_the_tape_and_its_value_stays():
    config = ppo.Config(**SMALL["ppo"] | {"network": "conv", "depth": 2})
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
    assert float(ppo.policy_entropy(logits).min()) > np.log(32) - 1e-3


@pytest.mark.parametrize("name", ["ppo", "ppo-dr"])
def test_the_policy_takes_the_likeliest_action(name):
    agent, _ = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    obs = np.random.default_rng(0).integers(2, size=(5, 9)).astype(np.float32)
    obs[:, 8] = 0.0
    (model, _), action = policy.act(policy.init(None, 5), obs, None)
    np.testing.assert_array_equal(action, model(obs)[0].argmax(axis=-1))


@pytest.mark.parametrize("name", ["ppo", "ppo-dr", "rppo"])
def test_a_round_makes_an_update_for_every_epoch_and_minibatch(name):
    agent, _ = small_agent(name)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    assert int(state.steps) == 80
    # Two rounds of 40 steps, two epochs, two minibatches.
    assert int(state.learner.updates) == 8


@pytest.mark.slow
def test_ppo_learns_the_value_and_the_action_of_a_single_state():
    _, state, metrics = trained("ppo", probes.make(probes.ONE_STATE), 192 * 40)
    logits, value = state.learner.model(observations([0, 0, 0, 0]))
    np.testing.assert_allclose(jax.nn.softmax(logits), [[1, 0, 0]], atol=0.05)
    np.testing.assert_allclose(value, [1.0], atol=0.05)
    assert metrics["reward"] > 0.95


@pytest.mark.slow
def test_ppo_discounts_a_delayed_reward():
    _, state, metrics = trained("ppo", probes.make(probes.DELAYED), 192 * 80)
    logits, value = state.learner.model(
        observations([0, 0, 0, 0], [1, 1, 1, 1 / 3], [1, 1, 1, 2 / 3])
    )
    assert jax.nn.softmax(logits)[0, 1] > 0.95
    np.testing.assert_allclose(value, [GAMMA**2, GAMMA, 1.0], atol=0.05)
    np.testing.assert_allclose(3 * metrics["reward"], 1.0, atol=0.05)


@pytest.mark.slow
def test_ppo_names_the_cell_that_is_set():
    _, state, _ = trained("ppo", probes.make(probes.POINTER), 192 * 60)
    logits, value = state.learner.model(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(jax.nn.softmax(logits), np.eye(3), atol=0.1)
    np.testing.assert_allclose(value, np.ones(3), atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "network", "steps"), [(4, "mlp", 30_000), (0, "conv", 10_000)])
def test_ppo_solves_a_fixed_rule(rule, network, steps):
    task = make_task(length=16, horizon=16, rules=rule)
    agent = agents.make("ppo", *envs.make(task=task), network=network)

    def check(state, metrics):
        assert rollout(agent.policy(state), task, episodes=200).success.mean() >= 0.95

    train_until(check, agent, steps)
