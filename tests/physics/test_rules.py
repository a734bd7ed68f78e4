from importlib import resources

import pytest

from tapebench.physics import features
from tapebench.physics.families import elementary


def test_the_shipped_table_is_regenerated_byte_for_byte():
    shipped = resources.files("tapebench").joinpath("data/rules.json").read_text()
    assert features.dump_table(features.make_table()) == shipped


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (0, "stable"),
        (4, "periodic"),
        (90, "periodic"),
        (108, "periodic"),
        (204, "periodic"),
        (30, "chaotic"),
        (110, "chaotic"),
    ],
)
def test_types_that_the_paper_names(rule, kind):
    assert features.feature_table()[rule].type == kind


def test_mirror_images_have_the_same_type():
    table = features.feature_table()
    assert all(row.type == table[row.mirror].type for row in table)


def test_numbers_of_orbits():
    assert len({elementary.mirror_orbit(rule) for rule in range(256)}) == 160
    assert len({elementary.orbit(rule) for rule in range(256)}) == 88


def test_mirror_and_complement_are_involutions_that_commute():
    for rule in range(256):
        assert elementary.mirror(elementary.mirror(rule)) == rule
        assert elementary.complement(elementary.complement(rule)) == rule
        assert elementary.mirror(elementary.complement(rule)) == elementary.complement(
            elementary.mirror(rule)
        )


def test_known_symmetric_partners():
    assert elementary.mirror(30) == 86
    assert elementary.complement(30) == 135
    assert elementary.orbit(110) == (110, 124, 137, 193)


def test_wolfram_classes_are_shared_by_orbits_and_number_as_in_the_source():
    representatives = {elementary.orbit(rule)[0] for rule in range(256)}
    counts = [sum(elementary.wolfram_class(r) == c for r in representatives) for c in (1, 2, 3, 4)]
    assert counts == [8, 65, 11, 4]
    for rule in range(256):
        assert len({elementary.wolfram_class(member) for member in elementary.orbit(rule)}) == 1
    assert [elementary.wolfram_class(rule) for rule in (0, 204, 30, 110)] == [1, 2, 3, 4]


def test_thresholds_are_the_papers():
    unit = features.FEATURE_UNIT
    assert features.classify(entropy=int(0.2 * unit), activity=int(0.05 * unit)) == "stable"
    assert features.classify(entropy=int(0.25 * unit), activity=int(0.05 * unit)) == "periodic"
    assert features.classify(entropy=int(0.2 * unit), activity=int(0.06 * unit)) == "periodic"
    assert features.classify(entropy=int(0.56 * unit), activity=int(0.23 * unit)) == "chaotic"
    assert features.classify(entropy=int(0.55 * unit), activity=int(0.23 * unit)) == "periodic"
    assert features.classify(entropy=int(0.56 * unit), activity=int(0.22 * unit)) == "periodic"


def test_features_of_rules_whose_features_are_known():
    table, unit = features.feature_table(), features.FEATURE_UNIT
    assert table[204].activity == 0
    assert table[51].activity == unit
    assert (table[0].density, table[0].entropy) == (0, 0)
    assert (table[255].density, table[255].entropy) == (unit, 0)
