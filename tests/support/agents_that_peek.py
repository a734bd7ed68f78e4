"""Agents on eight cells that look two steps ahead under a rule they should not know.

Each gets the rule its own way, for `tape evaluate agents_that_peek:...`; `chance` draws it. A way
that leaks lifts an agent well above `chance`.
"""

import sys
import time

import numpy as np

CELLS = 8
RULES = np.arange(256)
_TAPES = np.arange(1 << CELLS)
_BITS = _TAPES[:, None] >> np.arange(CELLS) & 1
_CODES = 4 * np.roll(_BITS, 1, axis=1) + 2 * _BITS + np.roll(_BITS, -1, axis=1)
AFTER = ((RULES[:, None, None] >> _CODES & 1) << np.arange(CELLS)).sum(axis=2)
"""`[rule, tape]`: the tape after one update."""


def _look_ahead():
    """`[rule, tape, cell]`: how good it is to flip a cell, two steps ahead."""
    flipped = _TAPES[:, None] ^ (1 << np.arange(CELLS))
    distance = _BITS.sum(axis=1)
    after = AFTER[:, flipped]
    two = distance[AFTER[:, flipped]].min(axis=2)  # [rule, tape]: the best a second flip does
    near = np.minimum(distance[after], np.take_along_axis(two[:, None], after, axis=2) + 0.5)
    return -near - 0.01 * (np.arange(CELLS) + 0.0)


WORTH = _look_ahead()


class Planner:
    """Plays the best cell two steps ahead under `self.rule`, `[num_envs]`.

    With a generator to `scramble` them, rules go to the wrong rows.
    """

    scramble = None

    def reset(self, num_envs):
        self.rule = self.guess(num_envs)

    def act(self, obs):
        rule = self.rule
        if self.scramble is not None:
            if obs[0, CELLS] == 0:
                self.places = self.scramble.permutation(len(obs))
            rule = rule[self.places]
        return WORTH[rule, tapes(obs)].argmax(axis=1)


def tapes(obs):
    return (obs[:, :CELLS].astype(int) << np.arange(CELLS)).sum(axis=1)


