"""Runs: the same to the bit however they were interrupted, and clear about what is wrong."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from commands import tape
from ray_cluster import children, lose
from stored_runs import finish_run
from sweeps import SHORT_RUN as SPEC
from sweeps import same_results
from tapebench.base import files
from tapebench.exam.exam import make_exam
from tapebench.exam.rollout import rollout
from tapebench.runs import evaluation, store, sweep, training
from tapebench.runs.results import load_results
from tapebench.runs.training import RunSpec
from tapebench.tasks.task import make_task


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    assert sweep.run_all([SPEC], root, workers=1) == []
    return root / str(SPEC.id)


@pytest.mark.slow
def test_a_run_leaves_its_tables_and_summary(uninterrupted):
    curve = files.read_table(uninterrupted / "curve.parquet")
    assert np.unique(curve["step"]).tolist() == [400, 800, 1200, 1600]
    rows = files.read_table(uninterrupted / "eval.parquet")
    assert np.unique(rows["step"]).tolist() == [1200, 1600]
    assert len(rows["step"]) == 2 * 5 * 2
    train = files.read_table(uninterrupted / "train.parquet")
    assert train["step"].tolist() == list(range(200, 1800, 200))
    assert np.isfinite(train["loss"]).all()
    summary = files.read_json(uninterrupted / "summary.json")
    late = curve["step"] >= 1200
    inside = curve["subset"] == "id"
    assert summary["id"]["success"] == pytest.approx(curve["success"][late & inside].mean())
    spec = files.read_json(uninterrupted / "spec.json")
    assert spec["config"]["width"] == 16
    assert 30 in spec["trained_on"]
    assert not set(spec["trained_on"]) & set(make_exam().test)
    made_with = files.read_json(uninterrupted / "provenance.json")
    assert made_with["seconds"] > 0


@pytest.mark.slow
def test_stopping_and_going_on_changes_nothing(tmp_path):
    """In this process, whose threads are not those of a worker: compared with itself."""
    whole = training.run(SPEC, tmp_path / "whole")
    for stop_after in (1, 2, 5):
        root = tmp_path / str(stop_after)
        left = [stop_after]

        def stop(left=left):
            left[0] -= 1
            return left[0] == 0

        with pytest.raises(training.Stopped):
            training.run(SPEC, root, stop=stop)
        assert load_results(root).paths == ()
        same_results(training.run(SPEC, root), whole)


def start_sweep(root):
    """A process that makes the run, and prints a line for each report of it."""
    command = [
        sys.executable,
        "-c",
        "import sys, json; from pathlib import Path; from tapebench.runs import sweep, training\n"
        "spec = training.from_dict(json.loads(sys.argv[1]))\n"
        "tell = lambda event: print('.', flush=True)\n"
        "sweep.run_all([spec], Path(sys.argv[2]), workers=1, report=tell)",
        json.dumps(asdict(SPEC)),
        str(root),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def kill_all(process):
    """End a process and its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.slow
def test_killed_while_it_saves_a_run_ends_as_if_it_had_not_been(tmp_path, uninterrupted, halts):
    run = tmp_path / str(SPEC.id)

    def kill_before(step):
        point = halts.add(SPEC.id, step)
        process = start_sweep(tmp_path)
        halts.wait([point], lambda: process.poll() is None)
        kill_all(process)
        assert not (run / store.MARKER).exists()

    kill_before(400)
    assert store.load_checkpoint(run) is None
    kill_before(800)
    assert store.load_checkpoint(run)[0] == 400
    assert sweep.run_all([SPEC], tmp_path, workers=1) == []
    same_results(run, uninterrupted)


@pytest.mark.nightly
def test_killed_at_any_moment_a_run_ends_as_if_it_had_not_been(tmp_path, uninterrupted):
    chance = random.Random(0)
    kills = 0
    for attempt in range(5):
        if (tmp_path / str(SPEC.id) / store.MARKER).is_file():
            break
        process = start_sweep(tmp_path)
        for _ in range(1 + attempt % 2):
            process.stdout.readline()
        time.sleep(chance.uniform(0, 0.1))
        kill_all(process)
        kills += 1
    assert kills >= 2
    assert sweep.run_all([SPEC], tmp_path, workers=1) == []
    same_results(tmp_path / str(SPEC.id), uninterrupted)


