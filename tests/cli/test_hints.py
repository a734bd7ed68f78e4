"""Advice is followed: each message that says what to do is provoked, obeyed, and seen to work."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from commands import tape
from stored_runs import EXAM, store_bundle, store_run
from sweeps import TINY
from tapebench import agents
from tapebench.base import files
from tapebench.cli.train import Train, parse_options
from tapebench.exam.exam import make_exam
from tapebench.report import contests
from tapebench.runs import evaluation, store, tracks

pytestmark = pytest.mark.slow  # nearly all of them start processes


@pytest.fixture
def runs(tiny_runs):
    """Two seeds of dqn and one of ppo, called `runs`, where commands look for results."""
    for run in ("dqn/fps30/s00", "dqn/fps30/s01", "ppo/fps30/s00"):
        shutil.copytree(tiny_runs / "tiny" / run, Path("runs/tiny") / run)
    return Path("runs")


def advised(text, pattern):
    """The command that a message names, as arguments."""
    match = re.search(pattern, text)
    assert match, text
    return shlex.split(match[1])[1:]


def works(capsys, *argv):
    code, out, err = tape(capsys, *argv)
    assert code == 0, err
    return out, err


def missing(place, **options):
    """What the report says that it lacks, as one text."""
    return "\n".join(contests.read(Path(place), settings=False, **options).missing)


def fails(capsys, *argv):
    code, out, err = tape(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


# What a command is to be changed to: the advice in its message, and the command that obeys it.

OBEYED = {
    "several cells": (
        "evaluate random --length 8 --mask x --rules 0",
        "name cells like 0,4",
        "evaluate random --length 8 --mask 0,4 --rules 0",
    ),
    "rules": (
        "evaluate random --length 8 --rules some",
        "use all, train, test, or rules like 0,30,110",
        "evaluate random --length 8 --rules 0,30,110",
    ),
    "an exam": (
        "evaluate random --length 8 --rules 0 --exam old",
        "use standard, or fresh:SALT",
        "evaluate random --length 8 --rules 0 --exam fresh:SALT",
    ),
    "seeds or a bundle": (
        "evaluate random --length 8 --rules 0 --seeds 2 --bundle b.tape",
        "leave out --seeds or --bundle",
        "evaluate random --length 8 --rules 0 --bundle b.tape",
    ),
    "long episodes": (
        "evaluate random --length 8 --rules 0 --horizon 5000 --bundle b.tape",
        "choose a smaller --horizon or leave out --bundle",
        "evaluate random --length 8 --rules 0 --horizon 9 --bundle b.tape",
    ),
    "seeds": (
        "bench --plan --agents dqn --seeds x",
        "give a number like 5, or some like 3,7",
        "bench --plan --agents dqn --seeds 3,7",
    ),
    "an option": (
        "train dqn --set width",
        "write it like width=128",
        "train dqn --set width=128 --options",
    ),
    "an option's name": (
        "train dqn --set widht=128",
        "did you mean 'width'",
        "train dqn --set width=128 --options",
    ),
    "a split": (
        "splits make new",
        "tape splits make new --generator matched",
        "splits make new --generator matched",
    ),
    "a split with a seed": (
        "splits make new --seed 3",
        "--seed and --held-out need --generator",
        "splits make new --seed 3 --generator random",
    ),
    "a shipped split": (
        "splits make fps30 --generator random",
        "choose another name",
        "splits make mine --generator random",
    ),
    "a generator": (
        "splits make new --generator none",
        "use one of fps, matched, random",
        "splits make new --generator fps",
    ),
}


@pytest.mark.parametrize("case", OBEYED)
def test_a_command_that_is_changed_as_advised_works(case, capsys):
    command, advice, obeyed = OBEYED[case]
    assert advice in fails(capsys, *command.split())
    works(capsys, *obeyed.split())


# Results


def test_tracks_and_experiments_that_are_not_shown_are_shown_by_the_commands_named(capsys):
    store_run(Path("runs"), "any-one", 0, experiment="lite", track="lite-2")
    store_run(Path("runs"), "any-one", 0, experiment="full", track="full-2")
    store_run(Path("runs"), "any-one", 0, experiment="full-reward-x", track="full-2")
    said = missing("runs", tracks=["full"])
    out, _ = works(capsys, *advised(said, r"(tape report [^:]+) shows them"), "--json")
    assert '"lite on fps30' in out
    out, _ = works(capsys, *advised(said, r"(tape reproduce [^:]+) lists these"))
    assert "main" in out


def test_the_advice_of_the_published_report_works(capsys):
    _, err = works(capsys, "report", "--published")
    commands = re.findall(r"(tape report --published --track [\w@]+) shows them", err)
    assert "tape report --published --track lite@2" in commands
    for command in commands:
        works(capsys, *shlex.split(command)[1:], "--json")


def test_episodes_are_there_once_they_are_replayed_as_advised(runs, capsys):
    command = advised(missing("runs"), r"(tape report [^:]+ --replay) makes them")
    _, err = works(capsys, *command)
    assert "no episodes to watch" not in err


def test_replaying_one_track_leaves_the_others_and_their_bundles_alone(runs, capsys):
    for seed in range(2):
        other = replace(TINY.spec("dqn", seed, experiment="other"), track="lite-2")
        path = runs / str(other.id)
        shutil.copytree(runs / f"tiny/dqn/fps30/s0{seed}", path)
        files.write_json(path / "spec.json", store.canonical_spec(other.id, other.as_dict()))
        store.mark(path)
    works(capsys, "report", "runs", "--track", "lite@2", "--replay")
    assert [path.name for path in (runs / "episodes").iterdir()] == ["other-dqn-fps30.tape"]
    store_bundle(runs / "stranger.tape")
    said = missing("runs", tracks=["lite@2"])
    assert said.count("is of an exam that no run sat") == 1  # the stranger's


def test_replaying_is_not_advised_where_there_are_no_checkpoints(runs):
    for path in runs.glob("tiny/*/fps30/s*"):
        shutil.rmtree(path / "checkpoints")
        store.mark(path)
    (note,) = evaluation.replay_runs(runs)
    assert note.startswith("no seed keeps a checkpoint")
    assert "--replay" not in missing("runs")
    assert "no checkpoint to make them from" in missing("runs")


def test_of_a_bundle_of_another_tracks_exam_nothing_is_said():
    store_run(Path("runs"), "any-one", 0, experiment="lite", track="lite-2")
    longer = make_exam(split="fps30", length=9, horizon=9, episodes=6, rules=[0, 4, 30])
    store_run(Path("runs"), "any-one", 0, experiment="full", track="full-2", exam=longer)
    store_bundle(Path("runs/full.tape"), exam=longer)
    assert "no run sat" not in missing("runs", tracks=["lite@2"])
    store_bundle(Path("runs/lite.tape"), exam=EXAM)
    assert "no run sat" not in missing("runs", tracks=["full"])


def test_a_seed_that_keeps_a_checkpoint_is_named_where_another_keeps_none(runs, capsys):
    shutil.rmtree(runs / "tiny/dqn/fps30/s01/checkpoints")
    store.mark(runs / "tiny/dqn/fps30/s01")
    err = fails(capsys, "evaluate", "runs/tiny/dqn/fps30", "--length", "8", "--rules", "4")
    assert "only the first seeds do" in err
    named = re.search(r"name one that does, like (\S+)", err)[1]
    works(capsys, "evaluate", named, "--length", "8", "--rules", "4")


def test_a_run_without_a_checkpoint_yet_goes_on_as_advised(capsys):
    spec = TINY.spec("dqn")
    with store.open_run(Path("runs"), spec.id, spec.as_dict()):
        pass
    err = fails(capsys, "evaluate", f"runs/{spec.id}", "--length", "8")
    works(capsys, *advised(err, r"(tape train \S+) resumes"), "--workers", "1")
    works(capsys, "evaluate", f"runs/{spec.id}", "--length", "8", "--rules", "4")


def test_a_run_of_another_version_is_begun_again_as_advised(runs, capsys):
    spec = TINY.spec("dqn", 5, experiment="tiny")
    with store.open_run(runs, spec.id, spec.as_dict()) as run:
        run.save_checkpoint(500, {}, {"version": "0.0"})
    code, _, err = tape(capsys, "train", f"runs/{spec.id}", "--workers", "1")
    assert code == 2
    works(capsys, *advised(err, r"(tape train \S+ --anew) starts over"), "--workers", "1")
    assert store.is_finished(runs / str(spec.id))


def test_other_sizes_and_other_levels_are_named_as_they_are_needed(runs, capsys):
    size = ["--length", "8", "--steps", "1000", "--evaluate-every", "1000", "--episodes", "1"]
    works(
        capsys, "train", "dqn", *size, "--seeds", "1", "--experiment", "mlp", "--set", "network=mlp"
    )
    err = fails(capsys, "evaluate", "runs/mlp/dqn/fps30/s00", "--rules", "4")
    flags = re.search(r"use (--length \d+)", err)[1].split()
    works(capsys, "evaluate", "runs/mlp/dqn", *flags, "--rules", "4")
    assert "name a directory further down" in fails(capsys, "evaluate", "runs/tiny", *flags)
    assert "name a directory further down" in fails(capsys, "compare", "runs/tiny", "runs/tiny")


def test_tables_that_are_there_are_named_and_can_be_asked(runs, capsys):
    for path in runs.glob("tiny/*/fps30/s*"):
        for name in ("eval", "train"):
            (path / f"{name}.parquet").unlink()
        store.mark(path)
    err = fails(capsys, "query", "select * from eval")
    assert "as those that come with the package" in err
    for table in re.search(r"there are ([\w, ]+);", err)[1].split(", "):
        works(capsys, "query", f"select count(*) from {table}")
    assert "eval" not in fails(capsys, "query", "select * from nowhere").split("there are")[1]
    out, _ = works(capsys, "query", "show tables")
    assert "given" not in out


# Training


@pytest.mark.parametrize("agent", agents.NAMES)
def test_options_are_listed_as_they_are_set(agent, capsys):
    out, _ = works(capsys, "train", agent, "--options")
    example = re.search(rf"tape train {agent} --set (.+)", out)[1].split()
    assert set(parse_options(agent, tuple(example))) == {pair.split("=")[0] for pair in example}
    listed = dict(re.findall(r"(?m)^ (\w+)=(\S*) ", re.split(r"─ *\n", out)[1]))
    assert listed.keys() == vars(agents.configure(agent)).keys()
    pairs = tuple(f"{name}={value}" for name, value in listed.items() if value)
    assert agents.configure(agent, **parse_options(agent, pairs)) == agents.configure(agent)
    assert " chunk=1000" in out
    assert "in one call of `train`" in out


def test_training_on_rules_of_another_family_takes_the_size_that_they_are_drawn_for():
    asked = {"agent": "ppo", "family": "life", "split": "life-H8-matched", "steps": 20_000}
    (spec,) = Train(**asked, seeds="1").specs()
    assert (spec.family, spec.shape, spec.length, spec.horizon) == ("life", (5, 5), 25, 8)
    (other,) = Train(**asked, seeds="1", shape="4x4", rules="B3/S23,B36/S23").specs()
    assert (other.shape, other.horizon, other.train_on) == ((4, 4), 16, (224, 4320))
    with pytest.raises(ValueError, match="need a torus: give its shape"):
        Train(agent="ppo", family="life").specs()


@pytest.mark.parametrize("name", ["full", "ring2", "life"])
def test_a_track_gives_training_its_family_and_its_size(name):
    (spec,) = Train(agent="ppo", track=name, seeds="1").specs()
    track = tracks.get_track(name)
    assert (spec.family, spec.shape, spec.length) == (track.family, track.shape, track.length)
    assert (spec.horizon, spec.rules) == (track.horizon, track.rules)


@pytest.mark.parametrize("agent", agents.NAMES)
@pytest.mark.parametrize("steps", [1_000, 2_000, 3_000, 7_000, 10_000, 20_000, 50_000, 200_000])
def test_any_number_of_chunks_is_trained_without_another_flag(agent, steps):
    (spec,) = Train(agent=agent, steps=steps, seeds="1").specs()
    assert spec.steps == steps
    assert spec.steps // spec.evaluate_every >= min(3, steps // 1_000)
    chunk = agents.configure(agent).chunk
    assert spec.evaluate_every % chunk == 0


@pytest.mark.parametrize(
    "flags",
    [
        "--steps 1234",
        "--steps 20000 --evaluate-every 3000",
        "--steps 999",
        "--evaluate-every 70000",
    ],
)
def test_the_cadence_that_is_advised_works(flags, capsys):
    err = fails(capsys, "train", "dqn", *flags.split())
    advice = re.search(r": ((?:--[a-z-]+ \d+ ?)+)works", err)[1].split()
    values_by_flag = dict(zip(flags.split()[::2], flags.split()[1::2], strict=True))
    values_by_flag |= dict(zip(advice[::2], advice[1::2], strict=True))
    named = {name[2:].replace("-", "_"): int(value) for name, value in values_by_flag.items()}
    assert Train(agent="dqn", **named).specs()[0].steps == named.get("steps", 200_000)


def test_a_short_training_works_at_the_first_try_and_so_does_what_it_says_is_next(capsys):
    flags = "--track smoke --seeds 2 --workers 1"
    out, _ = works(capsys, *f"train dqn --steps 2000 {flags}".split())
    assert out.count("distance") == 2
    commands = re.findall(r"(?:next:|^     ) (tape .+)", out, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        works(capsys, *shlex.split(command)[1:])
    assert Path("runs/report/index.html").is_file()
    assert Path(re.search(r"the runs are in (\S+)", out)[1]).is_dir()
    code, _, err = tape(capsys, *f"train dqn --steps 3000 {flags}".split())
    assert code == 2
    assert "--anew replaces it" in err
    works(capsys, *f"train dqn --steps 3000 {flags} --anew".split())


def test_a_run_is_made_as_it_was_asked_and_not_otherwise(runs, capsys):
    err = fails(capsys, "train", "runs/tiny/dqn/fps30/s00", "--steps", "5000")
    assert "leave out --steps" in err
    out, err = works(capsys, "train", "runs/tiny/dqn/fps30/s00")
    assert "1 of 1 runs are done already" in err
    assert "tiny/dqn/fps30/s00" in out


# One agent, two splits


@pytest.fixture
def bundles():
    """Two seeds with each of two splits, and another agent's with the first."""
    for split in ("fps30", "matched30"):
        exam = make_exam(split=split, length=8, horizon=8, episodes=2)
        for seed in range(2):
            store_bundle(Path(f"{split}-{seed}.tape"), "any-one", exam)
    store_bundle(Path("fps30-x.tape"), "any-cell", make_exam(length=8, horizon=8, episodes=2))
    return [str(path) for path in sorted(Path().glob("*.tape"))]


