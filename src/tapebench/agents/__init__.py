"""Learned agents by name. Each is one file with a `Config` and a `make`, imported when asked for:
until then there is no JAX.

agent = agents.make("dqn", *env.make(), width=128)
state = agent.init(seeding.key(7, "dqn"))
state, metrics = agent.train(state)
episodes = rollout(agent.policy(state), task)
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tapebench.naming import one_of

if TYPE_CHECKING:
    from tapebench import env as envs
    from tapebench.agents.api import Agent, Make

NAMES = ("dqn", "rad", "curl", "pearl", "ppo", "ppo-dr", "rppo", "dreamer", "automata")
"""The agents, each the name of its module, where a hyphen is an underscore."""


def load(name: str) -> tuple[type[Any], Make]:
    """The `Config` and the `make` of an agent; an unknown name suggests the nearest."""
    place = one_of("agent", name, NAMES).replace("-", "_")
    module = import_module(f"tapebench.agents.{place}")
    return module.Config, module.make


def configure(name: str, **overrides: Any) -> Any:
    """The agent's `Config` with some fields changed; an unknown one suggests the nearest."""
    config = load(name)[0]
    known = [field.name for field in fields(config)]
    for option in overrides:
        one_of(f"option of {name}", option, known)
    return config(**overrides)


def make(name: str, env: envs.TapeEnv, params: envs.EnvParams, **overrides: Any) -> Agent:
    """An agent for an environment: `overrides` are fields of its `Config`."""
    config = configure(name, **overrides)
    return load(name)[1](config, env, params)
