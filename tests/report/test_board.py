import json
import re

import numpy as np
import pytest

from submissions import FOLDS, core_exam, submit
from tapebench.exam import bundle
from tapebench.report import board as pages
from tapebench.runs import board, evaluation


@pytest.fixture
def hostile(tmp_path):
    submit(tmp_path, "<script>alert(1)</script>", splits=FOLDS[:2])
    submit(tmp_path / "b", "constructor", seed=2)
    (tmp_path / "<b>.tape").write_bytes(b"x")
    return board.read(tmp_path)


def test_the_page_holds_every_row_and_shows_names_as_they_are(hostile):
    page = pages.render(hostile)
    assert "<script>alert" not in page
    assert "<b>.tape" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    (contest,) = data["contests"]
    names = {score["name"] for score in contest["scores"]}
    assert names == {"<script>alert(1)</script>", "constructor"}
    assert names < set(contest["episodes"])
    assert set(contest["episodes"]) == set(contest["judged"])
    assert {rule["side"] for rule in contest["rules"]} == {"ood"}


def test_the_table_says_how_rows_were_made_and_what_bounds_them(hostile):
    (standing,) = hostile.standings
    texts = {row[0]: row[1:] for row in pages.table(standing).texts()}
    assert texts["constructor"][0] == "1"
    assert texts["<script>alert(1)</script>"][2].endswith("not ranked: 2 of 5 folds")
    assert [*texts][-3:] == ["memoryless", "blind ceiling", "exact ceiling"]
    assert texts["blind ceiling"][1] == "0.769"


def test_episodes_to_watch_are_those_of_the_fold_that_held_the_rule_out(tmp_path):
    paths = submit(tmp_path, "mine")
    (row,) = board.read(tmp_path).standings[0].rows
    cells = board.watched(row.entries)
    for split, path in zip(FOLDS, paths, strict=True):
        own = core_exam(split).subsets == "ood"
        played = bundle.verify(path).episodes.cells[:, : board.WATCHED]
        np.testing.assert_array_equal(cells[own], played[own])


def test_without_folds_bounds_are_of_the_rules_of_each_side(tmp_path):
    exam = evaluation.exam_of("smoke")
    evaluation.evaluate("flip-ones", exam, name="mine").write_bundle(tmp_path / "mine.tape")
    (standing,) = board.read(tmp_path).standings
    table = pages.table(standing)
    row, ceiling = (
        dict(zip((column.name for column in table.columns), table.rows[n].cells, strict=True))
        for n in (0, -1)
    )
    assert standing.as_dict()["rules"] == standing.rows[0].figures.rules
    assert ceiling["unseen"] != ceiling["seen"]
    assert ceiling["unseen"] - row["unseen"].mean == pytest.approx(row["ceiling −"])
    assert row["rank"] == "1"
    assert row["cost of unseen"] is None
