"""Does an agent act on the law? Its memory is exchanged within an episode.

Beside every episode donors play, undisturbed and with draws of their own. Two play from one other
start tape, under another rule and under the same rule. Before a step the episode's memory is
exchanged

- for that of the donor under another rule: once (*swapped*), or at each later step too
  (*swapped on*);
- for that of the donor under the same rule, at each later step too (*sham*);
- for that of a donor under another rule from its own start tape, at each later step too
  (*same tape*);
- for the memory that it began with (*cleared*).

A sham costs what an exchange costs anyone: a memory that holds a draw of the agent's own, or tapes
and flips that are now a stranger's. But its donor has seen this law at work. So what the agent owes
to memories of this law is what swaps that go on cost beyond the sham. Of an agent that loses all by
a sham, such as one that keeps a plan for its own tape, nothing can be told. The memory of a donor
whose episode is over is out of date, and is not exchanged any more.

After a single lesion an agent may see the law anew: on 32 cells one transition is often enough, so
that only swaps that go on can tell. The transition seen last is the agent's own even then. Before
the third step no memory has seen a transition, so that is where lesions begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.base.shapes import Float64
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import Sitting, Steps, prepare
from tapebench.physics.strata import STRATA

KINDS = ("swapped on", "sham", "same tape", "swapped", "cleared")
GOES_ON = KINDS[:3]

FIRST = 2
"""Steps before the first lesion: only then has a memory seen a transition."""

SHORT = 8
"""Horizons up to which a lesion is made after every number of steps."""

_BATCH = 2**14
"""Rows that are played together, at most, unless those of a single start tape are more."""


Axes = tuple[int | None, ...]
"""Of each array of a memory the axis of episodes, if it has one."""


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
    """All steps of short episodes, from the second on; of longer ones 2, 4, 8 and so on."""
    if horizon <= SHORT:
        return tuple(range(FIRST, horizon))
    return tuple(2**power for power in range(1, (horizon - 1).bit_length()))


def check_steps(steps: Sequence[int] | None, exam: Exam) -> tuple[int, ...]:
    """The steps to make lesions at, by default `default_steps`."""
    horizon = exam.task.horizon
    if exam.trials > 1:
        raise NoLesionError("lesions are for exams of a single trial")
    if horizon <= FIRST:
        raise NoLesionError(f"within {horizon} steps no memory of a transition can be acted on")
    if exam.episodes < 2:
        raise NoLesionError("memories come from another start tape, and the exam has one")
    moments = default_steps(horizon) if steps is None else tuple(sorted(set(steps)))
    if not moments or not all(FIRST <= step < horizon for step in moments):
        raise ValueError(
            f"lesions are made after {FIRST} to {horizon - 1} steps, not after {steps}: "
            "before that, no memory has seen a transition"
        )
    return moments


def lesions(
    policy: Policy, exam: Exam, seed: int = 0, steps: Sequence[int] | None = None
) -> Losses:
    """What each kind of lesion costs after each number of steps.

    Each rule is compared with itself, played from the same tapes with the same draws.
    """
    moments = check_steps(steps, exam)
    surgery = _Surgery(exam, moments)
    axes = batch_axes(policy)

    def prepared(name: str) -> Sitting:
        player = replace(policy, name=name)
        return prepare(player, exam.task, None, exam.episodes, seed=seed, salt=exam.salt)

    own, donors = prepared(policy.name), prepared(f"{policy.name}, donor")
    parts = [surgery.success(policy, axes, own, donors, part) for part in surgery.batches()]
    intact, *hurt = np.concatenate(parts, axis=2).mean(axis=2)
    lost = (intact - np.array(hurt)).reshape(len(KINDS), len(moments), -1)
    return Losses(moments, dict(zip(KINDS, lost, strict=True)))


@dataclass(frozen=True)
class _Surgery:
    """All lesions of an exam: for some of its start tapes one batch of rows, in groups.

    The groups are undisturbed episodes, their donors, and a group for every lesion; each has a row
    for every rule and start tape.
    """

    exam: Exam
    steps: tuple[int, ...]

    @property
    def groups(self) -> int:
        return 2 + len(KINDS) * len(self.steps)

    def batches(self) -> list[np.ndarray]:
        """The start tapes of each batch, equally many, so that one program serves them all."""
        rows, episodes = self.groups * len(self.exam.rules), self.exam.episodes
        sizes = [count for count in range(2, episodes + 1) if episodes % count == 0]
        size = max((count for count in sizes if count * rows <= _BATCH), default=sizes[0])
        return np.split(np.arange(episodes), episodes // size)

    def success(
        self,
        policy: Policy,
        axes: Axes,
        own: Sitting,
        donors: Sitting,
        tapes: np.ndarray,
    ) -> np.ndarray:
        """Which episodes succeed, undisturbed and after every lesion: `[1 + lesions, R, tapes]`."""
        places = np.arange(len(self.exam.rules))[:, None] * self.exam.episodes + tapes
        rows = np.tile(places.ravel(), self.groups)
        is_donor = np.arange(len(rows)) // places.size == 1
        draws = seeding.Stream(
            *(
                np.where(is_donor, theirs[rows], ours[rows])
                for ours, theirs in zip(own.draws, donors.draws, strict=True)
            )
        )
        lesioned = self.lesioned(policy, len(tapes), axes)
        table = replace(own, policy=lesioned, start=own.start.rows(rows), draws=draws)
        steps: Steps = table.play(np.arange(len(rows)))
        is_solved = ((steps.wrong == 0) & steps.moved).any(axis=1)
        groups = is_solved.reshape(self.groups, *places.shape)
        return np.delete(groups, 1, axis=0)

    def lesioned(self, policy: Policy, tapes: int, axes: Axes) -> Policy:
        """The policy with its memory exchanged before it acts, for a batch of so many start tapes.

        What is exchanged and when is a part of the memory, so all lesions are one program.
        """
        num = len(self.exam.rules) * tapes
        every = np.arange(num)
        never = self.exam.task.horizon

        def donors(rules: np.ndarray, shift: int) -> np.ndarray:
            return num + (rules[:, None] * tapes + (np.arange(tapes) + shift) % tapes).ravel()

        own_rule, other_rule = np.arange(len(self.exam.rules)), _donor_rules(self.exam)
        by_kind = {"sham": donors(own_rule, 1), "same tape": donors(other_rule, 0)}
        # Undisturbed episodes and donors first; who is its own donor exchanges nothing.
        donor, first, last, is_cleared = [every, num + every], [never] * 2, [never] * 2, [False] * 2
        for place, (kind, step) in enumerate(product(KINDS, self.steps), 2):
            of_lesion = place * num + every if kind == "cleared" else donors(other_rule, 1)
            donor.append(by_kind.get(kind, of_lesion))
            first.append(step)
            last.append(never if kind in GOES_ON else step)
            is_cleared.append(kind == "cleared")
        lesion = (
            np.concatenate(donor),
            np.repeat(np.array(first, np.int32), num),
            np.repeat(np.array(last, np.int32), num),
            np.repeat(np.array(is_cleared), num),
        )

        def init(rule: Any, rows: int) -> Any:
            return policy.init(rule, rows), policy.init(rule, rows), np.int32(0), lesion

        act = _actor(policy.act, policy.backend, self.exam.task, tuple(axes))
        return replace(policy, init=init, act=act)


def summarise(runs: Sequence[Losses], exam: Exam) -> dict[str, Any]:
    """Success lost by kind, side and step, the mean over runs, with intervals over rules.

    `law` is what swaps that go on cost beyond the sham in the mean over steps, which answers
    whether the agent acts on the law: one interval for each side, so that none is picked from many.
    `by_stratum` is the same again where strata are known. A rule and its mirror image are one task
    seen twice, and count as one in all intervals.
    """
    steps = runs[0].steps
    lost = {kind: np.mean([run.lost[kind] for run in runs], axis=0) for kind in KINDS}
    owed = law(runs)
    kin = np.array([exam.task.universe.twins(int(rule))[0] for rule in exam.rules])

    def interval(by_rule: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
        mean = over_rules(by_rule, rows, exam)
        return {"lost": mean.mean, "interval": [mean.low, mean.high]}

    def summary(members: Mapping[str, np.ndarray]) -> dict[str, Any]:
        sides = {side: rows for side, rows in members.items() if len(set(kin[rows])) > 1}
        document: dict[str, Any] = {
            kind: {
                side: [
                    {"step": step, **interval(by_rule, rows)}
                    for step, by_rule in zip(steps, lost[kind], strict=True)
                ]
                for side, rows in sides.items()
            }
            for kind in KINDS
        }
        document["law"] = {
            side: {"rules": len(rows), **interval(owed, rows)} for side, rows in sides.items()
        }
        return document

    rows = {side: exam.rows(side) for side in SUBSETS}
    document = {"steps": list(steps)} | summary(rows)
    by_rule = strata_by_rule(exam)
    if by_rule:
        strata = np.array([*by_rule.values()])
        document["by_stratum"] = {
            stratum: summary({side: own[strata[own] == stratum] for side, own in rows.items()})
            for stratum in STRATA
        }
    return document


def law(runs: Sequence[Losses]) -> Float64[np.ndarray, " R"]:
    """What swaps that go on cost beyond the sham under each rule: the mean over steps and runs."""
    beyond = [run.lost["swapped on"] - run.lost["sham"] for run in runs]
    return np.mean(beyond, axis=(0, 1))


def over_rules(by_rule: np.ndarray, rows: np.ndarray, exam: Exam) -> stats.Interval:
    """The mean over some rules of an exam, with an interval over them; mirror images count once."""
    kin = [exam.task.universe.twins(int(rule))[0] for rule in exam.rules[rows]]
    _, member = np.unique(kin, return_inverse=True)
    return stats.t_interval(np.bincount(member, by_rule[rows]) / np.bincount(member))


@cache
def _actor(act: Any, backend: str, task: Any, axes: Axes) -> Any:
    """The one `act` of all lesions of a policy, so that the evaluator compiles it once."""

    def act_lesioned(memory: Any, obs: Any, stream: Any) -> tuple[Any, Any]:
        xp = obs.__array_namespace__()
        inner, begun, calls, lesion = memory
        donor, first, last, is_cleared = lesion
        is_over = xp.rint(task.layout.time(obs) * task.horizon) < calls
        is_now = (first <= calls) & (calls <= last) & ~is_over[donor]

        def exchange(old: Any, fresh: Any, axis: int | None) -> Any:
            if axis is None:
                return old
            shape = [1] * old.ndim
            shape[axis] = -1
            new = xp.where(is_cleared.reshape(shape), fresh, xp.take(old, donor, axis=axis))
            return xp.where(is_now.reshape(shape), new, old)

        leaves, rebuild = _flatten(backend, inner)
        fresh, _ = _flatten(backend, begun)
        inner, cell = act(rebuild(list(map(exchange, leaves, fresh, axes))), obs, stream)
        return (inner, begun, calls + 1, lesion), cell

    return act_lesioned


def batch_axes(policy: Policy) -> Axes:
    """The axis of episodes in each array of a policy's memory: the one that grows with the batch.

    Arrays that have none, such as weights, are the same for all.
    """
    if policy.sees_rule:
        raise NoLesionError("it is told the rule and need not remember it")
    few, more = (_flatten(policy.backend, policy.init(None, num))[0] for num in (5, 7))
    if not all(hasattr(leaf, "shape") for leaf in few):
        raise NoLesionError("its memory is its own affair and cannot be exchanged from outside")

    def axis(small: Any, large: Any) -> int | None:
        sizes = zip(small.shape, large.shape, strict=True)
        grown = [place for place, pair in enumerate(sizes) if pair[0] != pair[1]]
        if not grown:
            return None
        if len(grown) > 1 or (small.shape[grown[0]], large.shape[grown[0]]) != (5, 7):
            raise NoLesionError("its memory is not laid out by episode")
        return grown[0]

    axes = tuple(map(axis, few, more))
    if all(place is None for place in axes):
        raise NoLesionError("it has no memory")
    return axes


def _donor_rules(exam: Exam) -> np.ndarray:
    """For each rule another of the same side, as places in the exam, `[R]`."""
    rng = seeding.generator(0, "lesion", exam.hash)
    donor = np.arange(len(exam.rules))
    for side in SUBSETS:
        rows = rng.permutation(exam.rows(side))
        donor[rows] = np.roll(rows, 1)
    return donor


Rebuild = Callable[[Sequence[Any]], Any]


def _flatten(backend: str, memory: Any) -> tuple[list[Any], Rebuild]:
    """The arrays of a memory, and what makes a memory of such arrays."""
    if backend == "jax":
        import jax

        leaves, form = jax.tree.flatten(memory)
        return leaves, lambda parts: jax.tree.unflatten(form, parts)
    return _flatten_plain(memory)


def _flatten_plain(memory: Any) -> tuple[list[Any], Rebuild]:
    """The same for tuples, lists, dicts and dataclasses that JAX has not been told of."""
    if is_dataclass(memory) and not isinstance(memory, type):
        names = [field.name for field in fields(memory)]
        parts = [getattr(memory, name) for name in names]
        join: Callable[..., Any] = lambda *arrays: replace(  # noqa: E731
            memory, **dict(zip(names, arrays, strict=True))
        )
    elif memory is None:
        return [], lambda arrays: None
    elif isinstance(memory, dict):
        keys = list(memory)
        parts = list(memory.values())
        join = lambda *arrays: dict(zip(keys, arrays, strict=True))  # noqa: E731
    elif isinstance(memory, list):
        parts = memory
        join = lambda *arrays: list(arrays)  # noqa: E731
    elif isinstance(memory, tuple):
        parts = list(memory)
        join = type(memory) if hasattr(memory, "_fields") else lambda *arrays: arrays
    else:
        return [memory], lambda arrays: arrays[0]
    inner = [_flatten_plain(part) for part in parts]

    def rebuild(arrays: Sequence[Any]) -> Any:
        rest = iter(arrays)
        return join(*(make([next(rest) for _ in leaves]) for leaves, make in inner))

    return [leaf for leaves, _ in inner for leaf in leaves], rebuild
