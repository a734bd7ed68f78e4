import time

import numpy as np
import pytest

from tapebench.exam import evaluate, external, rollout, seating
from tapebench.exam.exam import make_exam
from tapebench.exam.external import AgentError
from tapebench.runs import evaluation
from tapebench.tasks.task import make_task

EXAM = make_exam(length=8, horizon=8, episodes=2)


def test_an_object_with_reset_and_act_sits_the_exam():
    from agents_of_users import FlipFirstOne

    agent = FlipFirstOne()
    outcome = evaluation.evaluate(agent, EXAM)
    assert outcome.policy == "FlipFirstOne"
    assert not outcome.sees_rule
    identity = outcome.runs[0].success[EXAM.rules == 204]
    assert identity.all(), "under the identity rule flipping ones always succeeds"
    assert agent.steps.max() == 8


@pytest.mark.slow
def test_a_process_of_its_own_gives_the_same_episodes():
    here = evaluation.evaluate("agents_of_users:good", EXAM)
    there = evaluation.evaluate("agents_of_users:good", EXAM, subprocess=True)
    np.testing.assert_array_equal(here.runs[0].cells, there.runs[0].cells)
    assert here.policy == there.policy == "agents_of_users:good"


@pytest.mark.slow
def test_what_an_agent_does_to_its_observations_and_prints_stays_its_own(capfd):
    for apart in (False, True):
        outcome = evaluation.evaluate("agents_of_users:spoiling", EXAM, subprocess=apart)
        assert outcome.runs[0].success[EXAM.rules == 204].all()
    assert "spoilt" in capfd.readouterr().err


@pytest.mark.slow
def test_a_guests_belief_can_be_watched():
    task = make_task(length=8, horizon=8, rules=[30, 204])
    with external.in_subprocess("agents_of_users:believer", "b", make_task(length=8)) as policy:
        _, seen, _ = rollout.watch(
            policy, task, lambda memory, rule: {"b": policy.belief(memory)}, episodes=3
        )
    np.testing.assert_allclose(seen["b"], 1 / 256)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        ("crashing", "act() failed: RuntimeError: out of ideas"),
        ("too_few", "act() gave shape (255,) for 256 observations"),
        ("not_a_number", "act() gave nan for an action"),
        ("outside", "cells are 0 to 7"),
    ],
)
def test_misconduct_ends_in_a_message_and_keeps_what_was_done(agent, complaint, apart):
    with pytest.raises(evaluate.UnfinishedError) as failure:
        evaluation.evaluate(f"agents_of_users:{agent}", EXAM, subprocess=apart)
    assert complaint in str(failure.value)
    assert "\n" not in str(failure.value)
    # Each batch of rows takes eight calls, the fault comes with the fifteenth.
    assert len(failure.value.rows["success"]) == seating.BATCH


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        ("vanishing", r"its process ended with exit code 3 during act\(\)"),
        ("hanging", r"act\(\) took longer than 2 seconds"),
    ],
)
def test_a_crash_or_a_hang_of_its_process_ends_in_a_message(agent, complaint):
    with pytest.raises(evaluate.UnfinishedError, match=complaint) as failure:
        evaluation.evaluate(f"agents_of_users:{agent}", EXAM, subprocess=True, deadline=2)
    assert len(failure.value.rows["success"]) == seating.BATCH


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("nowhere_to_be_found:make", "there is no module nowhere_to_be_found"),
        ("agents_of_users:missing", "has no factory 'missing'"),
        ("agents_of_users:", "names no factory"),
    ],
)
def test_a_factory_that_gives_no_agent_is_refused(spec, complaint, apart):
    with pytest.raises(AgentError, match=complaint):
        evaluation.evaluate(spec, EXAM, subprocess=apart)


@pytest.mark.slow
def test_the_deadline_holds_for_what_an_agent_does_not_read():
    observations = np.zeros((256, 257), np.float32)  # more than a pipe takes before it is read
    task = make_task(length=256)
    with external.in_subprocess("agents_of_users:deaf", "deaf", task, deadline=2) as policy:
        memory = policy.init(None, 256)
        time.sleep(1)
        began = time.monotonic()
        with pytest.raises(AgentError, match=r"deaf: act\(\) took longer than 2 seconds"):
            policy.act(memory, observations, None)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "belief", [np.zeros((2, 256)), np.ones((2, 255)) / 255, np.full((2, 256), np.nan)]
)
def test_what_is_no_belief_is_refused(belief):
    with pytest.raises(AgentError, match=r"belief\(\) gave"):
        external.check_belief(belief, 256, "x")


@pytest.mark.parametrize(
    ("spec", "cell"),
    [
        ("agents_of_users:flipping", 0),
        ("agents_of_users:flipping()", 0),
        ("agents_of_users:flipping(3)", 3),
        ("agents_of_users:flipping(cell=2, backwards=True)", 5),
        ("agents_of_users:flipping(-2)", 6),
    ],
)
def test_a_factory_is_given_its_arguments(spec, cell):
    outcome = evaluation.evaluate(spec, EXAM)
    assert outcome.policy == spec
    assert (outcome.runs[0].cells[:, :, 0] == cell).all()


@pytest.mark.parametrize(
    "arguments",
    [
        "(__import__('os').getcwd())",
        "(open('x'))",
        "(cell)",
        "(*[1])",
        "(**{'cell': 1})",
        "(1)(2)",
        "(1) + flipping(2)",
        "(cell=1, cell=2)",
        "(1",
        "(lambda: 1)",
        "([x for x in (1,)])",
        "(" + "[" * 400 + "]" * 400 + ")",
    ],
)
def test_arguments_are_read_and_never_evaluated(arguments):
    with pytest.raises(AgentError, match=r"arguments are numbers|names no factory"):
        external.load_factory(f"agents_of_users:flipping{arguments}")


def test_arguments_that_a_factory_does_not_take_are_its_error():
    with pytest.raises(AgentError, match=r"flipping\(depth=3\) failed: TypeError"):
        external.make_agent("agents_of_users:flipping(depth=3)")


AGENT_FILE = """
from dataclasses import dataclass
from beside import first_one

@dataclass
class Agent:
    offset: int
    def reset(self, num_envs): pass
    def act(self, obs): return (first_one(obs) + self.offset) % (obs.shape[1] - 1)

def make(offset=0): return Agent(offset)
"""


def test_a_file_is_an_agent_and_finds_the_modules_beside_it(tmp_path):
    folder = tmp_path / "my: agents"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT_FILE)
    (folder / "beside.py").write_text("def first_one(obs): return obs[:, :-1].argmax(axis=1)")
    first, second = (
        evaluation.evaluate(f"{folder}/agent.py:make({offset})", EXAM, name="mine")
        for offset in (0, 1)
    )
    assert first.policy == second.policy == "mine"
    np.testing.assert_array_equal(
        (first.runs[0].cells[:, :, 0] + 1) % 8, second.runs[0].cells[:, :, 0]
    )
    with pytest.raises(AgentError, match=r"there is no file nowhere\.py"):
        external.load_factory("nowhere.py:make")
    (folder / "broken.py").write_text("1 / 0")
    for _ in range(2):  # half an import is not kept
        with pytest.raises(AgentError, match=r"importing broken\.py failed: ZeroDivisionError"):
            external.load_factory(f"{folder}/broken.py:make")
