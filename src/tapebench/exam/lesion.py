"""Does an agent act on the law? Its memory is swapped or cleared within an episode.

At a step the memory of every episode is exchanged for that of an episode from the same start tape
under another rule, or for the memory that it began with. What success it loses by that is what it
owes to having seen this law at work. Who ignores the law loses nothing, whatever it remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import prepare

KINDS = ("swapped", "cleared")


class NoLesionError(ValueError):
    """The policy's memory is not one that can be exchanged; the message says why."""


Losses = dict[str, np.ndarray]
"""By kind of lesion: the success lost under each rule, by the step of the lesion, `[H - 1, R]`."""


def lesions(policy: Policy, exam: Exam, seed: int = 0) -> Losses:
    """What each kind of lesion costs at each step but the first.

    Each rule is compared with itself, played from the same tapes with the same draws.
    """
    if exam.trials > 1:
        raise NoLesionError("lesions are for exams of a single trial")
    if exam.task.horizon < 2:
        raise NoLesionError("with a single step there is nothing to remember")

    def success(chosen: Policy) -> np.ndarray:
        sitting = prepare(chosen, exam.task, None, exam.episodes, seed=seed, salt=exam.salt)
        everyone = np.arange(sitting.num)
        found = sitting.episodes([(everyone, sitting.play(everyone))])
        return np.asarray(found.success.mean(axis=1))

    is_own = own_parts(policy)
    whole = success(policy)
    steps = range(1, exam.task.horizon)
    return {
        kind: np.stack(
            [whole - success(lesioned(policy, exam, step, kind, is_own)) for step in steps]
        )
        for kind in KINDS
    }


def summarise(runs: Sequence[Losses], exam: Exam) -> dict[str, Any]:
    """Success lost by kind, side and step, the mean over runs, with an interval over rules."""
    document: dict[str, Any] = {}
    for kind in KINDS:
        lost = np.mean([run[kind] for run in runs], axis=0)
        for side in SUBSETS:
            rows = exam.rows(side)
            if len(rows) > 1:
                found = [stats.t_interval(at_step[rows]) for at_step in lost]
                document.setdefault(kind, {})[side] = [
                    {"step": step, "lost": one.mean, "interval": [one.low, one.high]}
                    for step, one in enumerate(found, 1)
                ]
    return document


def lesioned(policy: Policy, exam: Exam, step: int, kind: str, is_own: Sequence[bool]) -> Policy:
    """The policy with its memory exchanged before it acts at a step, see `own_parts`.

    For all rows of the exam in one batch, rule by rule.
    """
    task, num = exam.task, len(exam.rules) * exam.episodes
    donor = _donors(exam)

    def act(memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
        xp = obs.__array_namespace__()
        is_now = xp.rint(task.layout.time(obs) * task.horizon) == step
        leaves, rebuild = _flatten(policy, memory)
        others = [leaf[donor] if own else leaf for leaf, own in zip(leaves, is_own, strict=True)]
        if kind == "cleared":
            others, _ = _flatten(policy, policy.init(None, num))

        def exchange(new: Any, old: Any) -> Any:
            return xp.where(is_now.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        exchanged = [
            exchange(new, old) if own else old
            for new, old, own in zip(others, leaves, is_own, strict=True)
        ]
        return policy.act(rebuild(exchanged), obs, stream)

    return replace(policy, act=act)


def own_parts(policy: Policy) -> list[bool]:
    """Which arrays of a policy's memory are an episode's own: those that grow with the batch.

    The others, such as weights, are the same for all.
    """
    if policy.sees_rule:
        raise NoLesionError("it is told the rule and need not remember it")
    few, more = (_flatten(policy, policy.init(None, num))[0] for num in (5, 7))
    if not all(hasattr(leaf, "shape") for leaf in few):
        raise NoLesionError("its memory is its own affair and cannot be exchanged from outside")
    is_own = [
        one.shape[:1] == (5,) and two.shape[:1] == (7,) for one, two in zip(few, more, strict=True)
    ]
    if not any(is_own):
        raise NoLesionError("it has no memory")
    return is_own


def _donors(exam: Exam) -> np.ndarray:
    """For each row one of the same tape under another rule of the same side, `[B]`."""
    rng = seeding.generator(0, "lesion", exam.hash)
    giver = np.arange(len(exam.rules))
    for side in SUBSETS:
        rows = rng.permutation(exam.rows(side))
        giver[rows] = np.roll(rows, 1)
    return (giver[:, None] * exam.episodes + np.arange(exam.episodes)).ravel()


Rebuild = Callable[[Sequence[Any]], Any]


def _flatten(policy: Policy, memory: Any) -> tuple[list[Any], Rebuild]:
    """The arrays of a memory, and what makes a memory of such arrays."""
    if policy.backend == "jax":
        import jax

        leaves, form = jax.tree.flatten(memory)
        return leaves, lambda parts: jax.tree.unflatten(form, parts)
    return _flatten_plain(memory)


def _flatten_plain(memory: Any) -> tuple[list[Any], Rebuild]:
    """The same for tuples and dataclasses that JAX has not been told of."""
    if is_dataclass(memory) and not isinstance(memory, type):
        names = [field.name for field in fields(memory)]
        parts = [getattr(memory, name) for name in names]
        join: Callable[..., Any] = lambda *found: replace(  # noqa: E731
            memory, **dict(zip(names, found, strict=True))
        )
    elif isinstance(memory, tuple):
        parts = list(memory)
        join = type(memory) if hasattr(memory, "_fields") else lambda *found: found
    else:
        return [memory], lambda found: found[0]
    inner = [_flatten_plain(part) for part in parts]

    def rebuild(found: Sequence[Any]) -> Any:
        rest = iter(found)
        return join(*(make([next(rest) for _ in leaves]) for leaves, make in inner))

    return [leaf for leaves, _ in inner for leaf in leaves], rebuild
