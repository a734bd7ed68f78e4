import ast
import hashlib
import inspect
import itertools
import subprocess
import sys
import textwrap
from collections import deque
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from tapebench import agents, dynamics, seeding
from tapebench import env as envs
from tapebench.agents import api, curl, dqn, nn, pearl, rad, replay
from tapebench.rollout import rollout
from tapebench.task import make_task

SMALL = {
    "width": 32,
    "channels": 32,
    "discount": 0.95,
    "depth": 1,
    "batch": 32,
    "replay_size": 2_000,
    "warmup": 100,
    "learning_rate": 3e-3,
    "target_every": 50,
    "num_envs": 4,
}
PROBE = SMALL | {"epsilon_end": 1.0}
GAMMA = SMALL["discount"]


def observations(*rows):
    return jnp.array(rows, jnp.float32)


def trained(name, kind, steps, **overrides):
    """An agent after so many steps of uniformly random play in a probe, and its state."""
    agent = agents.make(name, *probes.make(kind), **PROBE | overrides)
    state = agent.init(seeding.key(0, name))
    for _ in range(steps // agent.chunk):
        state, _ = agent.train(state)
    return agent, state


def small_agent(name="dqn", rules="train", **overrides):
    """An agent for short tapes, the same program in every test."""
    task = make_task(length=8, horizon=8, rules=rules)
    return agents.make(name, *envs.make(task=task), **SMALL | overrides), task


def fingerprint(tree):
    digest = hashlib.sha256()
    for name, array in sorted(api.to_arrays(tree).items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


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


def test_listing_the_agents_imports_no_jax():
    code = "import sys, tapebench.agents as a; assert a.NAMES; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"width": 0}, "width must be a positive integer, not 0"),
        ({"batch": 2.5}, "batch must be a positive integer, not 2.5"),
        ({"discount": 1.5}, "discount must be from 0 to 1, not 1.5"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"num_envs": 6}, "4 must divide 6"),
        ({"num_envs": 16}, "chunk must be a multiple of 16, not 1000"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        agents.configure("dqn", **overrides)


@pytest.mark.parametrize("name", agents.NAMES)
def test_an_evaluation_each_10000_steps_falls_between_chunks(name):
    assert 10_000 % agents.configure(name).chunk == 0


@pytest.mark.parametrize("name", agents.NAMES)
def test_every_setting_says_what_it_is_and_settings_are_values(name):
    config = agents.load(name)[0]
    assert hash(config()) == hash(config(width=config().width))
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0].body
    for line, after in itertools.pairwise(body):
        if isinstance(line, ast.AnnAssign):
            assert isinstance(after, ast.Expr), f"{line.target.id} of {name} has no comment"
            assert isinstance(after.value.value, str)


# Replay.


def play(env, params, steps, num_envs, capacity, seed=0):
    """Random play into a replay, and the same transitions in one deque per environment."""

    @jax.jit
    def run(key, params):
        reset_key, action_key = jax.random.split(key)
        keys = jax.random.split(reset_key, num_envs)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
        stored = replay.empty(obs, capacity, env.length, params.horizon)

        def body(carry, action):
            stored, state, obs = carry
            step = jax.vmap(env.step, in_axes=(None, 0, 0, None))
            after, state, reward, terminated, truncated, _ = step(None, state, action, params)
            stored = replay.append(stored, action, reward, after)
            return (stored, state, after), (obs, action, reward, after, terminated | truncated)

        actions = jax.random.randint(action_key, (steps, num_envs), 0, env.num_actions)
        (stored, *_), seen = jax.lax.scan(body, (stored, state, obs), actions)
        return stored, seen

    stored, seen = run(jax.random.key(seed), params)
    kept = [deque(maxlen=-(-capacity // num_envs)) for _ in range(num_envs)]
    for rows in zip(*map(np.asarray, seen), strict=True):
        for index, transitions in enumerate(kept):
            transitions.append([row[index] for row in rows])
    return stored, kept


def everywhere(stored):
    """All places that hold a complete transition, the oldest first."""
    envs_, filled = stored.t.shape[1], int(stored.filled)
    ago, env = np.meshgrid(np.arange(filled, 0, -1), np.arange(envs_), indexing="ij")
    return replay.Places(jnp.asarray(ago.ravel()), jnp.asarray(env.ravel()))


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"length": 8, "horizon": 5, "rules": [0, 30], "mask": [0, 5]}, 47),
        ({"length": 40, "horizon": 7, "goal": "random", "observe_goal": True}, 18),
        ({"length": 8, "horizon": 1}, 21),
    ],
)
def test_replay_equals_a_deque(options, steps):
    env, params = envs.make(**options)
    stored, kept = play(env, params, steps, num_envs=3, capacity=60)
    assert int(stored.filled) == min(steps, 20)
    batch = jax.tree.map(np.asarray, jax.jit(replay.take)(stored, everywhere(stored)))
    wanted = [row for rows in zip(*kept, strict=True) for row in rows]
    assert len(batch.obs) == len(wanted)
    for found, row in zip(zip(*batch, strict=True), wanted, strict=True):
        obs, action, reward, next_obs, ended = found
        np.testing.assert_array_equal(obs, row[0])
        assert action == row[1]
        assert reward == row[2]
        assert ended == row[4]
        if not ended:
            np.testing.assert_array_equal(next_obs, row[3])