@pytest.mark.slow
def test_what_runs_beside_a_run_does_not_matter(tmp_path, uninterrupted):
    others = [replace(SPEC, seed=seed) for seed in (1, 3, 2)]
    assert sweep.run_all(others, tmp_path, workers=2) == []
    same_results(tmp_path / str(SPEC.id), uninterrupted)
    hashes = {
        files.read_json(path / "done.json")["files"]["checkpoints/000000001600.safetensors"][
            "sha256"
        ]
        for path in load_results(tmp_path).paths
    }
    assert len(hashes) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "taken"), [(1, False), (1, True), (2, False)])
@pytest.mark.usefixtures("own_cache")  # in which nobody else takes cores
def test_a_worker_keeps_to_one_core_that_no_other_has(tmp_path, all_cores, workers, taken):
    """So two sweeps of one worker each do not meet on the first core, and one core each it is: on
    two, sums are added up in another order."""
    first, *others = all_cores[:2]
    os.sched_setaffinity(0, all_cores[:2])
    specs = [replace(SPEC, seed=seed) for seed in range(workers)]
    for spec in specs:
        finish_run(tmp_path, spec)  # what a worker finds done it need not train
    seen, done = {}, []

    def change(run, state, reason):
        if state == "done":
            done.append(run)
            for pid in children(os.getpid()):
                seen[pid] = frozenset(os.sched_getaffinity(pid))

    with ExitStack() as stack:
        if taken:  # as by a worker of another sweep
            held = sweep.take_core([first])
            stack.enter_context(held)
            os.sched_setaffinity(0, all_cores[:2])
        assert sweep.run_all(specs, tmp_path, workers=workers, change=change) == []
    assert len(done) == workers
    expected = others[:1] or [first] if taken else [first, *others][:workers]
    assert set(seen.values()) == {frozenset({core}) for core in expected}


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_run_goes_on(tmp_path, uninterrupted, halts):
    events, changes = [], []
    with halts.met([halts.add(SPEC.id, 800)], lose):
        failures = sweep.run_all(
            [SPEC],
            tmp_path,
            workers=1,
            report=events.append,
            change=lambda run, state, reason: changes.append((state, reason)),
        )
    assert failures == []
    assert ("again", "its process ended by signal 9") in changes
    same_results(tmp_path / str(SPEC.id), uninterrupted)
    assert {"run", "step", "steps", "speed", "id", "ood"} <= set(events[-1])


