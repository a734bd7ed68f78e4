import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import (
    SMALL,
    observations,
    played_tapes,
    probed,
    small_agent,
    train_until,
    trained,
    turn,
)
from tapebench import env as envs
from tapebench.agents import memory, nn, rppo
from tapebench.physics import evidence, space
from tapebench.physics.families import elementary


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
    unit = jax.jit(lambda *rows: memory.Gru(inputs, recurrent)(*rows))
    states, advance = unit(jnp.float32(hidden), jnp.float32(x), forgets), jax.jit(jax.vmap(cell))
    for t in range(5):
        hidden = np.where(forgets[t][:, None], 0.0, hidden)
        hidden = advance(jnp.float32(x[t]), jnp.float32(hidden))
        np.testing.assert_allclose(states[t], hidden, atol=1e-6)


@pytest.mark.parametrize("network", ["gru", "cells", "entries"])
def test_a_sequence_is_what_single_steps_make_of_it(network):
    _, algorithm, model, start, segment = played_tapes(rppo, network)
    is_first = np.asarray(segment.obs[..., 8] == 0)
    assert not is_first[0].all()
    assert is_first[1:].any(axis=0).all()
    logits, value = jax.jit(algorithm.unroll)(model, start, segment.obs, segment.action)
    see, before = jax.jit(algorithm.see), start
    for t in range(12):
        before, (row, worth) = see(model, before, segment.obs[t])
        before = algorithm.note(before, segment.action[t])
        np.testing.assert_allclose(logits[t], row, atol=1e-6)
        np.testing.assert_allclose(value[t], worth, atol=1e-5)
        # And where an episode starts, what was before does not matter.
        _, (anew, worth_anew) = see(model, algorithm.begin(8), segment.obs[t])
        np.testing.assert_allclose(row[is_first[t]], anew[is_first[t]], atol=1e-6)
        assert np.abs(np.asarray(worth - worth_anew))[~is_first[t]].min(initial=1.0) > 1e-6


