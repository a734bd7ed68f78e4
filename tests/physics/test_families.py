"""The contract of every family of laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapebench.physics import space as spaces
from tapebench.physics.families import FAMILIES
from tapebench.physics.families.elementary import evolve
from tapebench.physics.space import Space

SHAPES = {1: [(3,), (8,), (31,), (32,), (33,), (64,), (70,)], 2: [(3, 3), (5, 6), (8, 8), (7, 9)]}
CASES = [
    pytest.param(family, Space(shape), id=f"{name}-{'x'.join(map(str, shape))}")
    for name, family in FAMILIES.items()
    for shape in SHAPES[family.dimensions]
]
of_family_and_space = pytest.mark.parametrize(("family", "space"), CASES)
of_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def draw(family, space, num=200):
    """Rules and cells."""
    rng = np.random.default_rng([family.entries, *space.shape])
    rules = rng.integers(family.num_rules, size=num, dtype=np.uint32)
    rules[:2] = 0, family.num_rules - 1
    return rules, rng.integers(2, size=(num, *space.shape), dtype=np.uint8)


def flat(cells, space):
    return spaces.pack(cells.reshape(*cells.shape[: -len(space.shape)], space.size))


def by_definition(family, space, rules, cells):
    codes = family.codes(cells, space).reshape(len(cells), space.size)
    entries = np.take_along_axis(family.table(rules), codes.astype(int), axis=1)
    return entries.reshape(cells.shape)


@of_family_and_space
def test_the_fast_update_is_the_entry_of_the_table_that_a_cell_reads(family, space):
    rules, cells = draw(family, space)
    expected = flat(by_definition(family, space, rules, cells), space)
    tape = flat(cells, space)
    np.testing.assert_array_equal(family.update(tape, family.compile(rules), space), expected)
    update = jax.jit(lambda tape, rules: family.update(tape, family.compile(rules), space))
    np.testing.assert_array_equal(update(jnp.asarray(tape), jnp.asarray(rules)), expected)
    for row in range(20):  # a Python integer is a whole tape
        law = family.compile(int(rules[row]))
        after = family.update(spaces.to_int(tape[row]), law, space)
        assert after == spaces.to_int(expected[row])


@of_family_and_space
def test_every_cell_reads_an_entry_and_every_entry_can_be_read(family, space):
    _, cells = draw(family, space, num=2000)
    codes = family.codes(cells, space)
    assert codes.shape == cells.shape
    assert set(np.unique(codes)) == set(range(family.entries))


@of_family_and_space
def test_symmetries_act_on_rules_cells_and_places_alike(family, space):
    rules, cells = draw(family, space, num=60)
    after = by_definition(family, space, rules, cells)
    for symmetry in family.symmetries:
        image = np.array([symmetry.on_rule(int(rule)) for rule in rules], np.uint32)
        moved = symmetry.on_cells(cells, space)
        np.testing.assert_array_equal(
            by_definition(family, space, image, moved), symmetry.on_cells(after, space)
        )
        for site in range(space.size):
            flipped = cells.copy()
            flipped.reshape(len(cells), -1)[:, site] ^= 1
            there = np.array(moved)
            there.reshape(len(cells), -1)[:, symmetry.on_site(site, space)] ^= 1
            np.testing.assert_array_equal(symmetry.on_cells(flipped, space), there)
        zeros = np.zeros((1, *space.shape), np.uint8)
        assert symmetry.keeps_zeros == (not symmetry.on_cells(zeros, space).any())


@of_family_and_space
def test_updates_commute_with_shifts(family, space):
    rules, cells = draw(family, space, num=60)
    for axis in range(1, 1 + len(space.shape)):
        shifted = by_definition(family, space, rules, np.roll(cells, 1, axis))
        after = by_definition(family, space, rules, cells)
        np.testing.assert_array_equal(shifted, np.roll(after, 1, axis))


@of_family
def test_a_rule_is_its_table_and_its_label(family):
    rng = np.random.default_rng(1)
    rules = np.unique(rng.integers(family.num_rules, size=2000, dtype=np.uint32))
    assert len(np.unique(family.table(rules), axis=0)) == len(rules)
    assert family.table(rules).shape == (len(rules), family.entries)
    for rule in map(int, rules[:200]):
        assert family.parse(family.label(rule)) == rule
        assert family.check_rule(rule) == rule


@of_family
def test_what_is_no_rule_or_no_space_of_the_family_is_one_clear_line(family):
    for text in ("", "x", "-1", str(family.num_rules), "30.5"):
        with pytest.raises(ValueError, match=r"^an? .+ rule is .+$"):
            family.parse(text)
    for rule in (-1, family.num_rules, 0.5, True, "30"):
        with pytest.raises(ValueError, match=rf"from 0 to {family.num_rules - 1}, not"):
            family.check_rule(rule)
    for shape in ((2,) * family.dimensions, (8,) * (family.dimensions + 1)):
        with pytest.raises(ValueError, match=r"need .+, not \("):
            family.check_space(Space(shape))


def test_the_contract_costs_elementary_rules_nothing():
    family, ring = FAMILIES["elementary"], Space((32,))
    tape, rule = jnp.zeros((4, 1), jnp.uint32), jnp.zeros(4, jnp.uint32)
    by_contract = jax.make_jaxpr(lambda t, r: family.update(t, family.compile(r), ring))(tape, rule)
    assert str(by_contract) == str(jax.make_jaxpr(lambda t, r: evolve(t, r, 32))(tape, rule))