def test_the_past_of_a_place_is_its_own_episode_and_nothing_else():
    env, params = envs.make(length=8, horizon=5, rules=[0, 30])
    stored, kept = play(env, params, steps=33, num_envs=3, capacity=60)
    places = everywhere(stored)
    past = jax.jit(replay.past, static_argnums=2)(stored, places, 3)
    past, places = jax.tree.map(np.asarray, (past, places))
    for place, (ago, index) in enumerate(zip(*places, strict=True)):
        rows = list(kept[int(index)])
        here = len(rows) - int(ago)
        wanted = []
        for row in reversed(rows[max(0, here - 3) : here]):
            if row[4]:
                break
            wanted.append(row)
        assert past.is_real[place].sum() == len(wanted)
        assert past.is_real[place][: len(wanted)].all()
        for back, (obs, action, _, after, _) in enumerate(wanted):
            np.testing.assert_array_equal(past.before[place, back], obs[:8])
            np.testing.assert_array_equal(past.after[place, back], after[:8])
            assert past.action[place, back] == action


def test_a_transition_takes_twelve_bytes():
    stored = replay.empty(jnp.zeros((8, 33)), 100_000, 32, jnp.int32(32))
    arrays = (stored.bits, stored.t, stored.action, stored.reward)
    assert sum(array.nbytes for array in arrays) == 12 * (100_000 + 8)


def test_every_complete_transition_is_drawn_equally_often_and_no_other():
    env, params = envs.make(length=8, horizon=5)
    stored, _ = play(env, params, steps=23, num_envs=3, capacity=30)
    ago, index = map(np.asarray, replay.draw(jax.random.key(1), stored, 30_000))
    counts = np.zeros((12, 3), int)
    np.add.at(counts, (ago, index), 1)
    assert not counts[0].any()
    assert not counts[11].any()
    assert abs(counts[1:11] / 1000 - 1).max() < 4 / np.sqrt(1000)


# Networks.


def conv_network(key, **sizes):
    defaults = {
        "observation_size": 17,
        "num_actions": 16,
        "width": 8,
        "channels": 8,
        "depth": 2,
        "kernel": 3,
    }
    return nn.make(key, "conv", length=16, **defaults | sizes)


def plain_network(key, length=8):
    sizes = {"num_actions": length, "width": 8, "channels": 8, "depth": 1, "kernel": 3}
    return nn.make(key, "mlp", length=length, observation_size=length + 1, **sizes)


@pytest.mark.parametrize("kernel", [2, 5])
def test_values_of_the_convolution_turn_with_the_tape(kernel):
    rng = np.random.default_rng(kernel)
    network = conv_network(jax.random.key(kernel), kernel=kernel)
    values = jax.jit(lambda obs: network(obs))
    obs = np.tile(rng.random((1, 17), np.float32), (16, 1))
    turned = values(jax.jit(rad.rotate, static_argnums=2)(obs, np.arange(16), 16))
    wanted = [np.roll(row, by) for by, row in enumerate(np.asarray(values(obs)))]
    np.testing.assert_allclose(turned, wanted, atol=1e-5)
    assert np.ptp(wanted[0]) > 1e-3


