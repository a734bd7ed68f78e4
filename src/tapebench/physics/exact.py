"""Exact reachability: from which tapes the goal can be reached, and in how few steps.

The search runs backwards from the goal over all 2^L tapes. A tape is one step from a set if
flipping one of its cells gives a tape whose update lands in the set, so a layer is: look up which
tapes update into the last layer, then spread that set along every axis of the hypercube. Sets are
bitsets of 64-tape words, where spreading is a handful of shifts.

That serves up to 24 cells in plain NumPy. `tapebench.exhaustive` goes on to 32; what it has found
for the standard size is shipped rule by rule, so that nobody has to search those again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tapebench.base.shapes import Float64, UInt16, UInt32
from tapebench.physics import space
from tapebench.physics.families import elementary

NUMPY_LENGTH = 24
"""Longest tape searched in plain NumPy: 2^24 tapes, about a second a rule."""

NOISE_LENGTH = 20
"""Longest tape for which chances under noise are computed."""

MAX_LENGTH = 32
"""Longest tape searched at all, with the extra `exact`."""

UNREACHED = np.uint16(0xFFFF)
"""In `steps_to_goal`: the goal cannot be reached within the horizon."""

_SWAP_MASKS = tuple(
    np.uint64(mask)
    for mask in (
        0x5555555555555555,
        0x3333333333333333,
        0x0F0F0F0F0F0F0F0F,
        0x00FF00FF00FF00FF,
        0x0000FFFF0000FFFF,
        0x00000000FFFFFFFF,
    )
)
"""Mask i selects, in a 64-tape word, the tapes whose cell i is zero."""


@dataclass(frozen=True)
class Reach:
    """How many of all 2^length tapes need how many steps to the goal under one rule."""

    rule: int
    length: int
    histogram: tuple[int, ...]
    """Entry k counts the tapes whose optimal number of steps is k; entry 0 is the goal itself."""

    @property
    def solvable(self) -> float:
        """Share of all tapes that can reach the goal, the goal itself counted at 0 steps."""
        return sum(self.histogram) / 2**self.length

    @property
    def solvable_excluding_goal(self) -> float:
        """The same share among the tapes an episode can start from."""
        return (sum(self.histogram) - 1) / (2**self.length - 1)

    @property
    def max_steps(self) -> int:
        """Steps from the worst tape that can still reach the goal."""
        return len(self.histogram) - 1

    def as_dict(self) -> dict[str, Any]:
        """The counts and their summaries, as `tape exact --json` prints them."""
        return {
            "solvable": self.solvable,
            "solvable_excluding_goal": self.solvable_excluding_goal,
            "max_steps": self.max_steps,
            "mean_steps": self.mean_steps,
            "histogram": list(self.histogram),
        }

    @property
    def mean_steps(self) -> float:
        """Mean optimal steps over the tapes that can reach the goal."""
        weighted = sum(steps * count for steps, count in enumerate(self.histogram))
        return weighted / sum(self.histogram)


def check_reach(length: int, limit: int = MAX_LENGTH) -> int:
    """Return `length` if a search can take it."""
    if space.check_length(length) > limit:
        raise ValueError(
            f"what can be reached is computed up to length {limit}, not {length}: "
            "choose a shorter tape"
        )
    return length


def all_images(rule: int, length: int) -> UInt32[np.ndarray, " tapes"]:
    """What every one of 2^length tapes updates to without a flip."""
    tapes = np.arange(2**length, dtype=np.uint32)[:, None]
    return elementary.evolve(tapes, np.array([rule]), length)[:, 0]


def steps_to_goal(
    rule: int, length: int, horizon: int, goal: int = 0
) -> UInt16[np.ndarray, " tapes"]:
    """Optimal number of steps from every tape; `UNREACHED` if there is none.

    Indexed by the tape as an integer. The search ends early once a layer adds nothing.
    """
    size = 2 ** check_reach(length, NUMPY_LENGTH)
    if not 0 <= goal < size:
        raise ValueError(f"the goal must be a tape of {length} cells, an integer below {size}")
    images = all_images(rule, length)
    steps = np.full(size, UNREACHED, np.uint16)
    steps[goal] = 0
    layer = np.zeros(size, bool)
    layer[goal] = True
    for step in range(1, horizon + 1):
        one_flip_away = _spread(np.take(layer, images), length)
        layer = one_flip_away & (steps == UNREACHED)
        if not layer.any():
            break
        steps[layer] = step
    return steps


def reach(rule: int, length: int, horizon: int, goal: int = 0) -> Reach:
    """Solve one rule exactly and keep the counts."""
    steps = steps_to_goal(elementary.check_rule(rule), length, horizon, goal)
    counts = np.bincount(steps[steps != UNREACHED])
    return Reach(rule, length, tuple(counts.tolist()))


def reach_all(
    which: Iterable[int],
    length: int,
    horizon: int,
    goal: int = 0,
    progress: Callable[[int], Any] = lambda rule: None,
) -> dict[int, Reach]:
    """`reach` for many rules, up to 32 cells.

    A mirror image shares its twin's counts if the goal is symmetric.
    """
    goal_is_symmetric = goal == elementary.mirror_tape(goal, length)
    search = None if check_reach(length) <= NUMPY_LENGTH else large_search(length)

    def solve(rule: int) -> Reach:
        if search is None:
            return reach(rule, length, horizon, goal)
        return Reach(rule, length, search.solve(rule, horizon, goal))

    solved: dict[int, Reach] = {}
    for rule in sorted(set(which)):
        twin = solved.get(elementary.mirror(rule)) if goal_is_symmetric else None
        solved[rule] = Reach(rule, length, twin.histogram) if twin else solve(rule)
        progress(rule)
    return solved


def large_search(length: int) -> Any:
    """An `exhaustive.Search`, or the advice to install what it needs."""
    try:
        from tapebench.physics import exhaustive
    except ImportError:
        raise ValueError(
            f"searching {length} cells needs numba: pip install 'tapebench[exact]'"
        ) from None
    return exhaustive.Search(length)


def chance_of_success(rule: int, length: int, horizon: int, policy: str) -> float:
    """Exact probability that a policy which learns nothing reaches the zero tape in time.

    `policy` is `random` (any cell) or `flip-ones` (any cell that is one); starts are uniform over
    all tapes but the goal. Backward induction over all tapes: the same figures that
    `tapebench.exam.rollout` estimates, free of sampling error.
    """
    images = all_images(rule, length)
    chance = np.zeros(2**length)
    chance[0] = 1.0
    ones = np.bitwise_count(np.arange(2**length, dtype=np.uint32))
    choices = {"random": np.full(2**length, length), "flip-ones": np.maximum(ones, 1)}[policy]
    for _ in range(horizon):
        after_flip = chance[images]
        chance = np.zeros(2**length)
        for cell in range(length):
            source = after_flip.reshape(-1, 2, 2**cell)
            target = chance.reshape(source.shape)
            target[:, 1] += source[:, 0]
            if policy == "random":
                target[:, 0] += source[:, 1]
        chance /= choices
        chance[0] = 1.0
    return float(chance[1:].mean())


def success_under_noise(rule: int, length: int, horizon: int, noise: float, goal: int = 0) -> float:
    """The mean of `chances_under_noise` over start tapes other than the goal."""
    chances = chances_under_noise(rule, length, horizon, noise, goal)
    return float((chances.sum() - 1) / (len(chances) - 1))


def chances_under_noise(
    rule: int, length: int, horizon: int, noise: float, goal: int = 0
) -> Float64[np.ndarray, " tapes"]:
    """The best chance of success from each tape for who knows the rule, where each cell may flip
    after the update.

    Value iteration over all tapes, in which the noise is applied cell by cell: exact but for
    rounding of floats.
    """
    size = 2 ** check_reach(length, NOISE_LENGTH)
    images = all_images(rule, length)
    chance = np.zeros(size)
    chance[goal] = 1.0
    for _ in range(horizon):
        for cell in range(length):
            pairs = chance.reshape(-1, 2, 2**cell)
            chance = ((1 - noise) * pairs + noise * pairs[:, ::-1]).ravel()
        after_flip = chance[images]
        chance = np.zeros(size)
        for cell in range(length):
            source = after_flip.reshape(-1, 2, 2**cell)[:, ::-1].ravel()
            np.maximum(chance, source, out=chance)
        chance[goal] = 1.0
    return chance


def noisy_ceilings(
    which: Iterable[int],
    length: int,
    horizon: int,
    noise: float,
    goal: int = 0,
    progress: Callable[[int], Any] = lambda rule: None,
) -> dict[int, float]:
    """`success_under_noise` of many rules. Mirror images share theirs if the goal is symmetric."""
    is_symmetric = goal == elementary.mirror_tape(goal, length)
    ceilings: dict[int, float] = {}
    for rule in sorted(set(which)):
        twin = ceilings.get(elementary.mirror(rule)) if is_symmetric else None
        ceilings[rule] = (
            success_under_noise(rule, length, horizon, noise, goal) if twin is None else twin
        )
        progress(rule)
    return ceilings


def best_cell(tape: int, rule: int, length: int, steps: UInt16[np.ndarray, " tapes"]) -> int | None:
    """The lowest cell on a shortest way to the goal, given the rule's `steps_to_goal`.

    `None` where no flip leads to a tape that can reach it.
    """
    options = [int(steps[elementary.step(tape, cell, rule, length)]) for cell in range(length)]
    fewest = min(options)
    return None if fewest == UNREACHED else options.index(fewest)


def chances(length: int, horizon: int) -> dict[str, dict[int, float]]:
    """`chance_of_success` of every rule, by policy, to nine digits. Mirror images share theirs."""
    by_policy: dict[str, dict[int, float]] = {"random": {}, "flip-ones": {}}
    for policy, by_rule in by_policy.items():
        for rule in range(elementary.NUM_RULES):
            twin = elementary.mirror(rule)
            chance = by_rule.get(twin) or chance_of_success(rule, length, horizon, policy)
            by_rule[rule] = round(chance, 9)
    return by_policy


def dump_chances(by_policy: dict[str, dict[int, float]], length: int, horizon: int) -> str:
    """Chances as the text of a file under `data/exact/`: one policy per line."""
    head = f'{{\n  "length": {length},\n  "horizon": {horizon},\n  "goal": "zeros",\n'
    lines = ",\n".join(
        f'    "{policy}": {json.dumps({str(rule): value for rule, value in by_rule.items()})}'
        for policy, by_rule in by_policy.items()
    )
    return f'{head}  "chances": {{\n{lines}\n  }}\n}}\n'


def dump_ceilings(solved: dict[int, Reach], length: int, horizon: int) -> str:
    """All rules' counts as the text of a file under `data/exact/`: one rule per line."""
    lines = ",\n".join(
        f'    "{rule}": {json.dumps(list(solution.histogram))}'
        for rule, solution in sorted(solved.items())
    )
    head = f'{{\n  "length": {length},\n  "horizon": {horizon},\n  "goal": "zeros",\n'
    return f'{head}  "histograms": {{\n{lines}\n  }}\n}}\n'


