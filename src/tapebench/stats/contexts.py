"""What one agent lacks, from its scores with the rule given, with exact evidence and with nothing.

Each gap is between neighbours on the way from what is possible to the agent that has to find out by
itself, so those that are there add up to ceiling minus the last score.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from tapebench.stats.intervals import Interval, t_interval

CONTEXTS = ("rule", "evidence", "none")
"""What an agent is given about the law, the most first."""

GAPS = {
    ("ceiling", "rule"): "control with the law given",
    ("rule", "evidence"): "price of partial knowledge",
    ("evidence", "none"): "value of evidence",
    ("ceiling", "evidence"): "control and partial knowledge",
    ("rule", "none"): "price of having to find out",
    ("ceiling", "none"): "everything",
}
"""What lies between two scores; the last three are there if a context in between is missing."""


def context_gaps(ceiling: Any, by_context: Mapping[str, Any]) -> dict[str, Interval]:
    """The gaps between the ceiling and success by context, each `[R]`, with intervals over rules.

    Rules are paired: the same ones in the same order everywhere.
    """
    if unknown := [context for context in by_context if context not in CONTEXTS]:
        raise ValueError(f"unknown context {unknown[0]!r}: use one of {', '.join(CONTEXTS)}")
    ladder = {"ceiling": np.asarray(ceiling, float)}
    ladder |= {name: np.asarray(by_context[name], float) for name in CONTEXTS if name in by_context}
    if len({values.shape for values in ladder.values()}) > 1:
        raise ValueError("scores under several contexts must be of the same rules")
    names = list(ladder)
    return {
        GAPS[upper, lower]: t_interval(ladder[upper] - ladder[lower])
        for upper, lower in pairwise(names)
    }
