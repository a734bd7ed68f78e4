"""Random tapes: where episodes start, what exams ask, what features are measured on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapebench.base.seeding import (
    EXAM,
    EXAM_VERSION,
    FEATURES,
    Stream,
    draw,
    hash32,
    salt_words,
    unit,
)
from tapebench.base.shapes import UInt32
from tapebench.physics import space
from tapebench.physics.space import Size, as_space


def nonzero_words(words: UInt32[Any, "*B W"], length: int) -> UInt32[Any, "*B W"]:
    """Map uniform words `[..., W]` to a tape uniform over all tapes of `length` but the zero one.

    Added to a goal by XOR this draws a start tape that is never the goal, without a redraw. In
    one word it is `1 + floor(word * (2^length - 1) / 2^32)`, written so that it stays in 32 bits.
    """
    if length > space.WORD:
        words = words & space.full(length)
        is_zero = (words == 0).all(axis=-1, keepdims=True)
        return words | is_zero.astype(np.uint32)
    if length == space.WORD:
        return words + (words == 0).astype(np.uint32)
    whole, rest = words >> (space.WORD - length), words << length
    return whole + (rest >= words).astype(np.uint32)


def bernoulli_words(
    stream: Stream, lane: UInt32[Any, "*lanes"], probability: Any, length: int
) -> UInt32[Any, "*B W"]:
    """A tape whose cells are one with `probability`, independently: `[..., W]`.

    Cell i is decided by lane + i to a resolution of 2^-24; 0 and 1 are never and always.
    """
    lanes = lane + np.arange(length, dtype=np.uint32)
    return space.pack(unit(draw(stream, lanes)) < probability)


def exam_tapes(
    size: Size, episodes: int, *, goals: UInt32[np.ndarray, "E W"] | None = None, salt: str = ""
) -> UInt32[np.ndarray, "E W"]:
    """The start tapes of an exam: fair coins, none equal to its goal.

    They depend on the exam version, the shape, the episode number and, for a fresh exam, its
    salt: never on a rule, an agent or a seed. A tape equal to its goal (`goals[episodes, W]`,
    by default zeros) is drawn again.
    """
    where = as_space(size)
    words = np.arange(space.num_words(where.size), dtype=np.uint32)
    goals = np.zeros((episodes, len(words)), np.uint32) if goals is None else goals
    tapes, attempt = np.array(goals), 0
    while len(again := np.flatnonzero((tapes == goals).all(axis=-1))):
        episode = again[:, None].astype(np.uint32)
        head = (EXAM, EXAM_VERSION, *salt_words(salt), *where.shape)
        tapes[again] = hash32(*head, episode, attempt, words) & space.full(where.size)
        attempt += 1
    return tapes


def feature_tapes(length: int, trials: int) -> UInt32[np.ndarray, "trials W"]:
    """The random tapes behind the rule features."""
    trial = np.arange(trials, dtype=np.uint32)[:, None]
    words = np.arange(space.num_words(length), dtype=np.uint32)
    return hash32(FEATURES, length, trial, words) & space.full(length)