@pytest.mark.parametrize("network", ["gru", "cells", "entries"])
def test_nothing_leaks_over_the_end_of_an_episode(network):
    config = rppo.Config(**SMALL["rppo"] | {"network": network})
    env = envs.TapeEnv(length=8)
    algorithm = rppo._algorithm(config, env, 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    obs = rng.integers(2, size=(6, 2, 9)).astype(np.float32)
    # The first starts anew in row 3, the second goes on.
    obs[..., 8] = np.array([[4, 5, 6, 0, 1, 2], [1, 2, 3, 4, 5, 6]]).T / 8
    action = rng.integers(8, size=(6, 2))
    start = memory.Memory(jnp.float32(rng.normal(size=(2, config.memory_size))), obs[0], action[0])
    unroll = jax.jit(algorithm.unroll)
    wanted = unroll(model, start, obs, action)
    other = obs.copy()
    other[:3, :, :8] = 1.0 - other[:3, :, :8]
    changed = action.copy()
    changed[:3] = (changed[:3] + 1) % 8
    elsewhere = start._replace(hidden=-start.hidden)
    for past in ((elsewhere, obs, action), (start, other, action), (start, obs, changed)):
        for output, before in zip(unroll(model, *past), wanted, strict=True):
            np.testing.assert_array_equal(output[3:, 0], before[3:, 0])
            assert (np.asarray(output)[3:, 1] != before[3:, 1]).all(axis=-1).any()


def test_gradients_reach_the_first_step_of_a_piece():
    config = rppo.Config(**SMALL["rppo"] | {"network": "gru"})
    algorithm = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    obs = np.random.default_rng(0).integers(2, size=(5, 1, 9)).astype(np.float32)
    obs[..., 8] = np.arange(5)[:, None] / 8

    def last_value(obs):
        return algorithm.unroll(model, algorithm.begin(1), obs, jnp.zeros((5, 1), int))[1][-1, 0]

    assert np.abs(jax.jit(jax.grad(last_value))(obs)[0]).max() > 1e-6


def cases(before, after):
    """Which of the 16 cases every cell is, `[..., L]` -> `[..., L, 16]` with a single one each."""
    left, right = np.roll(before, 1, axis=-1), np.roll(before, -1, axis=-1)
    return np.eye(16)[8 * left + 4 * before + 2 * right + after]


def shares_of(before, after, length):
    ring = space.Space((length,))
    shares = evidence.shares(jnp.asarray(before), jnp.asarray(after), elementary.ELEMENTARY, ring)
    return shares.reshape(-1, 16)


def test_no_transition_has_a_case_that_its_rule_forbids():
    rng = np.random.default_rng(0)
    tape, rule = rng.integers(2, size=(40, 16)), rng.integers(256, size=40)
    after = space.unpack(elementary.evolve(space.pack(tape), rule, 16), 16)
    shares = np.asarray(shares_of(tape, after, 16)).reshape(40, 8, 2)
    seen = shares.sum(axis=-1) > 0
    assert seen.mean() > 0.5
    np.testing.assert_array_equal(
        shares.argmax(axis=-1)[seen], ((rule[:, None] >> np.arange(8)) & 1)[seen]
    )
    assert (shares > 0).sum(axis=-1).max() == 1


@pytest.mark.parametrize("length", [8, 32, 40])
def test_the_shares_of_cases_are_their_mean_over_the_cells(length):
    before, after = np.random.default_rng(0).integers(2, size=(2, 20, length))
    wanted = cases(before, after).mean(axis=-2)
    np.testing.assert_allclose(shares_of(before, after, length), wanted, rtol=1e-6)


def test_every_cell_looks_up_its_case():
    config = rppo.Config(**SMALL["rppo"] | {"network": "cells"})
    encoder = rppo._algorithm(config, envs.TapeEnv(length=8), 9).init(jax.random.key(0)).encoder
    before, after = np.random.default_rng(1).integers(2, size=(2, 30, 8))
    action = np.arange(30) % 8
    flipped = before ^ np.eye(8, dtype=int)[action]
    entries = np.maximum(cases(flipped, after) @ encoder.table.weight.T + encoder.table.bias, 0)
    wanted = np.concatenate([entries.mean(axis=1), entries.max(axis=1)], axis=-1)
    obs = [jnp.float32(np.concatenate([x, np.ones((30, 1))], axis=1)) for x in (before, after)]
    encoded = encoder(obs[0], action, obs[1], np.zeros(30, bool))
    np.testing.assert_allclose(encoded, wanted, rtol=1e-5, atol=1e-6)
    assert not encoder(obs[0], action, obs[1], np.ones(30, bool)).any()


def test_every_entry_remembers_what_became_of_those_who_read_it():
    config = rppo.Config(**SMALL["rppo"] | {"network": "entries", "memory_size": 16})
    model = rppo._algorithm(config, envs.TapeEnv(length=8), 9).init(jax.random.key(0))
    before, after = np.random.default_rng(1).integers(2, size=(2, 30, 8))
    action = np.arange(30) % 8
    flipped = before ^ np.eye(8, dtype=int)[action]
    shares = cases(flipped, after).mean(axis=1).reshape(30, 8, 2)
    said = np.concatenate([shares, shares > 0], axis=-1)
    layer = model.encoder.layer
    wanted = np.maximum(said @ layer.weight.T + layer.bias, 0)
    obs = [
        jnp.float32(np.concatenate([x, np.full((30, 1), t)], axis=1))
        for t, x in enumerate((before, after))
    ]
    encoded = model.encoder(obs[0], action, obs[1], np.zeros(30, bool))
    np.testing.assert_allclose(encoded, wanted, rtol=1e-5, atol=1e-6)
    assert not model.encoder(obs[0], action, obs[1], np.ones(30, bool)).any()
    # One GRU for all of them: entries of which the same is said have the same state.
    _, hidden = model.run(memory.begin(30, 9, 16), jnp.stack(obs), jnp.asarray(action)[None])
    states = np.asarray(hidden[1]).reshape(30 * 8, 2)
    rows = np.round(said.reshape(30 * 8, 4), 6)
    for row in np.unique(rows, axis=0):
        same = states[(rows == row).all(axis=-1)]
        np.testing.assert_allclose(same, np.broadcast_to(same[0], same.shape), atol=1e-6)
    assert len(np.unique(np.round(states, 5), axis=0)) > 5


def test_what_is_remembered_of_the_entries_is_looked_up_by_every_cell():
    config = rppo.Config(**SMALL["rppo"] | {"network": "entries", "memory_size": 16})
    model = rppo._algorithm(config, envs.TapeEnv(length=8), 9).init(jax.random.key(0))
    assert (model.body.network.family, model.body.network.numbers) == (elementary.ELEMENTARY, 2)
    cells = jnp.float32(np.random.default_rng(2).integers(2, size=(5, 8)))
    states = jnp.float32(np.random.default_rng(3).normal(size=(5, 8, 2)))  # by entry, then number
    table = states.swapaxes(-1, -2).reshape(5, 16)
    said = nn.look_up(cells, table, elementary.ELEMENTARY, space.Space((8,)), 2)
    codes = np.asarray(elementary.codes(cells, space.Space((8,)))).astype(int)
    for number in range(2):
        wanted = np.take_along_axis(np.asarray(states[..., number]), codes, axis=1)
        np.testing.assert_allclose(said[4 * number].T, wanted)
    # Every entry has as many numbers.
    config = rppo.Config(**SMALL["rppo"] | {"network": "entries", "memory_size": 12})
    odd = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    with pytest.raises(ValueError, match="memory_size must be a multiple of the 8 entries"):
        odd.init(jax.random.key(0))


@pytest.mark.parametrize("network", ["cells", "entries"])
def test_memories_made_for_rules_turn_with_the_tape(network):
    config = rppo.Config(**SMALL["rppo"] | {"network": network, "depth": 2})
    algorithm = rppo._algorithm(config, envs.TapeEnv(length=8), 9)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    obs = rng.integers(2, size=(4, 3, 9)).astype(np.float32)
    obs[..., 8] = np.arange(4)[:, None] / 8
    action = rng.integers(8, size=(4, 3))
    run, start = jax.jit(lambda *x: model.run(*x)), algorithm.begin(3)
    (logits, value), hidden = run(start, obs, action[:-1])
    (turned, same), too = run(start, turn(obs, 3), (action[:-1] + 3) % 8)
    np.testing.assert_allclose(turned, np.roll(logits, 3, axis=-1), atol=1e-6)
    np.testing.assert_allclose(same, value, atol=1e-5)
    np.testing.assert_allclose(too, hidden, atol=1e-6)
    # The evidence is of the tape after the flip: another action is another memory.
    other = run(start, obs, (action[:-1] + 1) % 8)[1]
    assert np.abs(np.asarray(other - hidden))[1:].max() > 1e-4


def test_the_reward_that_is_shown_is_the_distance_to_what_is_observed():
    obs = observations([1, 0, 1, 1, 0.5], [0, 0, 0, 0, 0.25])
    np.testing.assert_allclose(memory.observed_distance(obs, 4), [0.75, 0.0])
    with_goal = jnp.concatenate([obs, observations([1, 1, 1, 1], [1, 0, 0, 0])], axis=-1)
    np.testing.assert_allclose(memory.observed_distance(with_goal, 4), [0.25, 0.25])


@pytest.mark.parametrize("reset", [True, False])
def test_memory_is_kept_across_trials_only_if_told_so(reset):
    config = rppo.Config(**SMALL["rppo"] | {"reset_memory": reset})
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


def test_the_policy_takes_the_likeliest_action():
    agent, _ = small_agent("rppo")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    policy = agent.policy(state)
    obs = np.random.default_rng(0).integers(2, size=(5, 9)).astype(np.float32)
    obs[:, 8] = 0.0
    (model, memory), action = policy.act(policy.init(None, 5), obs, None)
    logits = model.read(obs, memory.hidden)[0]
    np.testing.assert_array_equal(action, logits.argmax(axis=-1))


# Memory that is needed.


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
    agent = probed("rppo", probes.make_recall(), **RECALL)

    def check(state, metrics):
        assert 3 * metrics["reward"] > 0.9
        action, (model, memory), obs = recalls(agent, state)
        np.testing.assert_array_equal(action, [0, 1])
        _, value = model.read(obs, memory.hidden)
        np.testing.assert_allclose(value, [1.0, 1.0], atol=0.15)

    train_until(check, agent, 192 * 120)


@pytest.mark.slow
def test_ppo_cannot_solve_the_memory_probe():
    agent, state, metrics = trained("ppo", probes.make_recall(), 192 * 120, trace=1.0)
    assert abs(3 * metrics["reward"]) < 0.2
    action, (model, _), obs = recalls(agent, state)
    assert action[0] == action[1]
    np.testing.assert_allclose(model(obs)[1], [0.0, 0.0], atol=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["cells", "entries"])
def test_memories_made_for_rules_learn_what_only_the_last_step_says(network):
    options = {"network": network, "memory_size": 16, "encoder_width": 16, "trace": 1.0}
    agent = probed("rppo", probes.make_marked(), **options)
    marks = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 1], [0, 1, 1]])
    is_kept = np.array([[True], [False], [True], [False]])
    first = observations(*[[*row, 0.0] for row in marks])
    second = observations(*[[*row, 0.5] for row in np.where(is_kept, marks, 1 - marks)])

    def check(state, metrics):
        assert 2 * metrics["reward"] > 0.9
        policy = agent.policy(state)
        memory, _ = policy.act(policy.init(None, 4), first, None)
        (model, inner), action = policy.act(memory, second, None)
        np.testing.assert_array_equal(action, [1, 2, 0, 1])
        np.testing.assert_allclose(model.read(second, inner.hidden)[1], np.ones(4), atol=0.2)

    train_until(check, agent, 192 * 120)
