"""The only places randomness is derived: an integer hash, streams of it, and named JAX keys.

The hash is written out here on uint32, so that exam tapes and rule features depend on neither
NumPy's nor JAX's generators, nor on their versions. It serves NumPy and JAX arrays alike.

A *stream* is a pair of uint32, an identity and a counter. `draw(stream, lane)` is a pure function
of the pair and a lane number; `advance` moves to the next episode. An environment that carries
its stream in its state needs no key per step, and its whole future is fixed by the pair it was
given at reset.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import jax


EXAM_VERSION = 1
"""Version of the standard exam. A change to the tapes below is a change of this number."""

RULE, TAPE, GOAL, NOISE, VARIATION, SWITCH = (np.uint32(purpose << 28) for purpose in range(6))
"""First lane of each purpose, so that no two draws of one episode share a lane."""

_WEYL = np.uint32(0x9E3779B9)
FEATURES, EXAM, _POLICY, _DATA = 0x52554C45, 0x4558414D, 0x504F4C49, 0x44415441


def mix(x: Any) -> Any:
    """A bijection of uint32 in which every input bit moves every output bit.

    The constants are those of the `lowbias32` function of the hash-prospector project.
    """
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def hash32(*words: Any) -> Any:
    """Absorb uint32 arrays (broadcast together) and Python ints into one uint32 per element."""
    state: Any = np.zeros(1, np.uint32)
    for word in words:
        if isinstance(word, int):
            word = np.array([word & 0xFFFFFFFF], np.uint32)
        state = mix((state ^ word) + _WEYL)
    return state


class Stream(NamedTuple):
    """Where draws come from: two uint32 arrays of the same shape."""

    identity: Any
    counter: Any


def draw(stream: Stream, lane: Any) -> Any:
    """Uniform uint32 for each lane: a stream of shape `[...]`, `lane[n]` -> `[..., n]`.

    The identity is mixed in last. Mixed in first, everything would pass through 32 bits that one
    drawn word gives away in full, and a start tape would reveal the rule drawn with it. The
    counter is mixed before the lane is added, so that no episode's lanes are another's shifted.
    """
    counter = mix(stream.counter[..., None] + _WEYL)
    return mix(mix(counter + lane * _WEYL) ^ stream.identity[..., None])


def advance(stream: Stream) -> Stream:
    """The stream of the next episode."""
    return Stream(stream.identity, stream.counter + np.uint32(1))


def below(bound: Any, word: Any) -> Any:
    """Scale uniform words to integers from 0 to bound - 1: the high half of their product.

    `bound` is at most 2^16; the bias is at most bound / 2^32.
    """
    high, low = word >> 16, word & np.uint32(0xFFFF)
    return (high * bound + (low * bound >> 16)) >> 16


def uniform(stream: Stream, num: int, lane: int = 0) -> Any:
    """`num` uniform numbers below 1 for each element of a stream, float32 `[..., num]`.

    They take the lanes from `lane` on, to a resolution of 2^-24.
    """
    lanes = np.uint32(lane) + np.arange(num, dtype=np.uint32)
    return unit(draw(stream, lanes))


def unit(words: Any) -> Any:
    return (words >> 8).astype(np.float32) * np.float32(2.0**-24)


def fork(stream: Stream, number: int) -> Stream:
    """Another stream at the same place, for a part that must not share draws with the rest."""
    apart = np.uint32((number + 1) * int(_WEYL) & 0xFFFFFFFF)
    return Stream(mix(stream.identity + apart), stream.counter)


def exam_streams(episodes: int, *, salt: str = "") -> Stream:
    """One stream per exam episode, `[episodes]`, for noise and random goals."""
    episode = np.arange(episodes, dtype=np.uint32)
    head = (EXAM, EXAM_VERSION, *salt_words(salt))
    return Stream(hash32(*head, 0, episode), hash32(*head, 1, episode))


def policy_streams(seed: int, name: str, rule: np.ndarray, episode: np.ndarray) -> Stream:
    """What a policy draws from in each row of an exam, `[B]`; each call advances the counter.

    A row's draws depend on the seed, the policy's name, the rule and the episode: never on its
    position or on the other rows.
    """
    words = (rule.astype(np.uint32), episode.astype(np.uint32))
    identity = hash32(_POLICY, _check_seed(seed), _word(name), *words)
    return Stream(identity, np.zeros_like(identity))


def data_streams(seed: int, name: str, number: np.ndarray) -> Stream:
    """One stream for each numbered part of a dataset, such as its episodes.

    It depends on the part's own number alone, so neither on how many there are nor on how many are
    made at a time.
    """
    head = (_DATA, _check_seed(seed), _word(name))
    words = number.astype(np.uint32)
    return Stream(hash32(*head, 0, words), hash32(*head, 1, words))


def key(seed: int, *names: str | int) -> jax.Array:
    """The JAX key of a named stream: `key(7, "dqn", "explore")`.

    A stream depends on its own name alone, so a new one moves no other.
    """
    import jax

    stream = jax.random.key(_check_seed(seed))
    for name in names:
        stream = jax.random.fold_in(stream, np.uint32(_word(name)))
    return stream


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """The NumPy generator of a named stream, for what is not compiled."""
    return np.random.default_rng([_check_seed(seed), *map(_word, names)])


def stream(key: jax.Array) -> Stream:
    """A fresh stream from a JAX key."""
    import jax

    identity, counter = jax.random.bits(key, (2,), np.uint32)
    return Stream(identity, counter)


def _check_seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed is an integer from 0 to {2**32 - 1}, not {seed}")
    return seed


def _word(name: str | int) -> int:
    return zlib.crc32(name.encode()) if isinstance(name, str) else int(name) & 0xFFFFFFFF


def salt_words(salt: str) -> tuple[int, ...]:
    """What a fresh exam absorbs of its salt; the standard exam, without one, absorbs a zero."""
    if not salt:
        return (0,)
    digest = hashlib.sha256(salt.encode()).digest()[:16]
    return tuple(int(word) for word in np.frombuffer(digest, "<u4"))
