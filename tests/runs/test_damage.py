"""Damage is never silent: every command finds the same, names it, and says what makes it again."""

import json
import os
import re
import shlex
import shutil

import duckdb
import pytest

from commands import tape
from stored_runs import EXAM, store_run
from sweeps import TINY
from tapebench.base import files
from tapebench.exam.exam import make_exam
from tapebench.report import contests
from tapebench.runs import evaluation, store, sweep, tracks, training
from tapebench.runs.plan import estimate_seconds, make_plan
from tapebench.runs.results import load_results

pytestmark = pytest.mark.slow  # nearly all of them start processes


@pytest.fixture
def runs(tiny_runs, tmp_path):
    """A copy of trained runs, in a directory called `runs`."""
    shutil.copytree(tiny_runs, tmp_path / "runs")
    return tmp_path / "runs"


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def zero_tail(path):
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2].ljust(size, b"\0"))


def change_a_digit(path):
    text = path.read_text()
    at = next(match.end() - 1 for match in re.finditer(r"0\.\d{4}", text))
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def replaced_by(text):
    return lambda path: path.write_text(text)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path):
    path.unlink()
    path.mkdir()


DAMAGE = {
    "table cut": ("eval.parquet", cut),
    "table with its end lost, of the same size": ("curve.parquet", zero_tail),
    "table gone": ("train.parquet", lambda path: path.unlink()),
    "summary broken": ("summary.json", replaced_by("{")),
    "summary another figure, of the same size": ("summary.json", change_a_digit),
    "summary a list": ("summary.json", replaced_by("[]")),
    "spec broken": ("spec.json", replaced_by("{")),
    "spec changed": ("spec.json", lambda path: path.write_text(path.read_text() + " ")),
    "provenance emptied": ("provenance.json", replaced_by("{}")),
    "marker x": ("done.json", replaced_by("x")),
    "marker {}": ("done.json", replaced_by("{}")),
    "marker []": ("done.json", replaced_by("[]")),
    "marker without files": ("done.json", replaced_by('{"schema": 1, "files": {}}')),
    "marker with strange files": (
        "done.json",
        replaced_by('{"schema": 1, "files": {"spec.json": 3, "summary.json": {"size": "x"}}}'),
    ),
    "marker of names outside": (
        "done.json",
        replaced_by('{"schema": 1, "files": {"spec.json": {}, "summary.json": {}, "../x": {}}}'),
    ),
    "marker a pipe": ("done.json", pipe),
    "marker without end": ("done.json", endless),
    "marker a directory": ("done.json", folder),
    "summary a pipe": ("summary.json", pipe),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_of_any_kind_is_found_by_readers_and_planners_alike(kind, runs):
    name, damage = DAMAGE[kind]
    path = runs / "tiny/dqn/fps30/s01"
    damage(path / name)
    assert not store.is_finished(path)
    found = load_results(runs)
    assert [damaged.path for damaged in found.damaged] == [path]
    assert len(found.paths) == 5
    plan = make_plan(TINY, runs, seeds=range(3))
    assert [str(spec.id) for spec in plan.todo] == ["tiny/dqn/fps30/s01"]
    assert list(plan.damaged) == ["tiny/dqn/fps30/s01"]
    assert {len(entry.seeds) for entry in contests.read(runs).contests[0].entries} == {2, 3}
    assert estimate_seconds(plan.todo[0], runs) > 0


READERS = {
    "query": ("query", "select count(*) from runs", "--results", "runs"),
    "power": ("power", "--results", "runs"),
    "evaluate": ("evaluate", "runs/tiny/dqn", "--length", "8", "--rules", "0,4"),
    "compare": ("compare", "runs/tiny/dqn", "runs/tiny/ppo"),
    "unseen": ("unseen", "runs/tiny/dqn", "runs/tiny/dqn"),
    "report": ("report", "runs"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_run_is_named_by_every_reader(reader, runs, capsys):
    cut(runs / "tiny/dqn/fps30/s01/eval.parquet")
    _, _, err = tape(capsys, *READERS[reader])
    said = [line for line in err.splitlines() if "tiny/dqn/fps30/s01 is damaged" in line]
    assert len(set(said)) == 1
    assert "eval.parquet has 100 bytes instead of" in said[0]
    assert said[0].endswith("tape train runs/tiny/dqn/fps30/s01 makes it again")


def test_python_is_warned_of_damaged_runs_as_the_command_line_is(runs):
    cut(runs / "tiny/dqn/fps30/s01/eval.parquet")
    exam = make_exam(length=8, horizon=8, episodes=1, rules=[4])
    with pytest.warns(files.DamageWarning, match="tiny/dqn/fps30/s01 is damaged"):
        assert len(evaluation.evaluate(runs / "tiny/dqn", exam).runs) == 2


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_a_damaged_run_that_is_named_is_refused_in_a_line(command, runs, capsys):
    cut(runs / "tiny/dqn/fps30/s01/eval.parquet")
    names = ["runs/tiny/dqn/fps30/s01"] * (1 + (command == "compare"))
    code, out, err = tape(capsys, command, *names, "--length", "8")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "tape train runs/tiny/dqn/fps30/s01 makes it again" in err


@pytest.mark.parametrize("kind", ["table cut", "spec broken", "marker x"])
def test_the_command_that_is_named_makes_the_run_again_as_it_was(kind, runs, tiny_runs, capsys):
    name, damage = DAMAGE[kind]
    run = "tiny/dqn/fps30/s01"
    damage(runs / run / name)
    (found,) = load_results("runs").damaged
    command, _, _ = found.remedy.partition(" makes it again")
    code, out, err = tape(capsys, *shlex.split(command)[1:], "--workers", "1")
    assert code == 0
    assert f"runs/{run} is damaged" in err
    assert err.rstrip().endswith("making it again")
    assert run in out
    assert load_results(runs).damaged == ()
    ours, theirs = (files.read_json(root / run / "summary.json") for root in (runs, tiny_runs))
    assert ours == theirs


def test_without_any_spec_the_advice_is_to_remove_the_run(runs, capsys):
    for seed in (1, 2):
        shutil.rmtree(runs / f"tiny/dqn/fps30/s0{seed}")
    (runs / "tiny/dqn/fps30/s00/spec.json").write_text("{")
    (found,) = load_results("runs").damaged
    assert "rm -r runs/tiny/dqn/fps30/s00 and repeat the command" in found.remedy
    code, _, err = tape(capsys, "train", "runs/tiny/dqn/fps30/s00")
    assert code == 2
    assert "rm -r runs/tiny/dqn/fps30/s00" in err


def figures(page_table):
    """The agents' rows of a written main table: name, figures, seeds."""
    rows = duckdb.sql(f"select * from read_csv('{page_table}', header = true)")
    names = rows.columns
    return {
        row["agent"]: row
        for values in rows.fetchall()
        if (row := dict(zip(names, values, strict=True)))["kind"] == "agent"
    }


@pytest.mark.usefixtures("tiny")
def test_bench_makes_a_damaged_run_again_and_prints_what_the_page_says(runs, tiny_runs, capsys):
    cut(runs / "tiny/dqn/fps30/s01/eval.parquet")
    (runs / "tiny/ppo/fps30/s00/done.json").write_text("{}")
    cut(runs / "tiny/ppo/fps30/s00/checkpoints/000000001000.safetensors")
    command = ("bench", "--track", "tiny", "--seeds", "3", "--results", "runs", "--workers", "1")
    code, out, err = tape(capsys, *command)
    assert code == 0
    for run in ("tiny/dqn/fps30/s01", "tiny/ppo/fps30/s00"):
        assert re.search(rf"runs/{run} is damaged \(.+\): making it again\n", err)
        ours, theirs = (files.read_json(root / run / "summary.json") for root in (runs, tiny_runs))
        assert ours == theirs
    page = figures(runs / "report/tables/tiny-fps30-main.csv")
    assert {name: row["seeds"] for name, row in page.items()} == {"dqn-conv": 3, "ppo-conv": 3}
    code, document, _ = tape(capsys, *command, "--json")
    said = {row["name"]: row for row in json.loads(document)["rows"]}
    for name, row in page.items():
        assert said[name]["seeds"] == row["seeds"]
        for key, column in (("id", "ID success"), ("ood", "OOD success"), ("drop", "drop")):
            for end, suffix in (("mean", ""), ("low", " low"), ("high", " high")):
                assert said[name][key][end] == pytest.approx(row[column + suffix], abs=1e-12)
        main = out.split("strict success")[1]
        printed = next(line for line in main.splitlines() if line.startswith(f" {name} "))
        assert f"{row['ID success']:.3f}" in printed
        assert f"{row['OOD success']:.3f}" in printed
        assert re.search(r" 3 +\d", printed)


@pytest.mark.usefixtures("tiny")
def test_what_is_damaged_outside_the_plan_is_named_by_bench_too(runs, capsys):
    cut(runs / "tiny/ppo/fps30/s01/eval.parquet")
    _, out, err = tape(
        capsys, "bench", "--track", "tiny", "--agents", "dqn", "--seeds", "3", "--results", "runs"
    )
    assert "runs/tiny/ppo/fps30/s01 is damaged" in err
    assert "tape train runs/tiny/ppo/fps30/s01 makes it again" in err
    page = figures(runs / "report/tables/tiny-fps30-main.csv")
    assert page["ppo-conv"]["seeds"] == 2
    assert re.search(r"(?m)^ ppo-conv .* 2 +\d", out)


def test_a_changed_byte_in_a_large_file_is_found_by_checking_every_byte(runs, capsys):
    code, out, _ = tape(capsys, "report", "runs", "--check")
    assert code == 0
    assert out == "6 runs are sound to the last byte, 0 damaged\n"
    file = runs / "tiny/dqn/fps30/s01/eval.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code, out, err = tape(capsys, "report", "runs", "--check", "--json")
    assert code == 1
    (found,) = json.loads(out)["damaged"]
    assert found["reason"] == "eval.parquet is not what was written"
    assert "tape train runs/tiny/dqn/fps30/s01 makes it again" in err
    assert not (runs / "report").exists()


def test_a_linked_agent_is_found_and_asked_once_and_a_loop_ends(runs, tmp_path, capsys):
    shutil.move(runs / "tiny/dqn", tmp_path / "elsewhere")
    (runs / "tiny/dqn").symlink_to(tmp_path / "elsewhere")
    (runs / "tiny/again").symlink_to(tmp_path / "elsewhere")
    (runs / "tiny/loop").symlink_to(runs)
    found = load_results(runs)
    assert len(found.paths) == 6
    assert found.query("select count(*) from eval where agent = 'dqn'")[1][0][0] > 0
    shown = contests.read(runs).contests[0]
    assert {entry.agent: len(entry.seeds) for entry in shown.entries} == {"dqn": 3, "ppo": 3}
    code, _, err = tape(capsys, "evaluate", "runs/tiny/dqn/fps30", "--length", "8", "--rules", "4")
    assert (code, err) == (0, "")
    with pytest.raises(ValueError, match="Permission"):
        found.query(f"select * from read_text('{tmp_path}/elsewhere/../x')")


def test_a_directory_that_cannot_be_read_is_named(runs, monkeypatch, capsys):
    closed, scan = str(runs / "tiny/dqn/fps30/s02"), os.scandir

    def refuse(path):
        if os.path.abspath(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    _, out, err = tape(capsys, "query", "select count(*) as n from runs", "--json")
    assert json.loads(out)["rows"] == [[5]]
    assert "runs/tiny/dqn/fps30/s02 is damaged (cannot be read: Permission denied)" in err


FOREIGN = {
    "id null": ("spec.json", lambda known: {**known, "id": None}),
    "id with markup": ("spec.json", lambda known: {**known, "id": r"main/$\bogus$/fps30/s00"}),
    "id of a path": ("spec.json", lambda known: {**known, "id": "../../x/s00"}),
    "spec a list": ("spec.json", lambda known: []),
    "spec a number": ("spec.json", lambda known: 3),
    "exam null": ("spec.json", lambda known: {**known, "exam": None}),
    "exam strange": ("spec.json", lambda known: {**known, "exam": {"version": 1, "train": 3}}),
    "trained on text": ("spec.json", lambda known: {**known, "trained_on": "all"}),
    "summary a list": ("summary.json", lambda known: []),
    "summary empty": ("summary.json", lambda known: {}),
    "summary side a number": ("summary.json", lambda known: {**known, "id": 3}),
    "summary steps a number": ("summary.json", lambda known: {**known, "ood": {"by_steps": 3}}),
    "curve a list": ("summary.json", lambda known: {**known, "curve": []}),
    "curve with gaps": ("summary.json", lambda known: {**known, "curve": {"step": [1], "id": []}}),
    "last a text": ("summary.json", lambda known: {**known, "last": "x"}),
    "provenance a list": ("provenance.json", lambda known: []),
    "provenance strange": ("provenance.json", lambda known: {"versions": 3, "seconds": "x"}),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_one_foreign_run_ends_no_reader(kind, tmp_path, capsys):
    for agent in ("any-one", "first-one"):
        for seed in range(2):
            store_run(tmp_path / "runs", agent, seed)
    path = tmp_path / "runs/main/any-one/fps30/s00"
    name, change = FOREIGN[kind]
    files.write_json(path / name, change(files.read_json(path / name)))
    store.mark(path)  # it was meant
    commands = [
        ("query", "select agent, ood_success from runs", "--results", "runs"),
        ("power", "--results", "runs"),
        ("compare", "runs/main/any-one", "runs/main/first-one"),
        ("unseen", "runs/main/any-one", "runs/main/first-one"),
    ]
    for command in commands:
        code, _, err = tape(capsys, *command)
        assert code in (0, 2)
        assert "Traceback" not in err
    found = contests.read(tmp_path / "runs")
    (contest,) = found.contests
    seeds = {entry.agent: entry.seeds for entry in contest.entries}
    assert seeds["first-one"] == (0, 1)
    if name != "provenance.json" or kind.endswith("list"):
        assert seeds["any-one"] == (1,)
        assert any("main/any-one/fps30/s00" in said for said in found.missing)
    evaluation.replay_runs(tmp_path / "runs")


def test_a_table_that_is_none_inside_is_named_and_the_others_are_shown(tmp_path, monkeypatch):
    for seed in range(3):
        store_run(tmp_path, "any-one", seed)
    file = tmp_path / "main/any-one/fps30/s01/curve.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:20] + b"\xff" * (len(data) - 40) + data[-20:])
    for large, what in ((store.SMALL, "s01 is damaged"), (0, "s01 is left out")):
        monkeypatch.setattr(store, "SMALL", large)  # tables above it are not hashed
        found = contests.read(tmp_path)
        assert found.contests[0].entries[0].seeds == (0, 2)
        (said,) = [said for said in found.missing if what in said]
        assert "tape train" in said


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"lines": {"random": {"success": [1]}}}'])
def test_damaged_notes_of_sweeps_and_baselines_are_named_and_made_again(text, runs, capsys):
    plan = make_plan(TINY, runs)
    (runs / "lines").mkdir(exist_ok=True)
    lines = runs / "lines" / f"{plan.exam.hash}.json"
    lines.write_text(text)
    (runs / "sweeps/tiny-0.json").write_text(text)
    assert any(str(lines) in said for said in contests.read(runs).missing)
    command = ("bench", "--track", "tiny", "--seeds", "3", "--results", str(runs), "--json")
    code, out, err = tape(capsys, *command)
    assert code == 0
    assert f"{lines} is damaged: measuring it again" in err
    assert "tiny-0.json" in json.loads(out)["facts"]["not counted"]
    assert "random" in files.read_json(lines)["lines"]


BEGUN = {
    "no seconds": lambda path: (path / "provenance.json").write_text("{}"),
    "a state cut short": lambda path: cut(next((path / "checkpoints").glob("*.safetensors"))),
    "a manifest that is none": lambda path: next((path / "checkpoints").glob("*.json")).write_text(
        "junk"
    ),
    "a manifest that is a pipe": lambda path: pipe(next((path / "checkpoints").glob("*.json"))),
    "a table cut short": lambda path: cut(path / "curve.parquet"),
    "a table gone": lambda path: (path / "curve.parquet").unlink(),
    "another spec": lambda path: (path / "spec.json").write_text("[]"),
}


@pytest.mark.parametrize("kind", BEGUN)
def test_an_unfinished_run_whose_files_are_damaged_begins_anew_and_says_so(kind, tmp_path):
    spec = TINY.spec("dqn", steps=2_000, evaluate_every=1_000, last=1)
    chunks = iter([True])
    with pytest.raises(training.Stopped):
        training.run(spec, tmp_path / "a", stop=lambda: next(chunks))
    path = tmp_path / "a" / str(spec.id)
    BEGUN[kind](path)
    events = []
    training.run(spec, tmp_path / "a", report=events.append)
    notes = [event["note"] for event in events if "note" in event]
    assert len(notes) == 1
    assert notes[0].startswith("begun anew: ")
    assert [event["step"] for event in events if "note" not in event] == [1_000, 2_000]
    training.run(spec, tmp_path / "b")
    ours, theirs = (
        files.read_json(tmp_path / root / str(spec.id) / "summary.json") for root in "ab"
    )
    assert ours == theirs


def test_a_damaged_run_that_was_asked_otherwise_is_not_replaced(runs):
    spec = tracks.tracks()["smoke"].spec("dqn", experiment="tiny")
    cut(runs / "tiny/dqn/fps30/s00/eval.parquet")
    (failure,) = sweep.run_all([spec], runs, workers=1)
    assert "was begun with another" in failure.reason


def test_bundles_that_are_no_files_are_not_waited_for(tmp_path):
    store_run(tmp_path, "any-one", 0)
    os.mkfifo(tmp_path / "x.tape")
    assert contests.read(tmp_path).contests[0].exam.hash == EXAM.hash
