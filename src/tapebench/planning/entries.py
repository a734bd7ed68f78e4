"""A belief over all rules of a family at once: a probability for each entry of the table.

Where every table is as likely as another at first, its entries are independent coins. A cell that
reads an entry says something of this one alone, with noise or without, so whatever is seen the
entries stay independent: the exact posterior over 2^32 rules is 32 probabilities.

Where the rule may switch, the belief is the mixture over how long the present rule has acted
already (Adams and MacKay, 2007): an independent belief for each such run, weighted by how well it
foresaw what was seen. All runs are kept apart, so the mixture is exact as well. Its entries are
dependent, and the information gain that is computed of their marginals is an upper bound then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, logsumexp

from tapebench.physics import space
from tapebench.physics.family import Family


class Runs(NamedTuple):
    """What is believed in B rows, for each of K runs of one rule."""

    log_odds: Array
    """float32 `[B, K, N]`: of a one in each entry, if the present rule has acted since then."""
    log_weight: Array
    """float32 `[B, K]`: of that being so."""
    learned: Array
    """int32 `[B]`: transitions seen. The rule that acts after the k-th has run k."""


@dataclass(frozen=True)
class Entries:
    """Beliefs over all rules of a family. A value, static under `jit`."""

    family: Family
    runs: int = 1
    """How many runs are told apart: one if the rule stays. With fewer than there are transitions,
    those that began in earlier trials are forgotten."""

    def prior(self) -> Runs:
        """Before anything was seen, for one row."""
        weight = np.full(self.runs, -np.inf, np.float32)
        weight[0] = 0
        nothing = np.zeros((self.runs, self.family.entries), np.float32)
        return Runs(jnp.asarray(nothing), jnp.asarray(weight), jnp.zeros((), jnp.int32))

    def learn(
        self, belief: Runs, places: Any, after: Any, readable: Any, noise: Any, floor: Any
    ) -> Runs:
        """Bayes' rule for one transition.

        `places` `[B, N, W]` are the cells of the flipped tape that read each entry, `after` the
        tape that followed. Without noise, an entry that has another value than it should
        contradicts the rule with a likelihood of `floor`, in however many cells.
        """
        places = places & readable
        became_one = places & after[..., None, :]
        ones = space.hamming(became_one, np.uint32(0)).astype(np.float32)
        zeros = space.hamming(places, became_one).astype(np.float32)
        noise = jnp.asarray(noise)
        odds = jnp.log(jnp.where(noise > 0, (1 - noise) / noise, 1 / floor))
        told = odds * jnp.where(noise > 0, ones - zeros, jnp.sign(ones - zeros))[..., None, :]
        half = told / 2
        foreseen = jnp.logaddexp(
            jax.nn.log_sigmoid(belief.log_odds) + half, jax.nn.log_sigmoid(-belief.log_odds) - half
        ).sum(axis=-1)
        weight = belief.log_weight + foreseen
        weight = weight - logsumexp(weight, axis=-1, keepdims=True)
        return Runs(belief.log_odds + told, weight, belief.learned + 1)

    def shift(self, belief: Runs, candidates: Any, hazard: Any) -> Runs:
        """The belief about the next step's rule: with probability `hazard` it was drawn anew."""
        run = 1 + (belief.learned - 1) % (self.runs - 1)
        is_new = np.arange(self.runs) == run[..., None]
        weight = jnp.where(is_new, jnp.log(hazard), belief.log_weight + jnp.log1p(-hazard))
        weight = weight - logsumexp(weight, axis=-1, keepdims=True)
        return Runs(jnp.where(is_new[..., None], 0.0, belief.log_odds), weight, belief.learned)

    def ones(self, belief: Runs) -> Array:
        """The probability of a one in each entry, `[B, N]`."""
        by_run = jax.nn.sigmoid(belief.log_odds)
        return (jnp.exp(belief.log_weight)[..., None] * by_run).sum(axis=-2)

    def gains(self, belief: Runs, places: Any, readable: Any) -> Array:
        """The information gain of each flip `[B, A]`, from the entries read, `[B, A, N, W]`."""
        is_one = self.ones(belief)
        open_entries = entr(is_one) + entr(1 - is_one)
        is_shown = ((places & readable) != 0).any(axis=-1)
        return (is_shown * open_entries[..., None, :]).sum(axis=-1)

    def likeliest(self, belief: Runs) -> tuple[Array, Array]:
        """The most probable rule, uint32 `[B]`, and the logarithm of its probability.

        Entries that are even are zero: of all rules as probable it is the lowest. Where the rule
        may switch, it is of the most probable value of each entry.
        """
        is_one = self.ones(belief)
        bits = np.uint32(1) << np.arange(self.family.entries, dtype=np.uint32)
        rule = ((is_one > 0.5 + _EVEN) * bits).sum(axis=-1, dtype=np.uint32)
        return rule, jnp.log(jnp.maximum(is_one, 1 - is_one)).sum(axis=-1)


_EVEN = 1e-4
"""Entries this close to even are so but for rounding."""
