"""A decision-pretrained transformer: in-context learning from data (Lee et al. 2023).

    L = − mean over queries of Σ_a q(a) log π(a | s, C),   q even over the cells that are right

C is the context: transitions under the rule of the query. At test time these are the steps of the
episode so far, and of earlier ones under the same rule; nothing is adapted but C. Data, queries
and contexts: see `tapebench.agents.offline`.

A step of its budget is a labelled transition that an update has consumed, not a step of an
environment: say so where it stands in a table beside agents that play.

Every cell of every transition is a token: which entry of the rule's table it read after the flip,
and what became of it; one of 16 cases under elementary rules, each with a learned embedding. One
more token is always there. `layers` layers of self-attention run over them, then every entry of
the table asks, by attention, what was seen of it, from a learned embedding of its own. In the body,
which is one of periodic convolutions, each cell looks up the answer of the entry that it reads and
of those that it would read after a flip. So whatever the order of the context, the policy is the
same; it commutes with shifts of the query and with those of every transition (with `network=mlp`
only with the latter). That a law is a table is built in. That two tokens read the same entry, or
that a token is about the entry that asks, has to be learned.

Tokens of the same case have equal keys, values and outputs in every layer. Attention over all of
them is attention over cases with the logarithms of their numbers added to the scores: the same
but for rounding, at a cost that does not grow with the context.

With `data=random` and `labels=optimal` this is the method of the paper: contexts of random play,
and the answer of who knows the rule. Its optimum is a vote: the cell that most often begins a
shortest way, over the rules that the context leaves possible. It never flips a cell to learn. So
the default is another teacher, `data=bayes-optimal` and `labels=played`: the Bayes-optimal player,
which knows no more than the context and plays for what the agent is judged by. That player begins
every episode anew; contexts of earlier episodes, `earlier` above zero, go with `labels=optimal`.
Contexts of `data=optimal` may mislead: play that knows the rule shows it by what it does, and the
agent's own does not.

Deviations from Lee et al.:

1. the context is a set of cells, as above, not a sequence of states, actions, next states and
   rewards. The reward is the share of ones among the new cells, which is seen;
2. the query enters by look-up, not as a token;
3. the target is even over all cells that are right, not one of them drawn; and tapes from which
   there is no way in time are left out;
4. queries are steps of the dataset, contexts the steps before, not drawn independently: that is
   what contexts look like in use;
5. the policy is greedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float32, Int32, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents import nn, offline
from tapebench.agents.api import Agent, Env, check_counts
from tapebench.physics.family import Family
from tapebench.physics.space import Space

_ABSENT = -1e9
"""Added to the score of a case that does not occur."""


@dataclass(frozen=True, kw_only=True)
class Config(offline.ContextOptions):
    SMALL: ClassVar[Mapping[str, Any]] = {
        **offline.ContextOptions.SMALL,
        "tokens": 16,
        "heads": 2,
        "layers": 1,
        "answers": 4,
    }
    """See `offline.Options`."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **offline.ContextOptions.SEARCH,
        "layers": (1, 2),
        "answers": (4, 8),
    }
    """See `offline.Options`."""

    tokens: int = 32
    """Entries of a token."""
    heads: int = 4
    """Heads of attention, among which these are divided."""
    layers: int = 2
    """Layers of attention over the context, before the table asks."""
    answers: int = 8
    """Numbers of the answer that every entry of the table gets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "tokens", "heads", "layers", "answers")
        if self.tokens % self.heads:
            raise ValueError(f"tokens must be a multiple of heads, {self.heads}, not {self.tokens}")


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build a decision-pretrained transformer for this environment."""
    return offline.build(config, env, params, algorithm("dpt", config, env.family, env.space))


@cache
def algorithm(name: str, config: Config, family: Family, space: Space) -> offline.Algorithm:
    """What a transformer of this config adds to learning from data."""

    def init(key: PRNGKeyArray) -> Transformer:
        return make_transformer(key, config, family, space)

    return offline.Algorithm(name, init, _logits, config.context, config.earlier)


