"""The pages of the agents are what their sources say."""

import sys
from pathlib import Path

import pytest

from tapebench import agents

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import agent_pages  # noqa: E402


@pytest.mark.parametrize("name", agents.NAMES)
def test_the_page_of_an_agent_is_up_to_date(name):
    found = (ROOT / "docs" / "agents" / f"{name}.md").read_text()
    assert found == agent_pages.page(name), "run: python tools/agent_pages.py"
    picture, file = agent_pages.curves(name), ROOT / "docs" / "agents" / f"{name}.svg"
    assert file.is_file() == (picture is not None)
    if picture:
        assert file.read_bytes() == picture.svg, "run: python tools/agent_pages.py"


def test_every_option_of_every_agent_says_what_it_means():
    for name in agents.NAMES:
        config = agents.load(name)[0]
        assert all(agent_pages.meanings(config).get(option) for option in vars(config()))
