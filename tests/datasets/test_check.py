"""Nothing in a dataset of others is trusted."""

import dataclasses
import hashlib

import duckdb
import numpy as np
import pytest

from tapebench.base import files
from tapebench.base.files import DamageError
from tapebench.datasets import croissant, store
from tapebench.datasets.behaviour import BEHAVIOURS
from tapebench.datasets.check import check
from tapebench.datasets.manifest import read_manifest
from tapebench.tasks import splits


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_what_was_made_is_sound(tmp_path, small_files, spec_of, name):
    path, manifest = store.make(spec_of(name, 1200), tmp_path)
    verdict = check(path)
    assert verdict.replayed == verdict.manifest.steps == manifest.steps
    assert set(verdict.rules) <= set(splits.load("folds-0").train)


def test_longer_tapes_are_checked_as_far_as_they_are_labelled(tmp_path, spec_of):
    spec = spec_of("random", 20, length=32, horizon=32, split=splits.load("fps30"))
    assert check(store.make(spec, tmp_path)[0]).replayed > 20


def test_a_sample_replays_some_of_the_files_and_hashes_all(optimal):
    verdict = check(optimal, sample=2)
    tables = verdict.manifest.tables
    assert verdict.replayed == tables[0].rows + tables[2].rows
    (optimal / tables[1].name).write_bytes(b"PAR1" + bytes(tables[1].size - 8) + b"PAR1")
    with pytest.raises(DamageError, match="its hash differs"):
        check(optimal, sample=2)


def forge(path, number, alter):
    """Change the rows of a file, and everything that vouches for them."""
    manifest = read_manifest(path)
    columns = store.read_columns(path, manifest, number)
    columns = {name: np.array(values) for name, values in columns.items()}
    columns = alter(columns) or columns
    files.write_table(path / manifest.tables[number].name, columns)
    vouch(path, number, rows=len(next(iter(columns.values()))), content=_content(columns))


def vouch(path, number, **claims):
    """A manifest for a file as it is now."""
    manifest = read_manifest(path)
    tables = list(manifest.tables)
    place = path / tables[number].name
    size, digest = place.stat().st_size, files.file_hash(place)
    tables[number] = dataclasses.replace(tables[number], size=size, sha256=digest, **claims)
    manifest = dataclasses.replace(manifest, tables=tuple(tables))
    files.write_json(path / "croissant.json", croissant.describe(manifest))
    files.write_json(path / "dataset.json", manifest.as_dict())


def _content(columns):
    try:
        return store.content_hash(columns)
    except (KeyError, ValueError):
        return hashlib.sha256().hexdigest()


def put(name, value, row=40):
    def alter(columns):
        columns[name][row] = value

    return alter


def flip(name, row=40):
    def alter(columns):
        columns[name][row] ^= 1

    return alter


def other_rule(to):
    """A whole episode under another rule, transitions unchanged."""

    def alter(columns):
        columns["rule"][columns["episode"] == columns["episode"][40]] = to

    return alter


def drop_last_row(columns):
    return {name: values[:-1] for name, values in columns.items()}


def wider(columns):
    return columns | {"rule": columns["rule"].astype(np.uint16)}


HELD_OUT = splits.load("folds-0").test[0]
NOWHERE = next(
    rule
    for rule in range(256)
    if rule not in (*splits.load("folds-0").train, HELD_OUT)
    and rule not in splits.load("folds-0").test
)


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (other_rule(HELD_OUT), f"rule {HELD_OUT} is held out by folds-0"),
        (other_rule(NOWHERE), f"rule {NOWHERE} is none that folds-0 trains on"),
        (put("action", 9), "the action is no cell"),
        (put("tape", 1 << 9), "more than 9 cells"),
        (flip("tape"), "the tape is not the one before|does not start where the seed draws"),
        (flip("next_tape"), "not the one before|what rule .* makes of the flip|row .* next step"),
        (flip("success"), "row 40 is not the next step"),
        (flip("terminated"), "row .* is not the next step"),
        (put("episode", 7000), "row 40 is not the next step"),
        (put("step", 3, row=0), "row 0 is not the next step"),
        (put("trial", 1), "row 40 is not the next step"),
        (put("reward", 0.5), "the reward is wrong"),
        (flip("optimal_cells"), "optimal_cells is not the exact answer"),
        (put("optimal_steps", 7), "optimal_steps is not the exact answer"),
        (put("entropy", 1.25), "the entropy is not the exact one"),
        (put("entropy", np.nan), "values are missing in entropy"),
        (drop_last_row, "is not the next step|ends with episode"),
        (wider, "other columns than a dataset: see 'rule'"),
        (lambda columns: {k: v for k, v in columns.items() if k != "trial"}, "other columns"),
    ],
)
def test_a_forged_row_is_found_and_named(optimal, alter, complaint):
    forge(optimal, 0, alter)
    with pytest.raises(DamageError, match=complaint) as raised:
        check(optimal)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["reward", "tape", "terminated"])
def test_a_missing_value_is_found(optimal, name):
    place, altered = optimal / "steps-00000.parquet", optimal / "altered"
    duckdb.sql(
        f"copy (select * replace (case when step = 1 then null else {name} end as {name}) "
        f"from '{place}') to '{altered}' (format parquet)"
    )
    altered.replace(place)
    vouch(optimal, 0)
    with pytest.raises(DamageError, match=f"values are missing in {name}"):
        check(optimal)


def test_a_start_tape_that_was_chosen_is_found(optimal):
    def start_elsewhere(columns):
        """The first step of an episode left out: each transition is as sound as before."""
        counts = np.bincount(columns["episode"])
        episode = int(np.flatnonzero(counts == 3)[0])
        rows = np.flatnonzero(columns["episode"] == episode)
        keep = np.ones(len(columns["step"]), bool)
        keep[rows[0]] = False
        columns["step"][rows] -= 1
        return {name: values[keep] for name, values in columns.items()}

    forge(optimal, 0, start_elsewhere)
    with pytest.raises(DamageError, match="does not start where the seed draws"):
        check(optimal)


@pytest.mark.parametrize("name", ["steps-00001.parquet", "dataset.json", "croissant.json"])
def test_files_that_are_cut_short_changed_or_missing_are_refused(optimal, name):
    file = optimal / name
    data = file.read_bytes()
    for spoilt in (data[: len(data) // 2], data[:-1] + b"x", b"", None):
        file.unlink()
        if spoilt is not None:
            file.write_bytes(spoilt)
        with pytest.raises(DamageError) as raised:
            check(optimal)
        assert "\n" not in str(raised.value)
        file.write_bytes(data)
    assert check(optimal)


def test_links_are_not_followed(optimal, tmp_path):
    file = optimal / "steps-00001.parquet"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamageError, match="there is no file"):
        check(optimal)


def test_a_split_of_a_shipped_name_must_be_that_split(tmp_path, spec_of):
    split = splits.load("folds-0")
    forged = splits.Split("folds-0", (*split.train, *split.test[1:]), split.test[:1])
    path = store.make(spec_of("random", 30, split=forged), tmp_path)[0]
    with pytest.raises(DamageError, match="other rules than the one of that name"):
        check(path)
