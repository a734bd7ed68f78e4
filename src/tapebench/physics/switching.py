"""The clairvoyant ceiling of rules that switch: what can be reached by who knows them and when.

Which rule acts depends on the time, so the backward search is indexed by it: from every tape at
every time, the fewest steps to the goal with the rules that are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from tapebench.physics import exact
from tapebench.physics.exact import UNREACHED, Reach
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.family import Family
from tapebench.physics.space import Size, as_space

MAX_LENGTH = 16
"""Longest tape that is searched: a hundredth of a second for each sequence of rules."""

MAX_SEQUENCES = 100_000
"""Sequences of rules whose ceilings are computed at a time."""

Spans = tuple[tuple[int, int], ...]
"""Rules in the order in which they act, each with the number of its updates."""


def spans(rules: Iterable[int], switches: Iterable[int], horizon: int) -> Spans:
    """Rules that switch at these steps, within the horizon."""
    lengths = [after - before for before, after in pairwise((0, *switches, horizon))]
    return tuple(zip(rules, lengths, strict=True))


def steps_under_switches(
    spans: Spans, size: Size, goal: int = 0, family: Family = ELEMENTARY
) -> np.ndarray:
    """Optimal steps from every tape, uint16 `[2^cells]`; `UNREACHED` if there is no way in time.

    Indexed by the tape as an integer. All rules and times are known from the start.
    """
    cells = exact.check_reach(size, MAX_LENGTH)
    steps = np.full(2**cells, UNREACHED, np.uint16)
    steps[goal] = 0
    if not spans:
        return steps
    (rule, updates), *rest = spans
    if rest:
        steps = _remembered_steps(tuple(rest), size, goal, family)
    images = _images(rule, size, family)
    for _ in range(updates):
        later, steps = steps, _step_back(steps, images, cells, goal)
        if np.array_equal(steps, later):
            break  # more time under this rule changes nothing any more
    return steps


@lru_cache(maxsize=512)
def _remembered_steps(spans: Spans, size: Size, goal: int, family: Family) -> np.ndarray:
    """What follows a switch is asked for again under every rule that comes before it."""
    return steps_under_switches(spans, size, goal, family)


_images = lru_cache(maxsize=4)(exact.all_images)


def _step_back(steps: np.ndarray, images: np.ndarray, cells: int, goal: int) -> np.ndarray:
    """Optimal steps one update earlier: the goal ends an episode whenever it is reached."""
    after_flip = np.take(steps, images).reshape(-1, 2 ** (cells // 2))
    # Half of the cells number the rows and half the columns. Columns that are turned into rows are
    # contiguous, which is several times as fast.
    by_row = _best_flip(after_flip)
    by_column = _best_flip(np.ascontiguousarray(after_flip.T))
    fewest = np.minimum(by_row, by_column.T).ravel()
    earlier: np.ndarray = np.minimum(fewest, UNREACHED - 1) + np.uint16(1)
    earlier[goal] = 0
    return earlier


def _best_flip(values: np.ndarray) -> np.ndarray:
    """The least of the rows whose numbers differ from a row's in one bit, for each of 2^n rows."""
    fewest = np.full_like(values, UNREACHED)
    for bit in range(len(values).bit_length() - 1):
        pairs = values.reshape(-1, 2, 2**bit * values.shape[1])
        best = fewest.reshape(pairs.shape)
        np.minimum(best, pairs[:, ::-1], out=best)
    return fewest


def count_sequences(num_rules: int, num_switches: int) -> int:
    """How many sequences of rules change at each switch."""
    return int(num_rules * (num_rules - 1) ** num_switches)


def ceilings_by_sequence(
    rules: Iterable[int],
    switches: tuple[int, ...],
    size: Size,
    horizon: int,
    goal: int = 0,
    progress: Callable[[Any], Any] = lambda rules: None,
    family: Family = ELEMENTARY,
) -> dict[tuple[int, ...], Reach]:
    """How many tapes need how many steps, for every sequence of rules that changes at each switch.

    The `rule` of a `Reach` is the first one.
    """
    members = sorted(set(rules))
    where = as_space(size)
    exact.check_reach(where, MAX_LENGTH)
    count = count_sequences(len(members), len(switches))
    if count > MAX_SEQUENCES:
        raise ValueError(
            f"{len(members)} rules make {count:,} sequences, more than {MAX_SEQUENCES:,}: "
            "name fewer rules or fewer switches"
        )
    by_sequence = {}
    for sequence in product(members, repeat=len(switches) + 1):
        if any(before == after for before, after in pairwise(sequence)):
            continue
        of_sequence = spans(sequence, switches, horizon)
        steps = steps_under_switches(of_sequence, where, goal, family)
        counts = np.bincount(steps[steps != UNREACHED], minlength=1)
        by_sequence[sequence] = Reach(sequence[0], where.size, tuple(counts.tolist()))
        progress(sequence)
    return by_sequence
