import numpy as np
import pytest

from tapebench.physics import tables
from tapebench.physics.families import ELEMENTARY, LIFE, RING2
from tapebench.physics.space import Space


def of_label(label, family):
    rule = family.parse(label)
    return tables.features([rule], family)[rule]


def test_named_elementary_rules():
    known = tables.features(range(256), ELEMENTARY)
    # XORs of some of three cells and their negations, and functions of the number of ones.
    additive = {0, 60, 90, 102, 150, 170, 204, 240}
    assert {rule for rule, row in known.items() if row.additive} == {
        *additive,
        *(255 - rule for rule in additive),
    }
    assert sum(row.totalistic for row in known.values()) == 16
    assert known[232].totalistic
    assert not known[110].totalistic
    assert [known[rule].sensitivity for rule in (0, 204, 150, 128)] == [0, 1, 3, 0.75]
    assert [known[rule].zeros for rule in (110, 129, 1, 255)] == ["stay", "fill", "flash", "fill"]
    assert known[110].density == 5 / 8


def test_named_rules_of_the_larger_families():
    life = of_label("B3/S23", LIFE)
    assert (life.label, life.zeros, life.additive, life.totalistic) == (
        *("B3/S23", "stay"),
        *(False, False),
    )
    assert life.density == 3 / 18
    replicator = of_label("B1357/S1357", LIFE)
    assert replicator.additive
    assert replicator.sensitivity == 8
    assert not replicator.totalistic
    assert of_label("B1357/S02468", LIFE).totalistic
    assert of_label("B0/S", LIFE).zeros == "flash"
    parity = sum((entry.bit_count() & 1) << entry for entry in range(32))
    row = tables.features([parity], RING2)[parity]
    assert row.additive
    assert row.totalistic
    assert row.sensitivity == 5


@pytest.mark.parametrize(
    ("family", "shape"),
    [(ELEMENTARY, (9,)), (RING2, (9,)), (LIFE, (4, 5))],
    ids=["elementary", "ring2", "life"],
)
def test_features_are_what_updates_show(family, shape):
    """Sensitivity against flips of single cells, and what zeros do against two updates of them."""
    space, rng = Space(shape), np.random.default_rng(3)
    rules = rng.integers(family.num_rules, size=20).tolist()
    known = tables.features(rules, family)
    tapes = rng.integers(2**space.size, size=4000, dtype=np.uint32)[:, None]
    for rule in rules:
        after = family.evolve(tapes, rule, space)
        flipped = [
            family.evolve(tapes ^ np.uint32(1 << cell), rule, space) for cell in range(space.size)
        ]
        changes = sum(np.bitwise_count(after ^ other) for other in flipped) / space.size
        assert changes.mean() == pytest.approx(known[rule].sensitivity, abs=0.05)
        once = family.evolve(0, rule, space)
        twice = family.evolve(once, rule, space)
        full = 2**space.size - 1
        ends = {(0, 0): "stay", (full, 0): "flash", (full, full): "fill"}
        assert known[rule].zeros == ends[once, twice]
