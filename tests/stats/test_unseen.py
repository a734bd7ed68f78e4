"""Each rule against itself: what it costs not to have been trained on it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import tape
from scores import SEED_SPREAD, chance, coverage, generator, refused_in_one_line
from stored_runs import sit, store_bundle
from tapebench import stats
from tapebench.exam import bundle
from tapebench.exam.exam import make_exam
from tapebench.exam.seating import Conditions

RULES = np.arange(60)
HELD_OUT = (RULES < 20, (RULES >= 15) & (RULES < 35))
"""By two trainings; five rules by both."""


def training(scores, held_out=HELD_OUT[0], rules=RULES):
    return stats.Training(np.asarray(scores, float), rules, held_out)


def made(rng, held_out, level, cost=0.0, skill=0.0, seeds=4, rules=RULES):
    """Scores with a level for each rule, less a cost where it was held out, and luck of seeds."""
    luck = rng.normal(0, 0.02, (seeds, 1))
    return training(level + skill - cost * held_out + luck, held_out, rules)


@given(st.floats(-0.2, 0.2), st.floats(-0.2, 0.2), st.integers(0, 99))
def test_the_cost_is_found_however_hard_the_rules_and_good_the_trainings_are(cost, skill, seed):
    rng = generator(seed)
    level = rng.random(len(RULES))
    both = [made(rng, h, level, cost, s) for h, s in zip(HELD_OUT, (0.0, skill), strict=True)]
    for of in (None, 0, 1):
        interval = stats.cost_of_unseen(both, of)
        assert interval.mean == pytest.approx(cost, abs=1e-9)
        # Luck that moves all scores of a seed cancels; rules do not differ in what it costs them.
        assert interval.high - interval.low == pytest.approx(0, abs=1e-9)


def test_of_two_trainings_it_is_the_difference_of_differences():
    rng = generator(1)
    a, b = (training(rng.random((seeds, 60)), h) for seeds, h in zip((3, 5), HELD_OUT, strict=True))
    better = b.scores.mean(axis=0) - a.scores.mean(axis=0)
    common = better[35:].mean()
    costs = better[:15].mean() - common, common - better[20:35].mean()
    for of, cost in enumerate(costs):
        assert stats.cost_of_unseen([a, b], of).mean == pytest.approx(cost)
    both = stats.cost_of_unseen([a, b])
    assert both.mean == pytest.approx(np.mean(costs))
    assert both.low < both.mean < both.high


def test_rules_are_told_by_their_numbers_and_others_do_not_matter():
    rng = generator(2)
    a, b = (training(rng.random((3, 60)), held_out) for held_out in HELD_OUT)
    order = rng.permutation(60)
    shuffled = training(b.scores[:, order], b.held_out[order], RULES[order])
    assert stats.cost_of_unseen([a, shuffled]) == stats.cost_of_unseen([a, b])
    fewer = [
        training(of_split.scores[:, 5:], of_split.held_out[5:], RULES[5:]) for of_split in (a, b)
    ]
    partly = stats.cost_of_unseen([a, fewer[1]])
    assert partly.mean == pytest.approx(stats.cost_of_unseen(fewer).mean)


def test_where_nothing_is_crossed_there_is_nothing_to_say():
    scores = generator(3).random((3, 60))
    alike = [training(scores), training(scores)]
    assert stats.cost_of_unseen(alike) is None
    assert stats.cost_of_unseen([]) is None
    everything = [training(scores, held_out) for held_out in (RULES < 30, RULES >= 30)]
    assert stats.cost_of_unseen(everything) is None


def test_the_drop_over_rules_is_wider_than_over_seeds():
    rng = generator(4)
    scores = rng.random(60) + rng.normal(0, 0.01, (5, 60))
    interval = stats.drop_over_rules(training(scores))
    seen, held_out = scores[:, 20:], scores[:, :20]
    assert interval.mean == pytest.approx(seen.mean() - held_out.mean())
    seeds = stats.paired_interval(seen, held_out, rng)
    assert interval.high - interval.low > 5 * (seeds.high - seeds.low)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: training(np.zeros(3)), "2 axes are needed"),
        (lambda: training(np.zeros((2, 5))), "give one per rule"),
        (lambda: training(np.zeros((2, 60)), rules=np.zeros(60, int)), "two columns"),
        (lambda: stats.cost_of_unseen([training(np.zeros((1, 60)))]), "two seeds or more"),
        (lambda: stats.drop_over_rules(training(np.zeros((1, 60)))), "two seeds and two rules"),
    ],
)
def test_what_cannot_be_told_from_is_refused(make, message):
    refused_in_one_line(make, message)


@pytest.mark.parametrize(("seeds", "partitions"), [(5, 2), (20, 2), (5, 4)])
def test_new_seeds_and_new_rules_are_covered(seeds, partitions):
    """Rules differ in how hard they are and in what it costs to hold them out, seeds in luck."""
    rng, intervals = generator(5), []
    for _ in range(600):
        hardness, cost = rng.normal(-1, 2, 120), rng.normal(0.3, 0.3, 120)
        trainings = []
        for _ in range(partitions):
            held_out = np.isin(np.arange(120), rng.choice(120, 25, replace=False))
            luck = rng.normal(0, SEED_SPREAD, (seeds, 1))
            success = rng.binomial(20, chance(hardness - cost * held_out + luck)) / 20
            trainings.append(stats.Training(success, np.arange(120), held_out))
        intervals.append(stats.cost_of_unseen(trainings))
    truth = np.mean([interval.mean for interval in intervals])
    assert truth == pytest.approx(0.03, abs=0.01)
    assert 0.92 < coverage(truth, intervals) < 0.98


# Of anybody's results


EXAMS = {
    split: make_exam(split=split, length=8, horizon=8, episodes=2)
    for split in ("fps30", "matched30")
}
OTHER = dict(zip(EXAMS, reversed(EXAMS.values()), strict=True))


@pytest.fixture(scope="module")
def sat(tmp_path_factory):
    """Bundles of an agent that flips ones unless a rule was held out from it, by split."""
    root, bundles = tmp_path_factory.mktemp("bundles"), {}
    for split, exam in EXAMS.items():
        for seed in range(2):
            skilled, poor = (sit(name, seed, exam) for name in ("any-one", "any-cell"))
            is_held_out = np.isin(exam.rules, exam.test)[:, None, None]
            cells = np.where(is_held_out, poor.cells, skilled.cells)
            path = root / f"{split}-{seed}.tape"
            made = bundle.replay(np.maximum(cells, 0), exam, "forgetful")
            about = {"policy": "forgetful", "sees_rule": False}
            bundle.write(path, made, exam, about, Conditions("by us"))
            bundles.setdefault(split, []).append(str(path))
    return bundles


def test_the_cost_is_told_of_bundles(capsys, sat):
    every = [path for paths in sat.values() for path in paths]
    code, out, _ = tape(capsys, "unseen", *every, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["names"] == ["forgetful"]
    lost = np.mean(
        [
            sit(name, seed, exam).success[held_out].mean() * sign
            for split, exam in EXAMS.items()
            for held_out in [np.isin(exam.rules, [*set(exam.test) - set(OTHER[split].test)])]
            for name, sign in (("any-one", 2), ("any-cell", -2))
            for seed in range(2)
        ]
    )
    assert document["cost"]["mean"] == pytest.approx(lost)
    assert lost > 0.1
    assert document["cost"]["low"] > 0
    for split, row in document["splits"].items():
        assert row["seeds"] == 2
        assert row["drop"]["mean"] == pytest.approx(row["id"] - row["ood"])
        assert row["cost"]["low"] <= row["cost"]["mean"] <= row["cost"]["high"]
        assert split in EXAMS
    code, out, _ = tape(capsys, "unseen", *every)
    assert code == 0
    assert f"costs {lost:+.3f}" in " ".join(out.split())


def test_what_an_unseen_law_costs_needs_two_splits_and_two_seeds(capsys, sat, tmp_path):
    other = tmp_path / "other.tape"
    store_bundle(other, exam=make_exam(split="matched30", length=9, horizon=9, episodes=2))
    (a, b), (c, _) = sat.values()
    for paths, complaint in (
        ([a, b], "two splits or more are needed"),
        ([a, b, c], "add seeds of matched30"),
        ([a, b, str(other)], "these are results of forgetful and of first-one"),
        ([a, b, str(other), "--as", "x"], "differ in more than their split: length, horizon"),
        ([a, b, c, "nowhere.tape"], "there is no nowhere.tape"),
    ):
        code, out, err = tape(capsys, "unseen", *paths)
        assert (code, out) == (2, "")
        assert complaint in err
        assert err.count("\n") == 1
