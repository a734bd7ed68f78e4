"""What is played, and that it is played by the rules."""

import gymnasium
import numpy as np
import pytest

from tapebench.datasets import answers
from tapebench.datasets.behaviour import BEHAVIOURS, NOISY_HISTORY
from tapebench.datasets.collect import ABOUT, COLUMNS, collect
from tapebench.datasets.store import content_hash
from tapebench.physics import bayes, exact, space
from tapebench.planning import ideal
from tapebench.tasks import splits

EPISODES = 2048


@pytest.fixture(scope="module")
def played(spec_of):
    return {name: collect(spec_of(name, EPISODES), 0, EPISODES) for name in BEHAVIOURS}


CONTENT = {
    "random": "ec8d3f7a4b9c4946",
    "flip-ones": "9f5359ac6d4fe44e",
    "mixed": "7f143324a7637962",
    "learning": "71bdb6e9439bfc40",
    "optimal": "f709ee5cf0caa8ea",
    "bayes-optimal": "da0be03184702b35",
}
"""Hashes of what is played below: data of a version never changes."""


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_the_content_never_changes(played, name):
    assert content_hash(played[name])[:16] == CONTENT[name]


def success(columns, episodes=EPISODES):
    return np.bincount(columns["episode"], columns["success"], episodes)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_an_episode_is_one_of_the_environment(played, name):
    columns = played[name]
    env = gymnasium.make("Tape-v1", length=9, horizon=4, split="folds-0", rules="train").unwrapped
    for episode in (0, 7, EPISODES - 1):
        rows = np.flatnonzero(columns["episode"] == episode)
        start = space.unpack(columns["tape"][rows[:1], None], 9)[0]
        obs, _ = env.reset(options={"rule": int(columns["rule"][rows[0]]), "tape": start})
        for step, row in enumerate(rows):
            assert columns["step"][row] == step
            assert space.pack(obs[:9])[0] == columns["tape"][row]
            assert obs[9] == np.float32(step) / np.float32(4)
            obs, reward, terminated, truncated, info = env.step(columns["action"][row])
            assert space.pack(obs[:9])[0] == columns["next_tape"][row]
            assert np.float32(reward) == columns["reward"][row]
            assert terminated == columns["terminated"][row]
            assert info["success"] == columns["success"][row]
            assert not truncated
        assert columns["terminated"][rows[-1]]


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_neither_batches_nor_the_number_of_episodes_change_what_is_played(played, spec_of, name):
    history = BEHAVIOURS[name].history
    first, last = 2 * history, min(EPISODES, 2 * history + 301)
    part = collect(spec_of(name, 10 * EPISODES), first, last, batch=3 if history > 1 else 100)
    chosen = (played[name]["episode"] >= first) & (played[name]["episode"] < last)
    for column in COLUMNS:
        np.testing.assert_array_equal(part[column], played[name][column][chosen])


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_no_rule_of_a_dataset_is_held_out_nor_the_twin_of_one(played, name):
    split = splits.load("folds-0")
    occurring = set(played[name]["rule"].tolist())
    twins = {twin for rule in occurring for twin in split.universe.twins(rule)}
    assert occurring <= set(split.train)
    assert not twins & set(split.test)


def test_every_training_rule_occurs(played):
    assert set(played["random"]["rule"].tolist()) == set(splits.load("folds-0").train)


def test_behaviours_without_histories_meet_the_same_rules_on_the_same_tapes(played):
    firsts = [
        np.stack([played[name][c][played[name]["step"] == 0] for c in ("rule", "tape")])
        for name in BEHAVIOURS
        if BEHAVIOURS[name].history == 1
    ]
    assert len(firsts) == 4
    assert all(np.array_equal(first, firsts[0]) for first in firsts)


def test_a_seed_is_other_rules_tapes_and_actions(spec_of):
    one, two = (collect(spec_of("random", 100, seed=seed), 0, 100) for seed in (0, 1))
    for column in ("rule", "tape", "action"):
        first = [columns[column][columns["step"] == 0] for columns in (one, two)]
        assert np.mean(first[0] == first[1]) < 0.3


def test_optimal_play_takes_the_fewest_steps_wherever_there_is_time(played):
    columns = played["optimal"]
    first = columns["step"] == 0
    fewest = columns["optimal_steps"][first]
    in_time = (fewest > 0) & (fewest <= 4)
    taken = np.bincount(columns["episode"])
    assert np.array_equal(success(columns) == 1, in_time)
    assert np.array_equal(taken[in_time], fewest[in_time])
    assert 0.7 < in_time.mean() < 1


