"""What an ideal player reaches who is not told the rule: exact Bayes-optimal play.

All that can be known of an elementary rule is which of the eight entries of its table have been
seen, and what they were: 3^8 = 6,561 states of *knowledge*, under any prior over the 256 rules. A
transition shows the entries whose neighbourhoods occur on the flipped tape, all of them and no
others. So with integer weights as the prior

    W(tape, knowledge, left) = max over cells, sum over outcomes: W(tape', knowledge', left - 1)

is the weight of the rules that are consistent with what is known and will be solved, an integer
again: no rounding, and ties are ties. Tapes count up to the rotations that leave the goal alone,
and where the prior does not tell left from right up to mirror images.

This needs tapes that are seen whole and updates without noise. Hidden cells or noise make knowledge
a distribution, and larger families have too much of it: 3^32 for rules of radius two.

An ideal observer of this kind is computed for Alchemy (Wang et al., 2021) by exhaustive search over
its small hypothesis space, Gittins indices (1979) are one for bandits, and the model here is a
multi-environment MDP with a prior (Raskin and Sankur, 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from os import cpu_count
from typing import Any

import numpy as np

from tapebench.base.shapes import Bool, Float64, Int, Int64, Integer, UInt32
from tapebench.physics import exact, space
from tapebench.physics.families.elementary import ELEMENTARY, mirror, mirror_tape
from tapebench.physics.space import Space

ENTRIES = ELEMENTARY.entries
UNKNOWN = 2
STATES = 3**ENTRIES
NOTHING = STATES - 1
"""The state of knowledge at the start: no entry has been seen."""

MAX_LENGTH = 16

_POWERS = 3 ** np.arange(ENTRIES)
_DIGITS = np.arange(STATES)[:, None] // _POWERS % 3
"""`[states, entries]`: 0 and 1 where an entry has been seen to be that, else `UNKNOWN`."""

_MIRRORED_RULES = np.array([mirror(rule) for rule in range(ELEMENTARY.num_rules)])
_MIRRORED_STATES = _DIGITS[:, [mirror(1 << entry).bit_length() - 1 for entry in range(ENTRIES)]] @ (
    _POWERS
)
"""The knowledge of a player that sees the same in a mirror."""

_CHUNK = 48
"""Flipped tapes whose values are held at a time: about a megabyte."""


def parse_prior(weights: Mapping[int, int] | Sequence[int]) -> Int64[np.ndarray, " R"]:
    """Rules, each as likely as another, or integer weights by rule."""
    prior = np.zeros(ELEMENTARY.num_rules, np.int64)
    pairs = weights.items() if isinstance(weights, Mapping) else ((rule, 1) for rule in weights)
    for rule, weight in pairs:
        if isinstance(weight, bool) or not isinstance(weight, int) or not 0 <= weight < 2**31:
            raise ValueError(
                f"the weight of rule {rule} must be an integer from 0 to 2^31 - 1, not {weight!r}"
            )
        prior[ELEMENTARY.check_rule(rule)] = weight
    if not prior.any():
        raise ValueError("the prior is empty: give at least one rule a weight")
    return prior


def masses(prior: Int64[np.ndarray, " R"]) -> Int64[np.ndarray, " states"]:
    """The weight of the rules that each state of knowledge leaves."""
    by_table = prior.reshape((2,) * ENTRIES)
    for axis in range(ENTRIES):
        by_table = _with_unknown(by_table, axis)
    return by_table.reshape(STATES)


def knowledge_of(rules: Any, seen: Any) -> Any:
    """The knowledge of who has seen the entries `seen`, a set of them as a bit mask, of `rules`."""
    entry = np.arange(ENTRIES)
    bits = (np.asarray(rules)[..., None] >> entry) & 1
    is_seen = (np.asarray(seen)[..., None] >> entry) & 1
    return np.where(is_seen, bits, UNKNOWN) @ _POWERS


def learn(
    knowledge: Int64[np.ndarray, " N"],
    before: UInt32[np.ndarray, " N"],
    cell: Integer[np.ndarray, " N"],
    after: UInt32[np.ndarray, " N"],
    length: int,
) -> Int64[np.ndarray, " N"]:
    """What is known once a flip of `cell` has led from one tape to another."""
    flipped = before ^ (np.uint32(1) << np.asarray(cell, np.uint32))
    places = _places(flipped, length)
    is_unknown = _DIGITS[knowledge] == UNKNOWN
    is_one = (after[:, None] & places) != 0
    # The digit of an entry that is shown goes from two to what it is.
    return knowledge - np.where((places != 0) & is_unknown, 2 - is_one, 0) @ _POWERS


def forget(
    knowledge: Int64[np.ndarray, " N"], entries: Int64[np.ndarray, " sets"]
) -> Int64[np.ndarray, "N sets"]:
    """What is left of knowledge without each of some sets of entries."""
    is_lost = (entries[:, None] >> np.arange(ENTRIES)) & 1
    return np.where(is_lost, UNKNOWN, _DIGITS[knowledge][:, None]) @ _POWERS


def _places(tapes: np.ndarray, length: int) -> np.ndarray:
    """Where each neighbourhood is on tapes `[...]`: uint32 `[..., entries]`."""
    one_entry = np.uint32(1) << np.arange(ENTRIES, dtype=np.uint32)
    return ELEMENTARY.evolve(tapes[..., None, None], one_entry, Space((length,)))[..., 0]


def _with_unknown(values: np.ndarray, axis: int) -> np.ndarray:
    """An axis of what an entry may be, with a third place for not knowing: the sum of the two."""
    before = (slice(None),) * axis
    either = values[(*before, slice(0, 1))] + values[(*before, slice(1, 2))]
    return np.concatenate([values, either], axis=axis)


@dataclass(frozen=True)
class Ring:
    """Tapes up to the rotations that leave the goal alone, and where every flip of each leads."""

    length: int
    goal: int
    tapes: UInt32[np.ndarray, " classes"]
    """One of each class."""
    sizes: Int64[np.ndarray, " classes"]
    """Tapes in each class."""
    number: Int64[np.ndarray, " tapes"]
    """The class of every tape."""
    mirrored: Int64[np.ndarray, " classes"] | None
    """The class of the mirror images of each; none if the goal is not its own image."""
    turns: Int64[np.ndarray, " tapes"]
    """By how many places every tape is turned to be the one of its class."""
    places: UInt32[np.ndarray, "classes L entries"]
    """Where each neighbourhood is on every flipped tape."""
    shown: Int64[np.ndarray, "classes L"]
    """Which entries an update then shows, as a bit mask."""

    @property
    def home(self) -> int:
        """The class of the goal."""
        return int(self.number[self.goal])

    def after(self, rules: Integer[np.ndarray, " R"]) -> Int64[np.ndarray, "R classes L"]:
        """The class that each flip leads to under each rule."""
        bits = (np.asarray(rules)[:, None] >> np.arange(ENTRIES)) & 1
        tapes = np.einsum("re,tce->rtc", bits.astype(np.uint32), self.places)
        return self.number[tapes]


@cache
def make_ring(length: int, goal: int = 0) -> Ring:
    """Every class of tapes of a length."""
    if space.check_length(length) > MAX_LENGTH:
        raise ValueError(f"Bayes-optimal play reaches {MAX_LENGTH} cells, not {length}")
    every = np.arange(2**length, dtype=np.uint32)
    if not 0 <= goal < len(every):
        raise ValueError(f"the goal must be a tape of {length} cells, below {len(every)}")
    least, turns = every.copy(), np.zeros(len(every), np.int64)
    for turn in range(1, length):
        turned = (every << turn | every >> (length - turn)) & (len(every) - 1)
        if turned[goal] == goal:
            turns[turned < least] = turn
            least = np.minimum(least, turned)
    tapes, number, sizes = np.unique(least, return_inverse=True, return_counts=True)
    flipped = tapes[:, None] ^ (np.uint32(1) << np.arange(length, dtype=np.uint32))
    places = _places(flipped, length)
    shown = (places != 0) @ (1 << np.arange(ENTRIES))
    images = np.array([mirror_tape(int(tape), length) for tape in tapes])
    mirrored = number[images] if mirror_tape(goal, length) == goal else None
    return Ring(length, goal, tapes, sizes, number, mirrored, turns, places, shown)


@dataclass(frozen=True)
class _Look:
    """How the values of all knowledge come from those of the outcomes, for one set of entries."""

    outcome: np.ndarray
    """The outcome, a number of as many bits as entries are shown, `[n]`."""
    knowledge: np.ndarray
    """The knowledge after it, `[n]`."""
    shape: tuple[int, ...]
    """Of n: a place for 0 and 1 of each entry that is shown, and for unknown if it is not."""
    axes: tuple[int, ...]
    """Of the entries that are shown."""


def _members(entries: int) -> list[int]:
    """The entries of a set that is given as a bit mask."""
    return [entry for entry in range(ENTRIES) if (entries >> entry) & 1]


@cache
def _look(shown: int) -> _Look:
    listed = _members(shown)
    shape = tuple(2 if entry in listed else 3 for entry in reversed(range(ENTRIES)))
    digits = np.indices(shape).reshape(ENTRIES, -1)[::-1]  # by entry
    outcome = sum((digits[entry] << place for place, entry in enumerate(listed)), np.int64(0))
    axes = tuple(ENTRIES - 1 - entry for entry in listed)
    return _Look(np.broadcast_to(outcome, digits.shape[1:]), _POWERS @ digits, shape, axes)


@dataclass(frozen=True)
class Solution:
    """Bayes-optimal play for one prior."""

    ring: Ring
    horizon: int
    prior: Int64[np.ndarray, " R"]
    mass: Int[np.ndarray, " states"]
    """See `masses`."""
    value: tuple[Int[np.ndarray, "classes states"], ...]
    """The weight that will be solved, by the steps that are left."""

    @property
    def blind_ceiling(self) -> float:
        """Mean success over the prior and over start tapes other than the goal."""
        return self.blind_ceiling_in(self.horizon)

    def blind_ceiling_in(self, horizon: int) -> float:
        """The same for a shorter horizon, which comes along the way."""
        away = np.arange(len(self.ring.tapes)) != self.ring.home
        solved = self.value[horizon][away, NOTHING].astype(object) @ self.ring.sizes[away]
        return float(solved / (int(self.prior.sum()) * (2**self.ring.length - 1)))

    def weights(
        self, classes: Int64[np.ndarray, " N"], knowledge: Int64[np.ndarray, " N"], left: int
    ) -> Int[np.ndarray, "N L"]:
        """What each flip of a class's tape is worth: the weight that will be solved.

        The greatest is `value[left]`. Where the tape is the goal there is nothing to be done.
        """
        ring, before = self.ring, self.value[left - 1]
        shown = ring.shown[classes]
        is_new = _DIGITS[knowledge] == UNKNOWN
        fresh = shown & (is_new @ (1 << np.arange(ENTRIES)))[:, None]
        # What is known already decides a part of the tape that follows.
        ones = (_DIGITS[knowledge] == 1) @ (1 << np.arange(ENTRIES))
        places = ring.places[classes]
        certain = np.zeros(shown.shape, np.uint32)
        for entry in range(ENTRIES):
            certain |= places[..., entry] * ((ones >> entry) & 1)[:, None].astype(np.uint32)
        weights = np.zeros(shown.shape, before.dtype)
        for entries in np.unique(fresh):
            row, cell = np.nonzero(fresh == entries)
            after, known = certain[row, cell][:, None], knowledge[row][:, None]
            for entry in _members(int(entries)):
                power = int(_POWERS[entry])
                after = np.concatenate([after, after | places[row, cell, entry, None]], axis=1)
                known = np.concatenate([known - 2 * power, known - power], axis=1)
            weights[row, cell] = before[ring.number[after], known].sum(axis=1)
        return weights

    def optimal_cells(
        self, tapes: UInt32[np.ndarray, " N"], knowledge: Int64[np.ndarray, " N"], left: int
    ) -> Bool[np.ndarray, "N L"]:
        """Which cells are optimal, on tapes as they are, not as classes."""
        weights = self.weights(self.ring.number[tapes], knowledge, left)
        is_best = weights == weights.max(axis=1, keepdims=True)
        turned = np.arange(self.ring.length) + self.ring.turns[tapes][:, None]
        return np.take_along_axis(is_best, turned % self.ring.length, axis=1)


def solve(
    prior: Int64[np.ndarray, " R"],
    length: int,
    horizon: int,
    goal: int = 0,
    progress: Callable[[int], Any] = lambda left: None,
) -> Solution:
    """Backward induction over all tapes, all knowledge and every number of steps left.

    `progress` is told the steps that are done. Memory is `classes * 6,561` numbers for each step
    until more steps change nothing: 36 classes at 8 cells, 352 at 12, 4,116 at 16.
    """
    if horizon < 1:
        raise ValueError(f"the horizon must be a positive integer, not {horizon}")
    ring, mass = make_ring(length, goal), masses(prior)
    mass = mass.astype(np.int32 if mass[NOTHING] < 2**31 else np.int64)
    first = np.zeros((len(ring.tapes), STATES), mass.dtype)
    first[ring.home] = mass
    values = [first]
    workers = cpu_count() or 1
    every = np.arange(len(ring.tapes))
    # Where nothing tells left from right, a tape is worth what its image is, entry for entry.
    is_even = np.array_equal(prior, prior[_MIRRORED_RULES])
    image = ring.mirrored if is_even and ring.mirrored is not None else every
    solved = np.flatnonzero(every <= image)
    parts = np.array_split(solved, max(1, min(workers * 4, len(solved) // 64)))
    with ThreadPoolExecutor(workers) as pool:
        for left in range(1, horizon + 1):
            value = np.full_like(first, -1)
            list(pool.map(partial(_improve, ring, values[-1], value), parts))
            for row in np.flatnonzero(every > image):
                value[row] = value[image[row], _MIRRORED_STATES]
            value[ring.home] = mass
            if np.array_equal(value, values[-1]):  # and so it stays, however many steps are left
                values += values[-1:] * (horizon + 1 - left)
                progress(horizon)
                break
            values.append(value)
            progress(left)
    return Solution(ring, horizon, prior, mass, tuple(values))


def _improve(ring: Ring, before: np.ndarray, value: np.ndarray, part: np.ndarray) -> None:
    """Fill in the `value` of some classes under all knowledge from those with one step less."""
    shown = ring.shown[part]
    for entries in np.unique(shown):
        look = _look(int(entries))
        pairs = np.argwhere(shown == entries)
        pairs[:, 0] = part[pairs[:, 0]]
        for start in range(0, len(pairs), _CHUNK):
            chosen = pairs[start : start + _CHUNK]
            places = ring.places[chosen[:, 0], chosen[:, 1]]
            after = np.zeros((len(chosen), 1), np.uint32)
            for entry in _members(int(entries)):  # the tape that each outcome leads to
                after = np.concatenate([after, after | places[:, entry, None]], axis=1)
            by_outcome = before[ring.number[after][:, look.outcome], look.knowledge]
            by_entry = by_outcome.reshape(len(chosen), *look.shape)
            for axis in look.axes:
                by_entry = _with_unknown(by_entry, axis + 1)
            weights = by_entry.reshape(len(chosen), STATES)
            for row, by_state in zip(chosen[:, 0], weights, strict=True):
                np.maximum(value[row], by_state, out=value[row])


TIES = ("uniform", "best", "worst")
"""How a player chooses among equally good moves: evenly, or as suits a rule most or least."""


def success_by_rule(
    solution: Solution, rules: Sequence[int], ties: str = "uniform"
) -> Float64[np.ndarray, " R"]:
    """What optimal play for the prior reaches under each rule, whether or not it is in the prior.

    The mean over start tapes other than the goal, exact but for rounding of floats.
    """
    ring = solution.ring
    weight = np.where(np.arange(len(ring.tapes)) == ring.home, 0, ring.sizes)
    return success_by_class(solution, rules, ties) @ weight / (2**ring.length - 1)


def success_by_class(
    solution: Solution, rules: Sequence[int], ties: str = "uniform"
) -> Float64[np.ndarray, "R classes"]:
    """The same by where the tape starts.

    Each state that play can come to is followed: a class of tapes and the entries that have been
    seen.
    """
    if ties not in TIES:
        raise ValueError(f"unknown choice among ties {ties!r}: use one of {', '.join(TIES)}")
    at_once = max(1, 2**22 // (len(solution.ring.tapes) * solution.ring.length))
    parts = [rules[start : start + at_once] for start in range(0, len(rules), at_once)]
    return np.concatenate([_success(solution, np.array(part), ties) for part in parts])


def _success(solution: Solution, rules: np.ndarray, ties: str) -> np.ndarray:
    ring = solution.ring
    classes = len(ring.tapes)
    after = ring.after(rules)

    def key(member: np.ndarray, seen: np.ndarray, number: np.ndarray) -> np.ndarray:
        return (member << ENTRIES | seen) * classes + number

    def parts(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        state, number = np.divmod(keys, classes)
        return state >> ENTRIES, state & (2**ENTRIES - 1), number

    everyone = np.arange(len(rules))[:, None]
    layers = [key(everyone, np.zeros(1, int), np.arange(classes)).ravel()]
    links: list[tuple[np.ndarray, np.ndarray]] = []
    for left in range(solution.horizon, 0, -1):
        member, seen, number = parts(layers[-1])
        # Many rules are still the same to the player.
        looks_alike = number * STATES + knowledge_of(rules[member], seen)
        kinds, kind = np.unique(looks_alike, return_inverse=True)
        worth = solution.weights(*np.divmod(kinds, STATES), left)
        is_best = (worth == worth.max(axis=1, keepdims=True))[kind]
        source, cell = np.nonzero(is_best & (number != ring.home)[:, None])
        onward = key(
            member[source],
            seen[source] | ring.shown[number[source], cell],
            after[member[source], number[source], cell],
        )
        layer, target = np.unique(onward, return_inverse=True)
        links.append((source, target))
        layers.append(layer)
    chance = (parts(layers[-1])[2] == ring.home).astype(float)
    for layer, (source, target) in zip(layers[-2::-1], links[::-1], strict=True):
        reached = (parts(layer)[2] == ring.home).astype(float)
        if ties == "uniform":
            total = np.bincount(source, chance[target], len(layer))
            count = np.bincount(source, minlength=len(layer))
            reached = np.where(count > 0, total / np.maximum(count, 1), reached)
        elif len(source):
            # Links are in the order of their sources.
            starts = np.flatnonzero(np.diff(source, prepend=-1))
            pick = np.maximum if ties == "best" else np.minimum
            reached[source[starts]] = pick.reduceat(chance[target], starts)
        chance = reached
    return chance.reshape(len(rules), classes)


def ceilings(
    rules: Sequence[int], length: int, horizon: int, goal: int = 0
) -> Float64[np.ndarray, " R"]:
    """What play that knows the rule reaches: the mean over start tapes other than the goal."""
    solved = exact.reach_all(rules, length, horizon, goal)
    return np.array([solved[rule].solvable_excluding_goal for rule in rules])