@cache
def shipped_ceilings(length: int, horizon: int) -> dict[int, Reach]:
    """The shipped counts for the zero goal, for every rule solved. See `data/exact/`.

    Any horizon up to that of the search is served, since a shorter one only cuts the counts.
    """
    place = resources.files("tapebench").joinpath("data/exact")
    if length == MAX_LENGTH:
        answers = exam_answers().items()
        by_rule = {rule: a["histogram"] for rule, a in answers if is_settled(a, horizon)}
    else:
        name = f"L{length}-H{length}.json"
        if not place.joinpath(name).is_file() or horizon > length:
            raise ValueError(f"no ceilings are shipped for L = {length}, H = {horizon}")
        histograms = json.loads(place.joinpath(name).read_text())["histograms"]
        by_rule = {int(rule): counts for rule, counts in histograms.items()}
    return {r: Reach(r, length, tuple(counts[: horizon + 1])) for r, counts in by_rule.items()}


@cache
def exam_answers() -> dict[int, dict[str, Any]]:
    """What is known of the standard exam at L = H = 32, by rule.

    `histogram` counts all 2^32 tapes by optimal steps; `exam_steps` are the optimal steps of the
    20 exam tapes and `exam_witnesses` a shortest way for each, `None` where there is no way.
    """
    place = resources.files("tapebench").joinpath("data/exact/L32-H32")
    files = [file for file in place.iterdir() if file.name.endswith(".json")]
    records = [json.loads(file.read_text()) for file in files]
    return {record["rule"]: record for record in records}


