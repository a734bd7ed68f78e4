"""Runs over folds, read from a results directory and taken together."""

import json
import re

import numpy as np
import pytest

from commands import tape
from stored_folds import EXAMS, RULES, store_folds
from stored_runs import sit, store_run
from tapebench.base import files
from tapebench.exam import bundle
from tapebench.exam.seating import Conditions
from tapebench.physics.strata import STRATA
from tapebench.runs import folds as fold_runs
from tapebench.tasks import folds


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two agents over all folds, and one run of another split."""
    root = tmp_path_factory.mktemp("runs")
    store_folds(root, "any-one")
    store_folds(root, "any-cell", folds.NAMES[:3])
    store_folds(root, "any-cell", ["folds-3"], seeds=1)
    store_run(root, "any-one", 0)
    return root


def test_runs_over_folds_are_put_together(root):
    found = {runs.agent: runs for runs in fold_runs.load([root])}
    assert set(found) == {"any-one", "any-cell"}
    whole = found["any-one"]
    assert list(whole.trainings) == list(folds.NAMES)
    assert whole.missing == whole.single == ()
    costs = whole.costs()
    assert list(costs) == ["beyond-reflex", "reflex", "all"]
    assert [cost.rules for cost in costs.values()] == [20, 20, 40]
    assert {cost.runs for cost in costs.values()} == {10}
    seen = unseen = 0.0
    for rule in RULES:
        scores = {
            name: one.scores[:, one.rules.tolist().index(rule)].mean()
            for name, one in whole.trainings.items()
        }
        own = next(name for name, exam in EXAMS.items() if rule in exam.test)
        unseen += scores.pop(own)
        seen += np.mean([*scores.values()])
    assert costs["all"].cost.mean == pytest.approx((seen - unseen) / len(RULES))
    assert set(costs) - {"all"} <= set(STRATA)


def test_what_is_missing_of_the_folds_is_said(capsys, root):
    code, out, _ = tape(capsys, "unseen", str(root), "--json")
    assert code == 0
    document = {row["agent"]: row for row in json.loads(out)["folds"]}["any-cell"]
    assert document["missing"] == ["folds-4"]
    assert document["single"] == ["folds-3"]
    assert document["cost"]["all"]["rules"] == 24
    code, out, _ = tape(capsys, "unseen", str(root / "tiny"))
    assert code == 0
    said = " ".join(out.split())
    assert "any-cell: no run of folds-4, so rules held out there are left out" in said
    assert "any-cell: one seed alone of folds-3" in said
    strata = re.findall(r"(?m)^ +(beyond-reflex|reflex|all) ", out)
    assert strata == ["beyond-reflex", "reflex", "all"] * len(strata[::3])
    assert len(strata) > 3


def test_one_fold_says_nothing(capsys, root):
    code, out, err = tape(capsys, "unseen", str(root / "tiny" / "any-one" / "folds-1"))
    assert (code, out) == (2, "")
    assert "there is only folds-1" in err


def test_a_run_that_saw_what_it_holds_out_is_refused(capsys, tmp_path):
    store_run(tmp_path, "any-one", 0, exam=EXAMS["folds-0"], trained_on=RULES)
    code, _, err = tape(capsys, "unseen", str(tmp_path))
    assert code == 2
    assert "was not trained on the training rules of folds-0" in err


def test_bundles_of_one_agent_are_runs_too(capsys, tmp_path):
    paths = []
    for number, (name, exam) in enumerate(list(EXAMS.items())[:2] * 2):
        paths.append(tmp_path / f"{number}.tape")
        about = {"policy": f"agent-{number}", "sees_rule": False}
        bundle.write(paths[-1], sit("any-one", number, exam), exam, about, Conditions("by us"))
        assert name in folds.NAMES
    code, out, _ = tape(capsys, "unseen", *map(str, paths), "--as", "mine", "--json")
    assert code == 0
    (document,) = json.loads(out)["folds"]
    assert document["seeds"] == {"folds-0": 2, "folds-1": 2}
    assert document["cost"]["all"]["rules"] == 16


def test_a_curve_that_is_written_anew_is_read_anew(tmp_path):
    exam = EXAMS["folds-0"]
    run = store_run(tmp_path, "any-one", 0, exam=exam, last=1)
    before = fold_runs.rule_success(run, exam, 1)
    np.testing.assert_array_equal(before, fold_runs.rule_success(run, exam, 1))
    table = files.read_table(run / "curve.parquet")
    files.write_table(run / "curve.parquet", table | {"success": 1 - table["success"]})
    np.testing.assert_allclose(fold_runs.rule_success(run, exam, 1), 1 - before, atol=1e-6)
