import jax
import numpy as np
import pytest
from scipy import stats

from tapebench.base import seeding
from tapebench.physics import space, starts


def streams(num, seed=0):
    identity, counter = np.random.default_rng(seed).integers(0, 2**32, (2, num), dtype=np.uint32)
    return seeding.Stream(identity, counter)


def test_the_hash_never_changes():
    # Exam tapes, features and splits all rest on these numbers.
    ends = np.array([0, 1, 2**32 - 1], np.uint32)
    assert seeding.mix(ends).tolist() == [0, 1753845952, 1734902346]
    words = np.arange(3, dtype=np.uint32)
    assert seeding.hash32(1, 2, words).tolist() == [2039234664, 164315819, 3013936574]
    drawn = seeding.draw(seeding.Stream(words, words), words[1:2])
    assert drawn[:, 0].tolist() == [3605303512, 565761213, 2916839474]


def test_the_standard_exam_never_changes():
    first = [f"{tape:08x}" for tape in starts.exam_tapes(32, 4)[:, 0]]
    assert first == ["2e0a7102", "59c51185", "596b4ad0", "6d8a47be"]


def test_mix_is_a_bijection():
    some = np.random.default_rng(0).integers(0, 2**32, 2**20, dtype=np.uint32)
    assert len(np.unique(seeding.mix(some))) == len(np.unique(some))


def test_every_input_bit_moves_every_output_bit():
    words = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    for bit in range(32):
        changed = seeding.mix(words) ^ seeding.mix(words ^ np.uint32(1 << bit))
        share = ((changed[:, None] >> np.arange(32, dtype=np.uint32)) & 1).mean(axis=0)
        assert (np.abs(share - 0.5) < 0.03).all(), bit


def test_draws_are_the_same_in_numpy_and_jax():
    stream, lanes = streams(64), np.arange(5, dtype=np.uint32)
    by_jax = jax.jit(lambda a, b: seeding.draw(seeding.Stream(a, b), lanes))(*stream)
    np.testing.assert_array_equal(seeding.draw(stream, lanes), by_jax)


def test_draws_are_uniform_over_rules_and_over_consecutive_episodes():
    stream = seeding.Stream(np.full(226_000, 7, np.uint32), np.arange(226_000, dtype=np.uint32))
    drawn = seeding.below(np.uint32(226), seeding.draw(stream, np.array([seeding.RULE])))[:, 0]
    assert drawn.max() == 225
    assert stats.chisquare(np.bincount(drawn, minlength=226)).pvalue > 1e-3


def test_bits_of_drawn_tapes_are_fair_and_uncorrelated():
    words = seeding.draw(streams(100_000), np.array([seeding.TAPE]))
    bits = space.unpack(words, 32).astype(float)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.01
    correlation = np.corrcoef(bits.T) - np.eye(32)
    assert np.abs(correlation).max() < 0.02


def test_a_start_tape_says_nothing_about_its_rule():
    drawn = seeding.draw(streams(200_000), np.array([seeding.RULE, seeding.TAPE]))
    rule = seeding.below(np.uint32(16), drawn[:, 0])
    for bit in range(32):
        table = np.histogram2d(rule, (drawn[:, 1] >> np.uint32(bit)) & 1, bins=(16, 2))[0]
        assert stats.chi2_contingency(table).pvalue > 1e-5


def test_equal_tapes_of_different_streams_come_with_different_rules():
    # Were the identity mixed in first, a word would determine everything drawn beside it.
    drawn = seeding.draw(streams(400_000), np.array([seeding.RULE, seeding.TAPE]))
    rules_of = {}
    for rule, tape in zip(drawn[:, 0] >> 24, drawn[:, 1], strict=True):
        rules_of.setdefault(int(tape), []).append(int(rule))
    repeated = [rules for rules in rules_of.values() if len(rules) > 1]
    assert len(repeated) > 5
    assert sum(len(set(rules)) > 1 for rules in repeated) >= len(repeated) - 2


