"""Datasets on disk: whole or absent, the same bytes every time, and easy to open."""

import json
import shutil

import duckdb
import numpy as np
import pytest

from tapebench import datasets
from tapebench.base import files
from tapebench.base.files import DamageError
from tapebench.datasets import store
from tapebench.datasets.behaviour import BEHAVIOURS
from tapebench.datasets.collect import COLUMNS, collect
from tapebench.datasets.manifest import read_manifest
from tapebench.tasks import folds, splits
from tapebench.tasks.splits import Split


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("name", ["random", "mixed"])
def test_the_same_dataset_has_the_same_bytes(tmp_path, small_files, spec_of, name):
    made = [store.make(spec_of(name, 1100), tmp_path / place)[0] for place in "ab"]
    assert contents(made[0]) == contents(made[1])
    assert len(contents(made[0])) > 4


def test_the_content_does_not_depend_on_the_files_it_is_divided_into(
    tmp_path, small_files, spec_of
):
    spec = spec_of("optimal", 1100)
    path, manifest = store.make(spec, tmp_path)
    assert len(manifest.tables) == 3
    together = collect(spec, 0, 1100)
    parts = [store.read_columns(path, manifest, number) for number in range(3)]
    for column in COLUMNS:
        joined = np.concatenate([part[column] for part in parts])
        np.testing.assert_array_equal(joined, together[column])


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *((name, "folds-0") for name in BEHAVIOURS),
        *(("mixed", split) for split in (*folds.NAMES[1:], "folds-tuning-0", "matched30")),
        *(("random", split) for split in ("fps30", "random-0")),
    ],
)
def test_training_files_hold_no_rule_that_is_held_out(tmp_path, spec_of, name, split):
    """Read as anybody would read them: all files there are, and their column of rules."""
    spec = spec_of(name, 1500, split=splits.load(split))
    path, _ = store.make(spec, tmp_path)
    found = duckdb.sql(f"select rule, count(*) from '{path}/*.parquet' group by rule").fetchall()
    rules = {rule for rule, _ in found}
    assert sum(count for _, count in found) == sum(datasets.load(path).num_steps.tolist())
    assert rules
    assert rules <= set(spec.split.train)
    assert not rules & set(spec.split.test)


def test_more_episodes_extend_a_dataset(tmp_path, small_files, spec_of):
    short, longer = (
        contents(store.make(spec_of("mixed", episodes), tmp_path / str(episodes))[0])
        for episodes in (1100, 2000)
    )
    for number in (0, 1):
        assert short[f"steps-{number:05d}.parquet"] == longer[f"steps-{number:05d}.parquet"]


