"""Names that people type: known, or refused with the nearest that is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def one_of(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return `name` if it is known, else raise an error that suggests the nearest, or names all."""
    choices = tuple(choices)
    if isinstance(name, str) and name in choices:
        return name
    close = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(choices)}"
    raise ValueError(f"unknown {kind} {name!r}: {hint}")
