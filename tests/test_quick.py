"""What `make quick` may not do fails there: the guards of `conftest.py`, switched on here."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from learners import SMALL
from tapebench import env as envs


@pytest.fixture
def guards(request):
    guards = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    guards._quick_test.append("a quick test")
    yield guards
    guards._quick_test.pop()


def test_a_quick_test_starts_no_process(guards):
    with pytest.raises(AssertionError, match="a quick test starts a process: mark it slow"):
        subprocess.run(["true"])


def test_a_quick_test_trains_for_no_more_than_a_chunk(guards):
    agent = guards._make_agent("ppo", *envs.make(length=8, horizon=8), **SMALL["ppo"])
    with pytest.raises(AssertionError, match="a quick test trains for more than a chunk"):
        agent.train(SimpleNamespace(steps=agent.chunk))