def test_results_that_are_named_as_advised_are_compared(bundles, capsys):
    err = fails(capsys, "unseen")
    assert "tape unseen fps30-*.tape matched30-*.tape" in err
    out, _ = works(capsys, "unseen", *(name for name in bundles if "x" not in name))
    assert "any-one, standard exam" in out


def test_results_of_two_agents_are_not_pooled_unless_they_are_said_to_be_one(bundles, capsys):
    err = fails(capsys, "unseen", *bundles)
    assert "any-one" in err
    assert "any-cell" in err
    assert "--as NAME" in err
    out, _ = works(capsys, "unseen", *bundles, "--as", "mine")
    assert "mine, standard exam" in out
    assert re.search(r"fps30 +3 ", out)


# What was computed is printed, whether or not it can be written

FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from tapebench.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("flags", ["--out x", "--bundle x --json"])
def test_a_full_disk_takes_no_score_with_it(flags, tmp_path):
    command = f"evaluate random --length 8 --episodes 100 --rules 0,4,30 {flags}".split()
    done = subprocess.run(
        [sys.executable, "-c", FULL, *command], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert ('"drop"' if "--json" in flags else "Strict success") in done.stdout
    assert re.fullmatch(r"tape: cannot write x: .+\n", done.stderr)
    assert not (tmp_path / "x").exists()


def test_a_bundle_that_could_not_hold_the_exam_is_refused_before_it_is_sat(capsys, monkeypatch):
    monkeypatch.setattr(
        evaluation, "evaluate", lambda *arguments, **options: pytest.fail("it was sat")
    )
    fails(capsys, "evaluate", "random", "--horizon", "5000", "--bundle", "b.tape")


def test_a_table_is_printed_where_nothing_can_be_written(runs, capsys, monkeypatch):
    known = tracks.tracks()
    monkeypatch.setattr(tracks, "tracks", lambda: {**known, "tiny": TINY})
    for name in ("report", "lines", "episodes"):
        (runs / name).write_text("in the way")
    command = ["bench", "--track", "tiny", "--agents", "dqn", "--seeds", "2"]
    for form, sign in (([], "TAPE tiny: strict success"), (["--json"], '"rows"')):
        code, out, err = tape(capsys, *command, *form)
        assert code == 1
        assert sign in out
        assert "random" in out
        assert "tape: runs/lines: File exists" in err
        assert re.search(r"tape: runs/report\S*: ", err)
        assert "Traceback" not in err
