import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tapebench.base.files import (
    BusyError,
    provenance,
    read_json,
    read_table,
    write_json,
    write_table,
)
from tapebench.runs import store
from tapebench.runs.results import load_results
from tapebench.runs.store import RunId, open_run

RUN = RunId("main", "dqn", "fps30", 7)


def table(step, rows=4):
    return {
        "step": np.full(rows, step),
        "agent": np.full(rows, "dqn", object),
        "success": np.arange(rows) % 2 == 0,
        "return": np.linspace(-1, 1, rows).astype(np.float32),
    }


def finished(root, run_id=RUN, summary=None, **spec):
    with open_run(root, run_id, spec) as run:
        run.write("eval", table(100) | {"seed": np.full(4, run_id.seed)})
        run.finish(summary or {"id": {"success": 0.25, "interval": [0.1, 0.4]}})
    return root / str(run_id)


def test_tables_come_back_as_they_were(tmp_path):
    given = table(1) | {
        "missing": np.array([1.0, np.nan, 3.0, 4.0]),
        "rule": np.arange(4, dtype=np.int16),
    }
    write_table(tmp_path / "t.parquet", given)
    found = read_table(tmp_path / "t.parquet")
    assert list(found) == list(given)
    for name, column in given.items():
        np.testing.assert_array_equal(found[name], column)
    assert found["rule"].dtype == np.int16
    with pytest.raises(ValueError, match="differ in length"):
        write_table(tmp_path / "u.parquet", {"a": np.zeros(2), "b": np.zeros(3)})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ValueError, match=r"cannot read .*bad.parquet"):
        read_table(tmp_path / "bad.parquet")


def test_a_run_is_found_only_once_it_is_done(tmp_path):
    with open_run(tmp_path, RUN, {"steps": 10}) as run:
        run.write("eval", table(100))
        assert not run.is_done
        assert load_results(tmp_path).paths == ()
        run.finish({"id": {"success": 0.5}, "seconds": 3})
        assert run.is_done
    found = load_results(tmp_path)
    assert [path.name for path in found.paths] == ["s07"]
    assert found.runs == [
        {
            "run": "main/dqn/fps30/s07",
            "experiment": "main",
            "agent": "dqn",
            "split": "fps30",
            "seed": 7,
            "id_success": 0.5,
            "seconds": 3,
        }
    ]


def test_a_run_that_goes_on_must_have_been_asked_the_same(tmp_path):
    with open_run(tmp_path, RUN, {"steps": 10, "widths": (64, 64)}):
        pass
    with open_run(tmp_path, RUN, {"steps": 10, "widths": (64, 64)}):
        pass
    with (
        pytest.raises(ValueError, match=r"main/dqn/fps30/s07 was begun with another steps"),
        open_run(tmp_path, RUN, {"steps": 11, "widths": (64, 64)}),
    ):
        pass
    with open_run(tmp_path, RUN, {"steps": 11}, anew=True) as run:
        assert run.spec["steps"] == 11


def test_rows_from_a_step_on_are_replaced_when_a_run_goes_on(tmp_path):
    with open_run(tmp_path, RUN, {}) as run:
        for step in (100, 200, 300):
            run.extend("curve", table(step))
        run.extend("curve", table(200, rows=2))
        assert run.read("curve")["step"].tolist() == [100] * 4 + [200] * 2


@pytest.mark.slow
def test_two_writers_cannot_hold_the_same_run(tmp_path):
    with open_run(tmp_path, RUN, {}):
        code = f"""
            from pathlib import Path
            from tapebench.base.files import BusyError
            from tapebench.runs.store import RunId, open_run
            try:
                with open_run(Path({str(tmp_path)!r}), RunId("main", "dqn", "fps30", 7), {{}}):
                    print("got in")
            except BusyError as error:
                print(error)
        """
        other = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "another process is writing main/dqn/fps30/s07" in other.stdout
        with open_run(tmp_path, RunId("main", "dqn", "fps30", 8), {}):
            pass


@pytest.mark.parametrize("part", ["", "..", "a/b", ".hidden", "a b", "x" * 100])
def test_an_id_can_only_name_a_directory_below_the_root(part):
    with pytest.raises(ValueError, match="cannot name a directory"):
        RunId(part, "dqn", "fps30", 0)


