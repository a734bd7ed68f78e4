import math

import numpy as np
import pytest

from tapebench.base import seeding
from tapebench.physics import exact, exhaustive, space, starts
from tapebench.physics.families import elementary


@pytest.fixture(scope="module")
def search():
    exhaustive.set_threads(1)
    return exhaustive.Search(18)


def expected(rule, goal=0, horizon=18):
    steps = exact.steps_to_goal(rule, 18, horizon, goal)
    return np.where(steps == exact.UNREACHED, exhaustive.UNREACHED, steps)


@pytest.mark.parametrize("rule", [0, 30, 45, 60, 90, 110, 150, 204, 234, 255])
def test_it_finds_what_the_plain_search_finds(search, rule):
    counts = search.solve(rule, 18)
    assert counts == exact.reach(rule, 18, 18).histogram
    np.testing.assert_array_equal(search.steps, expected(rule))


@pytest.mark.slow
@pytest.mark.parametrize(("sparse", "late"), [(8, 0), (8, 1 << 14), (1 << 12, 1 << 18), (1, 0)])
@pytest.mark.parametrize("rule", [30, 110, 204, 234])
def test_every_way_to_make_a_layer_gives_the_same_layer(search, monkeypatch, rule, sparse, late):
    monkeypatch.setattr(exhaustive, "SPARSE", sparse)
    monkeypatch.setattr(exhaustive, "LATE", late)
    narrow = exhaustive.Search(18)
    for goal in (0, 0b1011):
        narrow.solve(rule, 18, goal)
        np.testing.assert_array_equal(narrow.steps, expected(rule, goal))


def test_a_short_horizon_cuts_the_search(search):
    assert search.solve(30, 3) == exact.reach(30, 18, 3).histogram
    np.testing.assert_array_equal(search.steps, expected(30, horizon=3))


def test_records_of_a_rule_and_its_mirror_image_hold_ways_that_work(search):
    tapes = [space.to_int(tape) for tape in starts.exam_tapes(18, 20)]
    records = exhaustive.solve_for_exam(search, 25, 18)
    assert [record["rule"] for record in records] == sorted({25, elementary.mirror(25)})
    for record in records:
        optimal = exact.steps_to_goal(record["rule"], 18, 18)
        for tape, steps, way in zip(
            tapes, record["exam_steps"], record["exam_witnesses"], strict=True
        ):
            if way is None:
                assert optimal[tape] == exact.UNREACHED
                continue
            assert steps == len(way) == optimal[tape]
            for cell in way:
                tape = elementary.step(tape, cell, record["rule"], 18)
            assert tape == 0


def test_lengths_it_cannot_take_are_refused():
    with pytest.raises(ValueError, match="takes 18 to 32 cells, not 17"):
        exhaustive.Search(17)
    with pytest.raises(ValueError, match="horizon must be below 255"):
        exhaustive.Search(18).solve(30, 255)


def test_every_shipped_witness_reaches_the_goal_in_the_steps_it_says():
    tapes = [space.to_int(tape) for tape in starts.exam_tapes(32, 20)]
    answers = exact.exam_answers()
    assert sorted(answers) == list(range(256))
    for rule, answer in answers.items():
        assert answer["exam_version"] == seeding.EXAM_VERSION
        assert sum(answer["histogram"]) <= 2**32
        for tape, steps, way in zip(
            tapes, answer["exam_steps"], answer["exam_witnesses"], strict=True
        ):
            if way is None:
                assert steps is None
                continue
            assert len(way) == steps < len(answer["histogram"])
            for cell in way:
                assert tape != 0
                tape = elementary.step(tape, cell, rule, 32)
            assert tape == 0


def test_shipped_counts_of_mirror_images_agree():
    answers = exact.exam_answers()
    for rule, answer in answers.items():
        assert answer["histogram"] == answers[elementary.mirror(rule)]["histogram"]


def test_rule_30_is_solvable_from_every_tape_of_32_cells_in_nine_steps():
    reach = exact.shipped_ceilings(32, 32)[30]
    assert reach.solvable == 1
    assert reach.max_steps == 9


def test_what_is_known_at_32_cells_agrees_with_what_is_known_otherwise():
    """The figures of an independent program, and what must hold for every length."""
    solved = exact.shipped_ceilings(32, 32)
    shares = [solved[rule].solvable for rule in range(256)]
    assert sum(share == 1 for share in shares) == 138
    assert sum(share * 2**32 < 210_000 for share in shares) == 112
    assert sum(share * 2**32 == 1 for share in shares) == 45
    assert sum(shares) / 256 < 0.5625
    assert sum(shares) / 256 == pytest.approx(0.549358, abs=1e-6)
    # Under the identity the steps are the ones on the tape.
    assert solved[204].histogram == tuple(math.comb(32, ones) for ones in range(33))
