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
