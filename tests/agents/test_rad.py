from functools import partial

import jax
import numpy as np
import pytest

import probes
from learners import conv_network, observations, trained, transitions
from tapebench import agents
from tapebench.agents import dqn, rad
from tapebench.agents.replay import Batch
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.physics.families.life import LIFE
from tapebench.physics.space import Space

TORUS = Space((3, 5))


def is_real(batch, rule, length=16):
    before, after = (space.pack(np.asarray(x)[:, :length]) for x in (batch.obs, batch.next_obs))
    return (after == elementary.step(before, np.asarray(batch.action), rule, length))[:, 0]


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


def test_on_a_torus_a_shift_is_along_both_sides():
    rng = np.random.default_rng(0)
    rule = rng.integers(LIFE.num_rules, size=200)
    cells, cell = rng.integers(2, size=(200, 15)), rng.integers(15, size=200)
    after = space.unpack(LIFE.step(space.pack(cells), cell, rule, TORUS), 15)
    once = np.ones(200, np.int32)
    obs, next_obs = (np.append(x, once[:, None], 1).astype(np.float32) for x in (cells, after))
    batch = Batch(obs, cell, np.float32(once), next_obs, once == 0, once)
    augment = jax.jit(rad.augmentation("shift-with-action", TORUS, None, 0.0))
    moved = jax.tree.map(np.asarray, augment(jax.random.key(0), batch))
    wanted = LIFE.step(space.pack(moved.obs[:, :15]), moved.action, rule, TORUS)
    np.testing.assert_array_equal(moved.next_obs[:, :15], space.unpack(wanted, 15))
    rows, columns = moved.action // 5 - cell // 5, moved.action % 5 - cell % 5
    assert {*(rows % 3)} == {*range(3)}
    assert {*(columns % 5)} == {*range(5)}
    # By one cell at most, either way, if it is told to.
    augment = jax.jit(rad.augmentation("shift-with-action", Space((5, 7)), 1, 0.0))
    obs = np.append(np.tile(np.eye(1, 35, 17), (200, 1)), once[:, None], 1).astype(np.float32)
    same = Batch(obs, np.full(200, 17), np.float32(once), obs, once == 0, once)
    near = np.asarray(augment(jax.random.key(1), same).action)
    assert set(near.tolist()) == {row * 7 + column for row in (1, 2, 3) for column in (2, 3, 4)}


@pytest.mark.parametrize("shape", [(16,), (4, 4)])
def test_a_shift_with_its_action_tells_the_convolution_nothing_new(shape):
    network, target = (conv_network(jax.random.key(seed), shape) for seed in range(2))
    loss = jax.jit(partial(dqn.td_loss, dqn.Config()))
    batch = transitions(0)[0]
    wanted = loss(network, target, batch)
    augment = jax.jit(rad.augmentation("shift-with-action", Space(shape), None, 0.0))
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
    flipped = np.asarray(
        jax.jit(rad.flip_at_random, static_argnums=3)(jax.random.key(0), obs, 0.1, 8)
    )
    assert set(np.unique(flipped[:, :8])) == {0.0, 1.0}
    assert abs(flipped[:, :8].mean() - 0.1) < 0.01
    np.testing.assert_array_equal(flipped[:, 8:], obs[:, 8:])


def test_by_default_actions_go_along_in_rad_and_curl_has_no_labels_to_spoil():
    assert agents.configure("rad", network="mlp").augment == "shift-with-action"
    assert agents.configure("curl", network="mlp").augment == "shift+flip"


@pytest.mark.parametrize("name", ["rad", "curl"])
def test_on_a_network_that_commutes_with_rotation_only_the_flip_is_left(name):
    assert agents.configure(name).augment == "flip"
    # Whoever asks for more gets it.
    asked = agents.configure(name, network="conv", augment="shift-with-action+flip")
    assert asked.augment == "shift-with-action+flip"


def test_the_ablation_does_both_and_leaves_actions_alone():
    batch = transitions(0, 512)[0]
    augment = jax.jit(rad.augmentation("shift+flip", 16, 1, 0.2))
    both = jax.tree.map(np.asarray, augment(jax.random.key(1), batch))
    np.testing.assert_array_equal(both.action, batch.action)
    weights = both.obs[:, :16].sum(axis=1) - batch.obs[:, :16].sum(axis=1)
    assert 1.0 < abs(weights).mean() < 2.0
    changed = (both.obs[:, :16] != batch.obs[:, :16]).mean()
    assert 0.3 < changed < 0.5


def test_the_goal_is_shifted_along():
    obs = np.concatenate([np.eye(4), np.full((4, 1), 0.5), np.eye(4)], axis=1)
    turned = np.asarray(jax.jit(rad.shift, static_argnums=2)(obs, (np.arange(4),), Space((4,))))
    for part in (turned[:, :4], turned[:, 5:]):
        np.testing.assert_array_equal(part.argmax(axis=1), [0, 2, 0, 2])


@pytest.mark.slow
def test_rad_learns_where_the_transform_keeps_labels():
    network = trained("rad", probes.make(probes.POINTER), 3_000)[1].learner.network
    values = network(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(values, np.eye(3), atol=0.1)


@pytest.mark.slow
def test_rad_cannot_tell_actions_apart_where_the_transform_changes_labels():
    network = trained("rad", probes.make(probes.POINTER), 3_000, augment="shift")[1].learner.network
    values = network(observations(*np.eye(3, 4)))
    np.testing.assert_allclose(values, np.full((3, 3), 1 / 3), atol=0.15)
