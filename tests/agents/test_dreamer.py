from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import PROBE, SMALL, observations, play, probed, small_agent, train_until, turn
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import dreamer, nn, ppo, replay, rssm
from tapebench.exam.rollout import rollout
from tapebench.tasks.task import make_task

TICK = 1 / 8


@cache
def untrained(network, size=9, seed=0, **overrides):
    """A small model for tapes of 8 cells, with a last layer that is not faded."""
    config = dreamer.Config(**SMALL["dreamer"] | {"network": network} | overrides)
    make = jax.jit(dreamer.make_model, static_argnums=(1, 2, 3))
    model = make(jax.random.key(seed), config, envs.TapeEnv(length=8), size)
    return config, jax.tree.map(lambda leaf: 2.0 * leaf, model)


@cache
def episodes(steps=14, num=5, horizon=6):
    """Random play on tapes of 8 cells: observations `[T, B, 9]` and actions `[T, B]`."""
    env, params = envs.make(length=8, horizon=horizon)
    stored, _ = play(env, params, 40, num_envs=4, capacity=200)
    return replay.draw_sequences(jax.random.key(5), stored, num, steps)


# Categorical variables.


def test_a_share_of_the_uniform_distribution_is_in_every_categorical_one():
    logits = jnp.array([[0.0, 50.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    mixed = np.exp(rssm.mix_uniform(logits, 0.1))
    plain = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(mixed, 0.9 * plain + 0.1 / 4, rtol=1e-5)
    np.testing.assert_allclose(mixed[0], [0.025, 0.925, 0.025, 0.025], rtol=1e-5)


def test_classes_are_drawn_as_often_as_they_are_likely():
    probs = np.array([0.5, 0.0, 0.2, 0.3])
    number = np.random.default_rng(0).random((20_000, 1), np.float32)
    drawn = rssm.sample_one_hot(number, jnp.log(jnp.broadcast_to(probs, (20_000, 1, 4))))
    np.testing.assert_allclose(np.sort(drawn)[..., 0, :], [[0, 0, 0, 1]] * 20_000, atol=1e-6)
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), probs, atol=0.015)


def test_the_gradient_of_a_draw_is_that_of_its_probabilities():
    rng = np.random.default_rng(1)
    logits, weight = rng.normal(size=(2, 6, 3, 4)).astype(np.float32)
    number = rng.random((6, 3), np.float32)

    def through(logits):
        return (weight * rssm.sample_one_hot(number, rssm.mix_uniform(logits, 0.01))).sum()

    def plain(logits):
        return (weight * jnp.exp(rssm.mix_uniform(logits, 0.01))).sum()

    np.testing.assert_allclose(jax.grad(through)(logits), jax.grad(plain)(logits), atol=1e-6)


def test_the_divergence_is_summed_over_all_variables():
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(4), size=(2, 5, 3, 2))
    divergence = rssm.kl_divergence(jnp.log(p), jnp.log(q))
    wanted = np.zeros(5)
    for b in range(5):
        for place in range(3):
            for variable in range(2):
                for c in range(4):
                    one, two = p[b, place, variable, c], q[b, place, variable, c]
                    wanted[b] += one * np.log(one / two)
    np.testing.assert_allclose(divergence, wanted, rtol=1e-4)


def test_symexp_undoes_symlog():
    x = np.array([-30.0, -1.0, -1 / 32, 0.0, 0.5, 100.0], np.float32)
    np.testing.assert_allclose(rssm.symexp(rssm.symlog(x)), x, rtol=1e-4)
    np.testing.assert_allclose(rssm.symlog(x)[1], -np.log(2), rtol=1e-6)


