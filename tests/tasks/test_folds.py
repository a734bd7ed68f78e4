import json
from collections import Counter
from pathlib import Path

import numpy as np

from tapebench.physics import bayes, exact, memoryless
from tapebench.physics.strata import STRATA, strata, stratum
from tapebench.tasks import folds, splits
from tapebench.tasks.universe import ELEMENTARY

FOLDS = [splits.load(f"folds-{number}") for number in range(folds.NUM)]
PIECES = [splits.load(f"folds-tuning-{number}") for number in range(folds.NUM)]
TUNING = set(folds.parts()[folds.NUM])


def test_strata_are_of_what_can_be_reached_and_of_what_flipping_ones_reaches():
    assert stratum(0.04, 0.04) == "impossible"
    assert stratum(0.05, 0.0) == "beyond-reflex"
    assert stratum(0.8, 0.4) == "reflex"
    assert stratum(0.8, 0.39) == "beyond-reflex"
    kinds = folds.core_strata()
    assert Counter(kinds.values()) == {"beyond-reflex": 102, "reflex": 63, "impossible": 91}
    for rule in (0, 30, 90, 110, 204, 45):
        ceiling = exact.reach(rule, folds.LENGTH, folds.HORIZON).solvable_excluding_goal
        chance = exact.chance_of_success(rule, folds.LENGTH, folds.HORIZON, "flip-ones")
        assert kinds[rule] == stratum(ceiling, chance)


def test_each_rule_that_can_be_solved_is_held_out_once_or_tuned_on():
    held_out = [rule for split in FOLDS for rule in split.test]
    kinds = folds.core_strata()
    possible = {rule for rule in ELEMENTARY.rules if kinds[rule] != "impossible"}
    assert len(held_out) == len(set(held_out))
    assert set(held_out) | TUNING == possible
    assert not set(held_out) & TUNING
    for split in FOLDS:
        assert set(split.train) == possible - set(split.test)
        assert set(split.train) >= TUNING
    times = Counter(rule for split in FOLDS for rule in split.train)
    assert all(times[rule] == folds.NUM - 1 for rule in held_out)


def test_who_tunes_sees_no_rule_that_is_examined():
    for split in PIECES:
        assert set(split.train) | set(split.test) == TUNING
    assert sorted(rule for split in PIECES for rule in split.test) == sorted(TUNING)


def test_mirror_images_stay_together():
    for split in (*FOLDS, *PIECES):
        assert splits.audit(split).mirror_pairs_cut == ()


def test_folds_are_alike_in_size_strata_and_types():
    parts = [*(split.test for split in FOLDS), tuple(sorted(TUNING))]
    assert {len(part) for part in parts} == {27, 28}
    kinds = folds.core_strata()
    for name in STRATA:
        counts = [sum(kinds[rule] == name for rule in part) for part in parts]
        assert max(counts) - min(counts) <= 1
    for name in ("stable", "periodic", "chaotic"):
        counts = [ELEMENTARY.count_types(part)[name] for part in parts]
        assert max(counts) - min(counts) <= 2
    measures = folds.core_measures()
    ceilings = [np.mean([measures[rule].ceiling for rule in part]) for part in parts]
    assert max(ceilings) - min(ceilings) < 0.01


def test_the_audit_counts_strata():
    audit = splits.audit(FOLDS[0])
    assert audit.strata["test"] == {"beyond-reflex": 17, "reflex": 11, "impossible": 0}
    assert sum(audit.strata["train"].values()) == len(FOLDS[0].train)
    assert audit.as_dict()["strata"] == audit.strata


def test_the_size_is_the_one_where_evidence_is_worth_most():
    """See ADR 18: among all that the pilot computed."""
    rows = json.loads((Path(__file__).parents[2] / "docs" / "results" / "pilot.json").read_text())

    def share(row):
        return (row["blind_ceiling"] - row["memoryless_at_least"]) / row["ceiling"]

    best = max(rows, key=share)
    assert (best["length"], best["horizon"]) == (folds.LENGTH, folds.HORIZON)
    (row,) = (row for row in rows if (row["length"], row["horizon"]) == (7, 3))
    prior = bayes.parse_prior(
        [rule for rule, kind in strata(ELEMENTARY.rules, 7, 3).items() if kind != "impossible"]
    )
    assert row["blind_ceiling"] == bayes.solve(prior, 7, 3).blind_ceiling
    assert row["memoryless_at_least"] == memoryless.search(prior, 7, 3, kicks=row["kicks"]).value
