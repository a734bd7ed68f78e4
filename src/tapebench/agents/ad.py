"""Algorithm distillation: imitate a learner, from what it had seen until then (Laskin et al. 2022).

    L = − mean over queries of log π(a | s, C),   a the cell that the learner flipped

`learning` histories are the record of tabular Q-learning from scratch, hundreds of episodes under
one rule; C holds transitions from right before the query in the same history. To predict
what the learner does next is to do better under a rule the more was seen of it, as the learner did.
No label says what is optimal. In `mixed` histories the learner is optimal play, with noise that
falls from episode to episode: cheap, and better at its end than any learner.

The network is that of `dpt`, and so are the policy and its memory. Data, queries and contexts: see
`tapebench.agents.offline`.

A step of its budget is a labelled transition that an update has consumed, not a step of an
environment: say so where it stands in a table beside agents that play.

Deviations from Laskin et al.:

1. the context is a set, see `dpt`: it says how much was seen, but not in which order, nor what the
   learner did at which tape;
2. how much of a history a context holds is drawn, from none to `context` transitions: the policy
   meets a new rule with an empty one, and should not play then as a learner that has just begun;
3. the policy is greedy, so what the learner tried at random is not imitated.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapebench import env as envs
from tapebench.agents import dpt, offline
from tapebench.agents.api import Agent, Env


@dataclass(frozen=True, kw_only=True)
class Config(dpt.Config):
    """What algorithm distillation may set."""

    data: str = "learning"
    """Who plays in the dataset, one of those of `tape data make`: `learning` or `mixed`, to be what
    the name says."""
    labels: str = "played"
    """Which cells are right: `optimal`, if the rule is known, or those `played`."""
    context: int = 64
    """Most transitions of earlier episodes in the context of a query."""
    earlier: float = 0.75
    """Share of the queries that may have any. With none the policy forgets at the start of every
    episode, otherwise it remembers for as long as the rule stays the same."""


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build algorithm distillation for this environment."""
    algorithm = dpt.algorithm("ad", config, env.family, env.space)
    return offline.build(config, env, params, algorithm)