def test_an_interrupted_dataset_is_absent_and_resumes(tmp_path, small_files, spec_of, monkeypatch):
    spec = spec_of("optimal", 1200)
    whole = store.make(spec, tmp_path / "whole")[0]

    def interrupt(stage, done, total):
        if done > 512:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make(spec, tmp_path, interrupt)
    path = store.place(tmp_path, spec)
    assert not path.exists()
    assert list(store.find(tmp_path)) == []
    began = []
    monkeypatch.setattr(store, "collect", lambda *which: began.append(which[1:]) or collect(*which))
    store.make(spec, tmp_path)
    assert began == [(1024, 1200)]
    assert contents(path) == contents(whole)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_an_attempt_at_another_dataset_has_left_is_not_taken_up(
    tmp_path, small_files, spec_of
):
    def interrupt(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make(spec_of("optimal", 1300), tmp_path, interrupt)
    path = store.make(spec_of("optimal", 1200), tmp_path)[0]
    assert contents(path) == contents(store.make(spec_of("optimal", 1200), tmp_path / "b")[0])


def test_two_do_not_make_one_dataset_at_a_time(tmp_path, small_files, spec_of):
    spec = spec_of("random", 1200)

    def meanwhile(stage, done, total):
        with pytest.raises(files.BusyError, match="being made by another process"):
            store.make(spec, tmp_path)

    store.make(spec, tmp_path, meanwhile)


def test_what_is_there_stays_and_is_not_made_again(tmp_path, optimal, spec_of):
    before = {file: file.stat().st_mtime_ns for file in optimal.iterdir()}
    assert store.make(spec_of("optimal", 1200), tmp_path)[0] == optimal
    assert {file: file.stat().st_mtime_ns for file in optimal.iterdir()} == before
    with pytest.raises(ValueError, match="has 1,200 episodes"):
        store.make(spec_of("optimal", 1201), tmp_path)


def test_seeds_stand_side_by_side(tmp_path, spec_of):
    ids = {spec_of("optimal", 10, seed=seed).id for seed in (0, 1)}
    assert ids == {"tape/core-folds-0/optimal-v0", "tape/core-folds-0/optimal-s1-v0"}


def test_load_gives_back_every_step(tmp_path, optimal, spec_of):
    data = datasets.load(optimal)
    columns = collect(spec_of("optimal", 1200), 0, 1200)
    place = columns["episode"], columns["step"]
    assert data.is_taken.sum() == len(columns["step"])
    assert data.is_taken[place].all()
    for name in ("action", "reward", "optimal_cells", "optimal_steps", "entropy"):
        values = getattr(data, name)
        np.testing.assert_array_equal(values[place], columns[name])
        assert not values[~data.is_taken].any()
    np.testing.assert_array_equal(data.tape[place], columns["tape"])
    np.testing.assert_array_equal(data.tape[place[0], place[1] + 1], columns["next_tape"])
    np.testing.assert_array_equal(data.rule[place[0]], columns["rule"])
    last = columns["terminated"]
    np.testing.assert_array_equal(data.success, columns["success"][last])
    np.testing.assert_array_equal(data.num_steps, columns["step"][last] + 1)
    assert (data.tape[data.success, -1] == 0).all()


def test_observations_and_optimal_cells_are_unpacked_row_by_row(optimal):
    data = datasets.load(optimal)
    rows = np.array([5, 1100, 3])
    seen, best = data.observations(rows), data.optimal(rows)
    assert seen.shape == (3, 5, 10)
    assert best.shape == (3, 4, 9)
    for number, row in enumerate(rows):
        for step in range(5):
            cells = [int(data.tape[row, step]) >> cell & 1 for cell in range(9)]
            assert seen[number, step, :9].tolist() == cells
        for step in range(data.num_steps[row]):
            assert seen[number, step, 9] == np.float32(step) / np.float32(4)
            bits = [bool(int(data.optimal_cells[row, step]) >> cell & 1) for cell in range(9)]
            assert best[number, step].tolist() == bits
    np.testing.assert_array_equal(data.observations()[rows], seen)


def test_rows_by_rule_are_all_rows_each_with_its_rule(optimal):
    data = datasets.load(optimal)
    by_rule = data.rows_by_rule()
    assert list(by_rule) == sorted(set(data.rule.tolist()))
    assert all((data.rule[rows] == rule).all() for rule, rows in by_rule.items())
    assert sorted(np.concatenate(list(by_rule.values())).tolist()) == list(range(1200))


def test_the_first_episodes_alone_are_read_from_the_first_files(optimal):
    (optimal / "steps-00002.parquet").unlink()
    data, part = datasets.load(optimal, 700), datasets.load(optimal, 30)
    assert (len(data), len(part)) == (700, 30)
    np.testing.assert_array_equal(data.tape[:30], part.tape)
    with pytest.raises(DamageError, match="there is no file"):
        datasets.load(optimal)


def test_datasets_are_found_and_unfinished_ones_are_not(tmp_path, optimal):
    (optimal.parent / ".random-v0.partial").mkdir()
    shutil.copy(optimal / "dataset.json", optimal.parent / ".random-v0.partial")
    assert list(store.find(tmp_path)) == [optimal]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"length": 17}, "played up to 16 cells, not 17"),
        ({"length": 33}, "length of a dataset must be from 3 to 32, not 33"),
        ({"episodes": 0}, "episodes of a dataset must be from 1"),
        ({"episodes": 1 << 27}, "episodes of a dataset must be at most 67,108,864"),
        ({"seed": -1}, "seed of a dataset must be from 0"),
        ({"track": "../core"}, "cannot be named after the track"),
        ({"split": Split("a b", (1,), (2,))}, "cannot be named after the split 'a b'"),
        ({"split": splits.load("ring2-H8-matched-16")}, "datasets are of elementary rules"),
    ],
)
def test_what_cannot_be_a_dataset_is_refused_in_a_line(spec_of, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        spec_of("optimal", **options)


def change(path, *keys, to):
    document = json.loads((path / "dataset.json").read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    (path / "dataset.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("keys", "to", "complaint"),
    [
        (("schema",), 2, "no dataset of schema 1"),
        (("spec",), None, "does not say what it is of"),
        (("spec", "behaviour"), "best", "unknown dataset 'best'"),
        (("spec", "episodes"), 10**9, "episodes of a dataset must be"),
        (("spec", "episodes"), 12.0, "episodes of a dataset must be"),
        (("spec", "version"), 9, "not of version 0"),
        (("spec", "split", "train"), [], "train is empty"),
        (("spec", "split", "train"), [30], "its split"),
        (("tables", 0, "name"), "../../steps-00000.parquet", "not those of its episodes"),
        (("tables", 0, "rows"), 3, "cannot have 3 steps"),
        (("tables", 0, "rows"), 10**9, "cannot have 1000000000 steps"),
        (("tables", 0, "size"), 10**9, "too large for"),
        (("tables", 0, "sha256"), "abc", "not those of its episodes"),
        (("tables", 0, "sha256"), 7, "malformed"),
        (("tables", 0, "more"), 7, "malformed"),
        (("extra",), [{"name": "/etc/passwd", "size": 1, "sha256": "0" * 64}], "not those of"),
        (("steps",), 7, "contradicts itself"),
        (("id",), "tape/core-folds-1/optimal-v0", "contradicts itself"),
        (("content",), "0" * 64, "contradicts itself"),
    ],
)
def test_a_manifest_that_was_changed_is_refused_in_a_line(optimal, keys, to, complaint):
    change(optimal, *keys, to=to)
    with pytest.raises(DamageError, match=complaint) as raised:
        read_manifest(optimal)
    assert "\n" not in str(raised.value)
