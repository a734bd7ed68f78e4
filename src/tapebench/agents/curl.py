"""CURL: DQN with a contrastive loss on its features (Srinivas et al. 2020).

    L = L_DQN + λ · mean_i −log( exp(q_i W k_i) / Σ_j exp(q_i W k_j) )

q are the features of one random transform of the observations, k those of another by a copy of
the network that follows it slowly, W is learned. The transforms are those of `rad`; here they make
pairs to be told from others and touch no label of the DQN loss, so both of the paper's stay on:
`shift+flip`. The features of `conv` are the same for a rotated tape, so there it is `flip` alone.

Deviations from Srinivas et al.:

1. the DQN loss is on the observations as they are, not on transformed ones;
2. the features are those of the last hidden layer (for `conv` their mean over all cells), without
   a projection behind them;
3. W begins near zero, where all pairs look alike, instead of uniform in [0, 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float32

from tapebench import env as envs
from tapebench.agents import dqn, nn, rad
from tapebench.agents.api import Agent, check_not_negative, check_shares
from tapebench.agents.replay import Batch


@dataclass(frozen=True, kw_only=True)
class Config(rad.Config):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "curl_weight": (0.01, 0.1, 1.0),
        "momentum": (0.95, 0.99),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **rad.Config.METRICS,
        "auxiliary_loss": "λ times the contrastive loss.",
    }
    """See `dqn.Options`."""

    augment: str | None = None
    """`shift-with-action`, `shift`, `flip`, or one of the former `+flip`; actions are not used. By
    default `shift+flip` with `mlp` and `flip` with `conv`, whose features do not turn."""
    curl_weight: float = 0.01
    """λ, the weight of the contrastive loss."""
    momentum: float = 0.99
    """What the slow copy keeps of itself in each update."""

    usual: ClassVar[str] = "shift+flip"
    """See `rad.Config`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "momentum")
        check_not_negative(self, "curl_weight")


def info_nce(
    query: Float32[Array, "B F"], key: Float32[Array, "B F"], bilinear: Float32[Array, "F F"]
) -> Float32[Array, ""]:
    """The contrastive loss of `query` against `key`, pair i belonging together."""
    similarity = query @ bilinear @ key.T
    own = jnp.arange(len(query))
    return optax.softmax_cross_entropy_with_integer_labels(similarity, own).mean()


@cache
def contrast(augment: dqn.Augment, weight: float, momentum: float) -> dqn.Auxiliary:
    """The contrastive loss as an `Auxiliary` of DQN. Cached, so that programs are compiled once."""

    def init(key: Array, network: nn.Network) -> tuple[Array, nn.Network]:
        width = int(network.head.in_features)
        return 0.1 / width * jax.random.normal(key, (width, width)), network

    def loss(
        key: Array, network: nn.Network, bilinear: Array, slow: nn.Network, batch: Batch
    ) -> Array:
        query_key, key_key = jax.random.split(key)
        query = network.features(augment(query_key, batch).obs)
        positive = jax.lax.stop_gradient(slow.features(augment(key_key, batch).obs))
        return weight * info_nce(query, positive, bilinear)

    def follow(slow: nn.Network, network: nn.Network) -> nn.Network:
        return optax.incremental_update(network, slow, 1.0 - momentum)

    return dqn.Auxiliary(init, loss, follow)


def make(config: Config, env: envs.TapeEnv, params: envs.EnvParams) -> Agent:
    """Build CURL for this environment: DQN with the contrastive loss."""
    augment = rad.augmentation(config.augment, env.space, config.max_shift, config.flip_probability)
    auxiliary = contrast(augment, config.curl_weight, config.momentum)
    return dqn.make_variant(config, env, params, name="curl", auxiliary=auxiliary)