def is_settled(answer: dict[str, Any], horizon: int) -> bool:
    """Whether an answer also says what cannot be reached in `horizon` steps.

    It always does up to the horizon it was searched for. Beyond, it does if the search had come
    to its end before: the last steps reached nothing new, or everything had been reached.
    """
    counts = answer["histogram"]
    is_everything = sum(counts) == 2 ** answer["length"]
    return horizon <= answer["horizon"] or len(counts) <= answer["horizon"] or is_everything


@cache
def shipped_chances(length: int, horizon: int) -> dict[str, dict[int, float]]:
    """The shipped chances of success of policies that learn nothing. See `chances`."""
    name = f"data/exact/chances-L{length}-H{horizon}.json"
    by_policy = json.loads(resources.files("tapebench").joinpath(name).read_text())["chances"]
    return {
        policy: {int(r): p for r, p in by_rule.items()} for policy, by_rule in by_policy.items()
    }


def _spread(tapes: np.ndarray, length: int) -> np.ndarray:
    """The tapes, as booleans `[2^length]`, with exactly one cell flipped in every way."""
    size = len(tapes)
    packed = np.packbits(tapes, bitorder="little")
    words = np.pad(packed, (0, -len(packed) % 8)).view("<u8")
    spread = np.zeros_like(words)
    for cell in range(min(length, 6)):
        shift, mask = np.uint64(1 << cell), _SWAP_MASKS[cell]
        spread |= ((words & mask) << shift) | ((words >> shift) & mask)
    for cell in range(6, length):
        halves = words.reshape(-1, 2, 2 ** (cell - 6))
        spread.reshape(halves.shape)[...] |= halves[:, ::-1]
    return np.unpackbits(spread.view(np.uint8), bitorder="little")[:size].view(bool)