# The model.


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_nothing_passes_over_the_start_of_an_episode(network):
    _, model = untrained(network)
    batch = episodes()
    run = jax.jit(lambda obs, action: model.world.filter(obs, action, batch.is_first, None))
    filtered = run(batch.obs, batch.action)
    since = np.asarray(batch.is_first).cumsum(axis=0)
    assert since.max() > 1
    starts = np.asarray(batch.is_first)
    np.testing.assert_array_equal(np.asarray(filtered.latent.hidden)[starts], 0.0)
    # Another past, up to the last start of each sequence, is the same from there on.
    past = since < since[-1]
    obs = jnp.where(past[..., None] & (np.arange(9) < 8), 1.0 - batch.obs, batch.obs)
    action = jnp.where(past, 7 - batch.action, batch.action)
    other = run(obs, action)
    assert past.any()
    for one, two in zip(jax.tree.leaves(filtered), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(one)[~past], np.asarray(two)[~past])
    assert not np.array_equal(filtered.ahead[0], other.ahead[0])


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_the_policy_remembers_what_the_model_makes_of_the_episode(network):
    _, model = untrained(network)
    batch = episodes()
    memory = dreamer.begin(model, 5)
    step = jax.jit(dreamer.act)
    actions = []
    for obs in batch.obs:
        memory, action = step(memory, obs, None)
        actions.append(action)
    filtered = jax.jit(lambda *x: model.world.filter(*x, None))(
        batch.obs, jnp.stack(actions), batch.is_first
    )
    np.testing.assert_allclose(memory.hidden, filtered.ahead[-1], atol=1e-5)
    likeliest = model.policy(filtered.latent).argmax(axis=-1)
    np.testing.assert_array_equal(jnp.stack(actions), likeliest)


