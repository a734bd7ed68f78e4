"""Scores to do statistics on: arbitrary tables, and runs with seed effects whose truth is known."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

SEED_SPREAD = 0.7
RULES_ID = np.linspace(-4, 3, 24)
RULES_OOD = np.linspace(-5, 1, 9)
"""How hard each rule is, as a logit."""

unit = st.floats(0, 1, width=32)


def generator(seed=0):
    return np.random.default_rng(seed)


def tables(least=1, most=12, rules=7):
    """Scores of some seeds on at most so many rules."""
    shapes = st.tuples(st.integers(least, most), st.integers(1, rules))
    return shapes.flatmap(lambda shape: arrays.arrays(float, shape, elements=unit))


def chance(logits):
    return 1 / (1 + np.exp(-logits))


def normal_mean(function, spread):
    """The mean of `function` of a normal variable, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    values = [function(spread * node) for node in nodes]
    return float(np.average(values, weights=weights))


def run(rng, seeds, *rule_sets):
    """Success `[S, R]` on each rule set: 20 episodes, given a seed's luck and a rule's hardness."""
    luck = rng.normal(0, SEED_SPREAD, (seeds, 1))
    return [rng.binomial(20, chance(rules + luck)) / 20 for rules in rule_sets]


def true_mean(rules):
    return normal_mean(lambda luck: chance(rules + luck).mean(), SEED_SPREAD)


def coverage(truth, intervals):
    return np.mean([interval.low <= truth <= interval.high for interval in intervals])


def refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