class Block(eqx.Module):
    """Attention and a hidden layer, each on what was normalised and added to what was there."""

    norms: tuple[nn.Norm, ...]
    """Of what attends, of the tokens, and of the sum."""
    query: eqx.nn.Linear
    key_value: eqx.nn.Linear
    out: eqx.nn.Linear
    hidden: eqx.nn.Linear
    last: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __call__(
        self,
        x: Float32[Array, "B Q F"],
        tokens: Float32[Array, "B T F"],
        log_counts: Float32[Array, "B T"],
    ) -> Float32[Array, "B Q F"]:
        """What x becomes when it attends to tokens, each there so many times."""
        of_x, of_tokens, of_sum = self.norms
        query = self._split(nn.linear(self.query, of_x(x)))
        keys, values = jnp.split(nn.linear(self.key_value, of_tokens(tokens)), 2, axis=-1)
        scores = jnp.einsum("bqhf,bthf->bhqt", query, self._split(keys))
        scores = scores / jnp.sqrt(query.shape[-1]) + log_counts[:, None, None]
        attended = jnp.einsum("bhqt,bthf->bqhf", jax.nn.softmax(scores), self._split(values))
        x = x + nn.linear(self.out, attended.reshape(x.shape))
        return x + nn.linear(self.last, jax.nn.relu(nn.linear(self.hidden, of_sum(x))))

    def _split(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.heads, -1)


class Transformer(eqx.Module):
    """What was seen of a rule, made an answer for every entry of its table; and a body."""

    cases: Float32[Array, "T F"]
    """The embedding of every case, and of the token that is always there."""
    entries: Float32[Array, "N F"]
    """The embedding of every entry as it asks."""
    blocks: tuple[Block, ...]
    """The last one is that of the entries that ask."""
    answer: eqx.nn.Linear
    body: nn.Network

    def answers(self, seen: Int32[Array, "B cases"]) -> Float32[Array, "B numbers"]:
        """What is made of counts of cases: the first number of each entry, then the next."""
        counts = jnp.pad(seen, ((0, 0), (0, 1)), constant_values=1).astype(jnp.float32)
        log_counts = jnp.where(counts > 0, jnp.log(jnp.maximum(counts, 1.0)), _ABSENT)
        tokens, asking = (
            jnp.broadcast_to(each, (len(seen), *each.shape)) for each in (self.cases, self.entries)
        )
        *blocks, last = self.blocks
        for block in blocks:
            tokens = block(tokens, tokens, log_counts)
        answers = nn.linear(self.answer, last(asking, tokens, log_counts))
        return answers.swapaxes(1, 2).reshape(len(seen), -1)

    def __call__(
        self, obs: Float32[Array, "B D"], seen: Int32[Array, "B cases"]
    ) -> Float32[Array, "B A"]:
        """Logits of all cells."""
        return self.body(jnp.concatenate([obs, self.answers(seen)], axis=-1))


def make_transformer(
    key: PRNGKeyArray, config: Config, family: Family, space: Space
) -> Transformer:
    """A transformer with random parameters."""
    embedding_key, key, body_key = jax.random.split(key, 3)
    width, tokens = config.tokens, 2 * family.entries + 1
    embeddings = jax.random.normal(embedding_key, (tokens + family.entries, width))
    sizes = [(width, width), (width, 2 * width), (width, width), (width, width), (width, width)]
    *every, answer = nn.layers(key, *sizes * (config.layers + 1), (width, config.answers))
    blocks = []
    for start in range(0, len(every), len(sizes)):
        query, key_value, out, hidden, last = every[start : start + len(sizes)]
        norms = nn.norms(3, width)
        blocks.append(Block(norms, query, key_value, out, hidden, last, heads=config.heads))
    return Transformer(
        cases=embeddings[:tokens],
        entries=embeddings[tokens:],
        blocks=tuple(blocks),
        answer=answer,
        body=offline.make_body(body_key, config, space, family, config.answers),
    )


def _logits(network: Transformer, obs: Array, seen: Array) -> Array:
    return network(obs, seen)
