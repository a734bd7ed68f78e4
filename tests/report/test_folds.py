"""Runs over folds in reports and plans: one set, not a contest a fold."""

from dataclasses import replace

import pytest

from stored_folds import EXAMS, RULES, store_folds
from stored_runs import store_run
from tapebench import report
from tapebench.report import contests, folds, page
from tapebench.runs import tracks
from tapebench.runs.plan import make_plan
from tapebench.tasks.folds import NAMES


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    store_folds(root, "any-one")
    store_folds(root, "any-cell", NAMES[:2])
    store_run(root, "first-one", 0)
    return root


@pytest.fixture(scope="module")
def fold_set(root):
    sets, others = folds.group(contests.read(root).contests)
    assert [contest.experiment for contest in others] == ["main"]
    (fold_set,) = sets
    return fold_set


def test_contests_over_folds_are_one_set(fold_set):
    assert [contest.exam.split for contest in fold_set.contests] == list(NAMES)
    assert fold_set.title.startswith("tiny over folds 0, 1, 2, 3, 4, L = 9, H = 4")
    assert {name: len(rules) for name, rules in fold_set.groups.items()} == {
        "beyond-reflex": 20,
        "reflex": 20,
        "all": 40,
    }


def test_the_main_table_has_what_is_beyond_reflex_first_beside_both_ceilings(fold_set):
    table = folds.fold_table(fold_set)
    names = [column.name for column in table.columns]
    assert names[:4] == ["agent", *(f"beyond-reflex {w}" for w in ("seen", "unseen", "cost"))]
    rows = {row.cells[0]: dict(zip(names, row.cells, strict=True)) for row in table.rows}
    assert list(rows) == ["any-one", "any-cell", "memoryless", "blind ceiling", "exact ceiling"]
    cost = fold_set.runs["any-one"].costs()
    assert rows["any-one"]["beyond-reflex cost"] == cost["beyond-reflex"].cost
    assert rows["any-one"]["seen"] == cost["all"].seen
    assert (rows["any-one"]["runs"], rows["any-cell"]["runs"]) == (10, 4)
    bounds = [rows[name]["seen"] for name in ("memoryless", "blind ceiling", "exact ceiling")]
    assert 0 < bounds[0] <= bounds[1] <= bounds[2] < 1
    assert "any-cell: folds-2, folds-3, folds-4" in folds.cost_table(fold_set).caption


def test_every_rule_is_listed_once_with_the_fold_that_holds_it_out(fold_set):
    rows = folds.fold_rule_table(fold_set).rows
    assert [row.cells[0] for row in rows] == sorted(RULES)
    for row in rows:
        assert row.cells[0] in EXAMS[row.cells[3]].test


def test_the_page_shows_a_set_once_and_counts_all_its_runs(root):
    made = report.make(root)
    assert [section.title.split(",")[0] for section in made.sections] == [
        "tiny over folds 0",
        "main on fps30",
    ]
    text = page.render(made)
    assert "15 finished runs of 3 agents" in text
    assert "Rule by rule, folds-0" in text


def test_agents_that_were_trained_on_what_is_held_out_are_no_set(tmp_path):
    for name in NAMES[:2]:
        store_run(tmp_path, "any-one", 0, exam=EXAMS[name], trained_on=RULES, last=1)
    sets, others = folds.group(contests.read(tmp_path).contests)
    assert (len(sets), len(others)) == (0, 2)


def test_a_plan_over_folds_is_of_every_fold_under_one_name(tmp_path):
    lite = tracks.get_track("lite")
    plan = make_plan(lite, tmp_path, names=["dqn"])
    assert len(plan.specs) == 5 * lite.seeds
    assert [exam.split for exam in plan.exams] == list(NAMES)
    assert {spec.experiment for spec in plan.specs} == {"lite"}
    assert {spec.rules for spec in plan.specs} == {lite.rules}
    # One fold was asked something else before: then all of them are called otherwise.
    store_run(tmp_path, "dqn", 0, experiment="lite", exam=EXAMS["folds-3"], last=1)
    named = {spec.experiment for spec in make_plan(lite, tmp_path, names=["dqn"]).specs}
    assert len(named) == 1
    assert named.pop().startswith("lite+")
    alone = make_plan(lite, tmp_path, names=["dqn"], split="folds-1")
    assert {spec.split for spec in alone.specs} == {"folds-1"}
    assert replace(lite, folds=()).splits == ("folds-0",)
