"""The numbers of the paper as shipped: whole, well formed, and each where it is printed."""

import json
import re
from importlib import resources

import pytest

from tapebench.exam import metrics
from tapebench.physics import features
from tapebench.runs import tracks

PUBLISHED = json.loads(resources.files("tapebench").joinpath("data/paper.json").read_text())
TABLES = PUBLISHED["tables"]

PRINTED = {
    "main": (7, 5),
    "continuous": (7, 6),
    "holdout-length": (7, 8),
    "bounds": (3, 3),
    "mpc-by-type": (4, 3),
    "fixed-rules": (12, 4),
}
"""Rows and columns that the paper's tables have."""


def is_value(value):
    """A number, an interval around a mean, a bound such as <0.01, a type, or a dash."""
    if value is None or isinstance(value, (int, float)):
        return not isinstance(value, bool)
    if isinstance(value, str):
        return value in features.TYPES or bool(re.fullmatch(r"<0\.\d+", value))
    mean, low, high = value
    return low <= mean <= high


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_paper_says_where_it_stands_and_holds_well_formed_values(name):
    table = TABLES[name]
    assert set(table) == {"where", "title", "rows"}
    assert table["where"]
    assert table["rows"]
    for row in table["rows"].values():
        assert row
        assert all(map(is_value, row.values()))


@pytest.mark.parametrize("name", PRINTED)
def test_tables_are_as_large_as_they_are_printed(name):
    rows = [*TABLES[name]["rows"].values()]
    assert (len(rows), len(rows[0])) == PRINTED[name]
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_agents_and_metrics_are_called_as_here():
    for name in ("main", "continuous", "holdout-length"):
        assert set(TABLES[name]["rows"]) == set(tracks.AGENTS)
        for key in next(iter(TABLES[name]["rows"].values())):
            if "." in key:
                assert key.split(".")[-1] in metrics.METRICS


def test_statements_in_the_text_say_where_and_what():
    for statement in PUBLISHED["text"].values():
        assert set(statement) == {"where", "says", "value"}
        value = statement["value"]
        assert isinstance(value, (int, float)) or value[0] < value[1]


def test_numbers_that_the_paper_prints_twice_are_the_same_here():
    for agent, row in TABLES["holdout-length"]["rows"].items():
        for side in ("id", "ood"):
            success = TABLES["main"]["rows"][agent][f"{side}.success"][0]
            distance = TABLES["continuous"]["rows"][agent][f"{side}.final_distance"]
            assert row[f"32.{side}.success"] == success
            assert row[f"32.{side}.final_distance"] == distance
    by_type = {kind: row["episodes"] for kind, row in TABLES["mpc-by-type"]["rows"].items()}
    assert by_type == TABLES["split"]["rows"]["held-out rules"]
    planner = TABLES["bounds"]["rows"]["true-dynamics MPC"]["success"]
    assert planner == PUBLISHED["text"]["planner reference"]["value"]
    assert TABLES["credibility"]["rows"]["strict success"] == {
        "dreamer": TABLES["main"]["rows"]["dreamer"]["ood.success"][0],
        "mpc": planner,
    }