def test_values_of_the_plain_network_do_not_turn_with_the_tape():
    obs = np.random.default_rng(0).random((2, 17), np.float32)
    turned = np.concatenate([np.roll(obs[:, :16], 3, axis=1), obs[:, 16:]], axis=1)
    network = plain_network(jax.random.key(0), length=16)
    assert abs(network(turned) - np.roll(network(obs), 3, axis=-1)).max() > 1e-2


def test_windows_on_the_ring_make_a_circular_convolution():
    (layer,) = nn.layers(jax.random.key(0), (3 * 2, 4))
    x = np.random.default_rng(0).normal(size=(5, 7, 2)).astype(np.float32)
    found = jax.jit(lambda x: nn.linear(layer, nn.windows(x, 3)))(x)
    weight, bias = np.asarray(layer.weight).reshape(4, 3, 2), np.asarray(layer.bias)
    for cell in range(7):
        wanted = bias + sum(
            x[:, (cell + offset - 1) % 7] @ weight[:, offset].T for offset in range(3)
        )
        np.testing.assert_allclose(found[:, cell], wanted, atol=1e-5)


def test_initial_weights_have_the_usual_spread():
    layers = nn.layers(jax.random.key(0), (100, 200), (50, 400))
    for layer, inputs in zip(layers, (100, 50), strict=True):
        for leaf in map(np.asarray, (layer.weight, layer.bias)):
            assert abs(leaf).max() <= 1 / np.sqrt(inputs)
            assert abs(leaf.std() * np.sqrt(3 * inputs) - 1) < 0.1
    assert len(np.unique(layers[0].weight)) > 0.99 * layers[0].weight.size


def test_the_goal_and_the_latent_reach_every_cell_of_the_convolution():
    network = conv_network(jax.random.key(0), observation_size=33, latent_size=2)
    obs, latent = np.zeros((3, 33), np.float32), np.zeros((3, 2), np.float32)
    obs[1, 20], latent[2, 1] = 1.0, 1.0
    plain, with_goal, with_latent = np.asarray(jax.jit(lambda *x: network(*x))(obs, latent))
    assert abs(with_goal - plain).max() > 1e-4
    assert abs(with_latent - plain).min() > 1e-4
    np.testing.assert_allclose(with_latent, with_latent[0], atol=1e-6)


# Double DQN.


def test_the_target_is_that_of_a_hand_computation():
    batch = replay.Batch(
        obs=jnp.zeros((3, 1)),
        action=jnp.zeros(3, int),
        reward=jnp.array([1.0, -0.5, 2.0]),
        next_obs=jnp.zeros((3, 1)),
        ended=jnp.array([False, False, True]),
    )
    chooser = jnp.array([[3.0, 1.0], [0.0, 5.0], [9.0, 9.0]])
    judge = jnp.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
    config = dqn.Config(discount=0.5)
    np.testing.assert_array_equal(dqn.bellman(config, batch, chooser, judge), [6.0, 19.5, 2.0])
    config = replace(config, double=False)
    np.testing.assert_array_equal(dqn.bellman(config, batch, chooser, judge), [11.0, 19.5, 2.0])


def test_the_loss_moves_the_network_alone_and_only_at_the_action_taken():
    network, target = plain_network(jax.random.key(0)), plain_network(jax.random.key(1))
    obs = np.ones((1, 9), np.float32)
    batch = replay.Batch(obs, np.array([2]), np.array([7.0]), 0.5 * obs, np.array([False]))
    wanted = 7.0 + 0.95 * target(0.5 * obs)[0, network(0.5 * obs)[0].argmax()]
    error = float(network(obs)[0, 2] - wanted)
    assert abs(error) > 1.0
    learn = jax.jit(jax.value_and_grad(partial(dqn.td_loss, dqn.Config()), argnums=(0, 1)))
    loss, (moved, still) = learn(network, target, batch)
    np.testing.assert_allclose(loss, abs(error) - 0.5, rtol=1e-5)
    np.testing.assert_array_equal(np.flatnonzero(moved.head.bias), [2])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(still))


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


def test_the_target_network_lags_behind():
    config = dqn.Config(**SMALL | {"target_every": 3})
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


