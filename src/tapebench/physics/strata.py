"""What solving a rule takes: strata of rules, by size of the task.

`impossible` where hardly any start tape can be solved at all, `reflex` where flipping ones reaches
half of what can be reached, `beyond-reflex` where more than that is needed. Success on the last is
what the benchmark is about: no agent can pass the first, and the second says nothing about acting
on the rule.

Ceilings are exact. What flipping ones reaches is exact up to 16 cells; at 32 it is the mean over a
sample of start tapes that is shipped, and `Measure.is_close` names the rules whose stratum it
cannot settle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.physics import exact, starts
from tapebench.physics.families import elementary

IMPOSSIBLE_BELOW = 0.05
REFLEX_FROM = 0.5
ROUNDING = 1e-9
"""What floats may be off by: at 8 cells and 4 steps eight rules are on the line exactly."""

STRATA = ("beyond-reflex", "reflex", "impossible")

EXACT_LENGTH = 16
"""Longest tape for which what flipping ones reaches is computed exactly."""

SAMPLED_LENGTH, SAMPLED_HORIZON = 32, 64
"""Cells of the shipped sample, and the steps that its episodes go on for."""

SAMPLE = "strata"
"""Name of the sample: the salt of its start tapes, which are those of `--exam fresh:strata`, and
the stream of its draws."""

SAMPLE_TAPES = 10_000
"""Start tapes of the sample, the same ones under each rule."""

CLOSE = 2.0
"""Standard errors from the threshold within which a sample does not settle a rule's stratum."""


def stratum(ceiling: float, flip_ones: float) -> str:
    """The stratum of a rule from what can be reached and what flipping ones reaches."""
    if ceiling < IMPOSSIBLE_BELOW:
        return "impossible"
    # Some rules are on the line exactly, which no rounding may move them from.
    return "reflex" if flip_ones >= REFLEX_FROM * ceiling - ROUNDING else "beyond-reflex"


@dataclass(frozen=True)
class Measure:
    """What can be reached under a rule and what flipping ones reaches."""

    ceiling: float
    """Exact. At 32 cells and more than 32 steps there are two rules of which the search did not
    come to its end: theirs is a lower bound, and their stratum is the same for any ceiling above.
    """
    flip_ones: float
    tapes: int | None = None
    """Start tapes that `flip_ones` is a sample mean over; None where it is exact."""

    @property
    def stratum(self) -> str:
        return stratum(self.ceiling, self.flip_ones)

    @property
    def error(self) -> float:
        """The standard error of `flip_ones`."""
        return (self.flip_ones * (1 - self.flip_ones) / self.tapes) ** 0.5 if self.tapes else 0.0

    @property
    def is_close(self) -> bool:
        """Whether the sample leaves open if the rule is reflex or beyond-reflex."""
        if self.tapes is None or self.stratum == "impossible":
            return False
        return abs(self.flip_ones - REFLEX_FROM * self.ceiling) <= CLOSE * self.error


def is_known(length: int, horizon: int) -> bool:
    """Whether `measure` answers for tasks of this size."""
    is_sampled = length == SAMPLED_LENGTH and horizon <= SAMPLED_HORIZON
    return length <= EXACT_LENGTH or is_sampled


def measure(rules: Sequence[int], length: int, horizon: int) -> dict[int, Measure]:
    """What is reached under each rule, for the zero goal.

    What is shipped is looked up; other sizes up to 16 cells are computed, in a second for 8 cells
    and less than a minute for 16.
    """
    return dict(_measure(tuple(rules), length, horizon))


@cache
def _measure(rules: tuple[int, ...], length: int, horizon: int) -> dict[int, Measure]:
    if not is_known(length, horizon):
        raise ValueError(
            f"strata are known up to {EXACT_LENGTH} cells, and at {SAMPLED_LENGTH} cells up to "
            f"{SAMPLED_HORIZON} steps, not for L = {length}, H = {horizon}"
        )
    ceilings = _ceilings(rules, length, horizon)
    if length <= EXACT_LENGTH:
        return {r: Measure(ceilings[r], _flip_ones(r, length, horizon)) for r in rules}
    sample = shipped_sample()
    at_least = _ceilings(rules, length, length) | ceilings
    measured = {r: Measure(at_least[r], sample.success(r, horizon), sample.tapes) for r in rules}
    for rule in rules:
        if rule not in ceilings and measured[rule].stratum != stratum(
            1.0, measured[rule].flip_ones
        ):
            raise ValueError(
                f"the ceiling of rule {rule} at L = {length}, H = {horizon} is not known exactly, "
                "and its stratum depends on it"
            )
    return measured


