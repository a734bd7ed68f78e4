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

from tapebench.agents.api import one_of

NETWORKS = ("mlp", "conv")


class Mlp(eqx.Module):
    """Fully connected layers: the plain choice, which knows nothing of the ring."""

    hidden: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None

    def features(self, obs: Array, latent: Array | None = None) -> Array:
        """What the last hidden layer makes of observations: `[B, width]`."""
        x = obs if latent is None else jnp.concatenate([obs, latent], axis=-1)
        for layer in self.hidden:
            x = jax.nn.relu(linear(layer, x))
        return x

    def __call__(self, obs: Array, latent: Array | None = None) -> Array:
        """Action values `[B, A]`."""
        x = self.features(obs, latent)
        return duel(linear(self.head, x), self.value, x)


class Conv(eqx.Module):
    """Circular convolutions and, before the last layer, the mean over the ring.

    It commutes with rotation: turned tapes have turned action values. Time, latent and the mean
    are the same in every cell.
    """

    hidden: tuple[eqx.nn.Linear, ...]
    here: eqx.nn.Linear
    everywhere: eqx.nn.Linear
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None
    length: int = eqx.field(static=True)
    kernel: int = eqx.field(static=True)

    def cells(self, obs: Array, latent: Array | None = None) -> Array:
        """Features of every cell, `[B, L, channels]`."""
        x = per_cell(obs, latent, self.length)
        for layer in self.hidden:
            x = jax.nn.relu(linear(layer, windows(x, self.kernel)))
        mean = x.mean(axis=-2, keepdims=True)
        return jax.nn.relu(linear(self.here, x) + linear(self.everywhere, mean))

    def features(self, obs: Array, latent: Array | None = None) -> Array:
        """The mean over the ring: `[B, channels]`, the same for a turned tape."""
        return self.cells(obs, latent).mean(axis=-2)

    def __call__(self, obs: Array, latent: Array | None = None) -> Array:
        """Action values, one per cell: `[B, L]`."""
        x = self.cells(obs, latent)
        return duel(linear(self.head, x)[..., 0], self.value, x.mean(axis=-2))


Network = Mlp | Conv


def duel(values: Array, value: eqx.nn.Linear | None, features: Array) -> Array:
    """Action values `[..., A]` as they are, or as differences around a value of the features.

    With `value`, what all actions have in common is learnt once and from every transition, not
    for each action from the few that took it (Wang et al. 2016).
    """
    if value is None:
        return values
    return values - values.mean(axis=-1, keepdims=True) + linear(value, features)


def make(
    key: Array,
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
    sizes = itertools.pairwise([1 + observation_size // length + latent_size, *[channels] * depth])
    convolutions = [(kernel * before, after) for before, after in sizes]
    rest = [(channels, channels), (channels, channels), (channels, 1), (channels, 1)]
    *hidden, here, everywhere, head, value = layers(key, *convolutions, *rest)
    return Conv(
        tuple(hidden),
        here,
        everywhere,
        head,
        value if dueling else None,
        length=length,
        kernel=kernel,
    )


def linear(layer: eqx.nn.Linear, x: Array) -> Array:
    """An Equinox layer on the last axis of any batch."""
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias


def per_cell(obs: Array, latent: Array | None, length: int) -> Array:
    """An observation as channels of each cell, `[..., L, channels]`."""
    cells, time, goal = obs[..., :length], obs[..., length : length + 1], obs[..., length + 1 :]
    channels = [cells[..., None], jnp.broadcast_to(time, cells.shape)[..., None]]
    if goal.shape[-1]:
        channels.append(goal[..., None])
    if latent is not None:
        everywhere = (*cells.shape, latent.shape[-1])
        channels.append(jnp.broadcast_to(latent[..., None, :], everywhere))
    return jnp.concatenate(channels, axis=-1)


def windows(x: Array, kernel: int) -> Array:
    """Each cell's neighbourhood on the ring: `[..., L, C]` -> `[..., L, kernel * C]`.

    With a linear layer behind it this is a circular convolution. Written so, since the gradient
    of XLA's own convolution inside a compiled loop is some twenty times slower on a CPU.
    """
    left, right = kernel // 2, kernel - 1 - kernel // 2
    length = x.shape[-2]
    ring = jnp.concatenate([x[..., length - left :, :], x, x[..., :right, :]], axis=-2)
    return jnp.concatenate([ring[..., i : i + length, :] for i in range(kernel)], axis=-1)


def layers(key: Array, *sizes: tuple[int, int]) -> tuple[eqx.nn.Linear, ...]:
    """Linear layers of these inputs and outputs, with the usual initial values of PyTorch.

    All in one draw, since a draw takes far longer to compile than to make.
    """
    any_key = partial(jax.random.key, 0)
    plan = eqx.filter_eval_shape(lambda: [eqx.nn.Linear(*size, key=any_key()) for size in sizes])
    leaves, tree = jax.tree.flatten(plan)
    ends = list(itertools.accumulate(leaf.size for leaf in leaves))
    drawn = jax.random.uniform(key, (ends[-1],), minval=-1.0, maxval=1.0)
    parts = zip(jnp.split(drawn, ends[:-1]), leaves, strict=True)
    made = jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in parts])
    scales = [1.0 / math.sqrt(inputs) for inputs, _ in sizes]
    return tuple(
        jax.tree.map(lambda leaf, scale=scale: scale * leaf, layer)
        for layer, scale in zip(made, scales, strict=True)
    )