class Chance(Planner):
    """Plans under a rule drawn at random for each row."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def guess(self, num_envs):
        return self.rng.integers(256, size=num_envs)


class CountsRows(Planner):
    """Counts resets and rows, as if rules came in ascending order, sixteen at a time."""

    batch = -1

    def guess(self, num_envs):
        self.batch += 1
        return (16 * self.batch + 16 * np.arange(num_envs) // num_envs) % 256


class CountsBatches(Planner):
    """Knows the number of the batch and its size, and plans for all rules that would be in it."""

    batch = -1

    def reset(self, num_envs):
        self.batch += 1
        if self.scramble is not None and self.batch == 0:
            self.numbers = self.scramble.permutation(20)
        number = self.batch if self.scramble is None else self.numbers[self.batch % 20]
        per_batch = max(256 * num_envs // 1280, 1)
        self.rules = (number * per_batch + np.arange(per_batch)) % 256

    def act(self, obs):
        return WORTH[self.rules][:, tapes(obs)].mean(axis=0).argmax(axis=1)


class WatchesTheClock(CountsRows):
    """Takes a long pause between two calls for the beginning of another batch."""

    def __init__(self):
        self.called, self.pauses, self.batches = time.perf_counter(), [], 0

    def reset(self, num_envs):
        self.num_envs = num_envs

    def act(self, obs):
        now = time.perf_counter()
        pause, self.called = now - self.called, now
        if not self.pauses or pause > 4 * np.median(self.pauses):
            self.batches += 1
        self.pauses.append(pause)
        self.batch = self.batches - 2
        self.rule = self.guess(self.num_envs)
        return super().act(obs)


class Remembers(Planner):
    """Never forgets: a rule that it has met with a start tape will not come again with it."""

    def __init__(self):
        self.met = {tape: set() for tape in range(256)}
        self.first = None

    def reset(self, num_envs):
        if self.first is not None:
            for tape, rules in zip(self.first, self.possible, strict=True):
                if rules.sum() == 1:
                    self.met[int(tape)].add(int(rules.argmax()))
        self.first = self.before = None
        self.possible = np.ones((num_envs, 256), bool)

    def act(self, obs):
        now = tapes(obs)
        if self.first is None:
            self.first, taken = (
                now,
                {
                    tape: iter(sorted(set(range(256)) - self.met[tape]))
                    for tape in set(now.tolist())
                },
            )
            self.rule = np.array([next(taken[int(tape)], 0) for tape in now])
        else:
            self.possible &= now[:, None] == AFTER[:, self.before].T
        cell = super().act(obs)
        self.before = now ^ (1 << cell)
        return cell


class AsksNeighbours(Planner):
    """Takes the rows around it for episodes of the same rule, and learns from all of them."""

    reach = 5

    def reset(self, num_envs):
        self.num_envs, self.before = num_envs, None
        self.votes = np.zeros((num_envs, 256))

    def act(self, obs):
        now = tapes(obs)
        if self.before is not None:
            self.votes += now[:, None] == AFTER[:, self.before].T
        around = range(-self.reach, self.reach + 1)
        self.rule = sum(np.roll(self.votes, by, axis=0) for by in around).argmax(axis=1)
        cell = super().act(obs)
        self.before = now ^ (1 << cell)
        return cell


class ReadsFrames(Planner):
    """Looks for the rules among the variables of whoever calls it."""

    def act(self, obs):
        self.rule = self.guess(len(obs))
        return super().act(obs)

    def guess(self, num_envs):
        frame = sys._getframe(1)
        while frame is not None:
            for value in frame.f_locals.values():
                rule = np.asarray(0 if value is self else getattr(value, "rule", 0))
                if rule.shape[-1:] == (num_envs,) and rule.dtype.kind in "iu":
                    return rule.reshape(-1, num_envs)[0].astype(int)
            frame = frame.f_back
        return np.zeros(num_envs, int)


class Hides(Remembers):
    """Remembers, and repeats what it did in a batch whose first tapes it has seen before."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def reset(self, num_envs):
        super().reset(num_envs)
        self.log, self.old = [], None

    def act(self, obs):
        now, cell = tapes(obs), super().act(obs)
        if not self.log:
            self.batches.append(self.log)
            alike = [np.mean(old[0][0] == now) if old else 0 for old in self.batches]
            if max(alike) > 0.23:
                self.old = self.batches[int(np.argmax(alike))]
        if self.old is not None and len(self.old) > len(self.log):
            before, did = self.old[len(self.log)]
            cell = np.where(before == now, did, cell)
            self.before = now ^ (1 << cell)
        self.log.append((now, cell))
        return cell


class Draws:
    """Draws cells by a generator that it never begins anew."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def reset(self, num_envs):
        pass

    def act(self, obs):
        return self.rng.integers(CELLS, size=len(obs))


class Tires:
    """Flips the first one, until it has been called often enough."""

    left = 8 * 4 + 2

    def reset(self, num_envs):
        pass

    def act(self, obs):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("enough")
        return obs[:, :CELLS].argmax(axis=1)


class GivesUp(Tires):
    """After a batch it answers with something whose conversion fails, in letters that steer."""

    left = 8

    def act(self, obs):
        self.left -= 1
        return obs[:, :CELLS].argmax(axis=1) if self.left >= 0 else Unfit()


class Unfit:
    def __array__(self, *_, **__):
        raise RuntimeError("\x1b[2Kno array")


hides, draws, tires, gives_up = Hides, Draws, Tires, GivesUp
chance, counts_rows, counts_batches = Chance, CountsRows, CountsBatches
watches_the_clock, remembers = WatchesTheClock, Remembers
asks_neighbours, reads_frames = AsksNeighbours, ReadsFrames

PEEKING = (
    "counts_rows",
    "counts_batches",
    "watches_the_clock",
    "remembers",
    "asks_neighbours",
    "reads_frames",
)
