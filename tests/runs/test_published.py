"""Results that come with the package: the same numbers in two small files, or refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import tape
from stored_runs import finish_run, store_run, store_runs
from tapebench.base import files
from tapebench.experiments import api
from tapebench.report import contests
from tapebench.runs import evaluation, published, store, tracks
from tapebench.runs.results import load_results
from tapebench.tasks.task import make_task

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import publish

COMMAND = "tape bench --track tiny --agents first-one --seeds 3"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return store_runs(tmp_path_factory.mktemp("runs"), agents=("first-one", "any-one"))


def seeds_of(runs, agent):
    return [runs / f"main/{agent}/fps30/s{seed:02d}" for seed in range(3)]


@pytest.fixture
def place(runs, tmp_path):
    """Both agents as pieces."""
    for agent in ("first-one", "any-one"):
        published.pack_runs(seeds_of(runs, agent), COMMAND, tmp_path)
    return tmp_path


def test_what_was_packed_is_laid_out_again_with_the_same_numbers(runs, place, tmp_path):
    root = tmp_path / "out" / "runs"
    published.unpack_runs(published.piece_files(place), root)
    (ours,), (theirs,) = (contests.read(where).contests for where in (root, runs))
    assert (ours.title, ours.exam.hash) == (theirs.title, theirs.exam.hash)
    for one, other in zip(ours.entries, theirs.entries, strict=True):
        assert (one.agent, one.seeds, one.curve.steps) == (
            other.agent,
            other.seeds,
            other.curve.steps,
        )
        assert one.specs == other.specs
        assert one.provenance == other.provenance
        for name in one.scores:
            np.testing.assert_array_equal(one.scores[name], other.scores[name])
        for subset in one.by_steps:
            for steps, success in one.by_steps[subset].items():
                np.testing.assert_array_equal(success, other.by_steps[subset][steps])
            np.testing.assert_array_equal(one.curve.success[subset], other.curve.success[subset])
    for path in seeds_of(root, "first-one"):
        assert published.difference(path, runs / path.relative_to(root)) is None
    assert sorted(load_results(root).damaged) == []
    assert [path.name for path in root.parent.iterdir()] == ["runs"]


@pytest.mark.slow
def test_a_piece_is_small_the_same_every_time_and_names_its_command(runs, place, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    about = published.pack_runs(list(reversed(seeds_of(runs, "first-one"))), COMMAND, again)
    assert about.name == "main-first-one-fps30.json"
    for suffix in (".json", ".parquet"):
        made = about.with_suffix(suffix)
        assert made.read_bytes() == (place / made.name).read_bytes()
    assert published.read_piece(about)["command"] == COMMAND
    assert files.read_table(about.with_suffix(".parquet"))["step"].min() == 2000  # 1000 is early


def test_what_was_measured_of_a_run_since_comes_along(runs, tmp_path):
    first, second, _ = seeds_of(runs, "first-one")
    kept = runs / "examined" / "0a1b" / f"first-one-0-{store.result_hash(first)}-led.json"
    other = runs / "computed" / "0a1b" / "mpc-min.json"
    for file in (kept, other):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(file, {"ood": {"success": 0.25}})
    about = published.pack_runs([first, second], COMMAND, tmp_path)
    root = tmp_path / "out" / "runs"
    published.unpack_runs([about], root)
    (found,) = root.glob("*/0a1b/*")
    assert found.relative_to(root) == kept.relative_to(runs)
    assert files.read_json(found) == {"ood": {"success": 0.25}}
    assert store.result_hash(root / first.relative_to(runs)) == store.result_hash(first)
    document = files.read_json(about)
    document["seeds"][0]["measured"] = {"examined/../../x.json": {}}
    about.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="not a place for it"):
        published.unpack_runs([about], tmp_path / "more" / "runs")


def test_what_makes_no_piece_is_refused(runs, tmp_path):
    other = store_run(tmp_path, "first-one", 3, trained_on=[1, 2])
    with pytest.raises(ValueError, match="not made with one setting"):
        published.pack_runs([*seeds_of(runs, "first-one"), other], COMMAND, tmp_path)
    begun = store_run(tmp_path, "any-one", 4)
    (begun / store.MARKER).unlink()
    with pytest.raises(ValueError, match="not finished"):
        published.pack_runs([begun], COMMAND, tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 99}, "schema 99"),
        ({"sha256": "0" * 64}, "is not what"),
        ({"runs": "../../etc/x/y"}, "is not a piece|not enough|too many"),
        ({"runs": "main/..%/fps30"}, "cannot name a directory"),
        ({"seeds": None}, "is not a piece"),
    ],
)
def test_damaged_pieces_are_refused_and_nothing_is_laid_out(place, tmp_path, change, complaint):
    about = published.piece_files(place)[0]
    about.write_text(json.dumps(files.read_json(about) | change))
    root = tmp_path / "out" / "runs"
    with pytest.raises(ValueError, match=complaint):
        published.unpack_runs(published.piece_files(place), root)
    assert list(root.parent.iterdir()) == []


def test_differences_and_their_circumstances_are_told(runs):
    first, second, _ = seeds_of(runs, "any-one")
    assert published.difference(first, first) is None
    assert "figures differ; mean success is" in published.difference(first, second)
    assert published.circumstances(first, second) == []


def test_the_report_of_published_results_needs_no_runs(capsys, monkeypatch, place, tmp_path):
    monkeypatch.setattr(published, "FOLDER", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "CONTESTS", ("tiny",))
    code, out, err = tape(capsys, "report", "--published")
    assert (code, out) == (2, "")
    assert "no finished runs" in err
    monkeypatch.setattr(published, "CONTESTS", ())
    for _ in range(2):  # laid out, then found
        code, out, err = tape(capsys, "report", "--published")
        assert code == 0, err
        assert out.splitlines()[-1] == "report: runs/published/index.html"
    assert "first-one" in (tmp_path / "runs/published/index.html").read_text()


def test_without_pieces_published_results_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(published, "FOLDER", str(tmp_path / "none"))
    for argv in (("report", "--published"), ("reproduce", "main", "--verify")):
        code, out, err = tape(capsys, *argv)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "comes without results" in err


@pytest.mark.slow
def test_published_runs_sit_exams_by_name_with_the_seeds_that_have_weights(monkeypatch, tmp_path):
    chosen = ("full-rppo-fps30", "full-rppo-matched30", "lite-dqn-fps-0")
    pieces = [path for path in published.piece_files() if path.stem in chosen]
    published.unpack_runs(pieces, tmp_path / "runs")
    monkeypatch.setattr(published, "directory", lambda: tmp_path / "runs")
    task = make_task()
    entrants = evaluation.load_published("full/rppo/fps30", task)
    assert [entrant.label for entrant in entrants] == [(seed, 200_000) for seed in range(3)]
    with pytest.raises(ValueError, match="come without weights"):
        evaluation.load_published("lite/dqn/fps-0", task)
    with pytest.raises(ValueError, match="several agents"):
        evaluation.load_published("full/rppo", task)
    with pytest.raises(ValueError, match="no published runs"):
        evaluation.evaluate("published/full/nobody", length=8, horizon=4)


@pytest.mark.slow
def test_publishing_takes_whole_groups_and_looks_up_what_makes_them(capsys, monkeypatch, tmp_path):
    smoke = tracks.get_track("smoke")
    for agent, seeds in (("dqn", 2), ("ppo", 1)):
        for spec in api.Scale(smoke).runs(agent, seeds):
            finish_run(tmp_path / "runs", spec)
    strange = smoke.spec("dqn", experiment="smoke-strange", options={"width": 7})
    finish_run(tmp_path / "runs", strange)
    monkeypatch.setattr(publish, "FOLDER", tmp_path / "pieces")
    publish.main([str(tmp_path / "runs"), "smoke"])
    out, err = capsys.readouterr()
    assert out.startswith("smoke/dqn/fps30: 2 seeds")
    assert sorted(err.splitlines()) == [
        "smoke-strange/dqn/fps30: nothing makes these runs today, left out",
        "smoke/ppo/fps30: 1 of 2 seeds, left out",
    ]
    (about,) = published.piece_files(tmp_path / "pieces")
    assert (
        published.read_piece(about)["command"] == "tape bench --track smoke --agents dqn --seeds 2"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_published_runs_are_made_again_to_the_bit(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = ("bench", "--track", "smoke", "--agents", "dqn", "ppo", "rad", "--seeds", "1")
    code, _, err = tape(capsys, *made)
    assert code == 0, err
    place = tmp_path / "pieces"
    place.mkdir()
    for agent in ("dqn", "ppo", "rad"):
        published.pack_runs([tmp_path / f"runs/smoke/{agent}/fps30/s00"], "tape bench", place, 1)
    monkeypatch.setattr(published, "FOLDER", str(place))
    # What was learned comes along and does what it did.
    exam = tracks.get_track("smoke").exam(rules=[0, 30, 204])
    for agent in ("dqn", "ppo", "rad"):
        name = f"smoke/{agent}/fps30/s00"
        found = [
            evaluation.evaluate(root / name, exam).runs[0].cells
            for root in (tmp_path / "runs", published.directory())
        ]
        np.testing.assert_array_equal(*found)
    verify = ("reproduce", "main", "--verify", "--results", "again")
    code, out, err = tape(capsys, *verify)
    assert code == 0, err
    assert out.count("the same to the bit") == 2
    code, out, err = tape(capsys, "reproduce", "main", "--published", "--results", "shown")
    assert code == 0, err
    assert "dqn" in out
    # A published figure that is not what comes of it: said, and a failure on the same machine.
    known = published.directory()
    for path in load_results(known).paths:
        table = files.read_table(path / "curve.parquet")
        table["success"] = table["success"] + np.float32(0.25)
        files.write_table(path / "curve.parquet", table)
        store.mark(path)
    code, out, _ = tape(capsys, *verify, "--json")
    assert code == 1
    assert all("figures differ" in run["difference"] for run in json.loads(out)["runs"])
