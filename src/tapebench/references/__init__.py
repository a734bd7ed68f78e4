"""What planning and inference reach: the lines that learned agents are read against.

`make` knows every policy that needs no training by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapebench import policy
from tapebench.policy import Policy
from tapebench.tasks import splits
from tapebench.tasks.task import Task

Factory = Callable[[Task, Any], Policy]


def _mpc(task: Task, split: Any) -> Policy:
    from tapebench.references import mpc

    return mpc.mpc(task)


def _beam(task: Task, split: Any) -> Policy:
    from tapebench.references import search

    return search.beam(task)


def _optimal(task: Task, split: Any) -> Policy:
    from tapebench.references import search

    return search.optimal(task)


def _bayes(task: Task, split: Any) -> Policy:
    from tapebench.references import belief

    return belief.bayes_filter(task)


def _bayes_train(task: Task, split: Any) -> Policy:
    from tapebench.references import belief

    return belief.bayes_filter(task, "train", split=split, name="bayes-train")


def _belief_planner(task: Task, split: Any) -> Policy:
    from tapebench.references import planner

    return planner.belief_planner(task)


def _belief_planner_train(task: Task, split: Any) -> Policy:
    from tapebench.references import planner

    return planner.belief_planner(task, splits.load(split).train, "belief-planner-train")


NAMED: dict[str, Factory] = {
    "mpc": _mpc,
    "beam": _beam,
    "optimal": _optimal,
    "bayes": _bayes,
    "bayes-train": _bayes_train,
    "belief-planner": _belief_planner,
    "belief-planner-train": _belief_planner_train,
}
"""The references by name, each imported when asked for. Those called -train think only the
training rules of the split possible; mpc, beam and optimal are told the true rule."""


def names() -> tuple[str, ...]:
    """Every policy that needs no training."""
    return (*policy.NAMED, *NAMED)


def make(name: str, task: Task, split: Any = "fps30") -> Policy:
    """A policy by name; an unknown name suggests the nearest."""
    if name in NAMED:
        return NAMED[name](task, split)
    return policy.make(name, task, known=names())
