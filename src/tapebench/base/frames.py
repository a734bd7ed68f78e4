"""Columns as data frames, of libraries that a user may have: none of them is needed otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np


def to_pandas(columns: Mapping[str, np.ndarray]) -> Any:
    """A `pandas.DataFrame` of columns of equal length."""
    return _frame("pandas", columns)


def to_polars(columns: Mapping[str, np.ndarray]) -> Any:
    """A `polars.DataFrame` of columns of equal length."""
    return _frame("polars", columns)


def _frame(library: str, columns: Mapping[str, np.ndarray]) -> Any:
    try:
        module = import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ValueError(f"{library} is not installed: pip install {library}") from None
    # Text as lists: each library then chooses its own kind for it.
    plain = {
        name: column.tolist() if column.dtype.kind in "OU" else column
        for name, column in columns.items()
    }
    return module.DataFrame(plain)


def column(values: Sequence[Any]) -> np.ndarray:
    """Values of one kind, some of them missing, as an array: nan or None for what is missing."""
    present = [value for value in values if value is not None]
    is_whole = len(present) == len(values)
    if present and is_whole and all(isinstance(value, bool) for value in present):
        return np.array(values)
    if all(isinstance(value, (int, float)) for value in present):
        if is_whole and all(isinstance(value, int) for value in present):
            return np.array(values, np.int64)
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array([None if value is None else str(value) for value in values], object)
