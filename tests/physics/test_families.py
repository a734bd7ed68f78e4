"""The contract of every family of laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from radius2 import embedded
from tapebench.physics import families
from tapebench.physics import space as spaces
from tapebench.physics.families import FAMILIES
from tapebench.physics.families.elementary import evolve
from tapebench.physics.space import Space

RINGS = [(8,), (31,), (32,), (33,), (64,), (70,), (100,)]
SHAPES = {
    "elementary": [(3,), *RINGS],
    "ring2": [(5,), *RINGS],
    "life": [(3, 3), (3, 5), (5, 6), (4, 8), (8, 8), (7, 9), (16, 4), (3, 40)],
}
"""The smallest space of each, and spaces of less than a word, a word and several."""
CASES = [
    pytest.param(FAMILIES[name], Space(shape), id=f"{name}-{'x'.join(map(str, shape))}")
    for name, shapes in SHAPES.items()
    for shape in shapes
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
        if not symmetry.is_of(space):
            continue
        image = np.array([symmetry.on_rule(int(rule)) for rule in rules], np.uint32)
        moved = symmetry.on_cells(cells, space)
        np.testing.assert_array_equal(
            by_definition(family, space, image, moved), symmetry.on_cells(after, space)
        )
        for site in range(space.size):
            flipped = cells.copy()
            flipped.reshape(len(cells), -1)[:, site] ^= 1
            there = np.array(moved, order="C")
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


@pytest.mark.parametrize(
    ("family", "text", "label"),
    [
        ("elementary", "30", "30"),
        ("ring2", "R2:2283010756", "R2:2283010756"),
        ("ring2", "{2283010756,2,2}", "R2:2283010756"),
        ("ring2", "{ 0, 2, 2 }", "R2:0"),
        ("ring2", "r2:4294967295", "R2:4294967295"),
        ("ring2", "30", "R2:30"),
        ("life", "B3/S23", "B3/S23"),
        ("life", "b36s23", "B36/S23"),
        ("life", "S32/B3", "B3/S23"),
        ("life", "23/3", "B3/S23"),
        ("life", "/2", "B2/S"),
        ("life", "B0/S8", "B0/S8"),
        ("life", "/", "B/S"),
        ("life", "224", "B3/S23"),
        ("life", "{224, {2, {{2,2,2},{2,1,2},{2,2,2}}}, {1,1}}", "B3/S23"),
    ],
)
def test_labels_are_read_as_golly_and_wolfram_write_them(family, text, label):
    family = families.get(family)
    assert family.label(family.parse(text)) == label
    assert family.read_rule(text) == family.read_rule(family.parse(text))


@pytest.mark.parametrize(
    ("family", "texts", "fix"),
    [
        ("ring2", ("R2:", "R2:4294967296", "R1:30", "{30,2,1}", "{30,3,2}", "R2:-1"), "R2:n"),
        ("ring2", ("B3/S23", "R2:²", "R2:0x10", "R2:" + "9" * 5000), "or {n,2,2}"),
        ("life", ("B9/S23", "B3", "S23", "B3/S23/3", "B2ce/S23", "B3/S23H"), "like B3/S23"),
        ("life", ("B3/S23:T5,5", "23/3/2", "W30", "Life", "262144", "9" * 5000), "or 23/3"),
    ],
)
def test_what_means_no_rule_of_the_family_is_refused_with_what_would(family, texts, fix):
    for text in texts:
        with pytest.raises(ValueError, match=fix) as error:
            families.get(family).parse(text)
        assert "\n" not in str(error.value)


def test_families_are_found_by_name():
    assert families.get("life") is families.LIFE
    with pytest.raises(ValueError, match="unknown family 'live': did you mean 'life'"):
        families.get("live")


def test_a_radius_2_rule_that_ignores_the_outer_cells_is_an_elementary_rule():
    ring2, ring = families.RING2, Space((37,))
    rules = np.arange(256)
    tape = spaces.pack(np.random.default_rng(0).integers(2, size=(256, 37)))
    np.testing.assert_array_equal(
        ring2.evolve(tape, embedded(rules), ring), evolve(tape, rules, 37)
    )


def board(*rows):
    """Rows of a board as a Python-integer tape."""
    cells = "".join(rows)
    return sum(1 << place for place, cell in enumerate(cells) if cell == "O")


def test_what_everybody_knows_of_conways_life():
    life = families.LIFE
    conway, square = life.parse("B3/S23"), Space((5, 5))
    lying = board(".....", ".....", ".OOO.", ".....", ".....")
    standing = board(".....", "..O..", "..O..", "..O..", ".....")
    assert life.evolve(lying, conway, square) == standing
    assert life.evolve(standing, conway, square) == lying
    block = board("O...O", ".....", ".....", ".....", "O...O")  # across all four edges
    assert life.evolve(block, conway, square) == block
    torus = Space((6, 8))
    glider = board(".O......", "..O.....", "OOO.....", *["........"] * 3)
    tape = glider
    for _ in range(4):
        tape = life.evolve(tape, conway, torus)
    assert tape == spaces.rotate(glider, 8 + 1, 48)
    for _ in range(4 * 23):  # 24 diagonal steps lead around both ways
        tape = life.evolve(tape, conway, torus)
    assert tape == glider
    assert life.evolve(0, life.parse("B0/S8"), torus) == (1 << 48) - 1
    assert life.evolve((1 << 48) - 1, life.parse("B0/S8"), torus) == (1 << 48) - 1
    assert life.evolve((1 << 48) - 1, life.parse("B0/S7"), torus) == 0
