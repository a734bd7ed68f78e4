import re
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapebench.base import seeding
from tapebench.exam.policy import flip_a_one
from tapebench.physics import exact, space, starts, strata
from tapebench.physics.families import elementary
from tapebench.tasks import splits

EVERY = range(256)


@given(st.integers(1, 2**32 - 1), st.data())
def test_a_set_bit_is_found_by_how_many_lie_below(word, data):
    places = [place for place in range(32) if word >> place & 1]
    number = data.draw(st.integers(0, len(places) - 1))
    positions = strata.select_one(np.array([word], np.uint32), np.array([number], np.uint32))
    assert positions.tolist() == [places[number]]


def test_a_part_of_the_shipped_sample_is_drawn_again_to_the_last_tape():
    shipped = strata.shipped_sample()
    some = [7, 30, 166]
    assert strata.sample_flip_ones(some).counts == {rule: shipped.counts[rule] for rule in some}
    name = "data/exact/flip-ones-L32-H64.json"
    text = resources.files("tapebench").joinpath(name).read_text()
    assert strata.dump_sample(shipped) == text


@pytest.mark.slow
def test_the_shipped_sample_is_regenerated_byte_for_byte():
    name = "data/exact/flip-ones-L32-H64.json"
    text = resources.files("tapebench").joinpath(name).read_text()
    assert strata.dump_sample(strata.sample_flip_ones(EVERY)) == text


def test_where_nothing_moves_flipping_ones_takes_as_many_steps_as_there_are_ones():
    ones = np.bitwise_count(starts.exam_tapes(32, strata.SAMPLE_TAPES, salt=strata.SAMPLE)[:, 0])
    assert strata.shipped_sample().counts[204] == tuple(np.bincount(ones).tolist())
    assert strata.shipped_sample().counts[0] == (0, strata.SAMPLE_TAPES)


@pytest.mark.parametrize("rule", [5, 7, 23, 166])
def test_the_sample_says_what_the_policy_of_the_evaluator_reaches(rule):
    """These are the rules nearest to the threshold; the tapes and draws here are others."""
    tapes = 2000
    tape = starts.exam_tapes(32, tapes, salt="other")
    stream = seeding.policy_streams(0, "other", np.full(tapes, rule), np.arange(tapes))
    is_solved = np.zeros(tapes, bool)
    for _ in range(32):
        cell = flip_a_one(space.unpack(tape, 32), stream).astype(np.uint32)
        tape = elementary.step(tape, cell, np.array([rule]), 32)
        is_solved |= tape[:, 0] == 0
        stream = seeding.advance(stream)
    error = (0.25 / tapes + 0.25 / strata.SAMPLE_TAPES) ** 0.5
    assert abs(is_solved.mean() - strata.shipped_sample().success(rule, 32)) < 4 * error


def test_strata_at_32_cells():
    measured = strata.measure(EVERY, 32, 32)
    kinds = strata.strata(EVERY, 32, 32)
    counts = Counter(kinds.values())
    assert counts == {"impossible": 114, "beyond-reflex": 71, "reflex": 71}
    assert all(kinds[rule] == kinds[elementary.mirror(rule)] for rule in EVERY)
    held_out = {name: splits.load(name).test for name in ("fps30", "matched30")}
    beyond = {name: sum(kinds[r] == "beyond-reflex" for r in held_out[name]) for name in held_out}
    assert beyond == {"fps30": 5, "matched30": 8}
    assert not any(measure.is_close for measure in measured.values())


def test_the_table_of_the_document_counts_strata():
    document = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    rows = re.findall(
        r"^\| (\d+), (\d+) \| (\d+) \| (\d+) \| (\d+) \| (exact|a mean)", document, re.M
    )
    assert len(rows) == 4
    for length, horizon, *counts, kind in rows:
        measured = strata.measure(EVERY, int(length), int(horizon))
        tally = Counter(measure.stratum for measure in measured.values())
        names = ("impossible", "reflex", "beyond-reflex")
        assert [int(count) for count in counts] == [tally[name] for name in names]
        assert (kind == "exact") == all(measure.tapes is None for measure in measured.values())
    assert "f = 0.463" in document
    measured = strata.measure(EVERY, 32, 32)
    assert [round(measured[rule].flip_ones, 3) for rule in (23, 3, 17)] == [0.463, 0.538, 0.538]


def test_twenty_tapes_are_too_few_for_three_rules():
    """ADR 20: by what flipping ones reaches on the exam's own tapes they are beyond-reflex."""
    on_exam = splits.difficulties()["flip-ones L32"]
    measured = strata.measure(EVERY, 32, 32)
    kinds = [strata.stratum(measured[rule].ceiling, on_exam[rule]) for rule in EVERY]
    assert Counter(kinds) == {"impossible": 114, "beyond-reflex": 74, "reflex": 68}
    moved = [rule for rule in EVERY if kinds[rule] != measured[rule].stratum]
    assert moved == [5, 7, 21]
    for rule in moved:
        assert measured[rule].flip_ones - 0.5 > 7 * measured[rule].error


def test_a_sample_names_the_rules_that_it_does_not_settle():
    assert strata.Measure(1.0, 0.491, 10_000).is_close
    assert strata.Measure(1.0, 0.509, 10_000).is_close
    assert not strata.Measure(1.0, 0.52, 10_000).is_close
    assert strata.Measure(0.5, 0.25, 10_000).is_close
    assert not strata.Measure(0.01, 0.005, 10_000).is_close  # impossible, whatever it reaches
    assert not strata.Measure(1.0, 0.5).is_close  # exact


def test_longer_episodes_at_32_cells_have_strata_too():
    measured = strata.measure(EVERY, 32, 64)
    assert Counter(measure.stratum for measure in measured.values())["impossible"] == 114
    # Of two rules the search did not end: whatever their ceiling, they are beyond-reflex.
    unknown = [rule for rule in EVERY if rule not in exact.shipped_ceilings(32, 64)]
    assert unknown == [234, 248]
    for rule in unknown:
        assert measured[rule].stratum == strata.stratum(1.0, measured[rule].flip_ones)


@pytest.mark.parametrize("size", [(24, 24), (32, 65), (64, 64)])
def test_other_sizes_are_refused_in_a_sentence(size):
    with pytest.raises(ValueError, match="strata are known up to 16 cells"):
        strata.strata(EVERY, *size)


def test_strata_at_16_cells_are_from_what_is_shipped_and_exact():
    measures = strata.measure([5, 30, 110], 16, 16)
    for rule, measured in measures.items():
        chance = exact.chance_of_success(rule, 16, 16, "flip-ones")
        assert measured.flip_ones == pytest.approx(chance, abs=1e-9)
        assert measured.error == 0
