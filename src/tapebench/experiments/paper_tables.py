"""What the paper prints, as shipped in `data/paper.json`: tables, and numbers in its text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Published:
    """A table of the paper."""

    where: str
    title: str
    rows: Mapping[str, Mapping[str, Any]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that a row has, in the order of their first appearance."""
        return tuple(dict.fromkeys(key for row in self.rows.values() for key in row))

    def mean(self, row: str, column: str) -> float:
        """A printed number, without its interval."""
        value = self.rows[row][column]
        return float(value[0] if isinstance(value, list) else value)


@cache
def published_tables() -> dict[str, Published]:
    """The paper's tables by name."""
    return {name: Published(**table) for name, table in _document()["tables"].items()}


@cache
def statements() -> dict[str, dict[str, Any]]:
    """Numbers in its running text by name: where they stand, what they say, and their value."""
    return dict(_document()["text"])


def _document() -> Any:
    return json.loads(resources.files("tapebench").joinpath("data/paper.json").read_text())


def span(values: Iterable[float], digits: int = 3) -> str:
    """The least and the greatest of some values."""
    numbers = [*values]
    low, high = (f"{end:.{digits}f}" for end in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"