def test_an_update_is_due_for_every_four_steps_after_the_warmup():
    agent, _ = small_agent()
    state = agent.init(jax.random.key(0))
    for chunk in (1, 2):
        state, metrics = agent.train(state)
        assert int(state.steps) == 1000 * chunk
        # The first is due as soon as 100 steps are done.
        assert int(state.learner.updates) == 250 * chunk - 24
    assert set(metrics) == {"episodes", "successes", "reward", "epsilon", "loss"}
    assert all(metric.shape == () for metric in metrics.values())
    assert 1000 / 8 <= metrics["episodes"] <= 1000


# Runs.


def test_twenty_seeds_give_twenty_different_runs():
    agent, _ = small_agent()
    states = [agent.init(seeding.key(seed, "dqn")) for seed in range(20)]
    assert len({fingerprint(state.learner.network) for state in states}) == 20
    assert len({fingerprint(state.env) for state in states}) == 20
    states = [agent.train(state)[0] for state in states]
    assert len({fingerprint(state.learner.network) for state in states}) == 20
    assert len({fingerprint(state.replay.action) for state in states}) == 20


def test_the_same_seed_gives_the_same_bytes():
    agent, _ = small_agent()
    again, _ = small_agent()
    first, _ = agent.train(agent.init(seeding.key(3, "dqn")))
    other, _ = agent.train(agent.init(seeding.key(4, "dqn")))
    second, _ = again.train(again.init(seeding.key(3, "dqn")))
    assert fingerprint(first) == fingerprint(second) != fingerprint(other)


def test_two_halves_make_a_whole():
    whole, _ = small_agent()
    half, _ = small_agent(chunk=500)
    state, _ = whole.train(whole.init(jax.random.key(0)))
    halves = half.init(jax.random.key(0))
    for _ in range(2):
        halves, _ = half.train(halves)
    assert fingerprint(state) == fingerprint(halves)


def test_agents_of_equal_settings_share_programs_whatever_their_rules():
    agent, _ = small_agent()
    state, _ = agent.train(agent.init(jax.random.key(0)))
    programs = dqn._train._cache_size()
    other, _ = small_agent(rules=30)
    others, _ = other.train(other.init(jax.random.key(0)))
    assert dqn._train._cache_size() == programs
    assert (others.env.rule == 30).all()
    assert other.policy(others).act is agent.policy(state).act


def test_a_policy_outlives_the_state_it_came_from_and_is_blind():
    agent, task = small_agent()
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    before = rollout(policy, task, rules=[4, 110], episodes=3)
    state, _ = agent.train(state)
    after = rollout(policy, task, rules=[4, 110], episodes=3)
    np.testing.assert_array_equal(before.cells, after.cells)
    assert not policy.sees_rule
    learnt = rollout(agent.policy(state), task, rules=[4, 110], episodes=3)
    assert (learnt.cells != after.cells).any()


def test_the_policy_takes_the_best_action_of_the_network():
    agent, _ = small_agent()
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).random((5, 9), np.float32)
    policy = agent.policy(state)
    _, action = policy.act(policy.init(None, 5), obs, jax.random.key(2))
    np.testing.assert_array_equal(action, state.learner.network(obs).argmax(axis=-1))


def test_held_out_rules_never_reach_training():
    agent, task = small_agent()
    train = set(task.rules)
    assert len(train) == 226
    params = envs.make(task=task)[1]
    assert set(np.asarray(params.rules[: int(params.num_rules)]).tolist()) == train
    state = agent.init(jax.random.key(0))
    met = set(np.asarray(state.env.rule).tolist())
    for _ in range(60):
        state, _ = agent.train(state)
        met |= set(np.asarray(state.env.rule).tolist())
    assert met <= train
    assert len(met) > 100


