from tapebench.physics import features
from tapebench.physics.families import elementary
from tapebench.tasks import splits
from tapebench.tasks.task import make_task
from tapebench.tasks.universe import ELEMENTARY


def test_all_elementary_rules_and_what_is_known_of_each():
    assert ELEMENTARY.rules == tuple(range(256))
    assert set(ELEMENTARY.features) == set(ELEMENTARY.rules)
    assert all(row.rule == rule for rule, row in ELEMENTARY.features.items())
    assert set(ELEMENTARY.ceilings(16, 16)) == set(ELEMENTARY.rules)
    for by_rule in ELEMENTARY.chances(16, 16).values():
        assert set(by_rule) == set(ELEMENTARY.rules)
    counts = ELEMENTARY.count_types(ELEMENTARY.rules)
    assert sum(counts.values()) == 256
    assert set(counts) == set(features.TYPES)


def test_twins_are_the_images_that_keep_the_goal():
    for rule in ELEMENTARY.rules:
        assert ELEMENTARY.twins(rule) == elementary.mirror_orbit(rule)
    assert len({ELEMENTARY.twins(rule) for rule in ELEMENTARY.rules}) == 160


def test_tasks_and_splits_say_where_their_rules_are_from():
    assert splits.load("fps30").universe is ELEMENTARY
    assert make_task().universe is ELEMENTARY
    assert make_task().family is elementary.ELEMENTARY