@pytest.mark.slow
def test_the_cells_turn_with_the_tape():
    _, model = untrained("conv")
    world, batch = model.world, episodes()
    predict = jax.jit(lambda *x: rssm.predict(world, jax.random.key(0), *x, 3, samples=200))
    see = jax.jit(lambda *x: world.filter(*x, None))
    turned_obs, turned_action = turn(np.asarray(batch.obs), 3), (batch.action + 3) % 8
    filtered = see(batch.obs, batch.action, batch.is_first)
    turned = see(turned_obs, turned_action, batch.is_first)
    np.testing.assert_allclose(turned.ahead, np.roll(filtered.ahead, 3, axis=-2), atol=1e-4)
    logits, others = model.policy(filtered.latent), model.policy(turned.latent)
    np.testing.assert_allclose(others, np.roll(logits, 3, axis=-1), atol=1e-5)
    assert np.ptp(logits) > 1e-4
    value, same = model.critic(filtered.latent.features), model.critic(turned.latent.features)
    np.testing.assert_allclose(same, value, atol=1e-4)
    for one, two in zip(world.outcome(filtered.ahead), world.outcome(turned.ahead), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
    # Draws are of the places and do not turn; their means do.
    cells = predict(batch.obs, batch.action).cells
    rolled = predict(turned_obs, turned_action).cells
    np.testing.assert_allclose(rolled, np.roll(cells, 3, axis=-1), atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_a_goal_that_is_observed_is_given_to_the_model(network):
    _, model = untrained(network, size=17)
    obs = np.zeros((2, 17), np.float32)
    obs[1, 12] = 1.0
    latent = dreamer.observe(model, model.world.begin(2), obs, None)
    first, second = np.asarray(model.policy(latent))
    assert abs(first - second).max() > 1e-4
    first, second = np.asarray(model.world.advance(latent, jnp.array([0, 0])))
    assert abs(first - second).max() > 1e-4


@pytest.mark.slow
def test_the_loss_is_that_of_a_plain_computation():
    config, model = untrained("mlp", free_nats=1.0)
    batch, key = episodes(), jax.random.key(3)
    run = jax.jit(partial(dreamer.world_loss, config))
    total, (parts, filtered) = run(model.world, key, batch, 1 / 6)
    world, (hidden, z, _) = model.world, filtered.latent
    np.testing.assert_allclose(z.reshape(14, 5, 4, 4).sum(axis=-1), 1.0, atol=1e-5)
    tape, logits = np.asarray(batch.obs[..., :8]), np.asarray(world.cells(hidden, z))
    surprise = np.where(tape == 1, np.log1p(np.exp(-logits)), np.log1p(np.exp(logits)))
    reward, success = map(np.asarray, world.outcome(filtered.ahead))
    paid = np.asarray(batch.reward)
    error = 0.5 * (reward - np.sign(paid) * np.log1p(abs(paid))) ** 2
    t = np.rint(6 * np.asarray(batch.obs[..., 8]))
    ended, chance = np.asarray(batch.ended), 1 / (1 + np.exp(-success))
    ends = np.where(t == 5, 0.0, -np.log(np.where(ended, chance, 1 - chance)))
    kl = np.asarray(rssm.kl_divergence(filtered.posterior, world.prior_log_probs(hidden)))
    assert kl.min() < 1.0 < kl.max()
    wanted = surprise.sum(axis=-1) + error + ends + 1.1 * np.maximum(kl, 1.0)
    np.testing.assert_allclose(total, wanted.mean(), rtol=1e-4)
    np.testing.assert_allclose(parts["kl"], kl.mean(), rtol=1e-4)


@pytest.mark.slow
def test_either_weight_of_the_divergence_moves_its_own_side():
    _, model = untrained("mlp")
    batch = episodes()
    weights = {"free_nats": 0.0, "dynamics_weight": 0.0, "representation_weight": 0.0}

    def slope(**changed):
        config = untrained("mlp", **weights | changed)[0]

        def loss(world):
            return dreamer.world_loss(config, world, jax.random.key(3), batch, jnp.float32(1 / 6))[
                0
            ]

        return jax.jit(jax.grad(loss))(model.world)

    plain, dynamics = slope(), slope(dynamics_weight=1.0)
    representation = slope(representation_weight=1.0)

    def moved(one, two, part):
        return abs(getattr(one, part).head.weight - getattr(two, part).head.weight).max()

    assert moved(plain, plain, "prior") == 0.0
    assert not plain.prior.head.weight.any()
    assert moved(dynamics, plain, "prior") > 1e-4
    assert moved(representation, plain, "prior") == 0.0
    assert moved(representation, plain, "posterior") > 1e-4


# Imagination.


@pytest.mark.parametrize("horizon", [1, 3, 8, 33])
def test_time_is_up_at_the_horizon_and_not_before(horizon):
    time, tick = jnp.zeros(()), jnp.float32(1 / horizon)
    for t in range(horizon):
        assert bool(rssm.is_final_step(time, tick)) == (t == horizon - 1)
        time = time + tick


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_imagination_goes_on_until_time_is_up(network):
    config, model = untrained(network, imagination=5)
    batch = episodes()
    latent = model.world.filter(batch.obs, batch.action, batch.is_first, None).latent
    start = jax.tree.map(lambda rows: rows[-1], latent)
    run = jax.jit(partial(dreamer.imagine, config))
    dream = run(model, jax.random.key(0), start, jnp.float32(1 / 6))
    assert dream.action.shape == dream.reward.shape == (5, 5)
    t = np.rint(6 * np.asarray(start.time)) + np.arange(6)[:, None]
    np.testing.assert_allclose(dream.latent.time, t / 6, atol=1e-5)
    assert ((np.asarray(dream.goes_on) == 0.0) == (t[:-1] >= 5)).all()
    # It goes on by what the model says of its own states and actions.
    before = jax.tree.map(lambda rows: rows[:-1], dream.latent)
    ahead = model.world.advance(before, dream.action)
    np.testing.assert_allclose(ahead, dream.latent.hidden[1:], atol=1e-5)
    reward, success = model.world.outcome(ahead)
    np.testing.assert_allclose(dream.reward, rssm.symexp(reward), atol=1e-5)
    chance = np.where(t[:-1] >= 5, 0.0, jax.nn.sigmoid(-success))
    np.testing.assert_allclose(dream.goes_on, chance, atol=1e-5)


@pytest.mark.slow
def test_the_losses_of_behaviour_are_those_of_a_plain_computation():
    config, model = untrained("mlp", range_rate=0.5, entropy_weight=0.1, discount=0.9)
    _, other = untrained("mlp", seed=1)
    batch = episodes()
    latent = model.world.filter(batch.obs, batch.action, batch.is_first, None).latent
    start = jax.tree.map(lambda rows: rows[-1], latent)
    dream = dreamer.imagine(config, model, jax.random.key(0), start, jnp.float32(1 / 16))
    run = jax.jit(partial(dreamer.behaviour_loss, config))
    total, (parts, scale) = run(model, other.critic, jnp.float32(3.0), dream)
    value = np.asarray(model.critic(dream.latent.features)[..., 0])
    slow = np.asarray(other.critic(dream.latent.features)[..., 0])
    log_probs = np.asarray(model.policy(dream.latent))
    reward, goes_on = np.asarray(dream.reward), 0.9 * np.asarray(dream.goes_on)
    steps, num = reward.shape
    target, weight = value.copy(), np.ones_like(reward)
    for t in reversed(range(steps)):
        ahead = 0.2 * value[t + 1] + 0.8 * target[t + 1]
        target[t] = reward[t] + goes_on[t] * ahead
    for t in range(1, steps):
        weight[t] = weight[t - 1] * goes_on[t - 1]
    advantage = (target - value)[:-1]
    wanted = 3.0 + 0.5 * (np.percentile(advantage, 95) - np.percentile(advantage, 5) - 3.0)
    np.testing.assert_allclose(scale, wanted, rtol=1e-4)
    log_prob = np.take_along_axis(log_probs[:-1], np.asarray(dream.action)[..., None], -1)[..., 0]
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=-1)[:-1]
    actor = -(weight * (advantage / wanted * log_prob + 0.1 * entropy)).mean()
    np.testing.assert_allclose(parts["actor_loss"], actor, rtol=1e-3, atol=1e-5)
    critic = 0.5 * (weight * (advantage**2 + (value - slow)[:-1] ** 2)).mean()
    np.testing.assert_allclose(total, actor + critic, rtol=1e-3, atol=1e-5)
    assert num == 5


# Predictions.


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_predictions_see_the_past_and_the_actions_and_nothing_else(network):
    _, model = untrained(network)
    batch = episodes()
    run = jax.jit(lambda *x: rssm.predict(model.world, jax.random.key(0), *x, 4))
    prediction = run(batch.obs, batch.action)
    assert prediction.cells.shape == (4, 14, 5, 8)
    assert ((prediction.cells > 0) & (prediction.cells < 1)).all()
    # What comes after row 6 is not looked at from there, but actions are.
    later = (np.arange(14) > 6)[:, None]
    obs = jnp.where(later[..., None] & (np.arange(9) < 8), 1.0 - batch.obs, batch.obs)
    np.testing.assert_allclose(
        run(obs, batch.action).cells[:, 6], prediction.cells[:, 6], atol=1e-6
    )
    action = jnp.where((np.arange(14) == 8)[:, None], 7 - batch.action, batch.action)
    changed = np.abs(run(batch.obs, action).cells - prediction.cells)[:, 6].max(axis=(1, 2))
    np.testing.assert_array_equal(changed > 1e-7, [False, False, True, True])


def test_a_prediction_is_real_within_the_episode():
    _, model = untrained("mlp")
    batch = episodes()
    prediction = rssm.predict(model.world, jax.random.key(0), batch.obs, batch.action, 4)
    is_first = np.asarray(batch.is_first)
    for depth in range(1, 5):
        for t in range(14):
            for b in range(5):
                there = t + depth < 14 and not is_first[t + 1 : t + depth + 1, b].any()
                assert prediction.is_real[depth - 1, t, b] == there


# Learning.


def value_of(state, obs):
    """Value and policy of first observations."""
    model = state.learner.model
    latent = dreamer.observe(model, model.world.begin(len(obs)), obs, None)
    return model.critic(latent.features)[..., 0], jnp.exp(model.policy(latent)), latent


@pytest.mark.slow
def test_dreamer_learns_the_value_and_the_action_of_a_single_state():
    def check(state, metrics):
        value, chance, latent = value_of(state, observations([0, 0, 0, 0]))
        assert chance[0, 0] > 0.9
        np.testing.assert_allclose(value, [1.0], atol=0.1)
        assert metrics["reward"] > 0.9
        world = state.learner.model.world
        rewards = [world.outcome(world.advance(latent, jnp.array([a])))[0][0] for a in range(3)]
        np.testing.assert_allclose(rssm.symexp(jnp.stack(rewards)), [1.0, 0.0, -0.5], atol=0.15)

    train_until(check, probed("dreamer", probes.make(probes.ONE_STATE)), 6_400)


@pytest.mark.slow
def test_dreamer_discounts_a_delayed_reward():
    gamma = PROBE["dreamer"]["discount"]

    def check(state, metrics):
        value, chance, _ = value_of(state, observations([0, 0, 0, 0]))
        assert chance[0, 1] > 0.9
        np.testing.assert_allclose(value, [gamma**2], atol=0.1)
        np.testing.assert_allclose(3 * metrics["reward"], 1.0, atol=0.1)

    train_until(check, probed("dreamer", probes.make(probes.DELAYED)), 16_000)


@pytest.mark.slow
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_dreamer_names_the_cell_that_is_set(network):
    def check(state, metrics):
        value, chance, _ = value_of(state, observations(*np.eye(3, 4)))
        np.testing.assert_array_equal(chance.argmax(axis=-1), [0, 1, 2])
        np.testing.assert_allclose(value, np.ones(3), atol=0.15)
        assert metrics["reward"] > 0.85

    agent = probed("dreamer", probes.make(probes.POINTER), network=network)
    train_until(check, agent, 16_000)


@pytest.mark.slow
def test_dreamer_solves_the_memory_probe():
    agent = probed("dreamer", probes.make_recall())

    def check(state, metrics):
        assert 3 * metrics["reward"] > 0.8
        policy = agent.policy(state)
        memory = policy.init(None, 2)
        for t, cells in enumerate(([[0] * 3, [1] * 3], [[0] * 3] * 2, [[0] * 3] * 2)):
            obs = observations(*[[*row, t / 3] for row in cells])
            memory, action = policy.act(memory, obs, None)
        np.testing.assert_array_equal(action, [0, 1])

    train_until(check, agent, 32_000)


@pytest.mark.slow
def test_an_update_follows_every_so_many_steps_after_the_warmup():
    agent, _ = small_agent("dreamer")
    state, metrics = agent.train(agent.init(jax.random.key(0)))
    assert int(state.steps) == 80
    # At 48, 56, 64, 72 and 80 steps.
    assert int(state.learner.updates) == 5
    assert metrics["entropy"] > 0.95 * np.log(8)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [4, 204])
