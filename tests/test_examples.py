"""The examples do what they say."""

from pathlib import Path

import numpy as np
import pytest

from tapebench import protocol
from tapebench.exam import make_exam
from tapebench.guest import in_process
from tapebench.references import belief

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def examples_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")


@pytest.mark.slow
def test_a_stable_baselines_model_takes_the_exam_by_the_factory_road():
    exam = make_exam(length=8, horizon=8)
    found = protocol.evaluate("sb3_agent:make", exam)
    assert found.policy == "sb3_agent:make"
    by_chance = found.score["lines"]["random"]["id"]
    assert found.score["id"]["success"] > by_chance + 0.03, "it has learnt something"


def test_a_torch_agent_with_memory_takes_the_exam_in_its_own_process():
    exam = make_exam(length=16, horizon=16, trials=2, rules=[4, 30, 110, 204, 232], episodes=10)
    found = protocol.evaluate("torch_agent:make", exam, subprocess=True)
    assert found.runs[0].success[exam.rules == 204].all()
    again = protocol.evaluate("torch_agent:make", exam)
    np.testing.assert_array_equal(found.runs[0].cells, again.runs[0].cells)


def test_the_torch_agents_memory_finds_the_rule():
    import torch_agent

    exam = make_exam(rules=[30, 110, 150])
    policy = in_process(torch_agent.make(), "torch", 32)
    seen = belief.identify(policy, exam.task, episodes=5)
    assert seen.mass[:, :, 0] == pytest.approx(1 / 256, rel=1e-3)
    assert (seen.mass[:, :, -1] > 0.9).all()