@pytest.mark.parametrize("length", [3, 4, 8])
def test_nonzero_words_are_uniform_over_all_tapes_but_zero(length):
    words = starts.nonzero_words(seeding.draw(streams(200_000), np.array([0], np.uint32)), length)
    counts = np.bincount(words[:, 0], minlength=2**length)
    assert counts[0] == 0
    assert len(counts) == 2**length
    assert stats.chisquare(counts[1:]).pvalue > 1e-3


@pytest.mark.parametrize(("length", "words"), [(32, 1), (33, 2), (64, 2), (100, 4)])
def test_nonzero_words_are_never_zero(length, words):
    zero = np.zeros((1, words), np.uint32)
    assert starts.nonzero_words(zero, length).any()
    full = np.full((1, words), 2**32 - 1, np.uint32)
    np.testing.assert_array_equal(starts.nonzero_words(full, length)[0], space.full(length))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_bernoulli_words_have_the_probability_asked_for(probability):
    words = starts.bernoulli_words(streams(4000), np.uint32(0), probability, 40)
    share = space.unpack(words, 40).mean()
    error = 4 * np.sqrt(probability * (1 - probability) / (4000 * 40))
    assert abs(share - probability) <= error


def test_exam_tapes_differ_by_episode_length_and_salt_only():
    assert len(np.unique(starts.exam_tapes(32, 1000))) == 1000
    np.testing.assert_array_equal(starts.exam_tapes(32, 5), starts.exam_tapes(32, 50)[:5])
    assert (starts.exam_tapes(32, 5) != starts.exam_tapes(32, 5, salt="fresh")).all()
    salted = [starts.exam_tapes(32, 20, salt=salt) for salt in ("plumless", "buckeroo")]
    assert (salted[0] != salted[1]).all()
    assert (starts.exam_tapes(31, 5) != starts.exam_tapes(32, 5) & space.full(31)).any()


def test_exam_tapes_never_equal_their_goal():
    assert starts.exam_tapes(3, 5000).all()
    goals = np.full((5000, 1), 5, np.uint32)
    assert (starts.exam_tapes(3, 5000, goals=goals) != 5).all()


def test_named_keys_depend_on_seed_and_name_alone():
    def data(*names):
        return tuple(jax.random.key_data(seeding.key(*names)).tolist())

    assert data(0, "dqn") == data(0, "dqn")
    distinct = {data(seed, name, i) for seed in range(20) for name in ("a", "b") for i in range(3)}
    assert len(distinct) == 120


def test_no_episode_has_the_lanes_of_another_shifted():
    lanes = np.arange(2**20, dtype=np.uint32)
    identity = np.full(1, 7, np.uint32)
    first, later = (
        seeding.draw(seeding.Stream(identity, np.array([n], np.uint32)), lanes)[0] for n in (5, 232)
    )
    assert len(np.intersect1d(first, later)) < 2000


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(ValueError, match="a seed is an integer from 0"):
        seeding.key(seed, "a")
    with pytest.raises(ValueError, match="a seed is an integer from 0"):
        seeding.generator(seed, "a")


def test_named_generators_depend_on_seed_and_name_alone():
    draws = {
        seeding.generator(seed, name).integers(2**63) for seed in range(20) for name in ("a", "b")
    }
    assert len(draws) == 40
    assert seeding.generator(3, "a").random() == seeding.generator(3, "a").random()


def test_streams_of_data_depend_on_seed_name_and_number_alone():
    every = seeding.data_streams(7, "tape", np.arange(1000))
    some = seeding.data_streams(7, "tape", np.array([5, 900]))
    assert all(np.array_equal(a[[5, 900]], b) for a, b in zip(every, some, strict=True))
    pairs = {
        pair
        for seed, name in ((7, "tape"), (7, "rule"), (8, "tape"))
        for pair in zip(
            *(part.tolist() for part in seeding.data_streams(seed, name, np.arange(1000))),
            strict=True,
        )
    }
    assert len(pairs) == 3000