def test_the_model_of_a_fixed_rule_becomes_nearly_perfect(rule):
    task = make_task(length=8, horizon=8, rules=rule)
    env, params = envs.make(task=task)
    options = {"network": "conv", "width": 64, "steps_per_update": 8, "sequence": 16, "batch": 16}
    agent = agents.make("dreamer", env, params, **options)
    fresh, _ = play(env, params, 200, num_envs=4, capacity=4_000, seed=9)
    batch = replay.draw_sequences(jax.random.key(1), fresh, 32, 16)
    tape = np.asarray(batch.obs[..., :8])
    see = jax.jit(lambda world: world.filter(batch.obs, batch.action, batch.is_first, None))
    look = jax.jit(lambda world: rssm.predict(world, jax.random.key(2), batch.obs, batch.action, 4))
    losses = []

    def check(state, metrics):
        losses.append({name: float(metric) for name, metric in metrics.items()})
        assert len(losses) > 2
        for name in ("tape_loss", "reward_loss", "success_loss"):
            assert losses[-1][name] < 0.2 * losses[1][name]
        world = state.learner.model.world
        filtered = see(world)
        read = np.asarray(world.cells(*filtered.latent[:2])) > 0
        assert (read == tape).mean() > 0.99
        reward = np.asarray(rssm.symexp(world.outcome(filtered.ahead)[0]))
        assert abs(reward - batch.reward).mean() < 0.03
        ahead = look(world)
        for depth, floor in ((1, 0.97), (4, 0.9)):
            there = np.roll(tape, -depth, axis=0)
            right = (np.asarray(ahead.cells[depth - 1]) > 0.5) == there
            assert right[np.asarray(ahead.is_real[depth - 1])].mean() > floor
        assert rollout(agent.policy(state), task, episodes=200).success.mean() > 0.9

    train_until(check, agent, 12 * agent.chunk)


@pytest.mark.slow
def test_the_policy_starts_close_to_uniform():
    make = jax.jit(dreamer.make_model, static_argnums=(1, 2, 3))
    for network in nn.NETWORKS:
        config = dreamer.Config(network=network)
        model = make(jax.random.key(0), config, envs.TapeEnv(), 33)
        obs = np.random.default_rng(0).random((20, 33), np.float32)
        latent = dreamer.observe(model, model.world.begin(20), obs, None)
        assert float(ppo.policy_entropy(model.policy(latent)).min()) > np.log(32) - 1e-2
