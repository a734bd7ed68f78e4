from functools import cache
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radius2 import embedded
from tapebench.exam import policy as policies
from tapebench.exam import rollout
from tapebench.physics import exact, families
from tapebench.physics.families import elementary
from tapebench.physics.space import Space
from tapebench.tasks.task import make_task


def slow_steps(rule, space, horizon, goal, family=elementary.ELEMENTARY):
    """Optimal steps by value iteration over a dict of all tapes."""
    steps, tapes = {goal: 0}, range(2**space.size)
    after = [{family.step(tape, c, rule, space) for c in range(space.size)} for tape in tapes]
    for number in range(1, horizon + 1):
        layer = {tape for tape in tapes if tape not in steps and not after[tape].isdisjoint(steps)}
        steps |= dict.fromkeys(layer, number)
    return steps


@given(st.integers(3, 7), st.integers(0, 255), st.integers(0, 12), st.data())
def test_backward_search_equals_value_iteration(length, rule, horizon, data):
    goal = data.draw(st.integers(0, 2**length - 1))
    expected = slow_steps(rule, Space((length,)), horizon, goal)
    steps = exact.steps_to_goal(rule, length, horizon, goal)
    for tape in range(2**length):
        assert steps[tape] == expected.get(tape, exact.UNREACHED)


def test_ceilings_at_length_16():
    solved = exact.shipped_ceilings(16, 16)
    shares = np.array([solved[rule].solvable for rule in range(256)])
    assert (shares == 1).sum() == 138
    assert sum(reach.histogram == (1,) for reach in solved.values()) == 45
    assert round(shares.mean(), 4) == 0.5533
    assert all(solved[rule].solvable == 1 for rule in (0, 4, 108, 204, 30, 110))
    assert solved[30].max_steps == solved[110].max_steps == 6


@pytest.mark.slow
@pytest.mark.parametrize("length", [16, pytest.param(20, marks=pytest.mark.nightly)])
def test_shipped_ceilings_are_regenerated_byte_for_byte(length):
    name = f"data/exact/L{length}-H{length}.json"
    shipped = resources.files("tapebench").joinpath(name).read_text()
    solved = exact.reach_all(range(256), length, length)
    assert exact.dump_ceilings(solved, length, length) == shipped


@pytest.mark.slow
@pytest.mark.parametrize("rule", [30, 60, 150, 204, 25])
def test_a_sample_of_the_shipped_ceilings_at_length_24(rule):
    assert exact.reach(rule, 24, 24) == exact.shipped_ceilings(24, 24)[rule]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["random", "flip-ones"])
def test_a_sample_of_the_shipped_chances(policy):
    shipped = exact.shipped_chances(16, 16)[policy]
    for rule in (0, 4, 25, 30, 60, 110, 150, 204, 234):
        assert round(exact.chance_of_success(rule, 16, 16, policy), 9) == shipped[rule]


@pytest.mark.nightly
def test_shipped_chances_are_regenerated_byte_for_byte():
    shipped = resources.files("tapebench").joinpath("data/exact/chances-L16-H16.json").read_text()
    assert exact.dump_chances(exact.chances(16, 16), 16, 16) == shipped


@pytest.mark.parametrize("rule", [0, 4, 30, 90, 234])
def test_chances_of_policies_that_learn_nothing_by_an_independent_recursion(rule):
    length, horizon = 5, 4

    @cache
    def chance(tape, left, policy):
        if tape == 0 or left == 0:
            return float(tape == 0)
        cells = [c for c in range(length) if policy == "random" or (tape >> c) & 1]
        after = [chance(elementary.step(tape, c, rule, length), left - 1, policy) for c in cells]
        return sum(after) / len(after)

    for policy in ("random", "flip-ones"):
        expected = sum(chance(tape, horizon, policy) for tape in range(1, 32)) / 31
        computed = exact.chance_of_success(rule, length, horizon, policy)
        assert computed == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_the_evaluator_agrees_with_exact_chances():
    task = make_task(length=16, horizon=16, rules="all")
    for name, by_rule in exact.shipped_chances(16, 16).items():
        success = rollout.rollout(policies.make(name, task), task, episodes=300).success
        expected = np.array([by_rule[rule] for rule in range(256)])
        error = np.sqrt(expected * (1 - expected) / 300)
        assert (np.abs(success.mean(axis=1) - expected) <= 4.5 * error + 1e-6).all()


