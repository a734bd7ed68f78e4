"""How far a player gets who never looks at what the rule does: policies of tape and time alone.

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

STARTS = 16


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


def find(
    prior: Int64[np.ndarray, " R"],
    length: int,
    horizon: int,
    goal: int = 0,
    starts: int = STARTS,
    progress: Callable[[int], Any] = lambda start: None,
) -> Memoryless:
    """The best of some coordinate ascents, each from a random policy.

    Given what is played at all other times, the best cell for a tape at one time is computed
    exactly, from the last step to the first and over again until nothing improves. Weights are
    integers. The draws are fixed, so that the bound is the same whenever it is computed.
    """
    rules = np.flatnonzero(prior)
    images = np.stack([exact.all_images(int(rule), length) for rule in rules]).astype(np.int64)
    away = np.arange(2**length) != goal
    weight = prior[rules, None] * away
    rng = seeding.generator(0, "memoryless", length, horizon)
    found = []
    for start in range(starts):
        cells = rng.integers(length, size=(horizon, 2**length))
        found.append(_ascend(images, weight, cells, goal))
        progress(start)
    value, cells, solved = max(found, key=lambda one: one[0])
    by_rule = (solved & away).sum(axis=1) / away.sum()
    return Memoryless(
        length,
        horizon,
        cells,
        dict(zip(rules.tolist(), by_rule.tolist(), strict=True)),
        value / int(weight.sum()),
    )


def _ascend(
    images: np.ndarray, weight: np.ndarray, cells: np.ndarray, goal: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """The weight that is solved at last, the policy, and from which tapes: `[rules, tapes]`."""
    num, tapes = images.shape
    every, row = np.arange(tapes), np.arange(num)[:, None]
    least = -1
    while True:
        # Where the weight is at each time, under what is played before.
        at = [weight.astype(np.float32 if weight.sum() < 2**24 else float)]
        for chosen in cells[:-1]:
            flat = row * tapes + images[:, every ^ (1 << chosen)]
            moved = np.bincount(flat.ravel(), at[-1].ravel(), num * tapes).reshape(num, tapes)
            moved[:, goal] = 0
            at.append(moved.astype(at[0].dtype))
        solved = np.zeros((num, tapes), bool)
        solved[:, goal] = True
        for time in reversed(range(len(cells))):
            comes_home = np.take_along_axis(solved, images, axis=1)  # by the flipped tape
            home = comes_home.astype(at[0].dtype)
            gain = np.stack([_meet(at[time], home, cell) for cell in range(tapes.bit_length() - 1)])
            is_better = gain.max(axis=0) > gain[cells[time], every]
            cells[time] = np.where(is_better, gain.argmax(axis=0), cells[time])
            solved = comes_home[:, every ^ (1 << cells[time])]
            solved[:, goal] = True
        value = int((weight * solved).sum())
        if value <= least:
            return value, cells, solved
        least = value


def _meet(at: np.ndarray, home: np.ndarray, cell: int) -> np.ndarray:
    """The weight `[tapes]` that a flip of one cell brings to where it is solved."""
    pairs = (len(at), -1, 2, 2**cell)  # two tapes that the flip exchanges
    return np.einsum("rapb,rapb->apb", at.reshape(pairs), home.reshape(pairs)[:, :, ::-1]).ravel()
