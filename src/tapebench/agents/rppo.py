"""Recurrent PPO: a policy that remembers the episode so far (RL², Duan et al. 2016).

    h_t = GRU(h_{t−1}, e_t),  h = 0 before an episode        π(· | s_t, h_t),  V(s_t, h_t)

Learning is that of `ppo`, on pieces of `rollout` steps instead of single ones: the network is
run through a piece again, from the memory that it had at the start of it, and is reset where an
episode starts. So nothing leaks over an end, and gradients reach back to the start of the piece.

What e_t is, and who reads h, is the network: `entries`, `cells` or `gru`, see `memory`.

Deviations from Duan et al.:

1. PPO instead of TRPO, pieces of `rollout` steps instead of whole trials;
2. the reward is worked out from the observation, see `memory`;
3. in training a memory lasts for one episode, as rules change with it. In use it lasts for as long
   as the rule does, over trials under the same one, unless `reset_memory` says otherwise; a step
   is never seen across episodes;
4. the memory at the start of a piece is the one that play left there. After the first update of
   a round a slightly different network would have left another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

from tapebench import env as envs
from tapebench.agents import memory, ppo, rounds
from tapebench.agents.api import Agent, Env, check_counts, observation_size


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Options):
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **ppo.Options.SEARCH,
        "memory_size": (32, 64),
    }
    """Values to search when tuning, see `tools/tune.py`: as many as `rpqn` has."""

    network: str = "entries"
    """`entries` and `cells`: made for rules, commute with shifts; `gru`: fully connected. See
    `memory`."""
    memory_size: int = 32
    """Numbers of h; with `entries` an eighth of it for each entry of the rule's table."""
    encoder_width: int = 32
    """Entries of e_t, or half of them for `cells`: the mean, and as many for the maximum."""
    reset_memory: bool = False
    """Whether the policy forgets at the start of every episode, as it does in training. Matters
    only in trials: otherwise it goes on with h from one to the next."""
    minibatches: int = 8
    """Updates in an epoch. Each is on other environments, so they have to divide `num_envs`."""

    networks: ClassVar[tuple[str, ...]] = tuple(memory.BODIES)
    """What `network` may be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "memory_size", "encoder_width")
        if not isinstance(self.reset_memory, bool):
            raise ValueError(f"reset_memory must be true or false, not {self.reset_memory!r}")

    def check_minibatches(self) -> None:
        rounds.check_whole_pieces(self)


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build recurrent PPO for this environment."""
    algorithm = _algorithm(config, env, observation_size(env, params))
    return rounds.build(config, env, params, algorithm)


@cache
def _algorithm(config: Config, env: Env, size: int) -> rounds.Algorithm:
    return rounds.Algorithm(
        name="rppo",
        init=partial(memory.make, config=config, env=env, size=size, make_network=ppo.make_model),
        begin=lambda num: memory.begin(num, size, memory.hidden_size(config, env)),
        see=memory.see,
        note=memory.note,
        unroll=memory.unroll,
        act=rounds.greedy_act(partial(memory.see, reset=config.reset_memory), memory.note),
        is_recurrent=True,
        recall=memory.recall,
        **ppo.learning(config),
    )
