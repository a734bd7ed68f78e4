"""Sweeps in one program, on Ray and on Slurm: the same rows as by workers, whatever is lost."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ray_cluster import SPECS, children, lose
from sweeps import same_results
from tapebench.base import files
from tapebench.runs import executors, store, sweep
from tapebench.runs.executors import slurm
from tapebench.runs.executors.ray import Ray
from tapebench.runs.executors.slurm import Slurm
from tapebench.runs.executors.vmap import Vmap, gather

pytestmark = pytest.mark.slow  # nearly all of them start processes

SUPPORT = Path(__file__).parents[1] / "support"


def ignore(*anything):
    pass


def same_rows(specs, ours, theirs):
    for spec in specs:
        same_results(ours / str(spec.id), theirs / str(spec.id))


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same runs by a worker, undisturbed."""
    root = tmp_path_factory.mktemp("local")
    assert sweep.run_all(SPECS, root) == []
    return root


def namespaces():
    """A command prefix: only loopback, and every process ends with the first one."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = ["unshare", *user, *spaces, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    tools = all(shutil.which(name) for name in ("unshare", "ip"))
    if not tools or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("a Ray cluster needs a network of its own: unshare, ip, and leave to use them")
    return command


def test_a_ray_cluster_that_loses_workers_and_nodes_ends_with_the_same_rows(tmp_path, local):
    pytest.importorskip("ray")
    command = [*namespaces(), sys.executable, str(SUPPORT / "ray_cluster.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "without a token lets everybody run anything" in found.pop("open")
    assert found.pop("interfaces") == ["lo"]
    # 127.0.0.1, and the same as an address of version 6.
    assert set(found.pop("listeners")) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    typed = found.pop("typed")
    assert typed["failures"] == []
    assert typed["facts"]["runs"] == "1 of 1 done"
    assert "ray" in typed["facts"]["wall clock"]
    # Of two tasks one is killed; in the end a node is lost with the task that it has.
    for name, folder, specs, struck in (
        ("brought back", "brought", SPECS[:2], [1]),
        ("shared", "shared", SPECS, [1, 1]),
    ):
        assert found[name]["failures"] == []
        assert found[name]["struck"] == struck
        assert found[name]["finished"] == len(specs)
        same_rows(specs, tmp_path / folder, local)
    # With a node the reports may be lost, not so with a task.
    assert found["brought back"]["reported"] == [str(spec.id) for spec in SPECS[:2]]


def test_a_cluster_that_is_not_there_is_one_clear_line(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ValueError, match="cannot join a Ray cluster at 'auto'"):
        Ray(insecure=True).run(SPECS, tmp_path, ignore, ignore)


@pytest.mark.parametrize("mode", [None, "disabled"])
def test_a_cluster_without_a_token_is_refused_before_anything_is_sent_to_it(
    tmp_path, monkeypatch, mode
):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr("ray.init", lambda **given: pytest.fail("it was joined"))
    for address in ("auto", "127.0.0.1:1"):
        with pytest.raises(ValueError, match="without a token lets everybody run anything"):
            Ray(address).run(SPECS, tmp_path, ignore, ignore)


def test_no_server_is_started_that_others_could_reach(tmp_path):
    pytest.importorskip("ray")
    if {name for _, name in socket.if_nameindex()} == {"lo"}:
        pytest.skip("only loopback exists here, so that no server could be reached")
    with pytest.raises(ValueError, match="would listen to the network"):
        Ray("local").run(SPECS, tmp_path, ignore, ignore)


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'tapebench\[slurm\]'"):
        Slurm().run(SPECS, Path(), ignore, ignore)


def follow(executor, specs, out):
    """Failures, and all that was heard on the way."""
    out.mkdir(exist_ok=True)
    events, changes = [], []
    failures = executor.run(
        specs, out, events.append, lambda run, state, reason: changes.append((run, state, reason))
    )
    return failures, events, changes


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The first two runs in one program, undisturbed."""
    root = tmp_path_factory.mktemp("together") / "runs"
    failures, events, changes = follow(Vmap(2), SPECS[:2], root)
    assert failures == []
    assert {event["run"] for event in events} == {str(spec.id) for spec in SPECS[:2]}
    assert [state for _, state, _ in changes] == ["running", "running", "done", "done"]
    return root


def test_seeds_in_one_program_do_not_depend_on_which_are_beside_them(tmp_path, local, together):
    first, _, third = SPECS
    assert Vmap(2).run([third, first], tmp_path, ignore, ignore) == []
    same_rows([first], together, tmp_path)
    assert files.read_json(together / str(first.id) / "provenance.json")["together"] == 2
    # What is learned is what a worker learns, up to the order in which a device adds up.
    ours, alone = (store.load_checkpoint(place / str(first.id))[1] for place in (together, local))
    for name, array in alone.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def interrupted_at(step, specs, place):
    """Ctrl-C when a run is that far; it is heeded after the next chunk."""

    def interrupt(event):
        if event["step"] == step:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Vmap(2).run(specs, place, interrupt, ignore)
    return [store.load_checkpoint(place / str(spec.id))[0] for spec in specs]


