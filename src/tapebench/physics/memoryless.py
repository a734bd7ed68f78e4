"""How far a player gets that never looks at what the rule does: policies of tape and time alone.

Such a policy plays the same under every rule, so what it reaches it does not owe to the law. The
best one found is a *lower bound* on the best there is, and what evidence is worth to an ideal
player is at most the blind ceiling minus it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.base.shapes import Int64
from tapebench.physics import exact

KICKS = 256
"""How often the search is thrown off its optimum, by default."""

KICK_SHARE = 0.1
"""The share of the policy's table that a kick draws anew."""


@dataclass(frozen=True)
class Memoryless:
    """A policy of tape and time, and what it reaches."""

    length: int
    horizon: int
    cells: Int64[np.ndarray, "H tapes"]
    """The cell to flip."""
    by_rule: dict[int, float]
    """Exact success under each rule of the prior."""
    value: float
    """The exact mean over the prior and over start tapes other than the goal: a lower bound on
    what the best memoryless policy reaches."""


def search(
    prior: Int64[np.ndarray, " R"],
    length: int,
    horizon: int,
    goal: int = 0,
    kicks: int = KICKS,
    progress: Callable[[int], Any] = lambda kick: None,
) -> Memoryless:
    """The best policy that iterated local search finds.

    Coordinate ascent: given what is played at all other times, the best cell for every tape at one
    time is computed exactly, from the last step to the first and over again until nothing improves.
    From there kicks draw a part of the table anew, and the ascent begins again; what is not worse
    is kept. The draws are fixed, so the bound is the same whenever it is computed.
    """
    rules = np.flatnonzero(prior)
    away = np.arange(2**length) != goal
    world = _World(rules, length, goal, away[:, None] * prior[rules])
    rng = seeding.generator(0, "memoryless", length, horizon)
    best = world.ascend(rng.integers(length, size=(horizon, 2**length)))
    for kick in range(kicks):
        is_drawn = rng.random(best.cells.shape) < KICK_SHARE
        draws = rng.integers(length, size=best.cells.shape)
        trial = world.ascend(np.where(is_drawn, draws, best.cells))
        if trial.weight >= best.weight:
            best = trial
        progress(kick)
    by_rule = best.is_solved[away].mean(axis=0)
    return Memoryless(
        length,
        horizon,
        best.cells,
        dict(zip(rules.tolist(), by_rule.tolist(), strict=True)),
        best.weight / int(world.weight.sum()),
    )


@dataclass(frozen=True)
class _Ascent:
    """Where an ascent ends."""

    weight: int
    """Of the rules and start tapes that are solved."""
    cells: np.ndarray
    """`[H, tapes]`."""
    is_solved: np.ndarray
    """`[tapes, rules]`."""


class _World:
    """Tapes by rules, `[tapes, rules]`: where each update leads, and what starts there."""

    def __init__(self, rules: np.ndarray, length: int, goal: int, weight: np.ndarray) -> None:
        images = np.stack([exact.all_images(int(rule), length) for rule in rules], axis=1)
        self.goal, self.weight = goal, weight
        self.after = images.astype(np.int64) * len(rules) + np.arange(len(rules))
        """The place, in a flat array of tapes by rules, that each flipped tape leads to."""
        self.tapes = np.arange(2**length)
        self.flips = self.tapes[:, None] ^ (1 << np.arange(length))
        # Weights and their sums are integers, and these floats hold them without rounding.
        if weight.sum() >= 2**53:
            raise ValueError("the weights of the prior are too large: divide them by something")
        self.dtype = np.float32 if weight.sum() < 2**24 else np.float64

    def ascend(self, cells: np.ndarray) -> _Ascent:
        """Improve a policy, one time after another, until nothing improves."""
        cells, previous = cells.copy(), -1
        while True:
            weights = self._weights(cells)
            solved = np.zeros(self.after.shape, self.dtype)
            solved[self.goal] = 1
            for time in reversed(range(len(cells))):
                solved_after = np.take(solved, self.after)  # by the flipped tape
                gains = np.matmul(solved_after[self.flips], weights[time][:, :, None])[:, :, 0]
                is_better = gains.max(axis=1) > gains[self.tapes, cells[time]]
                cells[time] = np.where(is_better, gains.argmax(axis=1), cells[time])
                solved = solved_after[self._flipped(cells[time])]
                solved[self.goal] = 1
            is_solved = solved.astype(bool)
            weight = int((self.weight * is_solved).sum())
            if weight <= previous:
                return _Ascent(weight, cells, is_solved)
            previous = weight

    def _weights(self, cells: np.ndarray) -> list[np.ndarray]:
        """What has come to each tape under each rule, at every time; the goal keeps what comes."""
        weights = [self.weight.astype(self.dtype)]
        for chosen in cells[:-1]:
            places = self.after[self._flipped(chosen)]
            moved = np.bincount(places.ravel(), weights[-1].ravel(), places.size)
            weights.append(moved.reshape(places.shape).astype(self.dtype))
            weights[-1][self.goal] = 0
        return weights

    def _flipped(self, cells: np.ndarray) -> np.ndarray:
        return self.tapes ^ (1 << cells)
