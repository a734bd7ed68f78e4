"""Networks. Batches in, batches out; every leaf is an array, so a network is its parameters.

An observation is `[tape, t/H]` or `[tape, t/H, goal]`. A network may be given a `latent` with it,
which belongs to the episode as a whole.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float32, PRNGKeyArray, UInt32

from tapebench.base.names import one_of
from tapebench.physics import space
from tapebench.tasks.layout import Layout

NETWORKS = ("mlp", "conv")

CASES = 16
"""Neighbourhoods of three cells, times what becomes of the one in the middle."""

WIDE = 128
"""Outputs from which on a layer's gradient is faster if written as in `_weight_slope`: by a tenth
of all training at 128 and 256 units; at 64 it would be slower."""


class Mlp(eqx.Module):
    """Fully connected layers: the plain choice, which knows nothing of the ring."""

    hidden: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None

    def features(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B width"]:
        """What the last hidden layer makes of observations."""
        x = obs if latent is None else jnp.concatenate([obs, latent], axis=-1)
        for layer in self.hidden:
            x = jax.nn.relu(linear(layer, x))
        return x

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B A"]:
        """Action values."""
        x = self.features(obs, latent)
        return duel(linear(self.head, x), self.value, x)


class Conv(eqx.Module):
    """Circular convolutions and, before the last layer, the mean over the ring.

    It commutes with rotation: turned tapes have turned action values.
    """

    hidden: tuple[eqx.nn.Linear, ...]
    episode: eqx.nn.Linear
    """From what is the same in every cell, time and latent, into the first layer."""
    here: eqx.nn.Linear
    everywhere: eqx.nn.Linear
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None
    length: int = eqx.field(static=True)
    kernel: int = eqx.field(static=True)

    def cells(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B L channels"]:
        """Features of every cell."""
        time = Layout(self.length).time_column(obs)
        shared = time if latent is None else jnp.concatenate([time, latent], axis=-1)
        first, *rest = self.hidden
        x = linear(first, windows(per_cell(obs, self.length), self.kernel))
        x = jax.nn.relu(x + linear(self.episode, shared)[..., None, :])
        for layer in rest:
            x = jax.nn.relu(linear(layer, windows(x, self.kernel)))
        mean = x.mean(axis=-2, keepdims=True)
        return jax.nn.relu(linear(self.here, x) + linear(self.everywhere, mean))

    def features(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B channels"]:
        """The mean over the ring, the same for a turned tape."""
        return self.cells(obs, latent).mean(axis=-2)

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B L"]:
        """Action values, one per cell."""
        x = self.cells(obs, latent)
        return duel(linear(self.head, x)[..., 0], self.value, x.mean(axis=-2))


Network = Mlp | Conv


def duel(
    values: Float32[Array, "*B A"], value: eqx.nn.Linear | None, features: Float32[Array, "*B F"]
) -> Float32[Array, "*B A"]:
    """Action values as they are, or as differences around a value of the features.

    With `value`, what all actions have in common is learned once and from every transition, not
    for each action from the few that took it (Wang et al. 2016).
    """
    if value is None:
        return values
    return values - values.mean(axis=-1, keepdims=True) + linear(value, features)


def make(
    key: PRNGKeyArray,
    kind: str,
    *,
    length: int,
    observation_size: int,
    num_actions: int,
    width: int,
    channels: int,
    depth: int,
    kernel: int,
    latent_size: int = 0,
    dueling: bool = False,
) -> Network:
    """A network for action values: hidden layers of `width` units, or `channels` in each cell."""
    if one_of("network", kind, NETWORKS) == "mlp":
        sizes = itertools.pairwise([observation_size + latent_size, *[width] * depth, num_actions])
        *hidden, head, value = layers(key, *sizes, (width, 1))
        return Mlp(tuple(hidden), head, value if dueling else None)
    if num_actions != length:
        raise ValueError("network 'conv' needs one action per cell: use 'mlp'")
    if kernel > length:
        raise ValueError(f"kernel must be at most the length, {length}, not {kernel}")
    sizes = itertools.pairwise([observation_size // length, *[channels] * depth])
    convolutions = [(kernel * before, after) for before, after in sizes]
    mixers = [(1 + latent_size, channels), (channels, channels), (channels, channels)]
    *hidden, episode, here, everywhere, head, value = layers(
        key, *convolutions, *mixers, (channels, 1), (channels, 1)
    )
    return Conv(
        tuple(hidden),
        episode,
        here,
        everywhere,
        head,
        value if dueling else None,
        length=length,
        kernel=kernel,
    )


def linear(layer: eqx.nn.Linear, x: Float32[Array, "*B F"]) -> Float32[Array, "*B outputs"]:
    """An Equinox layer on the last axis of any batch."""
    assert layer.bias is not None
    is_wide = layer.weight.shape[0] >= WIDE
    return (_product(layer.weight, x) if is_wide else x @ layer.weight.T) + layer.bias


@jax.custom_vjp
def _product(weight: Array, x: Array) -> Array:
    """`x @ weight.T`, with a gradient that is written for speed."""
    return x @ weight.T


def _product_forward(weight: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(weight, x), (weight, x)


def _product_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    weight, x = saved
    return _weight_slope(x, slope), slope @ weight


_product.defvjp(_product_forward, _product_backward)


def _weight_slope(x: Array, slope: Array) -> Array:
    """The sum over the batch of `slope[:, None] * x[None]`, for weights `[out, in]`.

    A CPU multiplies more slowly, by up to a half, if the left side is stored the other way round.
    So it is turned before; the barrier keeps the compiler from undoing that.
    """
    x, slope = (each.reshape(-1, each.shape[-1]) for each in (x, slope))
    return jax.lax.optimization_barrier(slope.T) @ x


def gru(
    recurrent: eqx.nn.Linear, hidden: Float32[Array, "*B Z"], gates: Float32[Array, "*B 3*Z"]
) -> Float32[Array, "*B Z"]:
    """One GRU step; `gates` is the part of its inputs."""
    reset, keep, new = jnp.split(gates, 3, axis=-1)
    reset_from, keep_from, new_from = jnp.split(linear(recurrent, hidden), 3, axis=-1)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + reset_from) * new_from)
    return new + jax.nn.sigmoid(keep + keep_from) * (hidden - new)


def per_cell(obs: Float32[Array, "*B D"], length: int) -> Float32[Array, "*B L channels"]:
    """An observation by cell, with the goal if it is observed."""
    layout = Layout(length)
    cells, goal = layout.cells(obs), layout.goal(obs)
    return jnp.stack([cells, goal] if goal.shape[-1] else [cells], axis=-1)


def case_shares(
    before: UInt32[Array, "*B W"], after: UInt32[Array, "*B W"], length: int
) -> Float32[Array, "*B 16"]:
    """In what share of its cells a tape has each of the 16 cases.

    Case `2 n + after` is the neighbourhood `n = 4l + 2c + r` whose middle cell became `after`.
    """
    left, right = space.neighbours(before, length)
    every = space.full(length)
    masks = [every]
    for bits in (left, before, right, after):
        masks = [part & side for part in masks for side in (~bits, bits)]
    counts = jnp.stack([jnp.bitwise_count(part).sum(axis=-1) for part in masks], axis=-1)
    return counts.astype(jnp.float32) / length


def windows(x: Float32[Array, "*B L C"], kernel: int) -> Float32[Array, "*B L window"]:
    """Each cell's neighbourhood on the ring.

    With a linear layer behind it this is a circular convolution. Written so, since the gradient
    of XLA's own convolution inside a compiled loop is some twenty times slower on a CPU.
    """
    left, right = kernel // 2, kernel - 1 - kernel // 2
    length = x.shape[-2]
    ring = jnp.concatenate([x[..., length - left :, :], x, x[..., :right, :]], axis=-2)
    return jnp.concatenate([ring[..., i : i + length, :] for i in range(kernel)], axis=-1)


def layers(key: PRNGKeyArray, *sizes: tuple[int, int]) -> tuple[eqx.nn.Linear, ...]:
    """Linear layers of these inputs and outputs, with the usual initial values of PyTorch.

    All in one draw, since a draw takes far longer to compile than to make.
    """
    any_key = partial(jax.random.key, 0)
    plan = eqx.filter_eval_shape(lambda: [eqx.nn.Linear(*size, key=any_key()) for size in sizes])
    leaves, tree = jax.tree.flatten(plan)
    ends = list(itertools.accumulate(leaf.size for leaf in leaves))
    drawn = jax.random.uniform(key, (ends[-1],), minval=-1.0, maxval=1.0)
    parts = zip(jnp.split(drawn, ends[:-1]), leaves, strict=True)
    linears = jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in parts])
    scales = [1.0 / math.sqrt(inputs) for inputs, _ in sizes]
    return tuple(
        jax.tree.map(lambda leaf, scale=scale: scale * leaf, layer)
        for layer, scale in zip(linears, scales, strict=True)
    )


def fade(head: eqx.nn.Linear) -> eqx.nn.Linear:
    """A last layer that says next to nothing at first, so that no action is preferred."""
    return jax.tree.map(lambda leaf: 0.01 * leaf, head)