def test_a_state_goes_through_arrays_and_back():
    agent, _ = small_agent()
    state, _ = agent.train(agent.init(jax.random.key(0)))
    arrays = api.to_arrays(state)
    assert all(type(array) is np.ndarray and array.dtype.kind in "uif" for array in arrays.values())
    assert "learner.network.head.weight" in arrays
    shape = jax.eval_shape(agent.init, jax.random.key(0))
    back = api.from_arrays(shape, {name: array.copy() for name, array in arrays.items()})
    assert fingerprint(back) == fingerprint(state)
    assert fingerprint(agent.train(back)[0]) == fingerprint(agent.train(state)[0])
    with pytest.raises(ValueError, match="'steps' is only on one side"):
        api.from_arrays(shape, {k: v for k, v in arrays.items() if k != "steps"})
    with pytest.raises(ValueError, match=r"'steps' is int32\[1\], not int32\[\]"):
        api.from_arrays(shape, arrays | {"steps": np.zeros(1, np.int32)})


@pytest.mark.parametrize("name", ["dqn", "rad", "curl", "pearl"])
@pytest.mark.parametrize("network", nn.NETWORKS)
def test_a_state_is_nothing_but_arrays(name, network):
    agent, _ = small_agent(name, network=network)
    for leaf in jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0))):
        assert isinstance(leaf, jax.ShapeDtypeStruct)
        assert leaf.dtype.name in ("float32", "int32", "uint32", "uint16", "key<fry>")


def test_packed_observations_and_too_large_a_kernel_are_refused():
    with pytest.raises(ValueError, match="without packed"):
        agents.make("dqn", *envs.make(packed=True))
    with pytest.raises(ValueError, match="kernel must be at most the length, 8"):
        jax.eval_shape(small_agent(network="conv", kernel=9)[0].init, jax.random.key(0))


# RAD.


def transitions(seed, num=64, length=16):
    """Real transitions of random tapes under random rules, and the rules."""
    rng = np.random.default_rng(seed)
    cells, rule = rng.integers(2, size=(num, length)), rng.integers(256, size=num)
    cell = rng.integers(length, size=num)
    after = dynamics.unpack(dynamics.step(dynamics.pack(cells), cell, rule, length), length)

    def observe(cells, time):
        return np.concatenate([cells, np.full((num, 1), time)], axis=1).astype(np.float32)

    nothing = np.zeros(num, np.float32)
    return replay.Batch(observe(cells, 0.25), cell, nothing, observe(after, 0.5), nothing > 0), rule


def is_real(batch, rule, length=16):
    before, after = (dynamics.pack(np.asarray(x)[:, :length]) for x in (batch.obs, batch.next_obs))
    return (after == dynamics.step(before, np.asarray(batch.action), rule, length))[:, 0]


def test_a_shift_with_its_action_is_a_transition_that_might_have_happened():
    batch, rule = transitions(0)
    augment = jax.jit(rad.augmentation("shift-with-action", 16, None, 0.0))
    moved = jax.tree.map(np.asarray, augment(jax.random.key(0), batch))
    assert is_real(moved, rule).all()
    turns = (moved.action - batch.action) % 16
    assert len(set(turns.tolist())) > 10
    for row, by in enumerate(turns.tolist()):
        np.testing.assert_array_equal(moved.obs[row, :16], np.roll(batch.obs[row, :16], by))
    np.testing.assert_array_equal(moved.obs[:, 16], batch.obs[:, 16])
    np.testing.assert_array_equal(moved.reward, batch.reward)
    paper = jax.jit(rad.augmentation("shift", 16, 1, 0.0))(jax.random.key(1), batch)
    np.testing.assert_array_equal(paper.action, batch.action)
    assert not is_real(paper, rule).all()


def test_a_shift_with_its_action_tells_the_convolution_nothing_new():
    network, target = conv_network(jax.random.key(0)), conv_network(jax.random.key(1))
    loss = jax.jit(partial(dqn.td_loss, dqn.Config()))
    batch = transitions(0)[0]
    wanted = loss(network, target, batch)
    augment = jax.jit(rad.augmentation("shift-with-action", 16, None, 0.0))
    moved = augment(jax.random.key(2), batch)
    np.testing.assert_allclose(loss(network, target, moved), wanted, rtol=1e-5)
    turned = moved._replace(action=batch.action)
    assert abs(loss(network, target, turned) - wanted) > 1e-5 * wanted


