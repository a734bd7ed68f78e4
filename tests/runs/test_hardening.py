"""What an attack found, each as it was tried: files and code that must not be touched or run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import tape
from stored_runs import store_run
from tapebench.agents import api
from tapebench.base import files, seeding
from tapebench.exam import bundle
from tapebench.report import contests
from tapebench.runs import evaluation, store, training
from tapebench.runs.results import load_results
from tapebench.tasks import splits

RUN = store.RunId("main", "first-one", "fps30", 0)
SMOKE = ("--track", "smoke", "--seeds", "1", "--workers", "1")


def command(*argv, **given):
    """`tape`, in a process of its own."""
    code = "import sys; from tapebench.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *argv], capture_output=True, text=True, **given
    )


# Links.


@pytest.mark.parametrize("name", [".lock", "log.txt", "checkpoints", "eval.parquet", ".x.partial"])
def test_nothing_is_written_through_a_link_inside_a_run(tmp_path, name):
    victim = tmp_path / "victim"
    (victim / "home").mkdir(parents=True)
    (victim / "key").write_text("key")
    (victim / "home" / ".bashrc").write_text("mine")
    run = tmp_path / "runs" / str(RUN)
    run.mkdir(parents=True)
    (run / name).symlink_to(victim / ("home" if name == "checkpoints" else "key"))
    with (
        pytest.raises(ValueError, match="is a symbolic link: runs are not written through links"),
        store.open_run(tmp_path / "runs", RUN, {}),
    ):
        pass
    assert (victim / "key").read_text() == "key"
    assert (victim / "home" / ".bashrc").read_text() == "mine"


def test_a_run_that_is_a_link_is_not_written_and_an_agent_on_another_disk_is(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text("{}")
    run = tmp_path / "runs" / str(RUN)
    run.parent.mkdir(parents=True)
    run.symlink_to(project)
    for anew in (False, True):
        with (
            pytest.raises(ValueError, match="symbolic link"),
            store.open_run(tmp_path / "runs", RUN, {}, anew=anew),
        ):
            pass
    assert [file.name for file in project.iterdir()] == ["package.json"]
    run.unlink()
    run.parent.rmdir()
    (tmp_path / "disk").mkdir()
    run.parent.symlink_to(tmp_path / "disk")
    store_run(tmp_path / "runs", "first-one", 0)
    assert len(load_results(tmp_path / "runs").paths) == 1


def test_beginning_anew_deletes_only_what_is_named_as_ours(tmp_path):
    path = store_run(tmp_path, "first-one", 0)
    (path / "notes.json").write_text("{}")
    (path / "data.parquet").write_text("mine")
    (path / "checkpoints").mkdir(exist_ok=True)
    (path / "checkpoints" / ".keep").write_text("")
    (path / "checkpoints" / "best.safetensors").write_text("mine")
    with store.open_run(tmp_path, RUN, {}, anew=True) as run:
        run.save_checkpoint(7, {"x": np.zeros(2, np.float32)}, {})
    kept = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert {"notes.json", "data.parquet", "checkpoints/.keep"} <= kept
    assert "checkpoints/best.safetensors" in kept
    assert "eval.parquet" not in kept


def test_a_lock_keeps_what_is_in_its_file(tmp_path):
    path = tmp_path / str(RUN)
    path.mkdir(parents=True)
    (path / ".lock").write_text("something")
    with store.open_run(tmp_path, RUN, {}):
        pass
    assert (path / ".lock").read_text() == "something"


@pytest.mark.slow
def test_files_of_the_current_directory_are_not_imported_by_workers(tmp_path):
    for module in ("optax", "random", "queue"):
        (tmp_path / f"{module}.py").write_text("open('PWNED', 'w').write('ran')\nraise ImportError")
    found = command("train", "dqn", *SMOKE, "--results", "runs", cwd=tmp_path, timeout=300)
    assert found.returncode == 0, found.stderr
    assert not (tmp_path / "PWNED").exists()


# Runs that diverged.


def diverge(path):
    summary = files.read_json(path / "summary.json")
    files.write_json(path / "summary.json", summary | {"diverged": True})
    store.mark(path)


def test_a_diverged_run_is_kept_named_and_left_out_of_means(tmp_path, capsys):
    for seed in range(3):
        path = store_run(tmp_path, "any-one", seed)
    diverge(path)
    stored = load_results(tmp_path)
    assert len(stored.paths) == 2
    assert [found.path.name for found in stored.diverged] == ["s02"]
    assert store.is_finished(path), "it is not made again"
    (contest,) = contests.read(tmp_path).contests
    assert contest.entries[0].seeds == (0, 1)
    _, out, err = tape(
        capsys, "query", "select count(*) as n from runs", "--results", str(tmp_path), "--json"
    )
    assert json.loads(out)["rows"] == [[2]]
    assert "s02 diverged (its weights are not finite) and left out" in err
    assert any("diverged" in sentence for sentence in contests.read(tmp_path).missing)


@pytest.mark.slow
def test_training_that_diverges_is_found_and_its_score_says_so(tmp_path, capsys):
    options = ("--set", "learning_rate=1e30", "--experiment", "nan", "--results", str(tmp_path))
    code, out, _ = tape(capsys, "train", "dqn", *SMOKE, *options)
    assert "nan/dqn/fps30/s00 diverged: its weights are not finite, and it does not count" in out
    (found,) = load_results(tmp_path).diverged
    assert "diverged" in str(found)
    size = ("--length", "8", "--horizon", "8", "--episodes", "1", "--rules", "0,30,90")
    code, out, _ = tape(capsys, "evaluate", str(found.path), *size)
    assert code == 0
    assert "the weights of 1 of 1 runs are not finite, so this score means nothing" in " ".join(
        out.split()
    )


def test_finite_is_about_what_was_learned():
    good = {"learner.network.w": np.ones(3, np.float32), "replay.x": np.full(2, np.nan)}
    assert training.is_finite(good)
    for bad in (np.nan, np.inf):
        spoilt = good | {"learner.model.b": np.array([0, bad], np.float32)}
        assert not training.is_finite(spoilt)


# Names, sizes, times.


def test_a_split_of_ones_own_may_not_take_the_name_of_a_shipped_one(tmp_path):
    shipped = splits.load("fps30")
    mine = splits.Split("fps30", shipped.train[:-1], (*shipped.test, shipped.train[-1]))
    file = tmp_path / "fake.json"
    file.write_text(splits.dump(mine))
    with pytest.raises(ValueError, match=r"calls itself fps30.*give it another name"):
        splits.load(file)
    file.write_text(splits.dump(shipped))
    assert splits.load(file).hash == shipped.hash


def test_more_steps_than_can_be_counted_are_refused_in_a_line(capsys):
    code, _, err = tape(capsys, "train", "dqn", "--steps", "3000000000")
    assert code == 2
    assert "steps must be below 2,147,483,648" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_episodes_are_replayed_by_what_a_run_came_to_and_not_by_the_clock(tmp_path, capsys):
    made = ("bench", "--agents", "dqn", *SMOKE, "--results", str(tmp_path))
    assert tape(capsys, *made)[0] == 0
    assert evaluation.replay_runs(tmp_path) == []
    (target,) = (tmp_path / "episodes").glob("*.tape")
    first = target.read_bytes()
    os.utime(target, (0, 0))
    assert evaluation.replay_runs(tmp_path) == []
    assert target.read_bytes() == first, "an old file of the same result stays"
    evaluation.evaluate("random", bundle.verify(target).exam).write_bundle(target)
    os.utime(target, (2**31, 2**31))
    assert evaluation.replay_runs(tmp_path) == []
    assert bundle.verify(target).about["policy"] == "dqn", "a new file of another one does not"


def test_the_tree_is_free_of_what_has_bitten_before():
    root = Path(__file__).parents[2]
    for file in (root / "src").rglob("*.py"):
        text = file.read_text()
        for start in text.split("read_parquet(")[1:]:
            assert "hive_partitioning = false" in start[:200], file
        for start in text.split('"-m", "tapebench.')[:-1]:
            assert start.rstrip().endswith('"-P",'), file


# Checkpoints of others.

SMALL_RUN = training.RunSpec(
    agent="dqn",
    seed=0,
    options={"width": 8, "chunk": 200, "warmup": 200, "replay_size": 200, "batch": 8},
    length=8,
    horizon=8,
    steps=400,
    evaluate_every=400,
    episodes=1,
    last=1,
    rules=(0, 4),
)


@pytest.fixture(scope="module")
def untrained():
    """What a run of nothing would have saved."""
    return api.to_arrays(SMALL_RUN.make_agent().init(seeding.key(0)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, None),
        ({"step": -5}, "is of step -5, which no run reaches"),
        ({"step": 10**30}, "which no run reaches"),
        ({"agent": "ppo"}, r"was made with another agent \('ppo', not 'dqn'\)"),
        ({"length": 9}, "was made with another length"),
        ({"dtype": np.float64}, r"is float64\[.*\], not float32\["),
        ({"dtype": np.float16}, r"is float16\[.*\], not float32\["),
    ],
)
def test_a_checkpoint_is_of_the_run_that_it_lies_in(tmp_path, untrained, change, complaint):
    about = {"agent": "dqn", "length": 8} | {
        key: value for key, value in change.items() if key in ("agent", "length")
    }
    wide = change.get("dtype", np.float32)
    arrays = {
        name: array.astype(wide) if array.dtype == np.float32 else array
        for name, array in untrained.items()
    }
    with store.open_run(tmp_path, SMALL_RUN.id, SMALL_RUN.as_dict()) as run:
        run.save_checkpoint(200, arrays, about)
    if "step" in change:
        (manifest,) = run.path.glob("checkpoints/*.json")
        files.write_json(manifest, files.read_json(manifest) | {"step": change["step"]})
    if complaint is None:
        assert training.load_run(run.path, SMALL_RUN.task).step == 200
    else:
        with pytest.raises(ValueError, match=complaint):
            training.load_run(run.path, SMALL_RUN.task)
