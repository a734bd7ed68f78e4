"""`tape bench`: one command that survives anything and says what failed."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from commands import tape
from halts import release, wait_for_end
from ray_cluster import children
from sweeps import SMOKE, TINY, same_results
from tapebench import agents
from tapebench.base.files import read_json, read_table, write_json
from tapebench.exam import bundle
from tapebench.report import contests, summary
from tapebench.runs import evaluation, store, sweep, tracks
from tapebench.runs.plan import START, estimate_seconds, make_plan, speed_of
from tapebench.runs.results import load_results
from tapebench.tasks import folds, splits

pytestmark = pytest.mark.slow  # nearly all of them start processes

COMMAND = [sys.executable, "-c", "from tapebench.cli import main; main()", "bench"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_runs):
    """The tiny track, done."""
    root = tmp_path_factory.mktemp("tiny")
    for run in (f"tiny/{agent}/fps30/s0{seed}" for agent in TINY.agents for seed in range(2)):
        shutil.copytree(tiny_runs / run, root / run)
    return root


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A smoke sweep that nothing happened to."""
    root = tmp_path_factory.mktemp("smoke")
    done = subprocess.run(
        [*COMMAND, "--track", "smoke", "--results", str(root)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout, done.stderr


ONE_WORKER = ("--track", "smoke", "--workers", "1")

FEW = (*ONE_WORKER, "--agents", "dqn,ppo")
"""Of `smoke` enough to be disturbed: four runs of four evaluations each."""


def copy_baselines(source, root):
    """What others have measured without training need not be measured again."""
    shutil.copytree(source / "lines", root / "lines")


def same_runs(ours, theirs, count):
    """So many runs are there, each as it is among others that nothing happened to."""
    found = load_results(ours).paths
    assert len(found) == count
    for path in found:
        same_results(path, theirs / path.relative_to(ours.resolve()))


# The whole of it


def test_the_smoke_track_from_nothing_to_a_page(capsys, undisturbed):
    root, out, err = undisturbed
    assert re.findall(r"(?m)^TAPE smoke: (.+?) *$", out)[:2] == [
        "success by stratum",
        "strict success",
    ]
    assert out.rstrip().endswith(f"report: {root}/report/index.html")
    agents = {f"{name}-conv" for name in SMOKE.agents}
    for name in (*agents, "random", "flip-ones", "greedy", "mpc", "exact ceiling"):
        assert re.search(rf"(?m)^ {name} ", out)
    assert "runs are done" not in out
    assert "8/8" in err
    before = {path: (path / store.MARKER).stat().st_mtime_ns for path in load_results(root).paths}
    code, again, err = tape(capsys, "bench", "--track", "smoke", "--results", str(root), "--json")
    assert code == 0
    assert "8 of 8 runs are done already" in err
    document = json.loads(again)
    assert {row["name"] for row in document["rows"] if row["kind"] == "agent"} == agents
    for row in document["rows"]:
        for side in ("id", "ood"):
            assert 0 <= row[f"beyond_reflex_{side}"]["mean"] <= 1
    assert document["failures"] == []
    assert "wall clock" in document["facts"]
    assert "machines" in document["facts"]
    for path, stamp in before.items():
        assert (path / store.MARKER).stat().st_mtime_ns == stamp


def test_a_track_over_folds_is_one_table_with_the_cost_of_unseen(capsys, tmp_path, monkeypatch):
    rules = tuple(sorted(rule for part in folds.parts()[:2] for rule in part))
    over_folds = replace(
        TINY,
        name="folded",
        length=folds.LENGTH,
        horizon=folds.HORIZON,
        split="folds-0",
        folds=folds.NAMES[:2],
        rules=rules,
        agents=("ppo",),
    )
    known = tracks.tracks()
    monkeypatch.setattr(tracks, "tracks", lambda: {**known, "folded": over_folds})
    command = ["bench", "--track", "folded", "--results", str(tmp_path)]
    code, out, _ = tape(capsys, *command)
    assert code == 0
    assert "TAPE folded: strict success on rules seen and unseen" in out
    assert "TAPE folded: the cost of unseen" in out
    last = out.splitlines()[-4:]
    starts = ("Acts on the law", "What an unseen rule costs", "To try next", "report: ")
    assert all(line.startswith(start) for line, start in zip(last, starts, strict=True))
    assert "without memory of the episode: ppo-conv" in last[0]
    assert len(load_results(tmp_path).paths) == 4
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["folded-ppo-folds-0.tape"]
    code, out, err = tape(capsys, *command, "--json")
    assert "4 of 4 runs are done already" in err
    document = json.loads(out)
    (row,) = (row for row in document["rows"] if row["kind"] == "agent")
    (costs,) = document["folds"]
    assert costs["seeds"] == {"folds-0": 2, "folds-1": 2}
    assert [*document["verdicts"][0].values()] == last[:3]
    assert row["drop"] == costs["cost"]["all"]["cost"]
    assert row["seeds"] == row["wanted"] == 4
    code, out, _ = tape(capsys, "unseen", str(tmp_path), "--json")
    assert json.loads(out)["folds"][0]["cost"] == costs["cost"]
    code, _, err = tape(capsys, "report", str(tmp_path))
    assert code == 0
    assert "baselines of this exam were not measured" not in err


@pytest.mark.slow
def test_a_track_on_a_torus_runs_to_its_page(capsys, tmp_path, monkeypatch):
    split = splits.load("life-H4-matched-16")
    track = replace(
        TINY,
        name="torus",
        family="life",
        length=16,
        shape=(4, 4),
        horizon=4,
        split=split.name,
        agents=("ppo",),
        rules=tuple(sorted([*split.train[:3], *split.test[:3]])),
    )
    known = tracks.tracks()
    monkeypatch.setattr(tracks, "tracks", lambda: {**known, "torus": track})
    code, out, err = tape(capsys, "bench", "--track", "torus", "--results", str(tmp_path))
    assert (code, "Traceback" in err) == (0, False)
    assert "TAPE torus: strict success" in out
    assert "belief-planner" in out
    assert "lies between belief-planner and the exact ceiling" in " ".join(out.split())
    page = (tmp_path / "report" / "index.html").read_text()
    assert "a torus of 4 × 4, H = 4" in page
    run = next(path for path in load_results(tmp_path).paths)
    code, out, _ = tape(capsys, "evaluate", str(run), "--track", "torus", "--json")
    assert (code, json.loads(out)["shape"]) == (0, [4, 4])


def start_bench(root, *options):
    """`tape bench` in a process of its own."""
    return subprocess.Popen(
        [*COMMAND, *options, "--results", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


ACCIDENTS = (
    (signal.SIGKILL, "dqn", "spec.json", 1000),
    (signal.SIGTERM, "dqn", "curve.parquet", store.MARKER),
    (signal.SIGINT, "ppo", "spec.json", 2000),
    (signal.SIGHUP, "ppo", "curve.parquet", store.MARKER),
)
"""A signal, an agent, and the file of its first run that is about to be there when a worker and
then the driver get the signal. An agent alone: the order of several depends on the clock."""


def test_whoever_is_ended_by_whatever_signal_and_whenever_nothing_changes(
    tmp_path, undisturbed, halts
):
    def wait_for_worker(point, driver):
        (worker,) = halts.wait([point], lambda: driver.poll() is None)
        assert worker in children(driver.pid)
        return worker

    for sent, agent, *files in ACCIDENTS:
        points = [halts.add(f"smoke/{agent}/fps30/s00", file) for file in files]
        driver = start_bench(tmp_path, *ONE_WORKER, "--agents", agent)
        try:
            first = wait_for_worker(points[0], driver)
            os.kill(first, sent)
            release([first])
            second = wait_for_worker(points[1], driver)
            assert second != first
            driver.send_signal(sent)
            release([second])
            assert driver.wait(timeout=60)
        finally:
            driver.kill()
            driver.wait()
        wait_for_end(second)  # without a driver it stores its state
    copy_baselines(undisturbed[0], tmp_path)
    done = subprocess.run([*COMMAND, *FEW, "--results", str(tmp_path)], capture_output=True)
    assert done.returncode == 0, done.stderr
    same_runs(tmp_path, undisturbed[0], 4)


def kill_at_random(root, kills, seed, longest=1.2):
    """Start the sweep again and again; kill workers and drivers with SIGKILL. How many."""
    chance = random.Random(seed)
    driver, killed = None, {"worker": 0, "driver": 0}
    while sum(killed.values()) < kills:
        if driver is None or driver.poll() is not None:
            driver = start_bench(root, "--track", "smoke")
            # Let it come to its workers, unless there is nothing left for them.
            while driver.poll() is None and not children(driver.pid):
                time.sleep(0.05)
        if driver.poll() == 0:
            break  # all was done before there were so many kills
        if driver.poll() is not None:
            continue
        time.sleep(chance.uniform(0.1, longest))
        whom = "driver" if chance.random() < 0.3 else "worker"
        below = children(driver.pid)
        if whom == "worker" and not below:
            continue
        try:
            os.kill(driver.pid if whom == "driver" else chance.choice(below), signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed[whom] += 1
        if whom == "driver":
            driver.wait()
    if driver is not None and driver.poll() is None:
        driver.kill()
        driver.wait()
    return killed


@pytest.mark.nightly
def test_thirty_kills_change_nothing(tmp_path, undisturbed):
    killed = kill_at_random(tmp_path, 30, seed=1)
    assert min(killed.values()) >= 3
    assert sum(killed.values()) == 30
    done = subprocess.run(
        [*COMMAND, "--track", "smoke", "--results", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    same_runs(tmp_path, undisturbed[0], 8)


def test_two_sweeps_on_one_directory_share_the_work(tmp_path, undisturbed):
    copy_baselines(undisturbed[0], tmp_path)
    command = [*COMMAND, *FEW, "--results", str(tmp_path)]
    drivers = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [driver.communicate(timeout=600)[1] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    same_runs(tmp_path, undisturbed[0], 4)
    # Whoever made a run saw its evaluations; the other one only that it was done.
    made = [set(re.findall(r"(\S+)  done  ID", text)) for text in said]
    plan = make_plan(SMOKE, tmp_path, names=["dqn", "ppo"])
    assert made[0] | made[1] == {str(spec.id) for spec in plan.specs}
    assert not made[0] & made[1]
    assert all(made)


def test_ctrl_c_ends_it_cleanly_and_the_same_command_goes_on(tmp_path):
    options = ["--track", "core", "--agents", "dqn", "--seeds", "1", "--results", str(tmp_path)]
    driver = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run = tmp_path / "core/dqn/folds-0/s00"
    until = time.monotonic() + 120
    while not list(run.glob("checkpoints/*.json")):
        assert time.monotonic() < until
        time.sleep(0.05)
    workers = children(driver.pid)
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert out == ""
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    assert not any(is_alive(pid) for pid in workers)
    assert store.load_checkpoint(run)[0] > 0


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_that_fails_is_shown_and_does_not_stop_the_others(tmp_path, capsys, tiny):
    bad = tmp_path / "tiny/dqn/fps30/s00"
    spec = make_plan(TINY, tmp_path, names=["dqn"], seeds=[0]).specs[0]
    with store.open_run(tmp_path, spec.id, spec.as_dict()) as run:
        run.save_checkpoint(500, {}, {"agent": "dqn", "version": "0.0"})
    code, out, err = tape(capsys, "bench", "--track", "tiny", "--results", str(tmp_path))
    assert code == 1
    assert "failed: tiny/dqn/fps30/s00: " in out
    assert "was made with another " in out
    assert "tried again" in err
    assert "Traceback" in (bad / sweep.LOG).read_text()
    assert (bad / sweep.LOG).read_text().count("Traceback") == sweep.ATTEMPTS
    assert len(load_results(tmp_path).paths) == 3
    page = (tmp_path / "report/index.html").read_text()
    assert "Failed: 1" in page
    assert "was made with another " in page
    # Put right, it is made by the same command.
    shutil.rmtree(bad / "checkpoints")
    code, out, _ = tape(capsys, "bench", "--track", "tiny", "--results", str(tmp_path))
    assert code == 0
    assert "failed" not in out


def test_finished_runs_stay_and_other_settings_are_other_runs(tmp_path, finished, monkeypatch):
    assert make_plan(TINY, finished).todo == ()
    more = make_plan(TINY, finished, seeds=range(3))
    assert {str(spec.id) for spec in more.todo} == {"tiny/dqn/fps30/s02", "tiny/ppo/fps30/s02"}
    changed = make_plan(replace(TINY, episodes=6), finished)
    assert len(changed.todo) == len(changed.specs) == 4
    assert all(re.fullmatch(r"tiny\+[0-9a-f]{8}", spec.experiment) for spec in changed.specs)
    again = make_plan(replace(TINY, episodes=6), finished)
    assert [spec.id for spec in again.specs] == [spec.id for spec in changed.specs]


def test_estimates_go_by_what_is_there(finished, tmp_path):
    spec = make_plan(TINY, finished, names=["dqn"]).specs[0]
    took = [
        read_json(finished / f"tiny/dqn/fps30/s0{seed}/provenance.json")["seconds"]
        for seed in (0, 1)
    ]
    assert estimate_seconds(spec, finished) == pytest.approx(sum(took) / 2)
    assert estimate_seconds(replace(spec, steps=2000), finished) == pytest.approx(sum(took))
    assert START < estimate_seconds(spec, tmp_path) < 10


def test_another_network_has_an_estimate_of_its_own(tmp_path):
    usual = tracks.get_track("full").spec("dqn")
    quicker = replace(usual, options={"network": "mlp"})
    assert estimate_seconds(usual, tmp_path) > 2 * estimate_seconds(quicker, tmp_path)


def test_an_agent_without_a_measured_speed_has_that_of_its_family_or_the_median(monkeypatch):
    class Variant(agents.load("rad")[0]):
        """An agent that extends one of ours."""

    class Other:
        """An agent of another kind."""

    kinds = {"mine.variant": Variant, "mine.other": Other}
    monkeypatch.setattr(agents, "load", lambda name: (kinds[name], None))
    assert speed_of("mine.variant", "mlp") == speed_of("rad", "mlp")
    slow, usual, fast = (speed_of(name, "") for name in ("dreamer", "mine.other", "ppo"))
    assert all(slow[kind] < usual[kind] < fast[kind] for kind in slow)


def test_episodes_are_played_again_from_checkpoints_as_they_were(tmp_path, finished):
    shutil.copytree(finished / "tiny", tmp_path / "tiny")
    assert evaluation.replay_runs(tmp_path) == []
    bundles = sorted((tmp_path / "episodes").glob("*.tape"))
    assert [path.name for path in bundles] == ["tiny-dqn-fps30.tape", "tiny-ppo-fps30.tape"]
    for path, agent in zip(bundles, ("dqn", "ppo"), strict=True):
        found = bundle.verify(path)
        table = read_table(tmp_path / f"tiny/{agent}/fps30/s00/eval.parquet")
        last = table["step"] == table["step"].max()
        assert found.episodes.success.ravel().tolist() == table["success"][last].tolist()
        assert found.about["run"] == f"tiny/{agent}/fps30/s00"
        assert not found.about["sees_rule"]
    stamps = [path.stat().st_mtime_ns for path in bundles]
    assert evaluation.replay_runs(tmp_path) == []
    assert [path.stat().st_mtime_ns for path in bundles] == stamps
    shown = contests.read(tmp_path).contests[0]
    assert {one.about["policy"] for one in shown.bundles} == {"dqn", "ppo"}


def test_a_run_that_cannot_be_replayed_is_said_and_passed_over(tmp_path, finished):
    shutil.copytree(finished / "tiny", tmp_path / "tiny")
    (next((tmp_path / "tiny/dqn/fps30/s00/checkpoints").glob("*.safetensors"))).write_bytes(b"")
    marker = tmp_path / "tiny/dqn/fps30/s00" / store.MARKER
    document = read_json(marker)
    for name, about in document["files"].items():
        about["size"] = 0 if name.endswith(".safetensors") else about["size"]
    write_json(marker, document)
    notes = evaluation.replay_runs(tmp_path)
    assert len(notes) == 1
    assert notes[0].startswith("tiny/dqn/fps30 cannot be replayed: ")
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["tiny-ppo-fps30.tape"]


# Plans


def test_a_plan_lists_runs_and_their_time(capsys, tmp_path, finished):
    code, out, err = tape(
        capsys, "bench", "--track", "lite@2", "--plan", "--results", str(tmp_path / "no")
    )
    assert code == 0
    assert err == ""
    assert re.search(r"pearl +5 of 5 missing, about .+ each", out)
    assert "45 of 45 runs are missing: about" in out
    assert not (tmp_path / "no").exists()
    code, out, _ = tape(capsys, "bench", "--plan", "--json", "--agents", "dqn,ppo", "--seeds", "2")
    document = json.loads(out)
    assert [run["run"] for run in document["runs"]][:2] == [
        "lite/dqn/folds-0/s00",
        "lite/dqn/folds-1/s00",
    ]
    assert len(document["runs"]) == 2 * 5 * 2
    assert document["seconds"] > 0
    assert not any(run["done"] for run in document["runs"])


def test_another_split_asks_about_rules_chosen_the_same_way(tmp_path):
    lite = tracks.get_track("lite@2")
    spec = make_plan(lite, tmp_path, split="matched30", names=["dqn"]).specs[0]
    assert len(spec.exam.test) == 30
    assert len(spec.exam.train) == 60
    assert spec.id.split == "matched30"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--executor", "rya"], "unknown executor 'rya': did you mean 'ray'"),
        (["--agents", "dqm"], "unknown agent 'dqm': did you mean 'dqn'"),
        (["--track", "smok"], "unknown track 'smok': did you mean 'smoke'"),
        (["--split", "fsp30"], "did you mean 'fps30'"),
        (["--seeds", "x"], "unknown seeds 'x'"),
        (["--workers", "0"], "workers must be at least 1"),
        (["--jobs", "0"], "jobs must be at least 1"),
    ],
)
def test_what_cannot_be_is_one_clear_line(capsys, tmp_path, argv, complaint):
    code, out, err = tape(capsys, "bench", "--results", str(tmp_path / "new"), *argv)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_an_option_for_sbatch_needs_a_value(capsys):
    pytest.importorskip("submitit")
    code, _, err = tape(capsys, "bench", "--executor", "slurm", "--sbatch", "qos")
    assert code == 2
    assert "'qos' sets nothing" in err


def test_a_hundred_thousand_runs_are_planned_listed_and_resumed_in_seconds(tmp_path, capsys):
    full = tracks.get_track("full")
    first = make_plan(full, tmp_path / "none", names=["dqn"], seeds=[0]).specs[0].as_dict()
    for seed in range(0, 2000, 2):
        place = tmp_path / f"full/dqn/fps30/s{seed:02d}"
        place.mkdir(parents=True)
        spec = store.canonical_spec(store.RunId("full", "dqn", "fps30", seed), first)
        for name, document in (("spec", spec), ("provenance", {}), ("summary", {})):
            (place / f"{name}.json").write_text(json.dumps(document))
        store.mark(place)
    began = time.monotonic()
    code, out, _ = tape(
        capsys, "bench", "--track", "full", "--seeds", "11112", "--plan", "--results", str(tmp_path)
    )
    assert code == 0
    assert "11,112 of 11,112 missing" in out
    assert out.count("\n") < 20
    assert "99008 of 100008 runs are missing" in out
    plan = make_plan(full, tmp_path, seeds=range(11_112))
    queue = sweep.Queue(plan.todo)
    taken = queue.take()
    assert time.monotonic() - began < 40  # about 5 when nothing else is at work
    assert taken is not None
    assert taken.spec == plan.todo[0]


def test_a_thousand_finished_runs_are_summarised_in_seconds(tmp_path, finished):
    for agent in ("dqn", "ppo"):
        source = finished / f"tiny/{agent}/fps30/s00"
        files = {name: (source / name).read_text() for name in ("summary.json", "provenance.json")}
        spec = read_json(source / "spec.json")
        connection = duckdb.connect()
        for seed in range(500):
            place = tmp_path / f"tiny/{agent}/fps30/s{seed:02d}"
            place.mkdir(parents=True)
            for name, text in files.items():
                (place / name).write_text(text)
            own = {**spec, "seed": seed, "id": f"tiny/{agent}/fps30/s{seed:02d}"}
            (place / "spec.json").write_text(json.dumps(own))
            connection.execute(
                f"copy (select * replace ({seed} as seed) from '{source}/curve.parquet') "
                f"to '{place}/curve.parquet' (format parquet)"
            )
            store.mark(place)
    began = time.monotonic()
    plan = make_plan(TINY, tmp_path, seeds=range(500))
    assert plan.todo == ()
    page = summary.summarise_plan(plan, tmp_path, {})
    assert time.monotonic() - began < 20  # about 2 when nothing else is at work
    assert [row.seeds for row in page.rows[:2]] == [500, 500]


# Pieces


def test_a_queue_keeps_workers_on_their_agent_and_apart():
    specs = make_plan(SMOKE, Path("nowhere")).specs
    queue = sweep.Queue(specs)
    first = queue.take()
    second = queue.take(None, [first.spec.agent])
    assert second.spec.agent != first.spec.agent
    assert queue.take(second.spec.agent, [first.spec.agent]).spec.agent == second.spec.agent
    while queue.take():
        pass
    assert not queue
    queue.put_off(first)
    assert queue
    assert 0 < queue.pause <= sweep.PATIENCE
    assert queue.take() is None


def test_files_of_a_run_travel_and_are_checked(tmp_path, finished):
    spec = make_plan(TINY, finished).specs[0]
    files = store.read_files(finished / str(spec.id))
    assert {"spec.json", "eval.parquet", "done.json"} <= set(files)
    with store.open_run(tmp_path, spec.id, spec.as_dict()) as run:
        run.receive({name: data for name, data in files.items() if name != store.MARKER})
        assert not run.is_done
        with pytest.raises(ValueError, match="not what its marker says"):
            run.receive(files | {"summary.json": b"{}"})
        with pytest.raises(ValueError, match="not a file of a run"):
            run.receive({"../../x": b""})
        assert not run.is_done
        run.receive(files)
        assert run.is_done
    same_results(tmp_path / str(spec.id), finished / str(spec.id))


def test_the_live_table_counts_and_estimates(capsys, tmp_path):
    from rich.console import Console

    from tapebench.cli.progress import LiveTable

    for seeds in (2, 40):
        plan = make_plan(SMOKE, tmp_path, seeds=range(seeds))
        table = LiveTable(plan, 2, talk=False)
        before = table.left()
        name, other = str(plan.todo[0].id), str(plan.todo[1].id)
        table.change(name, "running", "")
        table.report({"run": name, "step": 2000, "steps": 4000, "speed": 100.0, "ood": 0.5})
        assert table.left() >= 20
        table.change(name, "done", "")
        table.change(other, "failed", "it broke")
        assert table.left() < before
        console = Console(width=120, file=io.StringIO(), record=True)
        console.print(table)
        shown = console.export_text()
        assert f"1/{4 * seeds} runs done" in shown
        assert "it broke" in shown