def test_optimal_cells_that_were_chosen_are_spread_over_all_that_are_optimal(played):
    columns = played["optimal"]
    several = np.bitwise_count(columns["optimal_cells"]) > 1
    ranks = np.bitwise_count(columns["optimal_cells"] & ((1 << columns["action"].astype(int)) - 1))
    share = ranks[several] / (np.bitwise_count(columns["optimal_cells"])[several] - 1)
    assert abs(share.mean() - 0.5) < 0.03
    there_is_a_way = columns["optimal_cells"] > 0
    assert (columns["optimal_cells"] >> columns["action"] & 1)[there_is_a_way].all()


def test_random_and_flip_ones_succeed_as_often_as_they_must(played):
    rules = splits.load("folds-0").train
    for name in ("random", "flip-ones"):
        chance = np.mean([exact.chance_of_success(rule, 9, 4, name) for rule in rules])
        error = np.sqrt(chance * (1 - chance) / EPISODES)
        assert abs(success(played[name]).mean() - chance) < 4 * error


def test_bayes_optimal_play_reaches_the_blind_ceiling_of_the_training_rules(played):
    rules = splits.load("folds-0").train
    blind_ceiling = ideal.solution(rules, 9, 4, 0).blind_ceiling
    error = np.sqrt(blind_ceiling * (1 - blind_ceiling) / EPISODES)
    reached = success(played["bayes-optimal"]).mean()
    assert abs(reached - blind_ceiling) < 4 * error
    assert reached < success(played["optimal"]).mean()


def test_the_noise_of_mixed_play_falls_from_all_to_nothing(played):
    columns = played["mixed"]
    is_best = columns["optimal_cells"] >> columns["action"] & 1
    there_is_a_way = columns["optimal_cells"] > 0
    first, last = (
        is_best[there_is_a_way & (columns["trial"] == trial)] for trial in (0, NOISY_HISTORY - 1)
    )
    by_luck = np.bitwise_count(columns["optimal_cells"])[there_is_a_way & (columns["trial"] == 0)]
    assert last.all()
    assert abs(first.mean() - by_luck.mean() / 9) < 0.25
    assert first.mean() < 0.6


def test_a_learner_begins_at_random_and_learns(played):
    columns = played["learning"]
    by_history = success(columns).reshape(-1, BEHAVIOURS["learning"].history)
    assert by_history[:, :32].mean() < 0.3
    assert by_history[:, -128:].mean() > by_history[:, :32].mean() + 0.2


def test_a_history_has_one_rule_and_many_tapes(played):
    columns = played["learning"]
    for history in range(4):
        rows = columns["history"] == history
        assert len(set(columns["rule"][rows].tolist())) == 1
        assert len(set(columns["tape"][rows].tolist())) > 100
        assert set(columns["trial"][rows].tolist()) == set(range(512))


def test_the_posterior_never_loses_the_rule_and_never_forgets(played):
    columns = played["random"]
    follows = columns["step"] > 0
    before = np.roll(columns["entropy"], 1)
    assert (columns["entropy"][follows] <= before[follows]).all()
    assert (columns["entropy"] >= 0).all()
    assert columns["entropy"].max() < np.log2(len(splits.load("folds-0").train))


def test_longer_tapes_have_no_optimal_cells_and_say_so(spec_of):
    spec = spec_of("flip-ones", 20, length=32, horizon=32, split=splits.load("fps30"))
    columns = collect(spec, 0, 20)
    assert (columns["optimal_steps"] == -2).all()
    assert not columns["optimal_cells"].any()
    assert np.isfinite(columns["entropy"]).all()
    assert columns["entropy"][columns["step"] == 1].mean() < 2


def test_bits_of_the_posterior_are_those_of_the_knowledge_that_ideal_play_has():
    rules = splits.load("folds-0").train
    masses = bayes.masses(bayes.parse_prior(rules))
    entropies = answers.entropies(rules)
    assert entropies[bayes.NOTHING] == np.float32(np.log2(len(rules)))
    assert np.isnan(entropies[masses == 0]).all()
    assert (entropies[masses == 1] == 0).all()


def test_every_column_is_explained():
    assert list(ABOUT) == list(COLUMNS)
