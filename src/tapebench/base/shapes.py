"""Names for arrays in annotations: jaxtyping's, for modules that do without JAX.

Axes have fixed letters: L cells, W words, T time, B batch, E environments or episodes, R rules,
S seeds, A actions, H steps of a horizon, D entries of an observation. `UInt32[Any, "*B W"]` is for
NumPy and JAX alike.

Tests execute annotations (`tests/support/shape_checks.py`); nobody else evaluates them. jaxtyping
takes a third as long to import as all of `tapebench.gym`, so it is left alone unless somebody has
imported it already, as those tests have.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import (
        Bool,
        Float,
        Float32,
        Float64,
        Int,
        Int16,
        Int32,
        Int64,
        Integer,
        Real,
        Shaped,
        UInt8,
        UInt16,
        UInt32,
    )
else:

    class Shaped:
        """Stands for an array that nobody looks at."""

        def __class_getitem__(cls, item: Any) -> Any:
            return Any

    Bool = Float = Float32 = Float64 = Int = Int16 = Int32 = Int64 = Integer = Real = Shaped
    UInt8 = UInt16 = UInt32 = Shaped

__all__ = [
    "Bool",
    "Float",
    "Float32",
    "Float64",
    "Int",
    "Int16",
    "Int32",
    "Int64",
    "Integer",
    "Real",
    "Shaped",
    "UInt8",
    "UInt16",
    "UInt32",
]