def test_checkpoints_come_back_and_older_ones_go(tmp_path):
    about = {"agent": "dqn", "config": {"width": 64}}
    state = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.array(5, np.uint32)}
    with open_run(tmp_path, RUN, {}) as run:
        assert run.load_checkpoint(about) is None
        run.save_checkpoint(100, state, about)
        run.save_checkpoint(200, {**state, "w": state["w"] + 1}, about)
        step, found = run.load_checkpoint(about)
        assert step == 200
        np.testing.assert_array_equal(found["w"], state["w"] + 1)
        assert (found["step"].dtype, found["step"].shape) == (np.uint32, ())
        assert len(list((run.path / "checkpoints").iterdir())) == 2
        with pytest.raises(ValueError, match="made with another config"):
            run.load_checkpoint({**about, "config": {"width": 65}})


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path):
    with open_run(tmp_path, RUN, {}) as run:
        run.save_checkpoint(100, {"w": np.zeros(100)}, {})
        file = run.path / "checkpoints" / "000000000100.safetensors"
        manifest = file.with_suffix(".json")
        good = file.read_bytes()
        file.write_bytes(good[:-1])
        with pytest.raises(ValueError, match=r"damaged: .* bytes instead of"):
            run.load_checkpoint()
        file.write_bytes(good[:-1] + b"x")
        with pytest.raises(ValueError, match="damaged: its content"):
            run.load_checkpoint()
        file.unlink()
        with pytest.raises(ValueError, match="is missing"):
            run.load_checkpoint()
        manifest.write_text("{}")
        with pytest.raises(ValueError, match="is not a checkpoint manifest"):
            run.load_checkpoint()
        manifest.write_text("{")
        with pytest.raises(ValueError, match="not valid JSON"):
            run.load_checkpoint()


def test_a_finished_run_whose_files_are_gone_is_reported_and_not_counted(tmp_path):
    path = finished(tmp_path)
    (path / "eval.parquet").unlink()
    found = load_results(tmp_path)
    assert not found.paths
    (damage,) = found.damaged
    assert damage.path == path
    assert damage.reason == "eval.parquet is missing"


def test_a_failed_write_leaves_the_old_file_and_says_why(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"a": float("nan")})
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"cannot write .*folder"):
        write_json(tmp_path / "folder", {})
    assert read_json(path) == {"a": 1}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "folder"]


def test_a_full_disk_is_reported_by_name(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ValueError, match=r"cannot write .*a.json: No space left"):
        write_json(tmp_path / "a.json", {})


def test_queries_see_all_finished_runs_and_nothing_else(tmp_path):
    for seed in range(3):
        finished(tmp_path, RunId("main", "dqn", "fps30", seed), {"id": {"success": seed / 10}})
    finished(tmp_path, RunId("main", "ppo", "fps30", 0), {"id": {"success": 0.5}, "note": "x"})
    results = load_results(tmp_path)
    names, rows = results.query(
        "select agent, count(*) as n, avg(id_success) as s from runs group by agent order by agent"
    )
    assert names == ["agent", "n", "s"]
    assert rows == [("dqn", 3, pytest.approx(0.1)), ("ppo", 1, 0.5)]
    assert results.query("select count(*), sum(success::int) from eval")[1] == [(16, 8)]
    assert results.columns("select distinct seed from eval order by seed")["seed"].tolist() == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "drop table runs",
        "select 1; select 2",
        "copy (select 1) to 'x.csv'",
        "copy runs to 'x.csv'",
        "attach 'x.db'",
        "set enable_external_access = true",
        "install httpfs",
        "create table x as select 1",
        "insert into runs select * from runs",
        "pragma database_list",
        "",
        "selec 1",
        "select * from nowhere",
        "select * from read_text('/etc/passwd')",
        "select * from read_csv('/etc/passwd')",
        "select * from glob('/etc/*')",
        "select * from '/etc/passwd'",
    ],
)
def test_queries_write_nothing_and_read_nothing_outside(tmp_path, sql, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finished(tmp_path / "runs")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"\S") as refusal:
        load_results(tmp_path / "runs").query(sql)
    assert "\n" not in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_provenance_says_with_what_and_where(tmp_path):
    found = provenance(1.5)
    assert found["versions"]["numpy"] == np.__version__
    assert found["seconds"] == 1.5
    assert found["machine"]["cores"] == os.cpu_count()
    json.dumps(found)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from tapebench.runs.store import RunId, open_run

