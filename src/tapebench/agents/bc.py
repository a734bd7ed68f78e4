"""Behaviour cloning without a context: the control of the agents that learn from data.

    L = − mean over queries of Σ_a q(a) log π(a | s),   q even over the cells that are right

The policy sees the tape and the time alone. What it can reach is what can be had without knowing
the rule, so what `dpt` reaches above it, from the same data, is what the context is worth. Data and
queries: see `tapebench.agents.offline`.

A step of its budget is a labelled transition that an update has consumed, not a step of an
environment: say so where it stands in a table beside agents that play.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from jax import Array

from tapebench import env as envs
from tapebench.agents import nn, offline
from tapebench.agents.api import Agent, Env
from tapebench.physics.space import Space


@dataclass(frozen=True, kw_only=True)
class Config(offline.Options):
    """What behaviour cloning may set."""


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build behaviour cloning for this environment."""
    return offline.build(config, env, params, _algorithm(config, env.space))


@cache
def _algorithm(config: Config, space: Space) -> offline.Algorithm:
    init = partial(offline.make_body, config=config, space=space)
    return offline.Algorithm("bc", init, _logits, remembers=False)


def _logits(network: nn.Network, obs: Array, seen: Array) -> Array:
    return network(obs)
