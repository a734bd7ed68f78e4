"""Anybody's agent, one file outside the package, is trained, resumed, evaluated and reported."""

import shutil
import sys
from pathlib import Path

import pytest

from commands import tape
from tapebench import agents
from tapebench.base import files
from tapebench.runs import training
from tapebench.runs.results import load_results

EXAMPLE = Path(__file__).parents[2] / "examples" / "reinforce.py"
SIZES = ("--track", "smoke", "--seeds", "2", "--steps", "4096", "--evaluate-every", "2048")
RUN = "main/mine.reinforce/fps30/s00"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder `mine` with the example in it, and nothing of it imported yet."""
    (tmp_path / "mine").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "mine")
    monkeypatch.delenv(agents.PATH, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("mine", "mine.reinforce"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path / "mine" / "reinforce.py"
    for name in ("mine", "mine.reinforce"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_it_is_trained_evaluated_and_reported_like_ours(capsys, mine, monkeypatch):
    monkeypatch.setenv(agents.PATH, str(mine.parents[1]))
    code, out, err = tape(capsys, "train", "mine.reinforce", *SIZES)
    assert code == 0, err
    assert RUN in out
    stored = load_results("runs")
    assert [run["agent"] for run in stored.runs] == ["mine.reinforce"] * 2
    code, out, err = tape(
        capsys, "evaluate", "runs/main/mine.reinforce", "--length", "8", "--rules", "0,4,204"
    )
    assert code == 0, err
    code, out, err = tape(capsys, "report", "runs")
    assert code == 0, err
    assert "mine.reinforce" in Path("runs/report/index.html").read_text()


@pytest.mark.slow
def test_a_file_of_here_is_found_if_it_is_typed(capsys, mine):
    code, _, err = tape(capsys, "train", "mine.reinforce", *SIZES[:3], "1", *SIZES[4:])
    assert code == 0, err


def test_what_results_name_is_not_imported_from_here(mine):
    with pytest.raises(ValueError, match=r"there is no module mine\.reinforce: install it"):
        agents.load("mine.reinforce")


def spec_of(**fields):
    return training.RunSpec(
        agent="mine.reinforce",
        seed=0,
        options={"width": 8, "chunk": 256},
        length=8,
        horizon=8,
        steps=1024,
        evaluate_every=256,
        episodes=1,
        last=1,
        rules=(0, 4),
        **fields,
    )


@pytest.mark.slow
def test_it_goes_on_where_it_was_stopped_unless_its_file_has_changed(mine, tmp_path, monkeypatch):
    monkeypatch.setenv(agents.PATH, str(mine.parents[1]))
    whole = training.run(spec_of(), tmp_path / "whole")
    calls = []

    def stop():
        calls.append(1)
        return len(calls) == 2

    with pytest.raises(training.Stopped):
        training.run(spec_of(), tmp_path / "halves", stop=stop)
    source = mine.read_text()
    mine.write_text(source + "\n")
    with pytest.raises(ValueError, match="made with another source"):
        training.run(spec_of(), tmp_path / "halves")
    mine.write_text(source)
    halves = training.run(spec_of(), tmp_path / "halves")
    summaries = [files.read_json(path / "summary.json") for path in (whole, halves)]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("mine.empty", "", "mine.empty is not an agent: it has no Config"),
        ("mine.half", "class Config: pass", "mine.half is not an agent: it has no make"),
        (
            "mine.needy",
            "import nowhere_at_all",
            "cannot import mine.needy: it needs nowhere_at_all",
        ),
        ("mine.absent", None, "there is no module mine.absent"),
        ("mine-absent", None, "unknown agent 'mine-absent'"),
    ],
)
def test_what_is_no_agent_is_refused_in_a_line(mine, monkeypatch, name, text, complaint):
    monkeypatch.setenv(agents.PATH, str(mine.parents[1]))
    if text is not None:
        (mine.parent / f"{name.partition('.')[2]}.py").write_text(text)
    with pytest.raises(ValueError, match=complaint) as failure:
        agents.load(name)
    assert "\n" not in str(failure.value)
    sys.modules.pop(name, None)
