"""Agents that misbehave, one small file each in `hostile_agents`.

The first line of a file says what the evaluator must answer, and where it is tried: `both`, or only
`apart`, in a process of its own, for what would take the evaluator with it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tapebench.exam import evaluate
from tapebench.exam.exam import make_exam
from tapebench.exam.external import AgentError
from tapebench.runs import evaluation

FOLDER = Path(__file__).parents[1] / "support" / "hostile_agents"
EXAM = make_exam(length=8, horizon=8, episodes=2, rules=[0, 30, 204])


def read_expectation(path):
    """Where an agent is tried, and what is said of it then."""
    where, complaint = ast.get_docstring(ast.parse(path.read_text())).split(": ", 1)
    assert where in ("both", "apart")
    return where, complaint


TABLE = {path.stem: read_expectation(path) for path in sorted(FOLDER.glob("*.py"))}


@pytest.fixture(autouse=True)
def agents_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=":")


def complain(name, apart):
    """What the evaluator says of an agent."""
    with pytest.raises((evaluate.UnfinishedError, AgentError)) as failure:
        evaluation.evaluate(f"{name}:make", EXAM, subprocess=apart, deadline=2)
    return str(failure.value)


@pytest.mark.parametrize("name", [name for name, (where, _) in TABLE.items() if where == "both"])
def test_in_process_it_ends_in_one_line(name):
    said = complain(name, apart=False)
    sys.modules.pop(name, None)
    assert re.search(TABLE[name][1], said), said
    assert said.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_in_a_process_of_its_own_it_ends_in_one_line(name):
    said = complain(name, apart=True)
    assert re.search(TABLE[name][1], said), said
    assert said.isprintable()


@pytest.mark.slow
def test_what_an_agent_starts_ends_with_it():
    complain("leaves_a_child_behind", apart=True)
    left = subprocess.run(["pgrep", "-f", "leaves_a_child_behind:make"], capture_output=True)
    assert left.stdout == b""
