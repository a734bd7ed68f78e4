"""Planning with a known rule by search from both ends, up to 32 cells.

*Backwards* from the goal, predecessors are listed layer by layer into a `Ball`: tapes known to
reach the goal, each with the steps it takes. If they run out the ball is complete, and proves
hopeless what has no way into it; if there are too many, a random part of them is kept. *Forwards*
from a start tape a beam of the most promising tapes is kept until one of their successors lies in
the ball. Every way found is a real way, but not always a shortest one.

Which tapes are promising is the crux. Counting wrong cells misleads: under many rules the goal is
entered from the tape of all ones, or a block of ones grows by itself. So a tape is *left alone*
for some updates, and what counts is how many cells are wrong then. Most rules need no more than
that and a small ball. Where looking ahead says nothing, many tapes kept at random meet a large
ball sooner.

`optimal` goes further: it plays provably shortest ways, from the exhaustive search up to 24 cells
and from the shipped answers on the exam at 32.

Under rules of other families, up to 25 cells, the search for the zero goal is exhaustive for all
planners: over classes of tapes it is as quick as a beam, see `physics.quotient`. Beyond, rings are
searched from both ends and tori from the start tape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.exam.policy import Policy, flip_a_one
from tapebench.physics import exact, quotient, space
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.family import Family
from tapebench.physics.space import Size, as_space
from tapebench.physics.starts import exam_tapes
from tapebench.planning.ball import (
    LARGE,
    MAX_LENGTH,
    OUTSIDE,
    SMALL,
    Ball,
    ball,
    evolve_ring,
    successors,
)
from tapebench.tasks.task import Task

WIDTH = 256
"""Tapes the beam keeps per start tape."""

ROWS = 32
"""Start tapes that a beam of the usual width takes at a time: what bounds memory."""


Ways = list[list[int] | None]
"""For each tape the cells to flip, None where no way is known."""


@dataclass(frozen=True)
class Pass:
    """One attempt at the tapes for which no way has been found yet."""

    limit: int
    """Size of the ball."""
    foresight: Callable[[int], int] | None
    """For how many updates tapes at this depth are left alone and then judged; `None` keeps any."""
    widening: int = 1
    """How many times wider than usual the beam is."""


PASSES = (
    Pass(SMALL, lambda depth: depth % 2),
    Pass(SMALL, lambda depth: (depth + 1) % 2),
    Pass(SMALL, lambda depth: 8),
    *[Pass(LARGE, None)] * 4,
    Pass(LARGE, lambda depth: 1, widening=8),
)
"""What is tried in turn.