@pytest.mark.slow
def test_ctrl_c_stores_the_state_and_the_same_command_goes_on(tmp_path, uninterrupted):
    code = "from tapebench.cli import main; main()"
    options = [f"{key}={value}" for key, value in SPEC.options.items()]
    command = [sys.executable, "-c", code, "train", "dqn", "--results", str(tmp_path)]
    command += ["--track", "smoke", "--seeds", "3,", "--steps", "40000", "--set", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    run = tmp_path / "main/dqn/fps30/s03"
    until = time.monotonic() + 120
    while not list(run.glob("checkpoints/*.json")):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "the same command resumes from there" in error
    assert "Traceback" not in error
    step, _ = store.load_checkpoint(run)
    assert 0 < step < 40_000
    assert not (run / store.MARKER).exists()


@pytest.mark.slow
def test_seeds_are_trained_together_if_asked_to(capsys, tmp_path):
    options = [f"{key}={value}" for key, value in SPEC.options.items()]
    command = ["train", "dqn", "--track", "smoke", "--steps", "4000", "--evaluate-every", "1000"]
    command += ["--seeds", "2", "--results", str(tmp_path), "--json", "--set", *options]
    code, out, err = tape(capsys, *command, "--together", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "together must be at least 1" in err
    code, out, _ = tape(capsys, *command, "--together", "2")
    assert code == 0
    assert sorted(json.loads(out)) == [f"main/dqn/fps30/s0{seed}" for seed in range(2)]


@pytest.mark.slow
def test_a_stored_run_sits_any_exam_of_its_length(uninterrupted):
    found = evaluation.evaluate(uninterrupted, length=8, horizon=16, episodes=2, rules=[4, 30])
    assert found.policy == "dqn"
    assert not found.sees_rule
    assert found.exam.task.horizon == 16
    with pytest.raises(ValueError, match="trained on tapes of 8 cells, not 16"):
        evaluation.evaluate(str(uninterrupted), length=16, horizon=16)
    with pytest.raises(ValueError, match="trained without seeing a goal"):
        evaluation.evaluate(uninterrupted, length=8, horizon=8, observe_goal=True)


def test_a_network_that_is_the_same_in_every_cell_acts_on_tapes_of_other_lengths():
    task = make_task(length=6, horizon=3)
    small = {"memory_size": 4, "encoder_width": 4, "channels": 4}
    options = {"network": "cells", **small}
    spec = RunSpec(agent="rppo", seed=0, options=options, length=8, horizon=8)
    agent = spec.agent_for(task)
    policy = agent.policy(agent.init(jax.random.key(0)))
    assert rollout(policy, task, rules=[30], episodes=3).cells.max() < 6
    plain = replace(spec, options={"network": "gru", **small})
    with pytest.raises(ValueError, match="trained on tapes of 8 cells, not 6"):
        plain.agent_for(task)


@pytest.mark.slow
def test_rows_say_which_seed_and_checkpoint_they_are_of(uninterrupted):
    found = evaluation.evaluate(uninterrupted.parent, length=8, horizon=8, episodes=1, rules=[4])
    rows = found.rows()
    assert (rows["seed"].tolist(), rows["step"].tolist()) == ([3], [1600])
    untrained = evaluation.evaluate("random", found.exam, seeds=2).rows()
    assert (untrained["seed"].tolist(), untrained["step"].tolist()) == ([0, 1], [0, 0])


@pytest.mark.slow
def test_runs_of_several_agents_are_not_taken_for_seeds_of_one(tmp_path, uninterrupted):
    for name in ("dqn", "other"):
        shutil.copytree(uninterrupted, tmp_path / "main" / name / "fps30" / "s03")
    spec = tmp_path / "main/other/fps30/s03/spec.json"
    text = spec.read_text().replace('"experiment": "main"', '"experiment": "next"')
    spec.write_text(text)
    store.mark(spec.parent)
    with pytest.raises(ValueError, match="holds several agents"):
        evaluation.evaluate(tmp_path, SPEC.exam)


@pytest.mark.slow
def test_a_stored_run_scores_what_its_last_evaluation_says(uninterrupted):
    found = evaluation.evaluate(uninterrupted, SPEC.exam)
    rows = files.read_table(uninterrupted / "eval.parquet")
    last = rows["step"] == 1600
    np.testing.assert_array_equal(found.runs[0].success.ravel(), rows["success"][last])


@pytest.mark.slow
def test_missing_runs_are_those_without_a_marker(tmp_path, uninterrupted):
    root = uninterrupted.parents[3]
    other = replace(SPEC, seed=9)
    assert sweep.missing([SPEC, other, other], root) == [other]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 1500}, "steps must be a multiple of evaluate_every"),
        ({"steps": 400}, "the last 2 should count"),
        ({"last": 0}, "last must be at least 1"),
        ({"evaluate_every": 100, "steps": 1600}, "must be a multiple of dqn's chunk, 200"),
        ({"agent": "dqm"}, "unknown agent 'dqm': did you mean 'dqn'"),
        ({"options": {"widht": 3}}, "unknown option of dqn 'widht': did you mean 'width'"),
        ({"experiment": "../up"}, "cannot name a directory"),
        ({"split": "fsp30"}, "did you mean 'fps30'"),
    ],
)
def test_a_run_that_cannot_be_is_refused(tmp_path, change, complaint):
    with pytest.raises(ValueError, match=complaint):
        training.run(replace(SPEC, **change), tmp_path)


