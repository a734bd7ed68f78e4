import json
from importlib import resources

import numpy as np
import pytest

from tapebench.physics import features
from tapebench.tasks import splits


@pytest.mark.parametrize("name", splits.names())
def test_shipped_splits_are_regenerated_byte_for_byte(name):
    shipped = resources.files("tapebench").joinpath(f"data/splits/{name}.json").read_text()
    assert splits.dump(splits.make(name)) == shipped


OF_30 = [name for name in splits.names() if name != "tuning" and not name.startswith("folds")]


@pytest.mark.parametrize("name", OF_30)
def test_shipped_splits_hold_out_30_rules_and_train_on_the_rest(name):
    split = splits.load(name)
    assert len(split.test) == 30
    assert sorted(split.train + split.test) == list(range(256))


def test_shipped_splits_are_all_different():
    assert len({splits.load(name).hash for name in splits.names()}) == len(splits.names())


def test_matched30_audits_clean():
    audit = splits.audit(splits.load("matched30"))
    assert audit.is_clean
    assert audit.mirror_pairs_cut == ()
    for name in splits.MATCHED:
        train, test = audit.difficulty[name]
        assert abs(train - test) < 0.5 / 30 + 0.5 / 226
    for name in ("flip-ones L32", "greedy L32", "mpc L32"):
        assert abs(np.subtract(*audit.difficulty[name])) < 0.005
    assert audit.types["test"] == {"stable": 3, "periodic": 7, "chaotic": 20}


def test_fps30_shows_its_real_figures():
    audit = splits.audit(splits.load("fps30"))
    assert not audit.is_clean
    assert audit.disjoint
    assert audit.types["test"] == {"stable": 2, "periodic": 14, "chaotic": 14}
    assert len(audit.mirror_pairs_cut) == 15
    train, test = audit.difficulty["ceiling L16"]
    assert round(train - test, 3) == 0.136


def test_an_audit_counts_cut_mirror_pairs():
    split = splits.Split("mine", train=(30, 1, 2), test=(86, 3))
    audit = splits.audit(split)
    assert audit.mirror_pairs_cut == ((30, 86),)
    assert audit.unassigned == 251


def test_farthest_points_are_far_apart():
    points = np.array([[r.density, r.entropy, r.activity] for r in features.feature_table()], float)

    def nearest(members):
        held_out = points[list(members)]
        gaps = np.linalg.norm(held_out[:, None] - held_out[None], axis=-1)
        return gaps[~np.eye(len(held_out), dtype=bool)].min()

    assert nearest(splits.load("fps30").test) > 3 * nearest(splits.load("random-0").test)


def test_the_hash_is_of_the_rules_and_not_of_their_order_or_name():
    a = splits.Split("a", train=(1, 2), test=(3,))
    b = splits.Split("b", train=(2, 1), test=(3,))
    c = splits.Split("a", train=(1, 3), test=(2,))
    assert a.hash == b.hash != c.hash


def write(tmp_path, **fields):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(fields))
    return path


def test_a_users_split_is_loaded_by_path(tmp_path):
    path = write(tmp_path, name="mine", train=[3, 1], test=[2])
    split = splits.load(str(path))
    assert (split.train, split.test, split.generator) == ((1, 3), (2,), "user")