The first two judge all tapes as of an even, then as of an odd step. That suits rules that change
little, and those that swap zeros and ones, where a good tape is near zero every other step. The
last is for tapes whose ways are hardly shorter than the horizon.
"""


SETTLED = np.uint32(1 << 16)
"""First lane of the draws that settle ties: one for each pass and depth."""


def find_ways(
    tapes: np.ndarray,
    budget: Sequence[int],
    rule: int,
    length: int,
    goal: int,
    stream: seeding.Stream,
    width: int = WIDTH,
    radius: int = 1,
    passes: Sequence[Pass] = PASSES,
) -> Ways:
    """For each start tape a way to the goal within its budget of steps, where one is found.

    The rule is elementary, or one of another `radius` as in `tapebench.planning.ball`. Ties are
    settled by `stream`, tape by tape, so what is found for one does not depend on the others.
    """
    ways: Ways = [None] * len(tapes)
    for number, attempt in enumerate(passes):
        left = [row for row, way in enumerate(ways) if way is None]
        if not left:
            break
        around = ball(rule, length, goal, attempt.limit, radius)
        at_once = max(ROWS // attempt.widening, 1)
        for rows in (left[start : start + at_once] for start in range(0, len(left), at_once)):
            steps = [budget[row] for row in rows]
            settle = _settler(stream, rows, number)
            ways_by_row = _beam_pass(tapes[rows], steps, around, goal, attempt, width, settle)
            for row, way in zip(rows, ways_by_row, strict=True):
                ways[row] = way
        if around.is_complete:
            break
    return ways


def find_far_ways(
    tapes: np.ndarray,
    budget: Sequence[int],
    rule: int,
    size: Size,
    goal: np.ndarray,
    stream: seeding.Stream,
    width: int = WIDTH,
    passes: Sequence[Pass] = PASSES[:3],
    family: Family = ELEMENTARY,
) -> Ways:
    """`find_ways` for tapes `[N, W]` and a goal `[W]` of any size: beams without a ball."""
    where = as_space(size)
    law = family.compile(np.array([rule]))

    def update(tapes: np.ndarray) -> np.ndarray:
        return np.asarray(family.update(tapes, law, where))

    ways: Ways = [None] * len(tapes)
    for number, attempt in enumerate(passes):
        for row, way in enumerate(ways):
            if way is None:
                settle = _settler(stream, [row], number)

                ways[row] = _far_way(
                    tapes[row], budget[row], update, where.size, goal, attempt, width, settle
                )
    return ways


def find_own_ways(
    task: Task,
    rules: np.ndarray,
    tapes: np.ndarray,
    budget: Sequence[int],
    stream: seeding.Stream,
    width: int = WIDTH,
) -> Ways:
    """For each tape, uint32 `[N]`, a way to the goal of a task under a rule of its own."""
    goal, size, family = task.goal or 0, task.space, task.family
    if is_exhaustive(task):
        return quotient.classes(family, size).ways(rules, tapes, np.array(budget, int))
    ways: Ways = [None] * len(tapes)
    for rule in np.unique(rules).tolist():
        rows = np.flatnonzero(rules == rule).tolist()
        steps, own = [budget[row] for row in rows], of_rows(stream, rows)
        if size.is_torus:
            words = space.to_words(goal, task.length)
            part = find_far_ways(
                tapes[rows, None], steps, rule, size, words, own, width, family=family
            )
        else:
            radius = family.radius
            part = find_ways(tapes[rows], steps, rule, task.length, goal, own, width, radius)
        for row, way in zip(rows, part, strict=True):
            ways[row] = way
    return ways


def is_exhaustive(task: Task) -> bool:
    """Whether `find_own_ways` finds a shortest way wherever there is one."""
    is_other = task.family != ELEMENTARY
    return is_other and task.goal == 0 and task.length <= exact.NUMPY_CELLS


Settle = Callable[[int], np.ndarray]
"""Depth -> an odd number for each tape, uint32 `[N]`, by which its candidates are scrambled."""


def of_rows(stream: seeding.Stream, rows: Any) -> seeding.Stream:
    """The streams of some rows."""
    return seeding.Stream(*(part[rows] for part in stream))


def _settler(stream: seeding.Stream, rows: Sequence[int], attempt: int) -> Settle:
    own = of_rows(stream, rows)

    def settle(depth: int) -> np.ndarray:
        lane = SETTLED + np.array([(attempt << 16) + depth], np.uint32)
        return seeding.draw(own, lane)[:, 0] | np.uint32(1)

    return settle


def _far_way(
    tape: np.ndarray,
    budget: int,
    update: Callable[[np.ndarray], np.ndarray],
    length: int,
    goal: np.ndarray,
    attempt: Pass,
    width: int,
    settle: Settle,
) -> list[int] | None:
    """One attempt at one tape `[W]`: forwards until the goal itself is met."""
    every_cell = np.arange(length)[None]
    beam = tape[None]
    history: list[tuple[np.ndarray, np.ndarray]] = []
    for depth in range(1, budget + 1):
        flipped = space.flip(beam[:, None], every_cell)
        after = update(flipped).reshape(-1, len(tape))
        is_home = (after == goal).all(axis=-1)
        if is_home.any():
            return _trace_back(history, 0, int(is_home.argmax()), length)
        wrong = np.zeros(len(after), np.int32)
        if attempt.foresight is not None:
            left_alone = after
            for _ in range(attempt.foresight(depth)):
                left_alone = update(left_alone)
            wrong = space.hamming(left_alone, goal)
        # Tapes are told apart by a hash, and from 127 wrong cells on no more are counted.
        hashes = seeding.hash32(*after.T)[None]
        survivors = _choose(hashes, wrong[None].clip(max=127), width, settle(depth))[0]
        history.append((survivors[None] // length, survivors[None] % length))
        beam = after[survivors]
    return None


def _beam_pass(
    tapes: np.ndarray,
    budget: Sequence[int],
    around: Ball,
    goal: int,
    attempt: Pass,
    width: int,
    settle: Settle,
) -> Ways:
    """One attempt: forwards until a successor lies in the ball and is near enough to home."""
    rule, length, radius = around.rule, around.length, around.radius
    ways: Ways = [None] * len(tapes)
    limit, rows = np.asarray(budget), np.arange(len(tapes))
    beam = tapes[:, None]
    history: list[tuple[np.ndarray, np.ndarray]] = []
    for depth in range(1, 2 if around.is_complete else max(budget, default=0) + 1):
        after = successors(beam, rule, length, radius).reshape(len(rows), -1)
        home = around.look_up(after)
        nearest = home.argmin(axis=1)
        fewest = home[np.arange(len(rows)), nearest].astype(int)
        keep = []
        for position, row in enumerate(rows):
            if fewest[position] < OUTSIDE and depth + fewest[position] <= limit[row]:
                first = _trace_back(history, position, int(nearest[position]), length)
                ways[row] = first + around.way_home(int(after[position, nearest[position]]))
            elif depth < limit[row]:
                keep.append(position)
        if not keep:
            break
        after, rows = after[keep], rows[keep]
        wrong = np.zeros(after.shape, np.uint8)
        if attempt.foresight is not None:
            left_alone = after
            for _ in range(attempt.foresight(depth)):
                left_alone = evolve_ring(left_alone, rule, length, radius)
            wrong = np.bitwise_count(left_alone ^ np.uint32(goal))
        survivors = _choose(after, wrong, width * attempt.widening, settle(depth)[rows])
        history = [(parents[keep], cells[keep]) for parents, cells in history]
        history.append((survivors // length, survivors % length))
        beam = np.take_along_axis(after, survivors, axis=1)
    return ways


def _choose(tapes: np.ndarray, wrong: np.ndarray, width: int, factor: np.ndarray) -> np.ndarray:
    """Positions of at most `width` different tapes per row, those with the fewest wrong cells.

    One sort by wrong cells, then tape, then position finds them and the repeated ones. Ties are
    settled at random because the tapes are scrambled, by a map that keeps different ones apart:
    each row has an odd `factor` of its own.
    """
    scrambled = (tapes ^ (tapes >> np.uint32(15))) * factor[:, None]
    key = wrong.astype(np.uint64) << np.uint64(56)
    key |= scrambled.astype(np.uint64) << np.uint64(24)
    key |= np.arange(tapes.shape[1], dtype=np.uint64)
    key.sort(axis=1)
    is_repeated = (key[:, 1:] ^ key[:, :-1]) < 1 << 24
    key[:, 1:] |= is_repeated.astype(np.uint64) << np.uint64(63)
    if tapes.shape[1] > width:
        key = np.partition(key, width, axis=1)[:, :width]
    return (key & np.uint64((1 << 24) - 1)).astype(int)


def _trace_back(
    history: list[tuple[np.ndarray, np.ndarray]], row: int, candidate: int, length: int
) -> list[int]:
    """The cells that led to a candidate of the current depth, first to last."""
    cells = [candidate % length]
    slot = candidate // length
    for parents, flips in reversed(history):
        cells.append(int(flips[row, slot]))
        slot = int(parents[row, slot])
    return cells[::-1]


@cache
def beam(task: Task, width: int = WIDTH) -> Policy:
    """Plays the way that search finds with the true rule; flips ones where it finds none."""
    check_plannable(task)

    def plan(rules: np.ndarray, tapes: np.ndarray, stream: seeding.Stream) -> Ways:
        return find_own_ways(task, rules, tapes, [task.horizon] * len(tapes), stream, width)

    return _open_loop("beam", task, plan)


@cache
def optimal(task: Task) -> Policy:
    """Plays a shortest way with the true rule; flips ones where there is none.

    Proved up to 24 cells, and on the standard exam at 32; of other families up to 25. Elsewhere it
    is what search finds, which may be longer than the shortest, or nothing where there is a way.
    """
    check_plannable(task)

    def plan(rules: np.ndarray, tapes: np.ndarray, stream: seeding.Stream) -> Ways:
        if is_exhaustive(task):
            return find_own_ways(task, rules, tapes, [task.horizon] * len(tapes), stream)
        ways: Ways = [None] * len(tapes)
        for rule in np.unique(rules).tolist():
            rows = np.flatnonzero(rules == rule)
            for row, way in zip(rows, under(rule, tapes[rows], of_rows(stream, rows)), strict=True):
                ways[row] = way
        return ways

    def under(rule: int, tapes: np.ndarray, stream: seeding.Stream) -> Ways:
        if task.length <= exact.NUMPY_LENGTH:
            solve = _remembered_steps if task.length <= 16 else exact.steps_to_goal
            steps = solve(rule, task.space, task.horizon, task.goal or 0, task.family)
            return [_shortest(int(tape), rule, task, steps) for tape in tapes]
        is_elementary = task.family == ELEMENTARY
        exam_ways = {}
        if is_elementary and task.length == exact.MAX_LENGTH and task.goal == 0:
            exam_ways = _exam_ways(rule)
        ways = [exam_ways.get(int(tape)) for tape in tapes]
        unknown = [row for row, tape in enumerate(tapes) if int(tape) not in exam_ways]
        if unknown:
            left, own = [task.horizon] * len(unknown), of_rows(stream, unknown)
            same = np.full(len(unknown), rule)
            searched = find_own_ways(task, same, tapes[unknown], left, own)
            for row, way in zip(unknown, searched, strict=True):
                ways[row] = way
        return [way if way is not None and len(way) <= task.horizon else None for way in ways]

    return _open_loop("optimal", task, plan)


def check_plannable(task: Task) -> None:
    """Refuse a task that a fixed sequence of cells cannot be planned for."""
    if task.noise:
        raise ValueError("this planner plays a fixed sequence: it needs noise=0")
    if task.goal is None or task.hidden:
        raise ValueError("this planner needs a fixed goal and no hidden cells")
    if task.length > MAX_LENGTH:
        raise ValueError(f"search takes tapes up to {MAX_LENGTH} cells, not {task.length}")


_remembered_steps = cache(exact.steps_to_goal)
"""Rows begin their trials at different times, so the same rule recurs again and again."""


def _shortest(tape: int, rule: int, task: Task, steps: np.ndarray) -> list[int] | None:
    if steps[tape] == exact.UNREACHED:
        return None
    cells = []
    while steps[tape]:
        cell = exact.best_cell(tape, rule, task.space, steps, task.family)
        assert cell is not None
        cells.append(cell)
        tape = task.family.step(tape, cell, rule, task.space)
    return cells


@cache
def _exam_ways(rule: int) -> dict[int, list[int] | None]:
    """Shipped shortest ways under this rule by exam tape; empty if the rule is not shipped."""
    answer = exact.exam_answers().get(rule)
    if answer is None or answer["exam_version"] != seeding.EXAM_VERSION:
        return {}
    ways = answer["exam_witnesses"]
    tapes = exam_tapes(32, len(ways))[:, 0]
    return {int(tape): way for tape, way in zip(tapes, ways, strict=True)}


def read_time(obs: np.ndarray, task: Task) -> np.ndarray:
    """The step each row is at, from its observation: trials begin anew row by row."""
    return np.rint(task.layout.time(obs) * task.horizon).astype(int)


def _open_loop(
    name: str, task: Task, plan: Callable[[np.ndarray, np.ndarray, seeding.Stream], Ways]
) -> Policy:
    """A policy that plans from the first tape of an episode, with its rule; then plays that."""

    def init(rule: Any, num: int) -> tuple[np.ndarray, np.ndarray]:
        # One column more than there are steps: an episode that is over may stand at the horizon.
        return np.asarray(rule), np.full((num, task.horizon + 1), -1)

    def act(memory: Any, obs: np.ndarray, stream: seeding.Stream) -> tuple[Any, np.ndarray]:
        rule, planned = memory
        cells, t = task.layout.cells(obs), read_time(obs, task)
        starts = np.flatnonzero(t == 0)
        if len(starts):
            planned = planned.copy()
            planned[starts] = -1
            tapes = space.pack(cells)[:, 0]
            ways = plan(rule[starts], tapes[starts], of_rows(stream, starts))
            for row, way in zip(starts, ways, strict=True):
                if way is not None:
                    planned[row, : len(way)] = way
        cell = planned[np.arange(len(obs)), t]
        return (rule, planned), np.where(cell >= 0, cell, flip_a_one(cells, stream))

    return Policy(name, init, act, backend="numpy")