root, print_done = Path(sys.argv[1]), lambda seed: print(seed, flush=True)
print_done("ready")
rows = 2000
for seed in range(int(sys.argv[2]), 10_000):
    run_id = RunId("main", "dqn", "fps30", seed)
    with open_run(root, run_id, {"seed": seed}) as run:
        for step in range(3):
            run.extend("eval", {"step": np.full(rows, step), "value": np.full(rows, seed)})
            run.save_checkpoint(step, {"w": np.full(5000, seed)}, {})
        run.finish({"value": seed})
    print_done(seed)
"""


@pytest.mark.slow
def test_killed_at_any_moment_no_finished_run_is_lost_and_none_is_half_read(tmp_path):
    chance = random.Random(0)
    done: set[int] = set()
    killed_midway = 0
    for _ in range(15):
        first = max(done, default=-1) + 1
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.25))
        writer.send_signal(signal.SIGKILL)
        done |= {int(line) for line in writer.stdout.read().split()}
        writer.wait()
        writer.stdout.close()
        results = load_results(tmp_path)
        assert results.damaged == ()
        found = {run["seed"] for run in results.runs}
        # What was reported done is there; one more may have been finished unreported.
        assert done <= found
        assert len(found - done) <= 1
        done = found
        unfinished = [
            p for p in tmp_path.glob("main/dqn/fps30/s*") if not (p / store.MARKER).exists()
        ]
        killed_midway += bool(unfinished)
        for path in results.paths[-2:]:
            seed = int(path.name[1:])
            values = read_table(path / "eval.parquet")
            assert len(values["value"]) == 6000
            assert set(values["value"]) == {seed}
            assert store.load_checkpoint(path)[0] == 2
            for name, about in read_json(path / store.MARKER)["files"].items():
                assert (path / name).stat().st_size == about["size"]
    assert killed_midway > 3, "the test must hit unfinished runs to mean anything"


def write_same(root, seed, barrier, answers):
    barrier.wait()
    try:
        with open_run(root, RunId("main", "dqn", "fps30", 0), {}) as run:
            for _ in range(5):
                run.write("eval", {"value": np.full(3000, seed)})
            run.finish({"value": seed})
        answers.put(seed)
    except BusyError:
        answers.put(None)


@pytest.mark.slow
def test_writers_of_the_same_run_cannot_mix(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(3), context.Queue()
    writers = [
        context.Process(target=write_same, args=(tmp_path, seed, barrier, answers))
        for seed in range(3)
    ]
    for writer in writers:
        writer.start()
    wrote = {answers.get(timeout=60) for _ in writers} - {None}
    for writer in writers:
        writer.join()
    results = load_results(tmp_path)
    assert results.damaged == ()
    assert results.runs[0]["value"] in wrote
    values = set(read_table(results.paths[0] / "eval.parquet")["value"])
    assert values == {results.runs[0]["value"]}


@pytest.mark.slow
def test_ten_thousand_runs_are_summarised_in_seconds(tmp_path):
    path = finished(tmp_path, RunId("main", "dqn", "fps30", 0), {"id": {"success": 0.0}})
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    spec = json.loads(files["spec.json"])
    for number in range(1, 10_000):
        other = tmp_path / f"main/agent{number % 100}/fps30/s{number:04d}"
        other.mkdir(parents=True)
        for name, data in files.items():
            (other / name).write_bytes(data)
        spec["id"] = f"main/a{number % 10}/fps30/s{number % 100:02d}"
        (other / "spec.json").write_text(json.dumps(spec))
        store.mark(other)
    began = time.monotonic()
    results = load_results(tmp_path)
    _, rows = results.query("select agent, count(*), avg(id_success) from runs group by agent")
    assert sum(row[1] for row in rows) == 10_000
    assert time.monotonic() - began < 20
