"""Exact reachability: from which tapes the goal can be reached, and in how few steps.

The search runs backwards from the goal over all 2^L tapes. A tape is one step from a set if
flipping one of its cells gives a tape whose update lands in the set, so a layer is: look up which
tapes update into the last layer, then spread that set along every axis of the hypercube. Sets are
bitsets of 64-tape words, where spreading is a handful of shifts.

That serves every family of laws in plain NumPy, up to 24 or 25 cells. For elementary rules
`tapebench.exhaustive` goes on to 32; what it has found for the standard size is shipped rule by
rule, so that nobody has to search those again.

Functions take a `size`, which is the length of a ring or any other space, and a `family`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import numpy as np

from tapebench.base.shapes import Float64, UInt16, UInt32
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.family import Family
from tapebench.physics.space import Size, Space, as_space

NUMPY_LENGTH = 24
"""Longest tape on which elementary rules are searched in plain NumPy: 2^24 tapes, about a second a
rule."""

NUMPY_CELLS = 25
"""Most cells on which other families are searched, for which there is nothing else: a torus of
5 × 5 takes a second or two a rule."""

NOISE_LENGTH = 20
"""Longest tape for which chances under noise are computed."""

MAX_LENGTH = 32
"""Longest tape searched at all, with the extra `exact`."""

BLOCK = 1 << 16
"""Tapes that are computed on together: what they need stays in the cache."""

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


def check_reach(size: Size, limit: int = MAX_LENGTH) -> int:
    """Return the number of cells if a search can take them."""
    where = as_space(size)
    if space.check_length(where.size) > limit:
        most, smaller = (
            (f"length {limit}", "a shorter tape")
            if len(where.shape) == 1
            else (f"{limit} cells", "a smaller torus")
        )
        raise ValueError(
            f"what can be reached is computed up to {most}, not {where.size}: choose {smaller}"
        )
    return where.size


def most_cells(family: Family) -> int:
    """On how many cells rules of the family are searched at all."""
    return MAX_LENGTH if family == ELEMENTARY else NUMPY_CELLS


def all_images(rule: int, size: Size, family: Family = ELEMENTARY) -> UInt32[np.ndarray, " tapes"]:
    """What every one of 2^cells tapes updates to without a flip."""
    where = family.check_space(as_space(size))
    law = family.compile(np.array([rule]))
    images = np.empty(2**where.size, np.uint32)
    for first in range(0, len(images), BLOCK):
        tapes = np.arange(first, min(first + BLOCK, len(images)), dtype=np.uint32)
        images[first : first + BLOCK] = family.update(tapes[:, None], law, where)[:, 0]
    return images


def steps_to_goal(
    rule: int, size: Size, horizon: int, goal: int = 0, family: Family = ELEMENTARY
) -> UInt16[np.ndarray, " tapes"]:
    """Optimal number of steps from every tape; `UNREACHED` if there is none.

    Indexed by the tape as an integer. The search ends early once a layer adds nothing.
    """
    where = _check_search(size, goal, family)
    steps = np.full(2**where.size, UNREACHED, np.uint16)
    for step, layer in enumerate(_layers(rule, where, horizon, goal, family)):
        np.copyto(steps, np.uint16(step), where=_unpack(layer, len(steps)).view(bool))
    return steps


def reach(rule: int, size: Size, horizon: int, goal: int = 0, family: Family = ELEMENTARY) -> Reach:
    """Solve one rule exactly and keep the counts."""
    where = _check_search(size, goal, family)
    layers = _layers(family.check_rule(rule), where, horizon, goal, family)
    counts = tuple(int(np.bitwise_count(layer).sum()) for layer in layers)
    return Reach(rule, where.size, counts)


def reach_all(
    which: Iterable[int],
    size: Size,
    horizon: int,
    goal: int = 0,
    progress: Callable[[int], Any] = lambda rule: None,
    family: Family = ELEMENTARY,
) -> dict[int, Reach]:
    """`reach` for many rules, up to 25 cells, and up to 32 for elementary ones.

    A mirror image shares its twin's counts if the goal is symmetric.
    """
    length, where = check_reach(size, most_cells(family)), as_space(size)
    search = large_search(length) if family == ELEMENTARY and length > NUMPY_LENGTH else None
    images = _symmetries_of(goal, where, family)

    def solve(rule: int) -> Reach:
        if search is None:
            return reach(rule, where, horizon, goal, family)
        return Reach(rule, length, search.solve(rule, horizon, goal))

    solved: dict[int, Reach] = {}
    for rule in sorted(set(which)):
        twin = _of_image(rule, solved, images)
        solved[rule] = Reach(rule, length, twin.histogram) if twin else solve(rule)
        progress(rule)
    return solved


OnRule = Callable[[int], int]
Value = TypeVar("Value")


def _symmetries_of(goal: int, where: Space, family: Family) -> list[OnRule]:
    """What becomes of a rule under each symmetry that leaves the goal where it is."""
    cells = space.unpack(space.to_words(goal, where.size), where.size).reshape(where.shape)
    return [
        symmetry.on_rule
        for symmetry in family.symmetries
        if symmetry.is_of(where) and np.array_equal(symmetry.on_cells(cells, where), cells)
    ]


def _of_image(rule: int, known: Mapping[int, Value], images: list[OnRule]) -> Value | None:
    """What is known of an image of the rule, and so of the rule; None if it is of none."""
    return next((known[image(rule)] for image in images if image(rule) in known), None)


def large_search(length: int) -> Any:
    """An `exhaustive.Search`, or the advice to install what it needs."""
    try:
        from tapebench.physics import exhaustive
    except ImportError:
        raise ValueError(
            f"searching {length} cells needs numba: pip install 'tapebench[exact]'"
        ) from None
    return exhaustive.Search(length)


def chance_of_success(
    rule: int, size: Size, horizon: int, policy: str, family: Family = ELEMENTARY
) -> float:
    """Exact probability that a policy which learns nothing reaches the zero tape in time.

    `policy` is `random` (any cell) or `flip-ones` (any cell that is one); starts are uniform over
    all tapes but the goal. Backward induction over all tapes: the same figures that
    `tapebench.exam.rollout` estimates, free of sampling error.
    """
    images, length = all_images(rule, size, family), as_space(size).size
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


def success_under_noise(
    rule: int,
    size: Size,
    horizon: int,
    noise: float,
    goal: int = 0,
    family: Family = ELEMENTARY,
) -> float:
    """The mean of `chances_under_noise` over start tapes other than the goal."""
    chances = chances_under_noise(rule, size, horizon, noise, goal, family)
    return float((chances.sum() - 1) / (len(chances) - 1))


def chances_under_noise(
    rule: int,
    size: Size,
    horizon: int,
    noise: float,
    goal: int = 0,
    family: Family = ELEMENTARY,
) -> Float64[np.ndarray, " tapes"]:
    """The best chance of success from each tape for who knows the rule, where each cell may flip
    after the update.

    Value iteration over all tapes, in which the noise is applied cell by cell: exact but for
    rounding of floats.
    """
    length = check_reach(size, NOISE_LENGTH)
    images = all_images(rule, size, family)
    chance = np.zeros(2**length)
    chance[goal] = 1.0
    for _ in range(horizon):
        for cell in range(length):
            pairs = chance.reshape(-1, 2, 2**cell)
            chance = ((1 - noise) * pairs + noise * pairs[:, ::-1]).ravel()
        after_flip = chance[images]
        chance = np.zeros(2**length)
        for cell in range(length):
            source = after_flip.reshape(-1, 2, 2**cell)[:, ::-1].ravel()
            np.maximum(chance, source, out=chance)
        chance[goal] = 1.0
    return chance


def noisy_ceilings(
    which: Iterable[int],
    size: Size,
    horizon: int,
    noise: float,
    goal: int = 0,
    progress: Callable[[int], Any] = lambda rule: None,
    family: Family = ELEMENTARY,
) -> dict[int, float]:
    """`success_under_noise` of many rules. Mirror images share theirs if the goal is symmetric."""
    images = _symmetries_of(goal, as_space(size), family)
    ceilings: dict[int, float] = {}
    for rule in sorted(set(which)):
        twin = _of_image(rule, ceilings, images)
        ceilings[rule] = (
            success_under_noise(rule, size, horizon, noise, goal, family) if twin is None else twin
        )
        progress(rule)
    return ceilings


def best_cell(
    tape: int,
    rule: int,
    size: Size,
    steps: UInt16[np.ndarray, " tapes"],
    family: Family = ELEMENTARY,
) -> int | None:
    """The lowest cell on a shortest way to the goal, given the rule's `steps_to_goal`.

    `None` where no flip leads to a tape that can reach it.
    """
    where = as_space(size)
    after = (family.step(tape, cell, rule, where) for cell in range(where.size))
    options = [int(steps[tape]) for tape in after]
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


def _check_search(size: Size, goal: int, family: Family) -> Space:
    """The space, if it can be searched in NumPy and has such a goal."""
    limit = NUMPY_LENGTH if family == ELEMENTARY else NUMPY_CELLS
    cells = check_reach(size, limit)
    if not 0 <= goal < 2**cells:
        raise ValueError(f"the goal must be a tape of {cells} cells, an integer below {2**cells}")
    return as_space(size)


def _layers(
    rule: int, where: Space, horizon: int, goal: int, family: Family
) -> Iterator[np.ndarray]:
    """The tapes that need 0, 1, 2, ... steps, each time as a set of bits, uint64 `[2^cells / 64]`.

    Ends at the horizon or with the last tapes that can reach the goal at all.
    """
    images = all_images(rule, where, family)
    layer = np.zeros(-(-len(images) // 64), np.uint64)
    layer[goal >> 6] = 1 << (goal & 63)
    reached = layer
    for step in range(horizon + 1):
        yield layer
        if step < horizon:
            layer = _spread(_before_update(layer, images), where.size) & ~reached
            if not layer.any():
                return
            reached = reached | layer


def _before_update(layer: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The tapes that update into a set, both as bits."""
    is_member = _unpack(layer, len(images))
    hits = np.empty(len(images), np.uint8)
    for first in range(0, len(images), BLOCK):
        block = slice(first, first + BLOCK)
        np.take(is_member, images[block].astype(np.intp), out=hits[block], mode="clip")
    packed = np.packbits(hits, bitorder="little")
    return np.pad(packed, (0, -len(packed) % 8)).view("<u8")


def _unpack(words: np.ndarray, size: int) -> np.ndarray:
    """The first bits of a set, a byte for each."""
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:size]


def _spread(words: np.ndarray, length: int) -> np.ndarray:
    """The tapes, as bits, with exactly one cell flipped in every way."""
    spread = np.zeros_like(words)
    for cell in range(min(length, 6)):
        shift, mask = np.uint64(1 << cell), _SWAP_MASKS[cell]
        spread |= ((words & mask) << shift) | ((words >> shift) & mask)
    for cell in range(6, length):
        halves = words.reshape(-1, 2, 2 ** (cell - 6))
        spread.reshape(halves.shape)[...] |= halves[:, ::-1]
    return spread
