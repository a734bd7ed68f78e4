"""Planning with a known rule by search from both ends, up to 32 cells.

*Backwards* from the goal, predecessors are listed layer by layer into a `Ball`: tapes known to
reach the goal, each with the steps it takes. A ball that ran out of predecessors is complete, and
proves every tape outside it hopeless. Where there are too many to list, a random part of them is
kept. *Forwards* from a start tape a beam of the most promising tapes is kept until one of their
successors lies in the ball. Every way found is a real way, but not always a shortest one.

`optimal` goes further: it plays provably shortest ways, from the exhaustive search up to 24 cells
and from the shipped answers on the exam at 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tapebench import dynamics, exact, seeding
from tapebench.policy import Policy
from tapebench.task import Task

MAX_LENGTH = 32
BALL = 1 << 20
"""About how many tapes a ball may hold."""

WIDTH = 256
"""Tapes the beam keeps per start tape."""

ATTEMPTS = 8
"""Passes of the beam before a tape is given up."""


@dataclass(frozen=True)
class Ball:
    """Tapes from which one rule leads to the goal, and in how many steps."""

    rule: int
    length: int
    tapes: np.ndarray
    """uint32, ascending."""
    steps: np.ndarray
    """uint8, for each of them: the length of the way through the ball."""
    is_complete: bool
    """Whether every tape that can reach the goal at all is in it."""

    def look_up(self, tapes: np.ndarray) -> np.ndarray:
        """Steps home of these tapes (any shape); 255 for those outside the ball."""
        place = np.searchsorted(self.tapes, tapes).clip(max=len(self.tapes) - 1)
        return np.where(self.tapes[place] == tapes, self.steps[place], np.uint8(255))

    def way_home(self, tape: int) -> list[int]:
        """The way through the ball from one of its tapes to the goal, cell by cell."""
        cells = []
        while left := int(self.look_up(np.array([tape], np.uint32))[0]):
            after = successors(np.array([tape], np.uint32), self.rule, self.length)[0]
            cell = int((self.look_up(after) == left - 1).argmax())
            cells.append(cell)
            tape = int(after[cell])
        return cells


def successors(tapes: np.ndarray, rule: int, length: int) -> np.ndarray:
    """Where each flip leads: tapes uint32 `[...]` -> `[..., L]`."""
    every_cell = np.arange(length, dtype=np.uint32)
    flipped = tapes[..., None] ^ (np.uint32(1) << every_cell)
    return dynamics.evolve(flipped[..., None], np.array([rule]), length)[..., 0]


def predecessors(
    tapes: np.ndarray, rule: int, length: int, limit: int, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """Tapes that update to one of `tapes`, and whether these are all.

    Grows all of them at once around the ring, a cell at a time from each choice of the first two;
    where more than `limit` are growing, a random part goes on.
    """
    are_all = True
    table = np.array([(rule >> index) & 1 for index in range(8)], np.uint32)
    target = np.tile(tapes, 4)
    grown = np.arange(4, dtype=np.uint32).repeat(len(tapes))
    for cell in range(2, length):
        last_two = (grown >> np.uint32(cell - 2)) & np.uint32(3)
        index = 4 * (last_two & 1) + 2 * (last_two >> 1)
        wanted = (target >> np.uint32(cell - 1)) & np.uint32(1)
        fits = [np.flatnonzero(table[index + bit] == wanted) for bit in (0, 1)]
        with_one = grown[fits[1]] | np.uint32(1 << cell)
        grown = np.concatenate([grown[fits[0]], with_one])
        target = np.concatenate([target[fits[0]], target[fits[1]]])
        if len(grown) > limit:
            part = rng.choice(len(grown), limit, replace=False)
            grown, target, are_all = grown[part], target[part], False
    closes = dynamics.evolve(grown[:, None], np.array([rule]), length)[:, 0] == target
    return grown[closes], are_all


@cache
def ball(rule: int, length: int, goal: int = 0, limit: int = BALL) -> Ball:
    """List backwards from the goal until about `limit` tapes are known, or there are no more."""
    if length > MAX_LENGTH:
        raise ValueError(f"search takes tapes up to {MAX_LENGTH} cells, not {length}")
    rng = seeding.generator(rule, "ball", length, goal)
    known = layer = np.array([goal], np.uint32)
    steps = np.zeros(1, np.uint8)
    is_thinned = False
    every_cell = np.uint32(1) << np.arange(length, dtype=np.uint32)
    for number in range(1, 255):
        room = (limit - len(known)) // length
        if room <= 0:
            break
        if len(layer) > 8 * room:
            # Most of their predecessors would find no room; and no closed set is this large.
            layer, is_thinned = rng.choice(layer, 8 * room, replace=False), True
        before, are_all = predecessors(layer, rule, length, limit, rng)
        if len(before) > room:
            before, are_all = rng.choice(before, room, replace=False), False
        is_thinned |= not are_all
        reached = np.unique(before[:, None] ^ every_cell)
        layer = reached[~np.isin(reached, known, assume_unique=True)]
        if not len(layer):
            break
        order = np.argsort(np.concatenate([known, layer]), kind="stable")
        known = np.concatenate([known, layer])[order]
        steps = np.concatenate([steps, np.full(len(layer), number, np.uint8)])[order]
    return Ball(rule, length, known, steps, is_complete=not len(layer) and not is_thinned)


def find_ways(
    tapes: np.ndarray,
    budget: Sequence[int],
    around: Ball,
    goal: int,
    rng: np.random.Generator,
    width: int = WIDTH,
    attempts: int = ATTEMPTS,
) -> list[list[int] | None]:
    """For each start tape a way to the goal within its budget of steps, where one is found.

    The first attempt keeps the tapes nearest to the goal by Hamming distance, which suits rules
    that leave most cells alone. The others keep tapes at random: under a chaotic rule being near
    means nothing, and what counts is to look at many tapes.
    """
    ways: list[list[int] | None] = [None] * len(tapes)
    for row, steps in enumerate(around.look_up(tapes)):
        if steps <= budget[row]:
            ways[row] = around.way_home(int(tapes[row]))
    for attempt in range(0 if around.is_complete else attempts):
        rows = [row for row, way in enumerate(ways) if way is None]
        target = goal if attempt == 0 else None
        found = _beam_pass(tapes[rows], [budget[row] for row in rows], around, target, rng, width)
        for row, way in zip(rows, found, strict=True):
            ways[row] = way
    return ways


def _beam_pass(
    tapes: np.ndarray,
    budget: Sequence[int],
    around: Ball,
    target: int | None,
    rng: np.random.Generator,
    width: int,
) -> list[list[int] | None]:
    """One attempt: forwards until a successor lies in the ball and is near enough to home."""
    rule, length = around.rule, around.length
    ways: list[list[int] | None] = [None] * len(tapes)
    limit, rows = np.asarray(budget), np.arange(len(tapes))
    beam = tapes[:, None]
    history: list[tuple[np.ndarray, np.ndarray]] = []
    for depth in range(1, max(budget, default=0) + 1):
        after = successors(beam, rule, length).reshape(len(rows), -1)
        home = around.look_up(after)
        nearest = home.argmin(axis=1)
        total = depth + home[np.arange(len(rows)), nearest].astype(int)
        keep = []
        for position, row in enumerate(rows):
            if total[position] <= limit[row]:
                first = _trace_back(history, position, int(nearest[position]), length)
                ways[row] = first + around.way_home(int(after[position, nearest[position]]))
            elif depth < limit[row]:
                keep.append(position)
        if not keep:
            break
        chosen = _choose(after[keep], target, width, rng)
        history = [(parents[keep], cells[keep]) for parents, cells in history]
        history.append((chosen // length, chosen % length))
        beam = np.take_along_axis(after[keep], chosen, axis=1)
        rows = rows[keep]
    return ways


def _choose(
    tapes: np.ndarray, target: int | None, width: int, rng: np.random.Generator
) -> np.ndarray:
    """Positions of at most `width` different tapes per row: nearest to `target`, or any."""
    order = np.argsort(tapes, axis=1)
    ordered = np.take_along_axis(tapes, order, axis=1)
    is_repeated = np.zeros(tapes.shape, bool)
    np.put_along_axis(is_repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    score = rng.random(tapes.shape)
    if target is not None:
        score += np.bitwise_count(tapes ^ np.uint32(target))
    score[is_repeated] += 1000
    if tapes.shape[1] <= width:
        return np.argsort(score, axis=1)
    return np.argpartition(score, width, axis=1)[:, :width]


def _trace_back(
    history: list[tuple[np.ndarray, np.ndarray]], row: int, candidate: int, length: int
) -> list[int]:
    """The cells that led to a candidate of the current depth, first to last."""
    cells = [candidate % length]
    place = candidate // length
    for parents, flips in reversed(history):
        cells.append(int(flips[row, place]))
        place = int(parents[row, place])
    return cells[::-1]


@cache
def beam(task: Task, width: int = WIDTH) -> Policy:
    """Plays the way that search finds with the true rule; flips ones where it finds none."""
    check_plannable(task)

    def plan(rule: int, tapes: np.ndarray, rng: np.random.Generator) -> list[list[int] | None]:
        budget = [task.horizon] * len(tapes)
        around = ball(rule, task.length, task.goal or 0)
        return find_ways(tapes, budget, around, task.goal or 0, rng, width)

    return _open_loop("beam", task, plan)


@cache
def optimal(task: Task) -> Policy:
    """Plays a shortest way with the true rule; flips ones where there is none.

    Proved up to 24 cells, and on the standard exam at 32. Elsewhere it is what search finds,
    which may be longer than the shortest, or nothing where there is a way.
    """
    check_plannable(task)

    def plan(rule: int, tapes: np.ndarray, rng: np.random.Generator) -> list[list[int] | None]:
        if task.length <= exact.NUMPY_LENGTH:
            steps = exact.steps_to_goal(rule, task.length, task.horizon, task.goal or 0)
            return [_shortest(int(tape), rule, task.length, steps) for tape in tapes]
        known = _exam_ways(rule) if task.length == 32 and task.goal == 0 else {}
        ways = [known.get(int(tape)) for tape in tapes]
        unknown = [row for row, tape in enumerate(tapes) if int(tape) not in known]
        if unknown:
            budget = [task.horizon] * len(unknown)
            around = ball(rule, task.length, task.goal or 0)
            found = find_ways(tapes[unknown], budget, around, task.goal or 0, rng)
            for row, way in zip(unknown, found, strict=True):
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


def _shortest(tape: int, rule: int, length: int, steps: np.ndarray) -> list[int] | None:
    if steps[tape] == exact.UNREACHED:
        return None
    cells = []
    while steps[tape]:
        cell = exact.best_cell(tape, rule, length, steps)
        assert cell is not None
        cells.append(cell)
        tape = dynamics.step(tape, cell, rule, length)
    return cells


@cache
def _exam_ways(rule: int) -> dict[int, list[int] | None]:
    """Shipped shortest ways under this rule by exam tape; empty if the rule is not shipped."""
    answer = exact.exam_answers().get(rule)
    if answer is None or answer["exam_version"] != seeding.EXAM_VERSION:
        return {}
    ways = answer["exam_witnesses"]
    tapes = seeding.exam_tapes(32, len(ways))[:, 0]
    return {int(tape): way for tape, way in zip(tapes, ways, strict=True)}


def _open_loop(name: str, task: Task, plan: Any) -> Policy:
    """A policy that plans once, rule by rule, from the first tape it sees."""

    def act(memory: Any, obs: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        rule, t, actions = memory
        cells = obs[:, : task.length]
        if actions is None:
            actions = np.full((len(obs), task.horizon), -1)
            tapes = dynamics.pack(cells)[:, 0]
            for member in np.unique(rule):
                rows = np.flatnonzero(rule == member)
                for row, way in zip(rows, plan(int(member), tapes[rows], rng), strict=True):
                    if way is not None:
                        actions[row, : len(way)] = way
        planned = actions[:, t]
        flip_ones = (cells + rng.random(cells.shape)).argmax(axis=1)
        return (rule, t + 1, actions), np.where(planned >= 0, planned, flip_ones)

    return Policy(name, lambda rule, num: (np.asarray(rule), 0, None), act, backend="numpy")