def test_a_dumped_split_loads_again(tmp_path):
    path = tmp_path / "again.json"
    path.write_text(splits.dump(splits.load("random-1")))
    assert splits.load(path) == splits.load("random-1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train": [1, 2], "test": [2]}, "rules 2 are in train and in test"),
        ({"train": [1, 256], "test": [2]}, "integer from 0 to 255, not 256"),
        ({"train": [1, -1], "test": [2]}, "integer from 0 to 255, not -1"),
        ({"train": [1, 1], "test": [2]}, "rules 1 twice"),
        ({"train": [], "test": [2]}, "train is empty"),
        ({"train": [1], "test": []}, "test is empty"),
        ({"train": [1], "test": ["2"]}, "integer from 0 to 255, not '2'"),
        ({"train": [1], "test": [[2]]}, "integer from 0 to 255"),
        ({"train": 1, "test": [2]}, "train must be a list"),
        ({"train": [1]}, "lacks 'test'"),
        ({"train": [1], "test": [2], "schema": 9}, "schema 9"),
        ({"train": [1], "test": [2], "hash": "0"}, "hash does not fit"),
        ({"train": [1], "test": [2], "tset": [3]}, "unknown field 'tset'"),
        ({"train": [1], "test": [2], "seed": "x"}, "seed must be an integer"),
        ({"train": [1], "test": [2], "seed": float("nan")}, "seed must be an integer"),
        ({"train": [1], "test": [2], "generator": ["q"]}, "generator must be a text"),
    ],
)
def test_bad_split_files_are_refused_with_a_reason(tmp_path, fields, message):
    path = write(tmp_path, name="mine", **fields)
    with pytest.raises(ValueError, match=message) as refusal:
        splits.load(path)
    assert "mine.json" in str(refusal.value)


def test_what_is_not_a_split_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read split file missing.json: no such file"):
        splits.load("missing.json")
    (tmp_path / "directory.json").mkdir()
    with pytest.raises(ValueError, match="not a file"):
        splits.load("directory.json")
    (tmp_path / "deep.json").write_text("[" * 30_000)
    with pytest.raises(ValueError, match="is not JSON"):
        splits.load("deep.json")
    (tmp_path / "twice.json").write_text('{"name": "x", "train": [1], "train": [2], "test": [3]}')
    with pytest.raises(ValueError, match="given twice"):
        splits.load("twice.json")
    (tmp_path / "noise.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file"):
        splits.load("noise.json")
    (tmp_path / "half.json").write_text('{"name": "x", "train": [1')
    with pytest.raises(ValueError, match="is not JSON"):
        splits.load("half.json")
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="must be a JSON object"):
        splits.load("list.json")
    (tmp_path / "huge.json").write_text(" " * 100_000)
    with pytest.raises(ValueError, match="too large"):
        splits.load("huge.json")


def test_an_unknown_split_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'matched30'"):
        splits.load("matched_30")


def test_rule_sets():
    split = splits.load("fps30")
    assert splits.select("fps30", "train") == split.train
    assert splits.select("fps30", "test") == split.test
    assert splits.select("fps30", "all") == tuple(range(256))
    assert splits.select("fps30", 30) == (30,)
    assert splits.select("fps30", np.array([4, 30])) == (4, 30)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("tset", "unknown rule set 'tset'"),
        ([], "empty"),
        ([1, 1], "twice"),
        (300, "0 to 255"),
        ([[1], [2, 3]], "a rule or a list of rules"),
    ],
)
def test_unknown_rule_sets_are_refused(which, message):
    with pytest.raises(ValueError, match=message):
        splits.select("fps30", which)


@pytest.mark.parametrize("generator", splits.GENERATORS)
def test_new_splits_of_other_sizes(generator):
    split = splits.generate("mine", generator, seed=5, held_out=20)
    assert len(split.test) == 20
    assert splits.audit(split).disjoint


def test_generators_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="unknown generator"):
        splits.generate("mine", "magic")
    with pytest.raises(ValueError, match="held_out must be from 1 to 255"):
        splits.generate("mine", "random", held_out=256)
    with pytest.raises(ValueError, match="a seed is an integer from 0"):
        splits.generate("mine", "random", seed=2**32)
    with pytest.raises(ValueError, match="printable"):
        splits.generate("", "random")
    with pytest.raises(ValueError, match="printable"):
        splits.generate("\x1b[31m", "random")


def test_tuning_never_sees_a_held_out_rule():
    tuning = splits.load("tuning")
    members = set(tuning.train) | set(tuning.test)
    for name in ("fps30", "matched30"):
        assert not members & set(splits.load(name).test)
    audit = splits.audit(tuning)
    assert audit.mirror_pairs_cut == ()
    assert len(tuning.test) == pytest.approx(len(members) / 5, abs=5)
    assert audit.type_gap < 0.1
    for measure in splits.MATCHED:
        assert abs(np.subtract(*audit.difficulty[measure])) < 0.05