def test_under_the_identity_the_optimal_steps_are_the_ones():
    steps = exact.steps_to_goal(204, 12, 12)
    assert steps.tolist() == [tape.bit_count() for tape in range(2**12)]


def test_mirror_images_have_equal_counts():
    for rule in (2, 30, 110, 25):
        assert (
            exact.reach(rule, 11, 11).histogram
            == exact.reach(elementary.mirror(rule), 11, 11).histogram
        )


def test_an_asymmetric_goal_is_solved_rule_by_rule():
    goal = 0b000001011
    together = exact.reach_all((30, 86), 9, 9, goal)
    assert together[30] == exact.reach(30, 9, 9, goal)
    assert together[86] == exact.reach(86, 9, 9, goal)


def test_best_cells_lead_to_the_goal_in_the_optimal_number_of_steps():
    for rule in (30, 90, 110, 60):
        steps = exact.steps_to_goal(rule, 9, 9)
        for tape in range(1, 2**9, 7):
            now, taken = tape, 0
            if steps[tape] == exact.UNREACHED:
                continue
            while now != 0:
                cell = exact.best_cell(now, rule, 9, steps)
                now, taken = elementary.step(now, cell, rule, 9), taken + 1
            assert taken == steps[tape]


def test_best_cell_is_none_where_there_is_no_way():
    steps = exact.steps_to_goal(255, 8, 8)
    assert exact.best_cell(5, 255, 8, steps) is None


def test_counts_and_their_summaries():
    reach = exact.Reach(rule=0, length=3, histogram=(1, 4, 1))
    assert reach.solvable == 6 / 8
    assert reach.solvable_excluding_goal == 5 / 7
    assert reach.max_steps == 2
    assert reach.mean_steps == 1.0


def test_what_the_search_cannot_take_is_refused():
    with pytest.raises(ValueError, match="up to length 24, not 25"):
        exact.steps_to_goal(30, 25, 5)
    with pytest.raises(ValueError, match="up to length 24, not 1000"):
        exact.steps_to_goal(30, 1000, 5)
    with pytest.raises(ValueError, match="goal must be a tape of 5 cells"):
        exact.steps_to_goal(30, 5, 5, goal=32)


def plain_success_under_noise(rule, length, horizon, noise):
    """Value iteration over every outcome of the noise, written out."""
    tapes = range(2**length)
    chance = [float(tape == 0) for tape in tapes]
    for _ in range(horizon):

        def worth(tape, chance=chance):
            total = 0.0
            for flips in tapes:
                count = flips.bit_count()
                total += noise**count * (1 - noise) ** (length - count) * chance[tape ^ flips]
            return total

        reached = [
            max(worth(elementary.step(tape, cell, rule, length)) for cell in range(length))
            for tape in tapes
        ]
        chance = [1.0, *reached[1:]]
    return sum(chance[1:]) / (2**length - 1)


@pytest.mark.parametrize("rule", [0, 30, 90, 110, 150, 204])
def test_the_best_chance_under_noise_is_that_of_the_plain_way(rule):
    success = exact.success_under_noise(rule, 4, 3, 0.07)
    assert success == pytest.approx(plain_success_under_noise(rule, 4, 3, 0.07), abs=1e-12)


def test_without_noise_the_best_chance_is_the_ceiling():
    for rule in (0, 30, 45, 90, 110, 204):
        expected = exact.reach(rule, 9, 5).solvable_excluding_goal
        assert exact.success_under_noise(rule, 9, 5, 0.0) == pytest.approx(expected, abs=1e-12)


def test_under_noise_mirror_images_are_as_hard_and_blind_chance_is_a_coin_per_cell():
    ceilings = exact.noisy_ceilings([30, 86, 110, 124], 8, 4, 0.02)
    assert ceilings[30] == exact.success_under_noise(30, 8, 4, 0.02)
    assert ceilings[86] == pytest.approx(exact.success_under_noise(86, 8, 4, 0.02), abs=1e-12)
    # With noise of a half every update leads anywhere: four tries at one tape of 256.
    chance = exact.success_under_noise(30, 8, 4, 0.5)
    assert chance == pytest.approx(1 - (1 - 2**-8) ** 4, abs=1e-12)


