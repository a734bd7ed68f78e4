import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slow_tape import step as slow_step
from slow_tape import update as slow_update
from tapebench.physics import space
from tapebench.physics.families import elementary

LENGTHS = (3, 4, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 100, 1024)


@st.composite
def tapes(draw, min_length=3, max_length=130):
    length = draw(st.integers(min_length, max_length))
    return np.array(draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)))


def random_bits(length, num=256, seed=0):
    return np.random.default_rng([seed, length]).integers(0, 2, (num, length))


@pytest.mark.parametrize("length", LENGTHS)
def test_all_rules_evolve_as_the_plain_loop_does(length):
    bits = random_bits(length)
    expected = [slow_update(list(map(int, row)), rule) for rule, row in enumerate(bits)]
    evolved = elementary.evolve(space.pack(bits), np.arange(256), length)
    assert evolved.dtype == np.uint32
    np.testing.assert_array_equal(space.unpack(evolved, length), expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_numpy_jax_and_python_ints_take_the_same_step(length):
    rng = np.random.default_rng(length)
    tape = space.pack(random_bits(length))
    cell, rule = rng.integers(0, length, 256), np.arange(256)
    by_numpy = elementary.step(tape, cell, rule, length)
    compiled = jax.jit(elementary.step, static_argnums=3)
    by_jax = compiled(jnp.asarray(tape), jnp.asarray(cell), jnp.asarray(rule), length)
    assert by_jax.dtype == jnp.uint32
    np.testing.assert_array_equal(by_numpy, by_jax)
    for row in range(0, 256, 15):
        as_int = space.to_int(tape[row])
        stepped = elementary.step(as_int, int(cell[row]), int(rule[row]), length)
        np.testing.assert_array_equal(space.to_words(stepped, length), by_numpy[row])


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("length", [length for length in LENGTHS if length > 32])
def test_words_in_separate_arrays_take_the_same_step(length, xp):
    rng = np.random.default_rng(length)
    rows = space.pack(random_bits(length))
    cell, rule = xp.asarray(rng.integers(0, length, 256)), xp.arange(256)
    words = space.split(xp.asarray(rows))
    assert len(words) == space.num_words(length)
    assert {word.shape for word in words} == {(256, 1)}
    np.testing.assert_array_equal(space.join(words), rows)
    np.testing.assert_array_equal(space.unpack(words, length), space.unpack(rows, length))
    stepped, expected = (elementary.step(tape, cell, rule, length) for tape in (words, rows))
    assert {word.dtype for word in stepped} == {np.dtype(np.uint32)}
    np.testing.assert_array_equal(space.join(stepped), expected)
    np.testing.assert_array_equal(space.hamming(stepped, words), space.hamming(expected, rows))
    beyond = space.trim(space.flip(words, xp.full(256, 32 * len(words) - 1)), length)
    assert (space.hamming(beyond, words) == (length % 32 == 0)).all()


@given(tapes(), st.integers(0, 255), st.data())
def test_step_equals_the_plain_loop(bits, rule, data):
    cell = data.draw(st.integers(0, len(bits) - 1))
    stepped = elementary.step(space.pack(bits), cell, rule, len(bits))
    expected = slow_step(bits.tolist(), cell, rule)
    assert space.unpack(stepped, len(bits)).tolist() == expected


@given(tapes())
def test_unpack_inverts_pack(bits):
    packed = space.pack(bits)
    assert packed.shape == (space.num_words(len(bits)),)
    assert space.unpack(packed, len(bits)).tolist() == bits.tolist()
    assert space.to_int(packed) == sum(int(bit) << cell for cell, bit in enumerate(bits))


@given(tapes(), st.integers(0, 255), st.integers(0, 129))
def test_evolving_commutes_with_rotation(bits, rule, shift):
    length = len(bits)

    def evolve(cells):
        return space.unpack(elementary.evolve(space.pack(cells), rule, length), length)

    np.testing.assert_array_equal(np.roll(evolve(bits), shift), evolve(np.roll(bits, shift)))


@given(tapes(), st.integers(0, 255))
def test_mirror_and_complement_are_conjugate_rules(bits, rule):
    length = len(bits)

    def evolve(cells, by):
        return space.unpack(elementary.evolve(space.pack(cells), by, length), length)

    np.testing.assert_array_equal(
        evolve(bits, rule)[::-1], evolve(bits[::-1], elementary.mirror(rule))
    )
    negative = evolve(1 - bits, elementary.complement(rule))
    np.testing.assert_array_equal(1 - evolve(bits, rule), negative)


@given(tapes(), st.integers(0, 255))
def test_bits_past_the_last_cell_stay_zero(bits, rule):
    evolved = elementary.evolve(space.pack(bits), rule, len(bits))
    assert not (evolved & ~space.full(len(bits))).any()


def test_golden_updates_of_all_rules():
    golden = json.loads((Path(__file__).parent / "golden" / "updates.json").read_text())
    start = np.array([int(cell) for cell in golden["start"]])
    for rule, after in golden["after"].items():
        evolved = elementary.evolve(space.pack(start), int(rule), len(start))
        assert "".join(map(str, space.unpack(evolved, len(start)))) == after, rule


@pytest.mark.parametrize("length", [15, 16, 32, 33])
def test_a_different_rule_and_cell_for_every_element_of_any_batch_shape(length):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (2, 3, 4, length))
    rule, cell = rng.integers(0, 256, (2, 3, 4)), rng.integers(0, length, (2, 3, 4))
    batched = elementary.step(space.pack(bits), cell, rule, length)
    for index in np.ndindex(2, 3, 4):
        alone = elementary.step(space.pack(bits[index]), cell[index], rule[index], length)
        np.testing.assert_array_equal(batched[index], alone)


