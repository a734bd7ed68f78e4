"""Networks. Batches in, batches out; every leaf is an array, so a network is its parameters.

An observation is `[tape, t/H]` or `[tape, t/H, goal]`. A network may be given a `latent` with it,
which belongs to the episode as a whole.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32, PRNGKeyArray

from tapebench.base.names import one_of
from tapebench.physics.family import Family
from tapebench.physics.space import Space
from tapebench.tasks.layout import Layout

NETWORKS = ("mlp", "conv")

KNOWN = 2
"""Numbers that say what is known of an entry of a table: whether it was seen, and what it is."""

WIDE = 128
"""Outputs from which on a layer's gradient is faster if written as in `_weight_slope`: by a tenth
of all training at 128 and 256 units; at 64 it would be slower."""


EPSILON = 1e-5
"""Added to the variance by which a layer is normalised."""


class Norm(eqx.Module):
    """LayerNorm of the last axis, or of another."""

    scale: Float32[Array, " F"]
    shift: Float32[Array, " F"]

    def __call__(self, x: Float32[Array, "*_"], axis: int = -1) -> Float32[Array, "*_"]:
        others = [other for other in range(x.ndim) if other != axis % x.ndim]
        scale, shift = (jnp.expand_dims(leaf, others) for leaf in (self.scale, self.shift))
        if axis == 0:
            return _standardised(x.reshape(len(x), -1)).reshape(x.shape) * scale + shift
        centred = x - x.mean(axis=axis, keepdims=True)
        variance = jnp.square(centred).mean(axis=axis, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPSILON) * scale + shift


@dataclass(frozen=True)
class Window:
    """The cells that a convolution sees from each: `kernel` along every side of a space, around."""

    space: Space
    kernel: int

    def __post_init__(self) -> None:
        most = min(self.space.shape)
        if self.kernel > most:
            side = "shorter side" if self.space.is_torus else "length"
            raise ValueError(f"kernel must be at most the {side}, {most}, not {self.kernel}")

    @property
    def size(self) -> int:
        """How many cells that are."""
        return int(self.kernel ** len(self.space.shape))

    def around(
        self, x: Float32[Array, "*_"], *, sites: int = -2, features: int = -1
    ) -> Float32[Array, "*_"]:
        """The features of all cells in the window of each; `sites` and `features` are axes.

        With a linear layer behind it this is a periodic convolution. Written so, since the gradient
        of XLA's own convolution inside a compiled loop is some twenty times slower on a CPU.
        """
        sites, features, sides = sites % x.ndim, features % x.ndim, self.space.shape
        x = x.reshape(*x.shape[:sites], *sides, *x.shape[sites + 1 :])
        features += (len(sides) - 1) * (features > sites)
        for axis in range(sites, sites + len(sides)):
            x = _along(x, self.kernel, axis, features)
        return x.reshape(*x.shape[:sites], self.space.size, *x.shape[sites + len(sides) :])


def _along(x: Array, kernel: int, axis: int, features: int) -> Array:
    """The features of `kernel` cells in a row around each, along one axis."""
    left, right = kernel // 2, kernel - 1 - kernel // 2
    length = x.shape[axis]
    cut = partial(jax.lax.slice_in_dim, axis=axis)
    ends = [cut(x, length - left, length), x, cut(x, 0, right)]
    ring = jnp.concatenate(ends, axis=axis)
    return jnp.concatenate([cut(ring, i, i + length) for i in range(kernel)], axis=features)


class Mlp(eqx.Module):
    """Fully connected layers: the plain choice, which knows nothing of the space."""

    hidden: tuple[eqx.nn.Linear, ...]
    norms: tuple[Norm, ...]
    """One for each hidden layer, or none at all."""
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None

    def features(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B width"]:
        """What the last hidden layer makes of observations."""
        x = obs if latent is None else jnp.concatenate([obs, latent], axis=-1)
        for layer, norm in zip(self.hidden, self.norms or [None] * len(self.hidden), strict=True):
            x = activate(norm, linear(layer, x))
        return x

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B A"]:
        """Action values."""
        x = self.features(obs, latent)
        return duel(linear(self.head, x), self.value, x)


class Conv(eqx.Module):
    """Periodic convolutions and, before the last layer, the mean over all cells.

    It commutes with the shifts of its space: shifted tapes have shifted action values.
    """

    hidden: tuple[eqx.nn.Linear, ...]
    norms: tuple[Norm, ...]
    """One for each hidden layer and the one that mixes, or none at all."""
    episode: eqx.nn.Linear
    """From what is the same in every cell, time and latent, into the first layer."""
    here: eqx.nn.Linear
    everywhere: eqx.nn.Linear
    head: eqx.nn.Linear
    value: eqx.nn.Linear | None
    window: Window = eqx.field(static=True)
    family: Family | None = eqx.field(static=True)
    """Of the table at the end of an observation, if there is one: see `agents.context`. Every cell
    looks up there what it reads."""
    numbers: int = eqx.field(static=True)
    """Of each entry of that table."""

    def cells(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "channels L batch"]:
        """Features of every cell, of all observations in a row.

        The batch is the last axis here: a product with a matrix of few channels is then one with
        many columns, which a CPU multiplies half as fast again as one with many rows.
        """
        table = table_size(self.family, self.numbers)
        obs, context = jnp.split(obs, [obs.shape[-1] - table], axis=-1)
        space = self.window.space
        layout = Layout(space.size)
        parts = [layout.time_column(obs), context, *([] if latent is None else [latent])]
        shared = jnp.concatenate(parts, axis=-1)
        first, *rest = self.hidden
        norm, *norms, last = self.norms or [None] * (len(self.hidden) + 1)
        inputs = per_cell(obs, space.size)
        if self.family is not None:
            said = look_up(layout.cells(obs), context, self.family, space, self.numbers)
            inputs = jnp.concatenate([inputs, said])
        x = apply(first, self.window.around(inputs, sites=1, features=0))
        x = activate(norm, x + apply(self.episode, batch_last(shared))[:, None], axis=0)
        for layer, norm in zip(rest, norms, strict=True):
            around = self.window.around(x, sites=1, features=0)
            x = activate(norm, apply(layer, around), axis=0)
        mixed = apply(self.here, x) + apply(self.everywhere, x.mean(axis=1))[:, None]
        return activate(last, mixed, axis=0)

    def features(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B channels"]:
        """The mean over all cells, the same for a shifted tape."""
        return self._pool(self.cells(obs, latent), obs)

    def __call__(
        self, obs: Float32[Array, "*B D"], latent: Float32[Array, "*B Z"] | None = None
    ) -> Float32[Array, "*B L"]:
        """Action values, one per cell."""
        x = self.cells(obs, latent)
        values = apply(self.head, x)[0].T.reshape(*obs.shape[:-1], self.window.space.size)
        return duel(values, self.value, self._pool(x, obs))

    @staticmethod
    def _pool(x: Array, obs: Array) -> Array:
        return x.mean(axis=1).T.reshape(*obs.shape[:-1], -1)


Network = Mlp | Conv


def activate(norm: Norm | None, x: Float32[Array, "*_"], axis: int = -1) -> Float32[Array, "*_"]:
    """What a hidden layer hands on: normalised along this axis if it is to be, and rectified."""
    return jax.nn.relu(x if norm is None else norm(x, axis))


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
    space: Space,
    observation_size: int,
    num_actions: int,
    width: int,
    channels: int,
    depth: int,
    kernel: int,
    latent_size: int = 0,
    family: Family | None = None,
    numbers: int = KNOWN,
    dueling: bool = False,
    layer_norm: bool = False,
) -> Network:
    """A network for action values: hidden layers of `width` units, or `channels` in each cell.

    With `family`, observations end with what is known of a table of it, `numbers` of each entry,
    and not with a place.
    """
    if one_of("network", kind, NETWORKS) == "mlp":
        sizes = itertools.pairwise([observation_size + latent_size, *[width] * depth, num_actions])
        *hidden, head, value = layers(key, *sizes, (width, 1))
        between = norms(depth if layer_norm else 0, width)
        return Mlp(tuple(hidden), between, head, value if dueling else None)
    if num_actions != space.size:
        raise ValueError("network 'conv' needs one action per cell: use 'mlp'")
    window = Window(space, kernel)
    per_cell_size = (observation_size - table_size(family, numbers)) // space.size
    if family is not None:
        per_cell_size += numbers * (1 + len(_neighbourhood(family, space)[1]))
    sizes = itertools.pairwise([per_cell_size, *[channels] * depth])
    convolutions = [(window.size * before, after) for before, after in sizes]
    episode_size = 1 + table_size(family, numbers) + latent_size
    mixers = [(episode_size, channels), (channels, channels), (channels, channels)]
    *hidden, episode, here, everywhere, head, value = layers(
        key, *convolutions, *mixers, (channels, 1), (channels, 1)
    )
    return Conv(
        tuple(hidden),
        norms(depth + 1 if layer_norm else 0, channels),
        episode,
        here,
        everywhere,
        head,
        value if dueling else None,
        window=window,
        family=family,
        numbers=numbers,
    )


def norms(number: int, size: int) -> tuple[Norm, ...]:
    """So many normalisations of so many features, without effect at first but for that."""
    return tuple(Norm(jnp.ones(size), jnp.zeros(size)) for _ in range(number))


def linear(layer: eqx.nn.Linear, x: Float32[Array, "*B F"]) -> Float32[Array, "*B outputs"]:
    """An Equinox layer on the last axis of any batch."""
    assert layer.bias is not None
    is_wide = layer.weight.shape[0] >= WIDE
    return (_product(layer.weight, x) if is_wide else x @ layer.weight.T) + layer.bias


def apply(layer: eqx.nn.Linear, x: Float32[Array, " F *rest"]) -> Float32[Array, " outputs *rest"]:
    """An Equinox layer on the first axis."""
    assert layer.bias is not None
    y = layer.weight @ x.reshape(len(x), -1) + layer.bias[:, None]
    return y.reshape(-1, *x.shape[1:])


def batch_last(x: Float32[Array, "*B F"]) -> Float32[Array, "F batch"]:
    """A batch of any shape as columns."""
    return x.reshape(-1, x.shape[-1]).T


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


@jax.custom_vjp
def _standardised(x: Array) -> Array:
    """Each column `[F, N]` with mean 0 and variance 1.

    Sums over the first axis are products with a row of ones, also in the gradient: on a CPU they
    are many times as fast, and an evaluation takes less than half the time.
    """
    return _standardised_forward(x)[0]


def _standardised_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    centred = x - _column_means(x)
    factor = jax.lax.rsqrt(_column_means(jnp.square(centred)) + EPSILON)
    y = centred * factor
    return y, (y, factor)


def _standardised_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array]:
    y, factor = saved
    return (factor * (slope - _column_means(slope) - y * _column_means(slope * y)),)


_standardised.defvjp(_standardised_forward, _standardised_backward)


def _column_means(x: Array) -> Array:
    return jnp.full((1, len(x)), 1.0 / len(x)) @ x


def gru(
    recurrent: eqx.nn.Linear, hidden: Float32[Array, "*B Z"], gates: Float32[Array, "*B 3*Z"]
) -> Float32[Array, "*B Z"]:
    """One GRU step; `gates` is the part of its inputs."""
    reset, keep, new = jnp.split(gates, 3, axis=-1)
    reset_from, keep_from, new_from = jnp.split(linear(recurrent, hidden), 3, axis=-1)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + reset_from) * new_from)
    return new + jax.nn.sigmoid(keep + keep_from) * (hidden - new)


def per_cell(obs: Float32[Array, "*B D"], length: int) -> Float32[Array, "channels L batch"]:
    """An observation by cell, with the goal if it is observed; the batch is the last axis."""
    layout = Layout(length)
    cells, goal = layout.cells(obs), layout.goal(obs)
    return jnp.stack([batch_last(each) for each in (cells, goal) if each.shape[-1]])


def table_size(family: Family | None, numbers: int) -> int:
    """How many numbers say what is known of a table, with so many of each entry."""
    return 0 if family is None else numbers * family.entries


def look_up(
    cells: Float32[Array, "*B L"],
    context: Float32[Array, "*B numbers"],
    family: Family,
    space: Space,
    numbers: int,
) -> Float32[Array, "answers L batch"]:
    """What the context says of the entries that a cell reads: the first number of each, then the
    next. The batch is the last axis.

    The first entry is the one it reads now, the others those with each of the cells flipped that it
    reads. A cell reads a weighted sum of its neighbourhood, so what a flip changes is known from
    the weights.
    """
    read, weights = _neighbourhood(family, space)
    codes = family.codes(cells.reshape(*cells.shape[:-1], *space.shape), space)
    codes = codes.reshape(*cells.shape, 1)
    flipped = codes + weights * (1.0 - 2.0 * cells[..., read])
    codes = jnp.concatenate([codes, flipped], axis=-1)
    codes = jnp.moveaxis(codes.reshape(-1, *codes.shape[-2:]), 0, -1).swapaxes(0, 1)
    known = batch_last(context).reshape(numbers, family.entries, 1, 1, -1)
    said = [jnp.where(codes == entry, known[:, entry], 0.0) for entry in range(family.entries)]
    return sum(said[1:], said[0]).reshape(-1, *codes.shape[1:])


@cache
def _neighbourhood(family: Family, space: Space) -> tuple[np.ndarray, np.ndarray]:
    """The sites `[L, K]` that each site reads, in one order everywhere, and their weights `[K]`."""
    alone = np.eye(space.size, dtype=np.int32).reshape(space.size, *space.shape)
    weights = family.codes(alone, space).reshape(space.size, -1)[:, 0]
    read = np.flatnonzero(weights)
    offsets = np.unravel_index(read, space.shape)
    everywhere = space.shift(np.arange(space.size)[:, None], offsets)
    return everywhere, weights[read].astype(np.float32)


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
