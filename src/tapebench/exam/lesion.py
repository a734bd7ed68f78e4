"""Does an agent act on the law? Its memory is swapped or cleared within an episode.

At a step the memory of every episode is exchanged for that of an episode from the same start tape
under another rule, once (*swapped*) or again at each later step (*swapped on*), or for the memory
that it began with (*cleared*). What it owes to having seen this law at work is at most the success
that it loses by that: a policy without memory loses nothing, but one that keeps a draw of its own
may lose by a swap, and so may one whose memory also holds the tape seen last, as it misreads the
next transition.

After a single lesion an agent may see the law anew: on 32 cells one transition is often enough, so
that only swaps that go on can tell. These hand memories round that have been swapped before, so
that a memory then holds steps of several other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.base.shapes import Float64
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import prepare
from tapebench.physics.strata import STRATA

KINDS = ("swapped on", "swapped", "cleared")

SHORT = 8
"""Horizons up to which a lesion is made before every step but the first."""


class NoLesionError(ValueError):
    """The policy's memory is not one that can be exchanged; the message says why."""


@dataclass(frozen=True)
class Losses:
    """The success that lesions of one run cost."""

    steps: tuple[int, ...]
    """How many steps had been taken before each lesion."""
    lost: Mapping[str, Float64[np.ndarray, "steps R"]]
    """By kind, under each rule."""


def default_steps(horizon: int) -> tuple[int, ...]:
    """Every step but the first of short episodes; of longer ones 1, 2, 4, 8 and so on."""
    if horizon <= SHORT:
        return tuple(range(1, horizon))
    return tuple(2**power for power in range((horizon - 1).bit_length()))


def check_steps(steps: Sequence[int] | None, exam: Exam) -> tuple[int, ...]:
    """The steps to make lesions at, by default `default_steps`."""
    horizon = exam.task.horizon
    if exam.trials > 1:
        raise NoLesionError("lesions are for exams of a single trial")
    if horizon < 2:
        raise NoLesionError("with a single step there is nothing to remember")
    chosen = default_steps(horizon) if steps is None else tuple(sorted(set(steps)))
    if not chosen or not all(1 <= step < horizon for step in chosen):
        raise ValueError(f"lesions are made after 1 to {horizon - 1} steps, not after {steps}")
    return chosen


def lesions(
    policy: Policy, exam: Exam, seed: int = 0, steps: Sequence[int] | None = None
) -> Losses:
    """What each kind of lesion costs after each number of steps.

    Each rule is compared with itself, played from the same tapes with the same draws.
    """
    chosen = check_steps(steps, exam)

    def success(player: Policy) -> np.ndarray:
        sitting = prepare(player, exam.task, None, exam.episodes, seed=seed, salt=exam.salt)
        everyone = np.arange(sitting.num)
        episodes = sitting.episodes([(everyone, sitting.play(everyone))])
        return np.asarray(episodes.success.mean(axis=1))

    is_own = own_parts(policy)
    whole = success(policy)
    return Losses(
        chosen,
        {
            kind: np.stack(
                [whole - success(lesioned(policy, exam, step, kind, is_own)) for step in chosen]
            )
            for kind in KINDS
        },
    )


def summarise(runs: Sequence[Losses], exam: Exam) -> dict[str, Any]:
    """Success lost by kind, side and step, the mean over runs, with intervals over rules.

    `law` is what swaps that go on cost in the mean over steps, which answers whether the agent acts
    on the law: one interval for each side, so that none is picked from many. `by_stratum` is the
    same again where strata are known.
    """
    steps = runs[0].steps
    lost = {kind: np.mean([run.lost[kind] for run in runs], axis=0) for kind in KINDS}

    def summary(members: Mapping[str, np.ndarray]) -> dict[str, Any]:
        sides = {side: rows for side, rows in members.items() if len(rows) > 1}
        document: dict[str, Any] = {
            kind: {
                side: [
                    {"step": step, **_interval(by_rule[rows])}
                    for step, by_rule in zip(steps, lost[kind], strict=True)
                ]
                for side, rows in sides.items()
            }
            for kind in KINDS
        }
        mean = lost["swapped on"].mean(axis=0)
        document["law"] = {
            side: {"rules": len(rows), **_interval(mean[rows])} for side, rows in sides.items()
        }
        return document

    rows = {side: exam.rows(side) for side in SUBSETS}
    document = {"steps": list(steps)} | summary(rows)
    by_rule = strata_by_rule(exam)
    if by_rule:
        kinds = np.array([*by_rule.values()])
        document["by_stratum"] = {
            kind: summary({side: own[kinds[own] == kind] for side, own in rows.items()})
            for kind in STRATA
        }
    return document


def _interval(lost: np.ndarray) -> dict[str, Any]:
    over_rules = stats.t_interval(lost)
    return {"lost": over_rules.mean, "interval": [over_rules.low, over_rules.high]}


def lesioned(policy: Policy, exam: Exam, step: int, kind: str, is_own: Sequence[bool]) -> Policy:
    """The policy with its memory exchanged before it acts at a step, see `own_parts`.

    For all rows of the exam in one batch, rule by rule. What is exchanged and when is a part of the
    memory, so other kinds and steps compile nothing.
    """
    donor = _donors(exam)

    def init(rule: Any, num: int) -> Any:
        inner, begun = policy.init(rule, num), policy.init(rule, num)
        last = exam.task.horizon if kind == "swapped on" else step
        return inner, begun, (donor, np.array([step, last], np.int32), np.bool_(kind == "cleared"))

    act = _actor(policy.act, policy.backend, exam.task, tuple(is_own))
    return replace(policy, init=init, act=act)


@cache
def _actor(act: Any, backend: str, task: Any, is_own: tuple[bool, ...]) -> Any:
    """The one `act` of all lesions of a policy, so that the evaluator compiles it once."""

    def act_lesioned(memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
        xp = obs.__array_namespace__()
        inner, begun, lesion = memory
        donor, (first, last), is_cleared = lesion
        time = xp.rint(task.layout.time(obs) * task.horizon)
        is_now = (first <= time) & (time <= last)
        leaves, rebuild = _flatten(backend, inner)

        def exchange(old: Any, fresh: Any) -> Any:
            other = xp.where(is_cleared, fresh, old[donor])
            return xp.where(is_now.reshape(-1, *(1,) * (old.ndim - 1)), other, old)

        exchanged = [
            exchange(old, fresh) if own else old
            for old, fresh, own in zip(leaves, _flatten(backend, begun)[0], is_own, strict=True)
        ]
        inner, cell = act(rebuild(exchanged), obs, stream)
        return (inner, begun, lesion), cell

    return act_lesioned


def own_parts(policy: Policy) -> list[bool]:
    """Which arrays of a policy's memory are an episode's own: those that grow with the batch.

    The others, such as weights, are the same for all.
    """
    if policy.sees_rule:
        raise NoLesionError("it is told the rule and need not remember it")
    few, more = (_flatten(policy.backend, policy.init(None, num))[0] for num in (5, 7))
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


def _flatten(backend: str, memory: Any) -> tuple[list[Any], Rebuild]:
    """The arrays of a memory, and what makes a memory of such arrays."""
    if backend == "jax":
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
