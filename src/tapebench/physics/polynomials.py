"""Tables of bits as polynomials over the field of two elements, which are quick on packed words.

Every function of n bits is a sum of products of them. Evaluated word by word that is n rounds of
`a ^ (x & b)`, each of which halves what is left: 2^n - 1 times two operations, and no branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_UPPER = (0x55555555, 0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF)
"""Entries of a table whose number has bit k clear: what is added to those where it is set."""


def masks(table: Any, variables: int) -> tuple[Any, ...]:
    """The 2^variables coefficients of a table, of at most 32 bits, as masks: all ones or zeros.

    Entry e of the table is its bit e, and mask m belongs to the product of the variables that are
    set in m. For a Python integer, or uint32 arrays of NumPy and JAX.
    """
    for variable in range(variables):
        table = table ^ ((table & _UPPER[variable]) << (1 << variable))
    return tuple(-((table >> product) & 1) for product in range(1 << variables))


def evaluate(masks: Sequence[Any], variables: Sequence[Any]) -> Any:
    """The polynomial of `masks` at words of variables, that of the highest bit first."""
    for word in reversed(variables):
        pairs = iter(masks)
        masks = [a ^ (word & b) for a, b in zip(pairs, pairs, strict=False)]
    (value,) = masks
    return value