@given(tapes(), st.data())
def test_distance_is_the_share_of_cells_that_differ(bits, data):
    other = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(bits), max_size=len(bits))))
    packed, goal = space.pack(bits), space.pack(other)
    differing = int((bits != other).sum())
    assert space.hamming(packed, goal) == differing
    assert space.distance(packed, goal, len(bits)) == np.float32(differing / len(bits))
    as_ints = space.to_int(packed), space.to_int(goal)
    assert space.distance(*as_ints, len(bits)) == differing / len(bits)


@pytest.mark.slow
def test_shares_are_rounded_alike_by_numpy_and_by_compiled_jax():
    # XLA rewrites division by one number into a product with its reciprocal, which would differ.
    compiled = jax.jit(jax.vmap(space.share, in_axes=(0, None)))
    part = np.arange(200)
    for whole in range(1, 200):
        by_jax = compiled(part, jnp.int32(whole))
        np.testing.assert_array_equal(by_jax, (part / whole).astype(np.float32))
        np.testing.assert_array_equal(space.share(part, whole), by_jax)


def test_identity_rule_204_keeps_the_tape_and_rule_0_clears_it():
    tape = space.pack(random_bits(45))
    np.testing.assert_array_equal(elementary.evolve(tape, 204, 45), tape)
    assert not elementary.evolve(tape, 0, 45).any()


def test_rules_that_are_always_bijective_on_the_ring():
    bijective = {
        length: {
            rule
            for rule in range(256)
            if len(np.unique(elementary.evolve(_all_tapes(length), rule, length))) == 2**length
        }
        for length in range(5, 13)
    }
    assert set.intersection(*bijective.values()) == {15, 51, 85, 170, 204, 240}
    for length, rules in bijective.items():
        assert ({150, 105} <= rules) == (length % 3 != 0)


@pytest.mark.parametrize("length", [8, 9, 10, 11])
def test_size_of_the_image_of_rule_90(length):
    image = np.unique(elementary.evolve(_all_tapes(length), 90, length))
    assert len(image) == 2 ** (length - (2 if length % 2 == 0 else 1))


def _all_tapes(length):
    return np.arange(2**length, dtype=np.uint32)[:, None]


@pytest.mark.parametrize("length", [2, 1025, 0, -5])
def test_lengths_out_of_range_are_refused(length):
    with pytest.raises(ValueError, match="from 3 to 1024"):
        space.check_length(length)


@pytest.mark.parametrize("rule", [-1, 256, 3.0, "30", None, True])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ValueError, match="integer from 0 to 255"):
        elementary.check_rule(rule)


def test_dynamics_are_compiled_once_for_all_rules():
    traces = 0

    @jax.jit
    def step(tape, cell, rule):
        nonlocal traces
        traces += 1
        return elementary.step(tape, cell, rule, 32)

    for rule in range(256):
        step(jnp.zeros((4, 1), jnp.uint32), jnp.zeros(4, jnp.int32), jnp.full(4, rule))
    assert traces == 1


@pytest.mark.parametrize("length", LENGTHS)
def test_a_tape_turned_is_its_cells_rolled(length):
    bits = random_bits(length, num=5)
    tape = space.pack(bits)
    for by in {0, 1, -1, 2, length - 1, length // 2, 1 - length, 33 % length, -40}:
        expected = space.pack(np.roll(bits, by, axis=-1))
        np.testing.assert_array_equal(space.rotate(tape, by, length), expected)
        words = space.rotate(space.split(jnp.asarray(tape)), by, length)
        np.testing.assert_array_equal(space.join(words), expected)
        for row, turned in zip(tape, expected, strict=True):
            assert space.rotate(space.to_int(row), by, length) == space.to_int(turned)