@pytest.mark.slow
def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    with pytest.raises(training.Stopped):
        training.run(SPEC, tmp_path, stop=lambda: True)
    monkeypatch.setattr(training, "__version__", "9.9")
    with pytest.raises(ValueError, match="made with another version"):
        training.run(SPEC, tmp_path)
    failures = sweep.run_all([replace(SPEC, options={"width": 17})], tmp_path, workers=1)
    assert "was begun with another config, options" in failures[0].reason


@pytest.mark.slow
@pytest.mark.parametrize("logger", sweep.LOGGERS)
def test_scalars_reach_the_loggers(tmp_path, logger):
    short = replace(SPEC, steps=800, last=1)
    assert sweep.run_all([short], tmp_path, workers=1, log=logger) == []
    kept = [file for file in tmp_path.rglob("*") if file.is_file()]
    if logger == "tensorboard":
        events = [file for file in kept if "tfevents" in file.name]
        assert b"ood_success" in b"".join(file.read_bytes() for file in events)
    else:
        assert any(file.suffix == ".wandb" for file in kept)
    with pytest.raises(ValueError, match="unknown logger 'x'"):
        sweep.run_all([short], tmp_path, log="x")


@pytest.mark.parametrize(
    ("environment", "kept", "login", "mode"),
    [
        ({}, {}, None, "offline"),
        ({}, {}, "elsewhere.example", "offline"),
        ({}, {}, "wandb.example", None),
        ({}, {"mode": "disabled"}, None, None),
        ({}, {"api_key": "k" * 40}, None, None),
        ({"WANDB_MODE": "online"}, {}, None, None),
    ],
)
def test_wandb_is_offline_only_for_those_who_said_nothing_else(
    tmp_path, monkeypatch, environment, kept, login, mode
):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    logins = tmp_path / "netrc"
    logins.write_text(f"machine {login} login user password {'k' * 40}\n" if login else "")
    logins.chmod(0o600)
    monkeypatch.setenv("NETRC", str(logins))
    said_nothing = {"mode": "online", "api_key": None, "identity_token_file": None}
    settings = SimpleNamespace(**said_nothing | kept, base_url="https://wandb.example")
    assert sweep._wandb_mode(settings) == mode


@pytest.mark.slow
def test_wandb_that_was_switched_off_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    short = replace(SPEC, steps=800, last=1)
    assert sweep.run_all([short], tmp_path, workers=1, log="wandb") == []
    assert not [file for file in tmp_path.rglob("*") if file.suffix == ".wandb"]


def test_a_stored_run_is_the_same_run_after_a_default_has_changed(tmp_path):
    asked = replace(SPEC, options={**SPEC.options, "n_step": 3})
    stored = asked.as_dict()
    stored["options"] = SPEC.options  # as if three steps had been the default then
    again = training.from_dict(json.loads(json.dumps(stored)))
    assert again.config == asked.config != SPEC.config
    folder = tmp_path / str(SPEC.id)
    folder.mkdir(parents=True)
    store.write_json(folder / "spec.json", store.canonical_spec(SPEC.id, stored))
    assert store.differences(folder, again.id, again.as_dict()) == []
    assert store.differences(folder, SPEC.id, SPEC.as_dict()) == ["config"]
    # Without a config there is nothing but the options to tell by.
    nameless = {**store.canonical_spec(SPEC.id, stored), "config": None}
    store.write_json(folder / "spec.json", nameless)
    assert "options" in store.differences(folder, again.id, again.as_dict())


def test_the_budget_sets_the_schedule_of_an_agent_that_has_one():
    spec = RunSpec(agent="ppo", seed=0, steps=50_000)
    assert spec.config["total_steps"] == spec.as_dict()["config"]["total_steps"] == 50_000
    assert replace(spec, options={"total_steps": 7}).config["total_steps"] == 7
    assert "total_steps" not in replace(spec, agent="automata").config
