"""What a table of results is: `[S]` or `[S, R]`, seeds by rules, all of it finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

NEGLIGIBLE = 1e-3
"""A ceiling below this counts as none, and one this close to 1 as full.

Zero would not do: the goal itself reaches the goal, so a share of all tapes is never zero, and at
L = 32 more than a hundred rules are solvable only from under one tape in ten thousand.
"""


def seed_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of every seed over all its other axes, `[S]`."""
    return scores.reshape(len(scores), -1).mean(axis=1)


def check(values: Any, label: str, axes: int | None = None) -> np.ndarray:
    """As a float array that has numbers in it, all of them finite."""
    array = np.asarray(values, float)
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{label} have shape {array.shape}: {axes} axes are needed")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{label} have shape {array.shape}: an array with values in it is needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{label} contain nan or infinity: leave out the runs that failed")
    return array


def per_rule(values: Any, scores: np.ndarray, label: str, dtype: type = float) -> np.ndarray:
    """As an array with an entry for every rule of `scores[..., R]`."""
    array: np.ndarray = np.asarray(values, dtype)
    if array.shape != scores.shape[-1:]:
        raise ValueError(
            f"{label} have shape {array.shape}, the scores {scores.shape[-1]} rules: "
            "give one per rule"
        )
    return check(array, label) if dtype is float else array
