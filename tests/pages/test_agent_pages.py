"""The pages of the agents are what their sources say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapebench import agents
from tapebench.pages import agents as agent_pages
from tapebench.runs import tracks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", agents.NAMES)
def test_the_page_of_an_agent_is_up_to_date(name):
    page = (ROOT / "docs" / "agents" / f"{name}.md").read_text()
    assert page == agent_pages.agent_page(name), "run: python tools/agent_pages.py"
    picture, file = agent_pages.curves(name), ROOT / "docs" / "agents" / f"{name}.svg"
    assert file.is_file() == (picture is not None)
    if picture:
        assert file.read_bytes() == picture.svg, "run: python tools/agent_pages.py"


@pytest.mark.parametrize(
    "change", [{"reward": "sparse"}, {"success_bonus": 0.0}, {"mask": (0, 4)}, {"rules": (0, 30)}]
)
def test_runs_that_were_asked_something_unusual_are_not_among_the_usual(change):
    spec = tracks.get_track("full").spec("dqn")
    assert agent_pages.is_usual(json.loads(json.dumps(spec.as_dict())))
    unusual = json.loads(json.dumps(replace(spec, **change).as_dict()))
    assert not agent_pages.is_usual(unusual)


def test_a_fixed_rule_is_usual():
    spec = tracks.get_track("full").spec("dqn", train_on=(30,), rules=(30,))
    assert agent_pages.is_usual(json.loads(json.dumps(spec.as_dict())))


@pytest.mark.slow
def test_every_option_of_every_agent_says_what_it_means():
    for name in agents.NAMES:
        config = agents.load(name)[0]
        assert all(agent_pages.meanings(config).get(option) for option in vars(config()))