def strata(rules: Sequence[int], length: int, horizon: int) -> dict[int, str]:
    """The stratum of each rule, see `measure`."""
    return {rule: numbers.stratum for rule, numbers in measure(rules, length, horizon).items()}


def _ceilings(rules: Sequence[int], length: int, horizon: int) -> dict[int, float]:
    try:
        solved = exact.shipped_ceilings(length, horizon)
    except ValueError:
        solved = exact.reach_all(rules, length, horizon)
    return {rule: reach.solvable_excluding_goal for rule, reach in solved.items()}


@cache
def _flip_ones(rule: int, length: int, horizon: int) -> float:
    """What flipping ones reaches, exactly; mirror images share it."""
    if (length, horizon) == (16, 16):
        return exact.shipped_chances(length, horizon)["flip-ones"][rule]
    if (twin := elementary.mirror(rule)) < rule:
        return _flip_ones(twin, length, horizon)
    return exact.chance_of_success(rule, length, horizon, "flip-ones")


# The sample at 32 cells


@dataclass(frozen=True)
class Sample:
    """Episodes of flip-ones: how many of the start tapes were solved after how many steps."""

    tapes: int
    counts: dict[int, tuple[int, ...]]
    """By rule; entry k counts the tapes solved at step k, trailing zeros left out."""

    def success(self, rule: int, horizon: int) -> float:
        """The share of start tapes that were solved within `horizon` steps."""
        return sum(self.counts[rule][: horizon + 1]) / self.tapes


def sample_flip_ones(rules: Iterable[int], tapes: int = SAMPLE_TAPES) -> Sample:
    """Play flip-ones from the sample's start tapes; mirror images share their counts.

    The draws are hashes of rule, tape and step, so they depend on no version of NumPy.
    """
    begin = starts.exam_tapes(SAMPLED_LENGTH, tapes, salt=SAMPLE)[:, 0]
    counts: dict[int, tuple[int, ...]] = {}
    for rule in sorted(rules):
        twin = counts.get(elementary.mirror(rule))
        counts[rule] = _play(rule, begin) if twin is None else twin
    return Sample(tapes, counts)


def _play(rule: int, tape: np.ndarray) -> tuple[int, ...]:
    """How many tapes `[B]` flipping ones solves at each step under one rule."""
    stream = seeding.policy_streams(0, SAMPLE, np.full(len(tape), rule), np.arange(len(tape)))
    solved = [0]
    for _ in range(SAMPLED_HORIZON):
        word = seeding.draw(stream, np.zeros(1, np.uint32))[:, 0]
        cell = select_one(tape, seeding.below(np.bitwise_count(tape).astype(np.uint32), word))
        tape = elementary.step(tape[:, None], cell, np.array([rule]), SAMPLED_LENGTH)[:, 0]
        is_left = tape != 0
        solved.append(int(len(tape) - is_left.sum()))
        stream = seeding.advance(seeding.Stream(*(part[is_left] for part in stream)))
        tape = tape[is_left]
        if not len(tape):
            break
    while len(solved) > 1 and not solved[-1]:
        solved.pop()
    return tuple(solved)


def select_one(words: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The place of the set bit of each word, uint32 `[B]`, that so many others lie below."""
    place = np.zeros_like(words)
    number = number.astype(np.uint32)
    for width in (16, 8, 4, 2, 1):
        half = (words >> place) & np.uint32((1 << width) - 1)
        below = np.bitwise_count(half).astype(np.uint32)
        is_above = number >= below
        number = np.where(is_above, number - below, number)
        place = np.where(is_above, place + np.uint32(width), place)
    return place


def dump_sample(sample: Sample) -> str:
    """A sample as the text of a file under `data/exact/`: one rule per line."""
    head: dict[str, Any] = {
        "length": SAMPLED_LENGTH,
        "horizon": SAMPLED_HORIZON,
        "goal": "zeros",
        "policy": "flip-ones",
        "sample": SAMPLE,
        "tapes": sample.tapes,
    }
    lines = ",\n".join(
        f'    "{rule}": {json.dumps(list(counts))}'
        for rule, counts in sorted(sample.counts.items())
    )
    top = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    return f'{{\n{top}  "counts": {{\n{lines}\n  }}\n}}\n'


@cache
def shipped_sample() -> Sample:
    """The shipped sample of flip-ones at 32 cells. See `sample_flip_ones`."""
    name = f"data/exact/flip-ones-L{SAMPLED_LENGTH}-H{SAMPLED_HORIZON}.json"
    document = json.loads(resources.files("tapebench").joinpath(name).read_text())
    counts = {int(rule): tuple(numbers) for rule, numbers in document["counts"].items()}
    return Sample(document["tapes"], counts)
