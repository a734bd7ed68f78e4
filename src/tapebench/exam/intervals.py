"""The interval of a mean over training seeds: the same runs get the same digits everywhere.

Below `stats.FEW` seeds it is Student's t. From then on whole seeds are resampled, by the same draws
for every number, so that an interval depends on the runs alone and not on the page that shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.stats import Interval


def resampling() -> np.random.Generator:
    """The draws of every bootstrap over seeds, from their beginning."""
    return seeding.generator(0, "intervals over seeds")


def over_seeds(scores: Any) -> Interval:
    """Mean and 95% interval of `scores[S, ...]` over seeds, in the order of their numbers.

    For a drop, or two agents on the same seeds, pass the differences.
    """
    return stats.seed_interval(np.asarray(scores, float), resampling())


def share_over_seeds(scores: Any) -> Interval:
    """`over_seeds` of shares, whose intervals end at 0 and 1."""
    return stats.within_0_and_1(over_seeds(scores))
