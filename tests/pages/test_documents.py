"""The generated documents agree with each other: the same runs have the same digits everywhere."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tapebench import agents
from tapebench.pages import agents as agent_pages
from tapebench.pages import results as results_page
from tapebench.report import contests, findings
from tapebench.runs import published, tracks

ROOT = Path(__file__).parents[2]

MEASURES = ("ID success", "OOD success", "drop")


def tables(text):
    """Every table of a Markdown text: the heading above it, and its rows by column."""
    heading, columns = "", None
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("| "):
            columns = None
            continue
        cells = [cell.strip().replace("*", "").strip("_") for cell in line[2:-2].split(" | ")]
        cells = [cell.replace("_ [", " [") for cell in cells]
        if columns is None:
            columns = cells
        elif not cells[0].startswith("---"):
            yield heading, dict(zip(columns, cells, strict=False))


def agent_of(label):
    """The agent that a row is of: `dqn` of `dqn` and of `dqn-mlp`. An ablation is none."""
    known = {label, label.rpartition("-")[0]} & {*agents.NAMES}
    return max(known, key=len, default=None)


def published_options(agent):
    """What the page of an agent calls the options of its published runs of the track `full`."""
    published_rows = agent_pages.published_rows()
    return {
        options
        for options, row in agent_pages.rows_of(agent)
        if row in published_rows
        and row["run"].split("/")[0].partition("+")[0] == "full"
        and not contests.is_ablation(agent, row["config"])
    }


def printed_values():
    """(agent, seeds, measure) of runs on `fps30` with the usual options -> document -> digits."""
    values = defaultdict(lambda: defaultdict(set))

    def note(document, agent, seeds, row):
        for measure in MEASURES:
            if row.get(measure) not in (None, "–"):
                digits = row[measure].replace("+", "")
                values[agent, str(seeds), measure][document].add(digits)

    readme = (ROOT / "README.md").read_text().split("<!-- headline: end -->")[0]
    for _, row in tables(readme):
        if agent := agent_of(row.get("agent", "")):
            note("README.md", agent, row["seeds"], row)
    results = (ROOT / "docs" / "results.md").read_text()
    of_split = re.search(r"\n## `fps30`\n(.*?)\n## `matched30`\n", results, re.DOTALL)[1]
    seeds_by_label = {}
    for _, row in tables(of_split):
        agent = agent_of(row.get("agent", ""))
        if agent and "seeds" in row:
            note("results.md", agent, row["seeds"], row)
            seeds_by_label[row["agent"]] = row["seeds"]
        elif agent and "composition" in row:
            note("results.md, drop taken apart", agent, seeds_by_label[row["agent"]], row)
    of_main = (ROOT / "docs" / "paper.md").read_text()
    for _, row in tables(of_main):
        if row.get("source", "").startswith("ours, ") and "OOD return" in row and agent_of(row[""]):
            note("paper.md", row[""], row["seeds"], row)
    for agent in agents.NAMES:
        for _, row in tables((ROOT / "docs" / "agents" / f"{agent}.md").read_text()):
            is_of_track = row.get("options") in published_options(agent)
            if is_of_track and (row.get("split"), row["steps"]) == ("fps30", "200,000"):
                note("agents", agent, row["seeds"], row)
    contest = results_page.contest_of(published.directory(), "full")
    table = findings.main_table(contest)
    for texts in table.texts():
        row = dict(zip((column.name for column in table.columns), texts, strict=True))
        if agent := agent_of(row["agent"]):
            note("report", agent, row["seeds"], row)
    return values


@pytest.mark.slow
def test_the_same_runs_have_the_same_digits_in_every_document():
    values = printed_values()
    for key, by_document in values.items():
        assert len(set().union(*by_document.values())) == 1, (key, dict(by_document))
    shared = {key for key, by_document in values.items() if len(by_document) >= 3}
    assert {key[2] for key in shared} == {*MEASURES}
    assert {key[0] for key in shared} == {*tracks.get_track("full").agents}
    by_document = values["dqn", "20", "ID success"]
    assert by_document.keys() >= {"README.md", "results.md", "paper.md", "agents", "report"}
