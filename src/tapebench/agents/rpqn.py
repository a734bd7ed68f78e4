"""Recurrent PQN: Q-learning in parallel environments with a memory of the episode
(Gallici et al. 2024, who train it with a GRU).

    h_t = GRU(h_{t−1}, e_t),  h = 0 before an episode        Q(s_t, h_t, ·)

Learning is that of `pqn`, on pieces of `rollout` steps instead of single ones: the network is run
through a piece again, from the memory that play had at the start of it, and is reset where an
episode starts. What e_t is, and who reads h, is the network: `entries`, `cells` or `gru`, see
`memory`.

Deviations from Gallici et al.:

1. those of `pqn`;
2. the GRU stands beside the body instead of on top of it, see `memory`;
3. pieces are run through from the memory that play left there, without steps to warm it up: an
   episode is hardly longer than a piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

from jax import Array

from tapebench import env as envs
from tapebench.agents import dqn, memory, pqn, rounds
from tapebench.agents.api import Agent, Env, check_counts, observation_size


@dataclass(frozen=True, kw_only=True)
class Config(pqn.Options):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **pqn.Options.SEARCH,
        "memory_size": (32, 64),
    }
    """Values to search when tuning, see `tools/tune.py`."""

    network: str = "entries"
    """`entries` and `cells`: made for rules, commute with shifts; `gru`: fully connected. See
    `memory`."""
    memory_size: int = 32
    """Numbers of h; with `entries` an eighth of it for each entry of the rule's table."""
    encoder_width: int = 32
    """Entries of e_t, or half of them for `cells`: the mean, and as many for the maximum."""

    networks: ClassVar[tuple[str, ...]] = tuple(memory.BODIES)
    """What `network` may be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "memory_size", "encoder_width")

    def check_minibatches(self) -> None:
        rounds.check_whole_pieces(self)


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build recurrent PQN for this environment."""
    algorithm = _algorithm(config, env, observation_size(env, params))
    return rounds.build(config, env, params, algorithm)


@cache
def _algorithm(config: Config, env: Env, size: int) -> rounds.Algorithm:
    def see(model: memory.Model, before: memory.Memory, obs: Array) -> tuple[memory.Memory, Any]:
        after, values = memory.see(model, before, obs)
        return after, (values,)

    def lasting(model: memory.Model, before: memory.Memory, obs: Array) -> Any:
        after, values = memory.see(model, before, obs, reset=False)
        return after, (values,)

    return rounds.Algorithm(
        name="rpqn",
        init=partial(memory.make, config=config, env=env, size=size, make_network=dqn.make_network),
        begin=lambda num: memory.begin(num, size, memory.hidden_size(config, env)),
        see=see,
        note=memory.note,
        unroll=lambda *piece: (memory.unroll(*piece),),
        act=rounds.greedy_act(lasting, memory.note),
        is_recurrent=True,
        recall=memory.recall,
        **pqn.learning(config),
    )