def test_a_shift_is_by_one_cell_unless_told_otherwise():
    batch = transitions(0)[0]
    rows = batch.obs[:, :16]
    for max_shift, reach in ((None, 1), (2, 2)):
        augment = jax.jit(rad.augmentation("shift", 16, max_shift, 0.0))
        moved = jax.tree.map(np.asarray, augment(jax.random.key(1), batch))
        turned = {by: np.roll(rows, by, axis=1) for by in range(-reach, reach + 1)}
        matches = {by: (moved.obs[:, :16] == x).all(axis=1) for by, x in turned.items()}
        assert all(match.sum() > 3 for match in matches.values())
        assert np.any(list(matches.values()), axis=0).all()


def test_a_flip_inverts_cells_of_the_tape_and_nothing_else():
    obs = np.repeat(np.float32([[0.0] * 8 + [0.25] * 9]), 4000, axis=0)
    flipped = np.asarray(jax.jit(rad.flip, static_argnums=3)(jax.random.key(0), obs, 0.1, 8))
    assert set(np.unique(flipped[:, :8])) == {0.0, 1.0}
    assert abs(flipped[:, :8].mean() - 0.1) < 0.01
    np.testing.assert_array_equal(flipped[:, 8:], obs[:, 8:])


def test_the_papers_augmentation_does_both_and_leaves_actions_alone():
    assert agents.configure("rad").augment == "shift+flip"
    batch = transitions(0, 512)[0]
    augment = jax.jit(rad.augmentation("shift+flip", 16, 1, 0.2))
    both = jax.tree.map(np.asarray, augment(jax.random.key(1), batch))
    np.testing.assert_array_equal(both.action, batch.action)
    weights = both.obs[:, :16].sum(axis=1) - batch.obs[:, :16].sum(axis=1)
    assert 1.0 < abs(weights).mean() < 2.0
    changed = (both.obs[:, :16] != batch.obs[:, :16]).mean()
    assert 0.3 < changed < 0.5


def test_the_goal_is_rotated_along():
    obs = np.concatenate([np.eye(4), np.full((4, 1), 0.5), np.eye(4)], axis=1)
    turned = np.asarray(jax.jit(rad.rotate, static_argnums=2)(obs, np.arange(4), 4))
    for part in (turned[:, :4], turned[:, 5:]):
        np.testing.assert_array_equal(part.argmax(axis=1), [0, 2, 0, 2])


# CURL.


def test_the_contrastive_loss_of_a_hand_example():
    query = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    key = jnp.array([[1.0, 1.0], [0.0, 3.0]])
    bilinear = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    # Similarities: [[2, 0], [2, 6]].
    wanted = (np.log(1 + np.exp(-2.0)) + np.log(1 + np.exp(-4.0))) / 2
    np.testing.assert_allclose(curl.info_nce(query, key, bilinear), wanted, rtol=1e-6)


def test_the_contrastive_loss_teaches_features_and_the_slow_copy_follows():
    auxiliary = curl.contrast(rad.augmentation("flip", 8, None, 0.1), 2.0, 0.75)
    network = plain_network(jax.random.key(0))
    bilinear, slow = auxiliary.init(jax.random.key(1), network)
    batch = transitions(1, 64, 8)[0]
    loss = partial(auxiliary.loss, jax.random.key(2))
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(network, bilinear, slow, batch)
    slopes = jax.tree.map(np.asarray, slopes)
    assert slopes[0].hidden[0].weight.any()
    assert not slopes[0].head.weight.any()
    assert slopes[1].any()
    assert not any(leaf.any() for leaf in jax.tree.leaves(slopes[2]))
    moved = jax.tree.map(lambda leaf: leaf + 1.0, network)
    followed = auxiliary.follow(slow, moved)
    np.testing.assert_allclose(followed.head.bias, slow.head.bias + 0.25, rtol=1e-5)


# PEARL.


def some_factors(num=3, context=5, latent=2):
    config = pearl.Config(latent_size=latent, encoder_width=8)
    encoder = pearl.make_encoder(jax.random.key(0), config, envs.TapeEnv(length=8))
    batch = transitions(0, num * context, 8)[0]
    tapes = [x[:, :8].reshape(num, context, 8) for x in (batch.obs, batch.next_obs)]
    return jax.jit(lambda *x: encoder(*x))(tapes[0], batch.action.reshape(num, context), tapes[1])


