"""Learned agents by name. Each is one file with a `Config` and a `make`, imported on demand:
until then there is no JAX.

    agent = agents.make("dqn", *env.make(), width=128)
    state = agent.init(seeding.key(7, "dqn"))
    state, metrics = agent.train(state)
    episodes = rollout(agent.policy(state), task)
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tapebench.base.names import one_of

if TYPE_CHECKING:
    from tapebench import env as envs
    from tapebench.agents.api import Agent, Make

NAMES = (
    "dqn",
    "rad",
    "curl",
    "pearl",
    "drqn",
    "pqn",
    "rpqn",
    "ppo",
    "ppo-dr",
    "rppo",
    "dreamer",
    "automata",
    "bc",
    "dpt",
    "ad",
)
"""The agents of the package, each the name of its module, where a hyphen is an underscore."""

PATH = "TAPEBENCH_PATH"
"""Variable of the environment with a directory in which agents of others are looked for last."""


def load(name: str) -> tuple[type[Any], Make]:
    """The `Config` and the `make` of an agent: one of `NAMES`, or anybody's `package.module`.

    Anything else is refused and suggests the nearest name. A module is found where Python finds
    what is installed, and then in the directory that `TAPEBENCH_PATH` names: never in the current
    one by itself, since the names of agents are also read from results that others made.
    """
    if not is_from_outside(name):
        module_name = one_of("agent", name, NAMES).replace("-", "_")
        module = import_module(f"tapebench.agents.{module_name}")
    else:
        module = _import_from_outside(name)
    return module.Config, module.make


def is_from_outside(name: str) -> bool:
    """Whether a name is that of a module, `package.module`, and not one of ours."""
    return (
        isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name) is not None
    )


def source_hash(name: str) -> str:
    """A hash of the file of an agent from outside, which no version of ours stands for."""
    file = _import_from_outside(name).__file__
    assert file is not None
    return sha256(Path(file).read_bytes()).hexdigest()[:16]


def _import_from_outside(name: str) -> ModuleType:
    folder = os.environ.get(PATH)
    if folder and folder not in sys.path:
        sys.path.append(folder)  # last, so that it stands for nothing that is installed
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"cannot import {name}: it needs {error.name}") from error
        raise ValueError(
            f"there is no module {name}: install it, or set {PATH} to the directory that holds "
            f"{name.partition('.')[0]}"
        ) from None
    for part in ("Config", "make"):
        if not callable(getattr(module, part, None)):
            raise ValueError(f"{name} is not an agent: it has no {part}")
    return module


def configure(name: str, **overrides: Any) -> Any:
    """The agent's `Config` with some fields changed; an unknown one suggests the nearest."""
    config = load(name)[0]
    options = [field.name for field in fields(config)]
    for option in overrides:
        one_of(f"option of {name}", option, options)
    return config(**overrides)


def config_document(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as it is stored: options that came later are left out where they change nothing.

    So what was stored before there was an option and what is stored now are the same document.
    """
    later = _later(name)
    return {key: value for key, value in config.items() if later.get(key, _UNSET) != value}


def read_config(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The whole config of a document, whatever the defaults are today."""
    return {**_later(name), **document}


_UNSET = object()


def _later(name: str) -> Mapping[str, Any]:
    # Of ours alone: the config of a result that others made is no reason to import anything.
    return getattr(load(name)[0], "LATER", {}) if name in NAMES else {}


def make(name: str, env: envs.TapeEnv, params: envs.EnvParams, **overrides: Any) -> Agent:
    """An agent for an environment: `overrides` are fields of its `Config`."""
    config = configure(name, **overrides)
    return load(name)[1](config, env, params)
