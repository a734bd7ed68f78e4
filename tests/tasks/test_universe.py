from collections import Counter

import pytest

from tapebench.physics import exact, features, pools
from tapebench.physics.families import elementary
from tapebench.tasks import splits, universe
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


DRAWN = [universe.drawn(family, steps) for family in pools.SPACES for steps in universe.HORIZONS]
of_drawn = pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: drawn.name)


@of_drawn
def test_drawn_rules_are_solved_from_every_tape_and_are_different_tasks(drawn):
    assert len(drawn.rules) == universe.NUM_DRAWN
    assert list(drawn.rules) == sorted(drawn.rules)
    assert universe.get(drawn.name) is drawn
    assert max(reach.max_steps for reach in drawn.counts.values()) <= drawn.horizon
    ceilings = drawn.ceilings(drawn.space.size, drawn.horizon)
    assert {reach.solvable for reach in ceilings.values()} == {1}
    assert len({drawn.twins(rule) for rule in drawn.rules}) == len(drawn.rules)
    assert set(drawn.tables) == set(drawn.rules)
    # Shifted by a cell a rule of five cells that reads four is another of them, and the same game.
    if drawn.family.name == "ring2":
        games = {min(map(min, map(drawn.twins, shifted(rule)))) for rule in drawn.rules}
        assert len(games) == len(drawn.rules)


def shifted(rule):
    """A rule of five cells on a ring, and those that read the same cells one place further."""
    rules, waiting = {rule}, [rule]
    while waiting:
        table = [(waiting[-1] >> entry) & 1 for entry in range(32)]
        waiting.pop()
        images = []
        if all(table[entry] == table[entry ^ 1] for entry in range(32)):
            images.append(sum(table[(entry & 15) << 1] << entry for entry in range(32)))
        if all(table[entry] == table[entry ^ 16] for entry in range(32)):
            images.append(sum(table[entry >> 1] << entry for entry in range(32)))
        waiting += set(images) - rules
        rules |= set(images)
    return rules


@of_drawn
def test_every_number_of_ones_gives_as_many_rules_as_the_others_or_all_that_it_has(drawn):
    taken = Counter(rule.bit_count() for rule in drawn.rules)
    had = {
        o: len(rules) for o, rules in pools.load(drawn.family.name).within(drawn.horizon).items()
    }
    most = max(taken.values())
    assert all(most - 1 <= taken[ones] or taken[ones] == had[ones] for ones in had)


def test_a_shorter_horizon_cuts_the_counts_of_drawn_rules():
    drawn = universe.get("ring2-H8")
    rule = max(drawn.rules, key=lambda rule: drawn.counts[rule].max_steps)
    assert drawn.ceilings(16, 3)[rule] == exact.reach(rule, 16, 3, family=drawn.family)
    assert drawn.ceilings(16, 8)[rule] == exact.reach(rule, 16, 8, family=drawn.family)


def test_what_is_not_known_of_rules_is_said():
    drawn = universe.get("life-H8")
    for unknown in (lambda: drawn.features, lambda: drawn.ceilings(16, 8)):
        with pytest.raises(ValueError, match="nothing has been published of life rules"):
            unknown()
    with pytest.raises(ValueError, match="not drawn for any one size"):
        _ = ELEMENTARY.counts
    with pytest.raises(ValueError, match="no universe of ring2 rules for 2 steps: only 265"):
        universe.drawn("ring2", 2)
    with pytest.raises(ValueError, match="unknown universe 'ring2-h8': did you mean 'ring2-H8'"):
        universe.get("ring2-h8")
