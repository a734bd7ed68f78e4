import numpy as np
import pytest

from tapebench.physics import exact
from tapebench.physics.families import FAMILIES
from tapebench.physics.quotient import Quotient
from tapebench.physics.space import Space


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("elementary", (3,), 4),
        ("elementary", (10,), 108),
        ("ring2", (5,), 8),
        ("ring2", (14,), 1182),
        ("life", (3, 3), 26),
        ("life", (3, 4), 158),
        ("life", (4, 4), 805),
    ],
)
def test_counts_are_those_of_the_exhaustive_search(name, shape, classes):
    family, search = FAMILIES[name], Quotient(FAMILIES[name], Space(shape))
    assert len(search) == classes
    rng = np.random.default_rng(0)
    rules = [0, family.num_rules - 1, *rng.integers(family.num_rules, size=12).tolist()]
    # Sparse tables too: most others are not solved, and end at once.
    rules += [int(rule) & int(rng.integers(family.num_rules)) for rule in rules[2:]]
    for rule in rules:
        for horizon in (2, 16):
            wanted = exact.reach(rule, Space(shape), horizon, family=family)
            assert search.reach(rule, horizon) == wanted


FAMILY_AND_SHAPE = pytest.mark.parametrize(
    ("name", "shape"), [("elementary", (9,)), ("ring2", (10,)), ("life", (3, 4))]
)


def some_rules(family, num, seed=0):
    """Rules that differ, half of them sparse."""
    rng = np.random.default_rng(seed)
    rules = rng.integers(family.num_rules, size=(2, num))
    return np.unique([rules[0], rules[0] & rules[1]])[:num].tolist()


@FAMILY_AND_SHAPE
def test_steps_of_many_rules_at_once_are_those_of_each(name, shape):
    family, size = FAMILIES[name], Space(shape)
    rules = some_rules(family, 64)
    tapes = np.random.default_rng(1).integers(2**size.size, size=30, dtype=np.uint32)
    tapes[0] = 0
    steps = Quotient(family, size).steps(rules, tapes, 5)
    for rule, of_rule in zip(rules, steps, strict=True):
        np.testing.assert_array_equal(
            of_rule, exact.steps_to_goal(rule, size, 5, family=family)[tapes]
        )
    assert len(np.unique(steps)) > 4
    with pytest.raises(ValueError, match="at most 64 rules are searched together, not 65"):
        Quotient(family, size).steps(range(65), tapes, 5)


@FAMILY_AND_SHAPE
def test_ways_lead_to_zeros_in_the_fewest_steps(name, shape):
    family, size = FAMILIES[name], Space(shape)
    rng = np.random.default_rng(2)
    rules = rng.choice(some_rules(family, 100), 200)  # more than are searched at a time
    tapes = rng.integers(2**size.size, size=200, dtype=np.uint32)
    budget = rng.integers(7, size=200)
    ways = Quotient(family, size).ways(rules, tapes, budget)
    for rule, tape, most, way in zip(rules, tapes, budget, ways, strict=True):
        fewest = exact.steps_to_goal(int(rule), size, int(most), family=family)[tape]
        assert (way is None) == (fewest == exact.UNREACHED)
        if way is not None:
            assert len(way) == fewest
            end = int(tape)
            for cell in way:
                end = family.step(end, cell, int(rule), size)
            assert end == 0
    assert 20 < sum(way is None for way in ways) < 180


def test_too_many_cells_are_refused():
    with pytest.raises(ValueError, match="up to length 25, not 26"):
        Quotient(FAMILIES["ring2"], 26)


@pytest.mark.slow
def test_named_rules_on_a_torus_of_25_cells():
    life, space = FAMILIES["life"], Space((5, 5))
    search = Quotient(life, space)
    assert len(search) == 172_112
    for label in ("B3/S23", "B36/S23", "B2/S"):
        rule = life.parse(label)
        assert search.reach(rule, 16) == exact.reach(rule, space, 16, family=life)