def test_interrupted_seeds_in_one_program_go_on_and_catch_up_with_each_other(tmp_path, together):
    specs = SPECS[:2]
    assert interrupted_at(400, specs, tmp_path / "hasty") == [600, 600]
    shutil.copytree(tmp_path / "hasty", tmp_path / "apart")
    assert Vmap(2).run(specs, tmp_path / "hasty", ignore, ignore) == []
    same_rows(specs, tmp_path / "hasty", together)
    # One of them gets ahead, as after a kill between two checkpoints.
    assert interrupted_at(800, specs[:1], tmp_path / "apart") == [1000]
    assert Vmap(2).run(specs, tmp_path / "apart", ignore, ignore) == []
    for spec in specs:
        curves = [
            files.read_table(root / str(spec.id) / "curve.parquet")
            for root in (tmp_path / "apart", together)
        ]
        np.testing.assert_array_equal(*(curve["step"] for curve in curves))


def test_a_failure_in_one_program_is_each_runs_own(tmp_path, monkeypatch):
    from tapebench.runs import training

    whole = training.run_together

    def fail(runs, **given):
        if any(run.spec.seed == 1 for run in runs):
            raise RuntimeError("the device\nis out of memory")
        whole(runs, **given)

    monkeypatch.setattr(training, "run_together", fail)
    failures, _, changes = follow(Vmap(8), SPECS, tmp_path)
    assert [(failure.run, failure.reason) for failure in failures] == [
        (str(SPECS[1].id), "RuntimeError: the device is out of memory")
    ]
    assert {run for run, state, _ in changes if state == "done"} == {
        str(SPECS[0].id),
        str(SPECS[2].id),
    }
    assert "out of memory" in (tmp_path / str(SPECS[1].id) / sweep.LOG).read_text()


def test_only_seeds_of_one_setting_share_a_program():
    other = replace(SPECS[0], seed=7, options={**SPECS[0].options, "width": 8})
    queue = sweep.Queue([SPECS[0], SPECS[1], other, SPECS[2]])
    taken = []
    while queue:
        taken.append([order.spec.seed for order in gather(queue, 2)])
    assert taken == [[0, 1], [7], [2]]


def test_an_array_of_jobs_makes_the_same_rows(tmp_path, monkeypatch, local):
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "INTERVAL", 0.05)
    bad = replace(SPECS[0], seed=9, options={"width": 16, "batch": -1})
    executor = Slurm(jobs=2, cluster="local")
    failures, events, changes = follow(executor, [*SPECS, bad], tmp_path / "slurm")
    assert [failure.run for failure in failures] == [str(bad.id)]
    assert "batch" in failures[0].reason
    assert {run for run, state, _ in changes if state == "done"} == {str(s.id) for s in SPECS}
    assert {event["run"] for event in events} == {str(spec.id) for spec in SPECS}
    same_rows(SPECS, tmp_path / "slurm", local)
    assert (tmp_path / "slurm" / "slurm").stat().st_mode & 0o777 == 0o700
    # Nothing is left to do, so nothing is made again.
    marker = tmp_path / "slurm" / str(SPECS[0].id) / store.MARKER
    before = marker.stat().st_mtime_ns
    assert sweep.missing(SPECS, tmp_path / "slurm") == []
    assert marker.stat().st_mtime_ns == before


@pytest.mark.parametrize("accident", ["killed", "preempted"])
def test_a_job_that_is_stopped_loses_nothing(tmp_path, monkeypatch, local, halts, accident):
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "INTERVAL", 0.05)
    two = SPECS[:2]
    run = tmp_path / str(two[0].id)

    def stop(pids):
        assert store.load_checkpoint(run)[0] == 400
        assert not (run / store.MARKER).exists()
        job = next((tmp_path / "slurm").glob("*/jobs/*_submitted.pkl")).name.split("_")[0]
        # submitit's local jobs are named by the process that watches over them.
        assert pids == children(int(job))
        if accident == "killed":
            lose([int(job), *pids])
        else:
            os.kill(pids[0], signal.SIGUSR2)

    with halts.met([halts.add(two[0].id, 800)], stop):
        assert Slurm(jobs=1, cluster="local").run(two, tmp_path, ignore, ignore) == []
    # A preempted job is queued again; of a killed one the next array takes over.
    assert len(list((tmp_path / "slurm").iterdir())) == (2 if accident == "killed" else 1)
    same_rows(two, tmp_path, local)


@pytest.mark.slurm
@pytest.mark.skipif(not shutil.which("sinfo"), reason="there is no Slurm: see tools/slurm.sh")
def test_a_real_slurm_makes_the_same_rows_and_requeues(tmp_path, local):
    if subprocess.run(["sinfo", "-h"], capture_output=True).returncode:
        pytest.skip("Slurm is installed and not running: see tools/slurm.sh")
    heard = []

    def report(event):
        if not heard:
            array = next((tmp_path / "out" / "slurm").glob("*/jobs/*_submitted.pkl")).name
            subprocess.run(["scontrol", "requeue", array.split("_")[0]], check=True)
        heard.append((time.monotonic(), event))

    (tmp_path / "out").mkdir()
    executor = Slurm(jobs=1, minutes=20, memory_gb=1.0)
    assert executor.run(SPECS, tmp_path / "out", report, ignore) == []
    assert heard
    same_rows(SPECS, tmp_path / "out", local)
