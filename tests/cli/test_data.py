import json
import sys
from pathlib import Path

import pytest

from commands import tape
from tapebench import datasets
from tapebench.tasks import splits

OPTIMAL = Path("runs/data/tape/core-folds-0/optimal-v0")


@pytest.mark.parametrize("command", ["make", "list", "check"])
def test_help_has_two_examples_and_names_its_values(capsys, command):
    _, out, _ = tape(capsys, "data", command, "--help")
    assert sum(line.startswith(f"  tape data {command}") for line in out.splitlines()) == 2
    assert " STR" not in out


def test_a_dataset_is_made_listed_and_checked(capsys):
    code, out, err = tape(capsys, "data", "make", "optimal", "--episodes", "3000", "--json")
    made = json.loads(out)
    assert (code, err) == (0, "")
    assert made["path"] == str(OPTIMAL)
    assert made["id"] == "tape/core-folds-0/optimal-v0"
    assert len(datasets.load(OPTIMAL)) == made["episodes"] == 3000
    _, out, _ = tape(capsys, "data", "list", "--json")
    assert json.loads(out) == {"datasets": [made]}
    _, out, _ = tape(capsys, "data", "list")
    assert "core-folds-0/optimal-v0" in out
    assert made["content"][:12] in out
    _, out, _ = tape(capsys, "data", "check", str(OPTIMAL), "--json")
    checked = json.loads(out)
    assert checked["sound"]
    assert checked["replayed"] == made["steps"]
    assert not set(checked["rules"]) & set(splits.load("folds-0").test)
    code, out, _ = tape(capsys, "data", "check", str(OPTIMAL), "--sample", "1")
    assert code == 0
    assert "none of the 28 that folds-0 holds out" in out


def test_a_track_brings_its_own_task_and_split(capsys):
    tape(capsys, "data", "make", "random", "--track", "full", "--episodes", "50")
    spec = datasets.load("runs/data/tape/full-fps30/random-v0").spec
    assert (spec.length, spec.horizon, spec.split.name) == (32, 32, "fps30")
    tape(capsys, "data", "make", "random", "--split", "folds-3", "--episodes", "50", "--seed", "7")
    assert Path("runs/data/tape/core-folds-3/random-s7-v0/dataset.json").is_file()


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("make", "optiml"), "unknown dataset 'optiml': did you mean 'optimal'?"),
        (("make", "optimal", "--track", "full"), "is played up to 16 cells, not 32"),
        (("make", "random", "--track", "inference@2"), "hides cells"),
        (("make", "random", "--split", "folds-9"), "folds-9"),
        (("make", "random", "--episodes", "0"), "episodes of a dataset must be from 1"),
        (("check", "nowhere"), "there is no dataset nowhere"),
    ],
)
def test_bad_input_gets_one_line(capsys, argv, complaint):
    code, out, err = tape(capsys, "data", *argv)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_damage_gets_one_line_and_hides_no_other_dataset(capsys):
    for name in ("optimal", "random"):
        tape(capsys, "data", "make", name, "--episodes", "100")
    table = OPTIMAL / "steps-00000.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    code, out, err = tape(capsys, "data", "check", str(OPTIMAL))
    assert (code, out) == (2, "")
    assert "steps-00000.parquet has" in err
    assert err.count("\n") == 1
    (OPTIMAL / "dataset.json").write_text("{}")
    code, out, err = tape(capsys, "data", "list")
    assert code == 0
    assert "random-v0" in out
    assert "is no dataset of schema 1" in err


def test_without_the_extra_the_advice_comes_before_the_work(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    code, _, err = tape(capsys, "data", "make", "random", "--minari")
    assert code == 2
    assert "pip install 'tapebench[data]'" in err
    assert not Path("runs").exists()
