"""The labels: which cells are optimal, how many steps are left, what the posterior still allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from tapebench.base.shapes import Bool, Float32, Int16, Int64, Integer, UInt32
from tapebench.exam.exam import IMPOSSIBLE
from tapebench.physics import bayes, exact


@dataclass(frozen=True)
class Answers:
    """Fewest steps to the zero tape from every tape under each of some rules."""

    rules: UInt32[np.ndarray, " R"]
    """Ascending."""
    steps: Int16[np.ndarray, "R tapes"]
    """`IMPOSSIBLE` where the goal cannot be reached, however long one plays."""
    after: Int16[np.ndarray, "R tapes"]
    """The same of the tape that each flipped tape updates to."""

    def fewest_steps(
        self, rule: Integer[np.ndarray, " B"], tape: UInt32[np.ndarray, " B"]
    ) -> Int16[np.ndarray, " B"]:
        """Fewest steps to the goal, or `IMPOSSIBLE`."""
        steps: np.ndarray = self.steps[np.searchsorted(self.rules, rule), tape]
        return steps

    def optimal_cells(
        self, rule: Integer[np.ndarray, " B"], tape: UInt32[np.ndarray, " B"]
    ) -> Bool[np.ndarray, "B L"]:
        """The cells with which a shortest way to the goal begins; none where there is no way."""
        row = np.searchsorted(self.rules, rule)
        length = self.steps.shape[1].bit_length() - 1
        flipped = tape[:, None] ^ (np.uint32(1) << np.arange(length, dtype=np.uint32))
        steps = self.steps[row, tape][:, None]
        is_best: np.ndarray = (self.after[row[:, None], flipped] == steps - 1) & (steps > 0)
        return is_best


@cache
def solve(rules: tuple[int, ...], length: int) -> Answers:
    """Search every rule to its end, whatever the horizon."""
    images = np.stack([exact.all_images(rule, length) for rule in rules])
    # No way is longer than there are tapes.
    found = np.stack([exact.steps_to_goal(rule, length, 2**length) for rule in rules])
    steps = np.where(found == exact.UNREACHED, IMPOSSIBLE, found.astype(np.int16))
    after = np.take_along_axis(steps, images.astype(np.int64), axis=1)
    return Answers(np.array(rules, np.uint32), steps, after)


@cache
def entropies(rules: tuple[int, ...]) -> Float32[np.ndarray, " states"]:
    """Bits of uncertainty about the rule in each state of knowledge, if all are equally likely.

    Evidence only rules out, so the posterior stays uniform over the rules that are left. States
    that none of the rules leads to have no posterior: nan.
    """
    masses = bayes.masses(bayes.parse_prior(rules))
    # Rounded to float32, so that the last bit of a machine's logarithm makes no difference.
    bits = [math.log2(mass) if mass else math.nan for mass in masses.tolist()]
    return np.array(bits, np.float32)


def follow_evidence(
    tape: UInt32[np.ndarray, "B T"],
    cell: Integer[np.ndarray, "B T"],
    next_tape: UInt32[np.ndarray, "B T"],
    length: int,
) -> Int64[np.ndarray, "B T"]:
    """What is known of the rule after each step of episodes that begin in the first column."""
    knowledge = np.full(len(tape), bayes.NOTHING)
    states = np.empty(tape.shape, np.int64)
    for step in range(tape.shape[1]):
        knowledge = bayes.learn(knowledge, tape[:, step], cell[:, step], next_tape[:, step], length)
        states[:, step] = knowledge
    return states
