import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import conv_network, plain_network
from tapebench.agents import nn, rad
from tapebench.physics.space import Space


@pytest.mark.parametrize("kernel", [2, 5])
def test_values_of_the_convolution_turn_with_the_tape(kernel):
    rng = np.random.default_rng(kernel)
    network = conv_network(jax.random.key(kernel), kernel=kernel)
    values = jax.jit(lambda obs: network(obs))
    obs = np.tile(rng.random((1, 17), np.float32), (16, 1))
    turned = values(jax.jit(rad.shift, static_argnums=2)(obs, (np.arange(16),), Space((16,))))
    wanted = [np.roll(row, by) for by, row in enumerate(np.asarray(values(obs)))]
    np.testing.assert_allclose(turned, wanted, atol=1e-5)
    assert np.ptp(wanted[0]) > 1e-3


def test_values_of_the_plain_network_do_not_turn_with_the_tape():
    obs = np.random.default_rng(0).random((2, 17), np.float32)
    turned = np.concatenate([np.roll(obs[:, :16], 3, axis=1), obs[:, 16:]], axis=1)
    network = plain_network(jax.random.key(0), length=16)
    assert abs(network(turned) - np.roll(network(obs), 3, axis=-1)).max() > 1e-2


def test_windows_on_a_ring_make_a_circular_convolution():
    (layer,) = nn.layers(jax.random.key(0), (3 * 2, 4))
    x = np.random.default_rng(0).normal(size=(5, 7, 2)).astype(np.float32)
    convolved = jax.jit(lambda x: nn.linear(layer, nn.Window(Space((7,)), 3).around(x)))(x)
    weight, bias = np.asarray(layer.weight).reshape(4, 3, 2), np.asarray(layer.bias)
    for cell in range(7):
        wanted = bias + sum(
            x[:, (cell + offset - 1) % 7] @ weight[:, offset].T for offset in range(3)
        )
        np.testing.assert_allclose(convolved[:, cell], wanted, atol=1e-5)


@pytest.mark.parametrize("kernel", [2, 3])
def test_windows_on_a_torus_hold_the_square_around_each_cell(kernel):
    space = Space((3, 5))
    x = np.random.default_rng(0).normal(size=(4, 15, 2)).astype(np.float32)
    around = np.asarray(nn.Window(space, kernel).around(jnp.asarray(x)))
    first = jnp.moveaxis(x, -1, 0)  # the features first, as in the networks
    other = nn.Window(space, kernel).around(first, sites=2, features=0)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(other), 0, -1), around)
    boards = x.reshape(4, 3, 5, 2)
    offsets = np.arange(kernel) - kernel // 2
    for cell in range(15):
        row, column = divmod(cell, 5)
        square = boards[:, (row + offsets) % 3][:, :, (column + offsets) % 5]
        for batch in range(4):
            window = np.sort(around[batch, cell])
            np.testing.assert_array_equal(window, np.sort(square[batch], axis=None))
            # In one order everywhere: what is in a place of the window is the cell there.
            moved = np.roll(boards[batch], (-row, -column), axis=(0, 1)).reshape(1, 15, 2)
            same = nn.Window(space, kernel).around(jnp.asarray(moved))[0, 0]
            np.testing.assert_array_equal(same, around[batch, cell])
    with pytest.raises(ValueError, match="kernel must be at most the shorter side, 3, not 4"):
        nn.Window(space, 4)


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