def test_the_posterior_does_not_depend_on_the_order_of_its_context():
    factors = some_factors()
    everything = jnp.ones((3, 5), bool)
    shuffled = pearl.Gaussian(*(x[:, jnp.array([3, 1, 4, 0, 2])] for x in factors))
    one, two = pearl.posterior(factors, everything), pearl.posterior(shuffled, everything)
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-5)
    np.testing.assert_allclose(one.precision, two.precision, rtol=1e-5)
    assert (one.precision > 1.0).all()


def test_without_context_the_posterior_is_the_prior():
    nothing = jnp.zeros((3, 5), bool)
    found = pearl.posterior(some_factors(), nothing)
    np.testing.assert_array_equal(found.mean, np.zeros((3, 2)))
    np.testing.assert_array_equal(found.precision, np.ones((3, 2)))
    np.testing.assert_array_equal(pearl.divergence(found), np.zeros(3))


def test_the_posterior_is_the_product_of_gaussians():
    factors = pearl.Gaussian(jnp.array([[[3.0], [1.0]]]), jnp.array([[[6.0], [-2.0]]]))
    both = pearl.posterior(factors, jnp.array([[True, True]]))
    np.testing.assert_allclose(both.mean, [[4 / 5]])
    np.testing.assert_allclose(both.precision, [[5.0]])
    wanted = 0.5 * (1 / 5 + (4 / 5) ** 2 - 1 + np.log(5))
    np.testing.assert_allclose(pearl.divergence(both), [wanted], rtol=1e-6)
    one = pearl.posterior(factors, jnp.array([[True, False]]))
    np.testing.assert_allclose(one.mean, [[6 / 4]])
    drawn = pearl.Gaussian(*(jnp.tile(x, (20_000, 1)) for x in both)).draw(jax.random.key(0))
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0.8, 5**-0.5], atol=0.02)


def pearl_agent():
    sizes = {"context": 3, "latent_size": 2, "encoder_width": 8, "network": "conv"}
    # Under rule 51, which inverts every cell, hardly an episode ends before its horizon.
    return small_agent("pearl", rules=51, **sizes)[0]


def test_the_policy_remembers_what_training_looks_back_on():
    env, params = envs.make(length=8, horizon=8, rules=51)
    agent = pearl_agent()
    state = agent.init(jax.random.key(0))
    policy = agent.policy(state)

    @jax.jit
    def step(memory, obs, running, stored):
        memory, action = policy.act(memory, obs, None)
        past = replay.past(stored, replay.present(stored), 3)
        factors = state.learner.model.encoder(past.before, past.action, past.after)
        wanted = pearl.posterior(factors, past.is_real)
        found = pearl.posterior(memory.factors, jnp.ones((4, 3), bool))
        obs, running, reward, *_ = jax.vmap(env.step, in_axes=(None, 0, 0, None))(
            None, running, action, params
        )
        return (memory, obs, running, replay.append(stored, action, reward, obs)), found, wanted

    obs = jax.jit(jax.vmap(env.observe, in_axes=(0, None)))(state.env, params)
    carry = policy.init(None, 4), obs, state.env, state.replay
    for t in range(6):
        carry, found, wanted = step(*carry)
        assert (found.precision > 1).all() == (t > 0)
        np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-5)
        np.testing.assert_allclose(found.precision, wanted.precision, rtol=1e-5)


def test_context_is_kept_across_episodes_but_no_transition_is_made_across_them():
    agent = pearl_agent()
    policy = agent.policy(agent.init(jax.random.key(0)))
    memory, act = policy.init(None, 2), jax.jit(policy.act)

    def see(memory, time, seed):
        cells = np.random.default_rng(seed).integers(2, size=(2, 8))
        obs = np.concatenate([cells, [[time], [time]]], axis=1).astype(np.float32)
        return act(memory, obs, None)[0]

    numbers = []
    # Two steps, one stands still because the goal is reached, then a second episode.
    for seed, time in enumerate((0.0, 0.25, 0.5, 0.5, 0.0, 0.25)):
        memory = see(memory, time, seed)
        numbers.append(int(memory.number[0]))
    assert numbers == [0, 1, 2, 2, 2, 3]
    assert (memory.factors.precision > 0).all()


# Every agent learns values that are known.


def check_one_state(network):
    np.testing.assert_allclose(network(observations([0, 0, 0, 0])), [[1, 0, -0.5]], atol=0.05)


