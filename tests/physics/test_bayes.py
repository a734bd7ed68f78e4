"""Bayes-optimal play against expectimax written the plain way, and against what is known."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from slow_tape import update
from tapebench.exam import policy, rollout
from tapebench.physics import bayes, exact, memoryless
from tapebench.physics.families import elementary
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

ALL = bayes.parse_prior(range(256))


def cells_of(tape, length):
    return [(tape >> cell) & 1 for cell in range(length)]


def after(tape, cell, rule, length):
    flipped = cells_of(tape ^ (1 << cell), length)
    return sum(bit << place for place, bit in enumerate(update(flipped, rule)))


def expectimax(weights, length, horizon, goal=0):
    """The weight that is solved from each tape, by sets of rules instead of knowledge."""

    @cache
    def solved(tape, rules, left):
        if tape == goal:
            return sum(weights[rule] for rule in rules)
        if not left:
            return 0
        best = 0
        for cell in range(length):
            groups = {}
            for rule in rules:
                groups.setdefault(after(tape, cell, rule, length), []).append(rule)
            worth = sum(solved(to, tuple(who), left - 1) for to, who in groups.items())
            best = max(best, worth)
        return best

    return [solved(tape, tuple(weights), horizon) for tape in range(2**length)]


@pytest.mark.parametrize(
    ("length", "horizon", "goal"), [(3, 3, 0), (4, 3, 0), (5, 2, 0), (4, 2, 0b0110), (4, 2, 0b0001)]
)
def test_it_is_expectimax(length, horizon, goal):
    rng = np.random.default_rng(length)
    rules = rng.choice(256, 24, replace=False).tolist()
    weights = {rule: int(rng.integers(1, 9)) for rule in rules}
    found = bayes.solve(bayes.parse_prior(weights), length, horizon, goal)
    expected = expectimax(weights, length, horizon, goal)
    for tape in range(2**length):
        assert found.value[horizon][found.ring.number[tape], bayes.NOTHING] == expected[tape]
    away = sum(expected) - expected[goal]
    assert found.blind_ceiling == pytest.approx(away / sum(weights.values()) / (2**length - 1))


@pytest.mark.parametrize(
    ("length", "horizon", "blind"),
    [
        (8, 3, 0.360386),
        (8, 4, 0.514001),
        (8, 8, 0.572855),
        pytest.param(12, 12, 0.577845, marks=pytest.mark.slow),
    ],
)
def test_the_figures_that_were_computed_elsewhere(length, horizon, blind):
    found = bayes.solve(ALL, length, horizon)
    assert found.blind_ceiling == pytest.approx(blind, abs=5e-7)
    by_rule = bayes.success_by_rule(found, range(256))
    assert by_rule.mean() == pytest.approx(found.blind_ceiling, abs=1e-12)
    ceilings = bayes.ceilings(range(256), length, horizon)
    assert (by_rule <= ceilings + 1e-12).all()


def test_who_knows_the_rule_reaches_the_ceiling():
    length, horizon = 8, 4
    found = bayes.solve(ALL, length, horizon)
    for rule in (0, 30, 90, 110, 204):
        knowledge = bayes.knowledge_of(rule, 0xFF)
        steps = exact.steps_to_goal(rule, length, horizon)[found.ring.tapes]
        is_solved = steps != exact.UNREACHED
        np.testing.assert_array_equal(found.value[horizon][:, knowledge], is_solved)
        alone = bayes.solve(bayes.parse_prior([rule]), length, horizon)
        reach = exact.reach(rule, length, horizon).solvable_excluding_goal
        assert alone.blind_ceiling == pytest.approx(reach, abs=1e-12)
        assert bayes.success_by_rule(alone, [rule])[0] == pytest.approx(reach, abs=1e-12)


def test_knowledge_is_what_transitions_show():
    rng = np.random.default_rng(0)
    rules, length = rng.integers(256, size=200), 6
    knowledge = np.full(200, bayes.NOTHING)
    seen = np.zeros(200, int)
    tape = rng.integers(2**length, size=200).astype(np.uint32)
    for _ in range(4):
        cell = rng.integers(length, size=200)
        onward = np.array(
            [after(*one, length) for one in zip(tape.tolist(), cell, rules, strict=True)], np.uint32
        )
        for row in range(200):
            flipped = np.array(cells_of(int(tape[row]) ^ (1 << int(cell[row])), length))
            for code in 4 * np.roll(flipped, 1) + 2 * flipped + np.roll(flipped, -1):
                seen[row] |= 1 << int(code)
        knowledge = bayes.learn(knowledge, tape, cell, onward, length)
        np.testing.assert_array_equal(knowledge, bayes.knowledge_of(rules, seen))
        tape = onward
    masses = bayes.masses(ALL)
    assert masses[bayes.NOTHING] == 256
    for row in range(200):
        alike = [rule for rule in range(256) if not (rule ^ int(rules[row])) & int(seen[row])]
        assert masses[knowledge[row]] == len(alike)


def test_the_worth_of_moves_agrees_with_values_and_rotations():
    length, horizon = 6, 3
    found = bayes.solve(ALL, length, horizon)
    rng = np.random.default_rng(1)
    classes = rng.integers(len(found.ring.tapes), size=300)
    knowledge = rng.integers(bayes.STATES, size=300)
    for left in (1, 2, 3):
        worth = found.weights(classes, knowledge, left)
        is_away = classes != found.ring.home
        best = found.value[left][classes, knowledge]
        np.testing.assert_array_equal(worth.max(axis=1)[is_away], best[is_away])
    tapes = np.arange(1, 2**length, dtype=np.uint32)
    knowledge = np.full(len(tapes), bayes.knowledge_of(30, 0b1010))
    cells = found.optimal_cells(tapes, knowledge, 2)
    turned = (tapes << 1 | tapes >> (length - 1)) & np.uint32(2**length - 1)
    np.testing.assert_array_equal(
        np.roll(cells, 1, axis=1), found.optimal_cells(turned, knowledge, 2)
    )


def test_ties_are_between_the_worst_and_the_best_choice():
    split = splits.load("fps30")
    train = bayes.solve(bayes.parse_prior(split.train), 6, 3)
    worst, even, best = (
        bayes.success_by_rule(train, split.test, ties) for ties in ("worst", "uniform", "best")
    )
    assert (worst <= even + 1e-12).all()
    assert (even <= best + 1e-12).all()
    assert worst.mean() < even.mean() < best.mean()
    seen = bayes.success_by_rule(train, split.train)
    assert seen.mean() == pytest.approx(train.blind_ceiling, abs=1e-12)


def test_a_small_weight_breaks_ties_and_changes_nothing_else():
    split = splits.load("fps30")
    heavy = {rule: len(split.test) + 1 for rule in split.train}
    both = bayes.solve(bayes.parse_prior(heavy | dict.fromkeys(split.test, 1)), 6, 3)
    alone = bayes.solve(bayes.parse_prior(split.train), 6, 3)
    first, second = (bayes.success_by_rule(found, split.train).mean() for found in (both, alone))
    assert first == pytest.approx(second, abs=1e-12)
    held_out = [bayes.success_by_rule(found, split.test).mean() for found in (both, alone)]
    assert held_out[0] > held_out[1]


def test_mirror_images_are_as_hard():
    by_rule = bayes.success_by_rule(bayes.solve(ALL, 7, 3), range(256))
    mirrored = [elementary.mirror(rule) for rule in range(256)]
    np.testing.assert_allclose(by_rule, by_rule[mirrored], atol=1e-12)


@pytest.mark.parametrize("goal", [0, 0b011011])
def test_mirror_images_are_solved_once_and_nothing_changes(monkeypatch, goal):
    lopsided = bayes.parse_prior([30, 110, 90])
    even = bayes.parse_prior([30, 86, 110, 124, 90, 204])
    images = []
    improve = bayes._improve
    monkeypatch.setattr(
        bayes, "_improve", lambda *given: (images.append(len(given[-1])), improve(*given))
    )
    by_prior = {}
    for name, prior in (("even", even), ("lopsided", lopsided), ("all", ALL)):
        images.clear()
        bayes.solve(prior, 6, 3, goal)
        by_prior[name] = sum(images)
    classes = len(bayes.make_ring(6, goal).tapes)
    assert by_prior["lopsided"] == 3 * classes
    is_palindrome = goal == 0
    for name in ("even", "all"):
        assert (by_prior[name] < 3 * classes) == is_palindrome
    halved = bayes.solve(even, 7, 4).value
    monkeypatch.setattr(bayes, "_MIRRORED_RULES", np.zeros(256, int))
    for ours, whole in zip(halved, bayes.solve(even, 7, 4).value, strict=True):
        np.testing.assert_array_equal(ours, whole)


@pytest.mark.parametrize(
    ("length", "horizon", "least"), [(8, 3, 0.3275), (8, 4, 0.4190), (8, 8, 0.5660)]
)
def test_tape_and_time_alone_reach_what_was_found_elsewhere_and_more(length, horizon, least):
    played = memoryless.search(ALL, length, horizon, kicks=48)
    blind = bayes.solve(ALL, length, horizon).blind_ceiling
    assert least < played.value <= blind
    assert np.mean(list(played.by_rule.values())) == pytest.approx(played.value, abs=1e-12)


def test_kicks_never_make_a_memoryless_policy_worse():
    values = [memoryless.search(ALL, 6, 3, kicks=kicks).value for kicks in (0, 4, 16)]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_a_memoryless_policy_reaches_what_is_said_of_it():
    length, horizon, rules = 6, 4, (30, 90, 110, 204, 4)
    played = memoryless.search(bayes.parse_prior(rules), length, horizon, kicks=3)
    for rule in rules:
        solved = 0
        for start in range(1, 2**length):
            tape = start
            for time in range(horizon):
                tape = after(tape, int(played.cells[time, tape]), rule, length)
                if tape == 0:
                    solved += 1
                    break
        assert played.by_rule[rule] == pytest.approx(solved / (2**length - 1))


@pytest.mark.parametrize("name", ["bayes-optimal", "bayes-optimal-train", "memoryless"])
def test_ideal_players_reach_their_exact_value_through_the_evaluator(name):
    length, horizon = 6, 3
    task = make_task(length=length, horizon=horizon, rules="all")
    split = splits.load("fps30")
    played = rollout.rollout(policy.make(name, task, split), task, episodes=200, seed=1)
    success = played.success.mean(axis=1)
    if name == "memoryless":
        expected = np.array(list(memoryless.search(ALL, length, horizon).by_rule.values()))
    else:
        prior = ALL if name == "bayes-optimal" else bayes.parse_prior(split.train)
        expected = bayes.success_by_rule(bayes.solve(prior, length, horizon), range(256))
    # All rules start from the same tapes, so the error of the mean is that of 200 tapes.
    assert success.mean() == pytest.approx(expected.mean(), abs=4 * 0.5 / 200**0.5 / 2)
    assert np.abs(success - expected).max() < 5 * 0.5 / 200**0.5
    assert not policy.make(name, task, split).sees_rule


def test_what_cannot_be_computed_is_refused():
    for options in ({"noise": 0.1}, {"mask": [0]}, {"goal": "random"}):
        task = make_task(length=6, horizon=3, **options)
        with pytest.raises(ValueError, match="ideal play is computed"):
            policy.make("bayes-optimal", task)
    with pytest.raises(ValueError, match="reaches 16 cells, not 32"):
        policy.make("memoryless", make_task())
    for weights, message in [
        ({}, "prior is empty"),
        ({30: 0}, "prior is empty"),
        ({30: -1}, "weight of rule 30"),
        ({30: True}, "weight of rule 30"),
        ({300: 1}, "from 0 to 255"),
    ]:
        with pytest.raises(ValueError, match=message):
            bayes.parse_prior(weights)
    with pytest.raises(ValueError, match="unknown choice among ties"):
        bayes.success_by_rule(bayes.solve(ALL, 4, 1), [0], "any")
    with pytest.raises(ValueError, match="horizon must be"):
        bayes.solve(ALL, 4, 0)


THEORY = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("longest", "searched"),
    [(12, [(8, 3), (8, 4)]), pytest.param(16, None, marks=pytest.mark.nightly)],
)
def test_the_table_of_the_document_is_what_is_computed(longest, searched):
    """Rows of longer tapes, and other searches for memoryless play, take minutes."""
    found = re.findall(
        r"^\| (\d+), (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]*) ?\| [\d.]+ \|$",
        THEORY,
        re.M,
    )
    sizes = {(length, steps) for length in (8, 10, 12, 16) for steps in (3, 4, length)}
    assert {(int(length), int(horizon)) for length, horizon, *_ in found} == sizes
    for length, horizon, blind, ceiling, cost, least in found:
        size = int(length), int(horizon)
        if size[0] > longest:
            continue
        exact_blind = bayes.solve(ALL, *size).blind_ceiling
        exact_ceiling = bayes.ceilings(range(256), *size).mean()
        assert (blind, ceiling) == (f"{exact_blind:.6f}", f"{exact_ceiling:.6f}")
        assert cost == f"{exact_ceiling - exact_blind:.3f}"
        if least and (searched is None or size in searched):
            assert least == f"{memoryless.search(ALL, *size).value:.3f}"


def test_the_document_says_what_missing_support_costs():
    assert "reaches 0.238 of 0.427" in THEORY
    split = splits.load("fps30")
    heavy = {rule: len(split.test) + 1 for rule in split.train} | dict.fromkeys(split.test, 1)
    for prior, value in ((split.train, 0.238), (range(256), 0.427), (heavy, 0.423)):
        found = bayes.solve(bayes.parse_prior(prior), 8, 4)
        assert bayes.success_by_rule(found, split.test).mean() == pytest.approx(value, abs=5e-4)