@pytest.mark.parametrize(
    ("family", "shape", "labels"),
    [
        ("ring2", (5,), ["R2:2283010756", "R2:3000000001"]),
        ("ring2", (9,), ["R2:2283010756", "R2:1771476585"]),
        ("life", (3, 3), ["B3/S23", "B1357/S1357", "B0/S8"]),
    ],
)
def test_every_family_is_searched_as_by_value_iteration(family, shape, labels):
    family, space = families.get(family), Space(shape)
    drawn = np.random.default_rng(space.size).integers(family.num_rules, size=3)
    for rule in [*map(family.parse, labels), *drawn.tolist()]:
        for goal in (0, 0b10011):
            expected = slow_steps(rule, space, 6, goal, family)
            steps = exact.steps_to_goal(rule, space, 6, goal, family)
            tapes = range(2**space.size)
            assert steps.tolist() == [expected.get(tape, exact.UNREACHED) for tape in tapes]
            counts = np.bincount(steps[steps != exact.UNREACHED])
            assert exact.reach(rule, space, 6, goal, family).histogram == tuple(counts)


@pytest.mark.slow
def test_radius_2_rules_that_ignore_the_outer_cells_have_the_ceilings_of_elementary_ones():
    rules = range(0, 256, 5)
    shipped = exact.shipped_ceilings(16, 16)
    solved = exact.reach_all(map(embedded, rules), 16, 16, family=families.RING2)
    for rule in rules:
        assert solved[embedded(rule)].histogram == shipped[rule].histogram
    ceilings = exact.noisy_ceilings(
        map(embedded, (30, 86, 110)), 8, 4, 0.02, 0b1011, family=families.RING2
    )
    for rule in (30, 86, 110):
        assert ceilings[embedded(rule)] == exact.success_under_noise(rule, 8, 4, 0.02, 0b1011)


def test_ceilings_of_named_rules_of_life_on_4_by_4():
    labels = ("B3/S23", "B36/S23", "B2/S", "B3678/S34678", "B1357/S1357")
    life, space = families.LIFE, Space((4, 4))
    solved = exact.reach_all(map(life.parse, labels), space, 16, family=life)
    reach = {label: solved[life.parse(label)] for label in labels}
    assert [reach[label].solvable for label in labels[:3]] == [1, 1, 1]
    assert reach["B3/S23"].max_steps == 3
    assert round(reach["B3678/S34678"].solvable, 6) == 0.999252
    assert round(reach["B1357/S1357"].solvable_excluding_goal, 6) == 0.062501


def test_images_under_symmetries_share_counts_only_where_the_goal_is_symmetric_too():
    ring2 = families.RING2
    rule = ring2.parse("R2:2283010756")
    twin = ring2.symmetries[0].on_rule(rule)
    assert twin != rule
    for goal in (0, 0b1011):
        together = exact.reach_all((rule, twin), 9, 9, goal, family=ring2)
        for member in (rule, twin):
            assert together[member] == exact.reach(member, 9, 9, goal, ring2)


def test_best_cells_on_a_torus_lead_to_the_goal_in_the_optimal_number_of_steps():
    life, space = families.LIFE, Space((3, 4))
    rule = life.parse("B3/S23")
    steps = exact.steps_to_goal(rule, space, 12, family=life)
    for tape in range(1, 2**12, 97):
        now, taken = tape, 0
        while now != 0:
            cell = exact.best_cell(now, rule, space, steps, life)
            now, taken = life.step(now, cell, rule, space), taken + 1
        assert taken == steps[tape]


@pytest.mark.slow
def test_5_by_5_is_searched_and_more_is_refused():
    life = families.LIFE
    reach = exact.reach(life.parse("B3/S23"), Space((5, 5)), 25, family=life)
    assert reach.histogram == (1, 5045631, 21864275, 6644525)
    with pytest.raises(ValueError, match="up to 25 cells, not 30: choose a smaller torus"):
        exact.reach_all([224], Space((5, 6)), 5, family=life)
    with pytest.raises(ValueError, match="up to length 25, not 26: choose a shorter tape"):
        exact.reach_all([224], 26, 5, family=families.RING2)
    with pytest.raises(ValueError, match="they need a torus"):
        exact.reach(224, 16, 5, family=life)
