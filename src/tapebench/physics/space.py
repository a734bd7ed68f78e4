"""Cells packed into words: rings of them, flips of one, and distances between two.

A tape of `length` cells is packed little-endian into uint32 words: cell `i` is bit `i % 32` of
word `i // 32`, bits past the last cell are zero. Arrays carry the words on their last axis,
`[..., W]`, and a cell per element on the leading axes, `[...]`. A Python integer is a
whole tape in one word of any size, which makes stepping a single environment cheap.

Compiled programs compute on more than one word as a tuple of arrays `[..., 1]`: then it is the
tapes of a batch that stand side by side in memory, and vectorise, instead of a tape's few words.
`split` and `join` lead there and back, and whatever takes one form takes the other.

Every function is written once with operators that Python integers, NumPy arrays and JAX arrays
share, so all three take the same path. There is no randomness here, and no float before
`distance`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tapebench.base.shapes import Float32, Int32, Integer, Shaped, UInt8, UInt32

MIN_LENGTH = 3
MAX_LENGTH = 1024
WORD = 32

if TYPE_CHECKING:
    Tape = Any
    Numbers = Any
    Counts = Any
    Shares = Any
else:
    Tape = int | UInt32[Any, "*#B W"] | tuple[UInt32[Any, "*#B 1"], ...] | UInt32[Any, ""]
    """A Python int, an array of words, or a tuple of W arrays: see above. Or one word for all."""
    Numbers = int | Integer[Any, "*#B"]
    """A rule or a cell: one for all tapes, or one for each."""
    Counts = int | Int32[Any, "*B"]
    Shares = float | Float32[Any, "*B"]


@dataclass(frozen=True)
class Space:
    """Where the cells are: a ring, `(32,)`, or a torus, `(5, 5)`. A value, static under `jit`.

    Cells are packed in reading order, and an action is the place of a cell in it.
    """

    shape: tuple[int, ...]

    @cached_property
    def size(self) -> int:
        """How many cells, and actions, there are."""
        return math.prod(self.shape)

    @property
    def is_torus(self) -> bool:
        """Whether it has rows, and not only one."""
        return len(self.shape) == 2

    @property
    def title(self) -> str:
        """As a title has it: `L = 32`, or `a torus of 5 × 5`."""
        sides = " × ".join(map(str, self.shape))
        return f"a torus of {sides}" if self.is_torus else f"L = {sides}"

    def shift(self, cell: Any, by: Sequence[Any]) -> Any:
        """The cell that is so many cells further along each side, round the ring or torus.

        `by` has a number, or an array of them, for each side.
        """
        place, stride = 0, 1
        for side, offset in zip(reversed(self.shape), reversed(by), strict=True):
            place = place + stride * ((cell // stride + offset) % side)
            stride *= side
        return place


Size = int | Space
"""A ring by its length, or any space."""


def as_space(size: Size) -> Space:
    """The space itself, or the ring of so many cells."""
    return size if isinstance(size, Space) else Space((size,))


def num_words(length: int) -> int:
    """How many uint32 words hold a tape of `length` cells."""
    return -(-length // WORD)


def check_length(length: int) -> int:
    """Return `length` if a tape can have it, else raise a `ValueError` that gives the range."""
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
        raise ValueError(f"length must be an integer, not {length!r}")
    if not MIN_LENGTH <= length <= MAX_LENGTH:
        raise ValueError(f"length must be from {MIN_LENGTH} to {MAX_LENGTH}, not {length}")
    return int(length)


@cache
def full(length: int) -> UInt32[np.ndarray, " W"]:
    """The tape of all ones, `[W]`: the mask of the bits in use. Read-only, since it is shared."""
    ones = to_words((1 << length) - 1, length)
    ones.flags.writeable = False
    return ones


def to_words(tape: int, length: int) -> UInt32[np.ndarray, " W"]:
    """A Python-integer tape as its row of words, `[W]`."""
    words = [(tape >> (WORD * w)) & 0xFFFFFFFF for w in range(num_words(length))]
    return np.array(words, np.uint32)


def to_int(words: UInt32[np.ndarray, " W"]) -> int:
    """A row of words as a Python-integer tape; the inverse of `to_words`."""
    return int.from_bytes(np.ascontiguousarray(words, "<u4").tobytes(), "little")


def pack(bits: Shaped[Any, "*B L"]) -> UInt32[Any, "*B W"]:
    """Pack cells `[..., L]` of 0 and 1 into words `[..., W]`."""
    if not hasattr(bits, "astype"):
        bits = np.asarray(bits)
    length = bits.shape[-1]
    words = num_words(length)
    xp = bits.__array_namespace__()
    padding = [(0, 0)] * (bits.ndim - 1) + [(0, words * WORD - length)]
    cells = xp.pad(bits.astype(np.uint32), padding).reshape(*bits.shape[:-1], words, WORD)
    return (cells << _places(cells.ndim)).sum(axis=-1, dtype=np.uint32)


def unpack(tape: Tape, length: int) -> UInt8[Any, "*B L"]:
    """The cells of a packed tape as uint8, `[..., L]`."""
    tape = join(tape)
    cells = (tape[..., None] >> _places(tape.ndim + 1)) & np.uint32(1)
    return cells.astype(np.uint8).reshape(*tape.shape[:-1], -1)[..., :length]


def _places(ndim: int) -> np.ndarray:
    """Places in a word, on the last of as many axes: JAX can be told to refuse to add any."""
    return np.arange(WORD, dtype=np.uint32).reshape((1,) * (ndim - 1) + (WORD,))


def split(tape: Tape) -> Tape:
    """Words `[..., W]` as a tuple of W arrays `[..., 1]`; a single word is left as it is."""
    if isinstance(tape, int | tuple) or tape.shape[-1] == 1:
        return tape
    return tuple(tape[..., word : word + 1] for word in range(tape.shape[-1]))


def join(tape: Tape) -> Tape:
    """The inverse of `split`: words on the last axis, `[..., W]`."""
    if not isinstance(tape, tuple):
        return tape
    return tape[0].__array_namespace__().concatenate(tape, axis=-1)


def each(function: Callable[..., Any], *tapes: Tape) -> Tape:
    """What `function` makes of one word of each tape, for all of their words."""
    if isinstance(tapes[0], tuple):
        return tuple(map(function, *tapes))
    return function(*tapes)


def trim(tape: Tape, length: int) -> Tape:
    """The tape without stray bits past its last cell."""
    if isinstance(tape, int):
        return tape & ((1 << length) - 1)
    if length % WORD == 0:
        return tape
    if isinstance(tape, tuple):
        return *tape[:-1], tape[-1] & full(length)[-1:]
    return tape & full(length)


def flip(tape: Tape, cell: Numbers) -> Tape:
    """The tape with one cell inverted. `cell` is 0-based and not checked here."""
    if isinstance(tape, int):
        return tape ^ (1 << int(cell))
    cell = column(cell)
    if isinstance(tape, tuple):
        # A cell of another word is shifted out; below zero it is a huge number.
        first = np.arange(len(tape), dtype=np.uint32) * np.uint32(WORD)
        bits = (np.uint32(1) << (cell - place) for place in first)
        return tuple(map(operator.xor, tape, bits))
    if tape.shape[-1] == 1:
        return tape ^ (np.uint32(1) << cell)
    here = np.arange(tape.shape[-1], dtype=np.uint32) == cell >> 5
    return tape ^ (here.astype(np.uint32) << (cell & 31))


def hamming(tape: Tape, goal: Tape) -> Counts:
    """The number of cells in which two tapes differ, an integer (int32 for arrays, `[...]`)."""
    difference = each(operator.xor, tape, goal)
    if isinstance(difference, int):
        return difference.bit_count()
    if isinstance(difference, tuple):
        return functools.reduce(operator.add, map(_count_ones, difference))
    return _count_ones(difference)


def _count_ones(words: Any) -> Any:
    counts = words.__array_namespace__().bitwise_count(words)
    if counts.shape[-1] == 1:
        return counts[..., 0].astype(np.int32)
    return counts.sum(axis=-1, dtype=np.int32)


def distance(tape: Tape, goal: Tape, length: int) -> Shares:
    """The fraction of cells in which two tapes differ, from 0 to 1 (float32 for arrays)."""
    return share(hamming(tape, goal), length)


def share(part: Numbers, whole: Numbers) -> Shares:
    """`part / whole` rounded once, in float32 for arrays: the same from NumPy and from JAX."""
    if isinstance(part, int):
        return part / whole
    part = part.astype(np.float32)
    if isinstance(part, np.ndarray):
        return part / np.float32(whole)
    # XLA multiplies by the reciprocal of a single divisor, which rounds twice. It cannot where
    # the divisor looks different for every element.
    return part / part.__array_namespace__().where(part >= 0, whole, 1).astype(np.float32)


def column(values: Numbers) -> UInt32[Any, "*B 1"]:
    """Numbers `[...]` as uint32 `[..., 1]`, to broadcast against words.

    At least one axis matters: NumPy scalars would warn where arrays wrap around silently.
    """
    if not hasattr(values, "astype"):
        values = np.asarray(values)
    return values[..., None].astype(np.uint32)


def rotate(tape: Tape, by: int, length: int) -> Tape:
    """The tape turned by so many cells: cell i + `by` is cell i of this one."""
    by %= length
    if isinstance(tape, int):
        return trim((tape << by) | (tape >> (length - by)), length)
    if not isinstance(tape, tuple) and tape.shape[-1] > 1:
        return join(rotate(split(tape), by, length))
    words = tape if isinstance(tape, tuple) else (tape,)
    turned = []
    for place in range(len(words)):
        parts = []
        for shift in (by, by - length):  # what moves up, and what leaves the tape and comes back
            skipped, bits = divmod(shift, WORD)
            if 0 <= place - skipped < len(words):
                parts.append(words[place - skipped] << bits)
            if 0 < place - skipped <= len(words) and bits:
                parts.append(words[place - skipped - 1] >> (WORD - bits))
        turned.append(functools.reduce(operator.or_, parts))
    return trim(tuple(turned) if isinstance(tape, tuple) else turned[0], length)


def neighbours(tape: Tape, length: int) -> tuple[Tape, Tape]:
    """Two tapes whose cell i is cell i-1, and cell i+1, of this one.

    The left one may carry stray bits past the last cell, which callers `trim`.
    """
    top = (length - 1) % WORD
    if isinstance(tape, tuple):
        below = ((tape[-1] >> top) & 1, *(word >> (WORD - 1) for word in tape[:-1]))
        above = (*(word << (WORD - 1) for word in tape[1:]), (tape[0] & 1) << top)
        left = each(lambda word, bit: (word << 1) | bit, tape, below)
        return left, each(lambda word, bit: (word >> 1) | bit, tape, above)
    if isinstance(tape, int):
        top = length - 1
    elif length > WORD:
        xp = tape.__array_namespace__()
        first, last = tape[..., :1], tape[..., -1:]
        below = xp.concatenate([(last >> top) & 1, tape[..., :-1] >> (WORD - 1)], axis=-1)
        above = xp.concatenate([tape[..., 1:] << (WORD - 1), (first & 1) << top], axis=-1)
        return (tape << 1) | below, (tape >> 1) | above
    # Of a full word the other bits are shifted out anyway.
    first = tape if length == WORD and not isinstance(tape, int) else tape & 1
    return (tape << 1) | (tape >> top), (tape >> 1) | (first << top)
