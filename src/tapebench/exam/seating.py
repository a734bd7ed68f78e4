"""Who sits where: the order in which the rows of an exam reach a policy, and how it was sat.

A row is a rule with a start tape. If rows came in the order of the rules, the number of a row would
be its rule, so they come permuted, with all rules mixed in every batch. An agent from outside gets
an order drawn from the operating system after it was made; our own policies always the same one,
so that their runs repeat to the bit. Order and size of batches make no difference to a policy that
keeps its rows apart, and a check finds those that do not.

`Conditions` is what the evaluator saw of all this. Bundles carry it, and it stands beside scores.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tapebench.base.shapes import Int64, Integer

VERSION = 2
"""Version of the seating. In version 1 rows came in the order of the rules; results that do not
name their seating are of that version."""

BATCH = 256
"""Rows that an agent from outside plays at a time."""

CHECKED = 64
"""Rows that are played again to see whether an agent keeps its rows apart."""

MADE = ("by us", "in this process", "in a process of its own", "by hand", "not said")
"""Where the choices of a result were made."""

ROWS = ("independent", "pools rows", "not repeatable", "not checked")
"""What came of playing some rows again, see `verdict`."""


@dataclass(frozen=True)
class Seating:
    """An order of rows, and how many are played at a time."""

    secret: bytes
    """Decides the order; kept from an agent from outside until it has played."""
    batch: int | None = None
    """Rows in a batch; None plays all of them at once."""

    def order(self, num: int, purpose: str = "order") -> Int64[np.ndarray, " num"]:
        """A permutation of `num` rows.

        By a keyed cryptographic hash: who has met many rows of an order cannot tell the next.
        """
        marks = [self._mark(purpose, row) for row in range(num)]
        return np.array(sorted(range(num), key=marks.__getitem__), dtype=int)

    def batches(self, num: int) -> list[Int64[np.ndarray, " B"]]:
        """All rows in batches of one size. The last is filled up with rows that were played."""
        order = self.order(num)
        size = num if self.batch is None else min(self.batch, num)
        short = -num % size
        return list(np.concatenate([order, order[:short]]).reshape(-1, size))

    def check(self, num: int) -> tuple[int, Int64[np.ndarray, " seats"], Int64[np.ndarray, " B"]]:
        """What to play again: the number of a batch, some of its seats, and other neighbours.

        The last are the rows of a whole batch in which those seats are taken by whom they were,
        and all others by rows drawn from the whole exam. It is not the first batch if there is
        another, since that one nobody could play by what it remembered.
        """
        batches = self.batches(num)
        later = range(1, len(batches)) or range(1)
        number = later[int(self.order(len(later), "batch")[0])]
        rows = batches[number]
        seats = np.sort(self.order(len(rows), "seats")[: max(min(CHECKED, len(rows) // 2), 1)])
        drawn = [self._mark("neighbour", seat) for seat in range(len(rows))]
        others = np.array([int.from_bytes(mark[:8], "little") % num for mark in drawn])
        others[seats] = rows[seats]
        return number, seats, others

    def _mark(self, purpose: str, number: int) -> bytes:
        text = f"{purpose} {number}".encode()
        return hashlib.blake2b(text, key=self.secret, digest_size=16).digest()


def draw_seating(batch: int = BATCH) -> Seating:
    """An order that nobody knows beforehand."""
    return Seating(secrets.token_bytes(16), batch)


OWN = Seating(b"tapebench")
"""The order of our own policies, a named one, so that what they do repeats to the bit."""


def verdict(
    first: Integer[np.ndarray, "seats K H"],
    among_same: Integer[np.ndarray, "seats K H"],
    among_others: Integer[np.ndarray, "seats K H"],
) -> str:
    """One of `ROWS`, from the actions of the same rows played three times.

    Who plays otherwise among the same neighbours is `not repeatable`, by chance of its own or by
    what it remembers from batch to batch. Who does so among others only, `pools rows`.
    """
    if not np.array_equal(first, among_same):
        return "not repeatable"
    return "independent" if np.array_equal(first, among_others) else "pools rows"


_ORDER = re.compile("([0-9a-f]{32})?")


@dataclass(frozen=True)
class Conditions:
    """How a result was made, as the evaluator saw it. Of a bundle it is what the bundle says."""

    made: str = "not said"
    """One of `MADE`."""
    rows: str = "not checked"
    """One of `ROWS`."""
    order: str = ""
    """The secret of an order that was drawn, in hexadecimal; empty for a named one."""
    seating: int = VERSION

    def __post_init__(self) -> None:
        if self.made not in MADE or self.rows not in ROWS:
            raise ValueError("its conditions are not in a form that is known")
        if type(self.seating) is not int or not 1 <= self.seating <= VERSION:
            raise ValueError(f"it is of seating {self.seating!r}; known are 1 to {VERSION}")
        if not isinstance(self.order, str) or not _ORDER.fullmatch(self.order):
            raise ValueError("it does not say in which order it was played")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What has to stand beside the score, if anything has."""
        remarks = ["not isolated"] if self.made == "in this process" else []
        if self.rows in ("pools rows", "not repeatable"):
            remarks.append(self.rows)
        if self.seating != VERSION:
            remarks.append(f"seating {self.seating}")
        return tuple(remarks)

    def as_dict(self) -> dict[str, Any]:
        """As bundles and scores hold it."""
        return asdict(self)


BEFORE = Conditions(seating=1)
"""Of a result that says nothing: it is older than seatings that are named."""


def read_conditions(document: Any) -> Conditions:
    """What a bundle says of how it was made; `ValueError` if it cannot be understood."""
    if document is None:
        return BEFORE
    if not isinstance(document, Mapping) or set(document) != set(BEFORE.as_dict()):
        raise ValueError("its conditions are not in a form that is known")
    return Conditions(**document)
