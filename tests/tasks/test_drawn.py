import hashlib
import json
from collections import Counter

import numpy as np
import pytest

from tapebench.exam.exam import make_exam
from tapebench.tasks import drawn, splits, universe

NAMES = drawn.names()
UNIVERSES = [name for name in universe.names() if name != "elementary"]


def test_named_splits_of_every_drawn_universe():
    assert len(NAMES) == 50
    assert splits.all_names() == (*splits.names(), *NAMES)
    assert {"ring2-H4-matched", "life-H16-matched-64", "ring2-H8-tuning"} <= set(NAMES)


@pytest.mark.parametrize("name", UNIVERSES)
def test_sides_and_nested_training_sets(name):
    rules = set(universe.get(name).rules)
    everything, *nested = [
        splits.load(f"{name}-{kind}") for kind in ("matched", *drawn.KINDS[1:-1])
    ]
    tuning = splits.load(f"{name}-tuning")
    assert (len(everything.train), len(everything.test), len(tuning.test)) == (832, 128, 64)
    parts = [set(everything.train), set(everything.test), set(tuning.test)]
    assert set.union(*parts) == rules
    assert sum(map(len, parts)) == len(rules)
    larger = everything
    for split, size in zip(nested, (256, 64, 16), strict=True):
        assert len(split.train) == size
        assert set(split.train) < set(larger.train)
        assert split.test == everything.test
        larger = split
    assert tuning.train == nested[0].train


@pytest.mark.parametrize("name", NAMES)
def test_no_unseen_rule_is_an_image_of_a_seen_one_and_the_strata_are_alike(name):
    audit = splits.audit(splits.load(name))
    assert isinstance(audit, splits.DrawnAudit)
    assert audit.is_clean
    assert audit.images_cut == ()
    assert audit.stratum_gap < 1
    assert audit.means["ceiling"] == (1, 1)
    split, train_twins = audit.split, set()
    for rule in split.train:
        train_twins |= set(split.universe.twins(rule))
    assert not train_twins & set(split.test)
    document = json.loads(json.dumps(audit.as_dict()))
    assert document["clean"] is True
    assert sum(document["strata"]["test"].values()) == len(split.test)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("matched", "256", "64"))])
def test_both_sides_take_as_many_steps(name):
    means = splits.audit(splits.load(name)).means
    assert np.subtract(*means["optimal steps"]) == pytest.approx(0, abs=0.1)
    # A single rule that takes up to 14 steps moves the mean of 64 by 0.15.
    assert np.subtract(*means["worst case"]) == pytest.approx(0, abs=0.15)


def test_no_rule_that_is_for_tuning_is_unseen_for_another_horizon():
    for family in ("ring2", "life"):
        sets = {
            kind: [set(splits.load(f"{family}-H{h}-{kind}").test) for h in universe.HORIZONS]
            for kind in ("tuning", "matched")
        }
        assert not set.union(*sets["tuning"]) & set.union(*sets["matched"])


def test_what_may_not_be_taken_has_a_stand_in_of_its_stratum():
    rings = universe.get("ring2-H8")
    kinds = drawn.strata(rings)
    some = drawn.take(rings, rings.rules, 100, "any", lambda rule: rule % 3 > 0)
    free = drawn.take(rings, rings.rules, 100, "any")
    assert len(set(some)) == len(set(free)) == 100
    assert all(rule % 3 > 0 for rule in some)
    assert Counter(kinds[rule] for rule in some) == Counter(kinds[rule] for rule in free)


def test_an_audit_objects_to_images_and_to_unlike_strata():
    rings = universe.get("ring2-H8")
    by_worst = sorted(rings.rules, key=lambda rule: rings.counts[rule].max_steps)
    unlike = splits.Split("unlike", tuple(by_worst[:500]), tuple(by_worst[500:]), universe=rings)
    (objection,) = splits.audit(unlike).objections
    assert objection.startswith("strata")
    rule = next(rule for rule in rings.rules if len(rings.twins(rule)) == 2)
    twin = (set(rings.twins(rule)) - {rule}).pop()
    with pytest.raises(ValueError, match=f"rule {twin} is not one of ring2-H8"):
        splits.Split("cut", (rule,), (twin,), universe=rings)


def test_the_named_splits_are_what_they_were():
    """Runs are made on them, so a change of any is a change of its name."""
    text = json.dumps({name: splits.load(name).hash for name in NAMES})
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "111b53742d65384d"


def test_a_split_of_drawn_rules_is_a_file_like_any_other(tmp_path):
    split = splits.make("life-H8-matched-16")
    path = tmp_path / "mine.json"
    path.write_text(splits.dump(split))
    assert splits.load(path) == split == splits.load(split.name)
    assert json.loads(path.read_text())["universe"] == "life-H8"
    path.write_text(splits.dump(split).replace("life-H8", "life-H7"))
    with pytest.raises(ValueError, match="unknown universe 'life-H7'"):
        splits.load(path)
    other = splits.Split(split.name, split.train, split.test[1:], universe=split.universe)
    path.write_text(splits.dump(other))
    with pytest.raises(ValueError, match="calls itself life-H8-matched-16"):
        splits.load(path)


def test_what_is_of_elementary_rules_is_named_and_hashed_as_before():
    hashes = {
        **{"fps30": "2531e9391999139b", "matched30": "aa78d841e68bbb79"},
        **{"tuning": "0e87236932e0efc1", "folds-0": "2e69b7f6ba9e0ad7"},
    }
    assert {name: splits.load(name).hash for name in hashes} == hashes
    assert "universe" not in splits.load("fps30").as_dict()
    exams = {"fps30": "7987a172d53e1f85", "matched30": "b4d9e49d46a11908"}
    assert {name: make_exam(split=name).hash for name in exams} == exams