def check_delayed(values):
    before = values(observations([0, 0, 0, 0], [0, 0, 0, 1 / 3], [0, 0, 0, 2 / 3]))
    wanted = [[0, GAMMA**2, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(before, wanted, atol=0.1)
    after = values(observations([1, 1, 1, 1 / 3], [1, 1, 1, 2 / 3]))
    np.testing.assert_allclose(after, [[GAMMA] * 3, [1] * 3], atol=0.1)


# One test for each agent: its program is compiled once for all probes.


def test_dqn_learns_known_values_but_not_what_only_the_context_says():
    check_one_state(trained("dqn", probes.ONE_STATE, 2_000)[1].learner.network)
    check_delayed(trained("dqn", probes.DELAYED, 6_000)[1].learner.network)
    network = trained("dqn", probes.HIDDEN, 6_000)[1].learner.network
    values = network(observations([0, 0, 0, 0.5], [1, 1, 1, 0.5]))
    np.testing.assert_allclose(values[:, :2], np.zeros((2, 2)), atol=0.5)
    np.testing.assert_allclose(values[:, 2], [-1, -1], atol=0.2)


@pytest.mark.slow
def test_rad_learns_where_the_transform_keeps_labels():
    options = {"augment": "shift-with-action"}
    network = trained("rad", probes.POINTER, 3_000, **options)[1].learner.network
    values = network(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(values, np.eye(3), atol=0.1)


@pytest.mark.slow
def test_rad_cannot_tell_actions_apart_where_the_transform_changes_labels():
    network = trained("rad", probes.POINTER, 3_000, augment="shift")[1].learner.network
    values = network(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(values, np.full((3, 3), 1 / 3), atol=0.15)


@pytest.mark.slow
def test_curl_learns_the_same_values_as_dqn_and_separates_observations():
    options = {"augment": "shift", "curl_weight": 0.01, "learning_rate": 1e-3}
    agent, state = trained("curl", probes.DELAYED, 12_000, **options)
    check_delayed(state.learner.network)
    # Chance is log 32. Telling all five observations apart is about log 7.
    assert 0.01 * np.log(4) < agent.train(state)[1]["auxiliary_loss"] < 0.01 * np.log(16)


CONTEXT = {"context": 2, "latent_size": 4, "encoder_width": 32}


@pytest.mark.slow
def test_pearl_learns_known_values_and_what_only_the_context_says():
    agent, state = trained("pearl", probes.HIDDEN, 12_000, **CONTEXT)
    policy = agent.policy(state)
    first = observations(*[[bit] * 3 + [0.0] for bit in (0, 0, 1, 1)])
    second = observations(*[[bit] * 3 + [0.5] for bit in (0, 1, 0, 1)])
    memory, _ = policy.act(policy.init(None, 4), first, None)
    network = memory.model.network
    known_later = network(first, jnp.zeros((4, 4)))
    np.testing.assert_allclose(known_later, np.full((4, 3), GAMMA), atol=0.15)
    memory, action = policy.act(memory, second, None)
    np.testing.assert_array_equal(action, [0, 1, 1, 0])
    latent = pearl.posterior(memory.factors, jnp.ones((4, 2), bool)).mean
    wanted = np.where(np.arange(3) == np.array([0, 1, 1, 0])[:, None], 1.0, -1.0)
    np.testing.assert_allclose(network(second, latent), wanted, atol=0.2)

    network = trained("pearl", probes.DELAYED, 8_000, **CONTEXT)[1].learner.model.network
    check_delayed(lambda obs: network(obs, jnp.zeros((len(obs), 4))))


# And to solve tapes.


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "network", "steps"), [(4, "conv", 20_000), (0, "mlp", 60_000)])
def test_dqn_solves_a_fixed_rule(rule, network, steps):
    task = make_task(length=16, horizon=16, rules=rule)
    options = {"network": network, "epsilon_steps": steps // 2}
    agent = agents.make("dqn", *envs.make(task=task), **options)
    state = agent.init(seeding.key(0, "dqn"))
    for _ in range(steps // agent.chunk):
        state, _ = agent.train(state)
    assert rollout(agent.policy(state), task, episodes=200).success.mean() >= 0.95
