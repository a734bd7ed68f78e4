"""What a benchmark over folds comes to in words."""

import numpy as np
import pytest

from stored_folds import EXAMS, store_folds
from tapebench.exam import lesion, policy
from tapebench.exam.lesion import KINDS, Losses
from tapebench.report import contests, folds, verdict
from tapebench.runs.evaluation import Lesioned, lesion_runs
from tapebench.tasks.task import make_task


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    store_folds(root, "any-one")
    store_folds(root, "any-cell")
    return root


@pytest.fixture(scope="module")
def fold_set(root):
    (fold_set,), _ = folds.group(contests.read(root).contests)
    return fold_set


def losses(by_kind, wobble=0.0):
    """Lesions that cost so much under every rule, half of the rules `wobble` more."""
    exam = EXAMS["folds-0"]
    more = wobble * (np.arange(len(exam.rules)) % 2)
    lost = {kind: np.tile(by_kind.get(kind, 0.0) + more, (2, 1)) for kind in KINDS}
    lost["sham"] = np.full_like(lost["sham"], by_kind.get("sham", 0.0))
    return Lesioned((Losses((2, 3), lost),), exam)


def test_who_acts_on_the_law_loses_more_by_another_law_than_by_a_stranger(fold_set):
    acts = losses({"swapped on": 0.3, "sham": 0.1})
    only_a_plan = losses({"swapped on": 0.3, "sham": 0.3})
    said = verdict.verdict(fold_set, {"any-one": acts, "any-cell": only_a_plan})
    assert "what a memory of another law costs: any-one (0.200 [0.200, 0.200])" in said.law
    assert "not shown of any-cell (0.000 [0.000, 0.000])" in said.law
    assert "those who act on the law: any-one" in said.cost
    assert "any-cell" not in said.cost


def test_an_effect_that_rules_disagree_on_is_not_shown(fold_set):
    unsure = losses({"swapped on": -0.1, "sham": 0.0}, wobble=0.25)
    said = verdict.verdict(fold_set, {"any-one": unsure, "any-cell": unsure})
    assert "another law costs: nobody; not shown of any-one" in said.law
    assert "the best, who was not shown to act on the law" in said.cost


def test_who_forgets_and_who_cannot_be_asked_are_told_apart(fold_set):
    reasons = {"any-one": Lesioned(reason=verdict.FORGETS), "any-cell": Lesioned(reason="no file")}
    said = verdict.verdict(fold_set, reasons)
    assert (
        "nobody; without memory of the episode: any-one; not asked: any-cell (no file)." in said.law
    )


def test_the_reason_that_stands_for_no_memory_is_the_one_that_is_given():
    plain = policy.make("random", make_task(length=9, horizon=4, rules="all"))
    with pytest.raises(lesion.NoLesionError, match=f"^{verdict.FORGETS}$"):
        lesion.lesions(plain, EXAMS["folds-0"])


def test_each_is_named_above_what_it_is_above(fold_set):
    lines = verdict.verdict(fold_set, {}).standings
    assert lines[0].startswith("Mean success on 20 beyond-reflex rules")
    (memoryless,) = [line for line in lines if "memoryless" in line]
    level = float(memoryless.split(",")[1].split(":")[0])
    rules = fold_set.groups["beyond-reflex"]
    above = {
        agent
        for agent, runs in fold_set.runs.items()
        if fold_set.means(runs, rules)["seen"] > level
    }
    named = set(memoryless.rpartition(": ")[2].split(", ")) - {"nobody"}
    assert named == above
    assert lines[-1].startswith("  what can be reached: blind ceiling 0.")


def test_what_to_try_next_depends_on_what_lacks(fold_set, monkeypatch):
    levels = {"memoryless": ("ceiling", 0.4), "blind ceiling": ("ceiling", 0.8)}
    monkeypatch.setattr(verdict, "_levels", lambda fold_set: levels)
    for mean, told in ((0.3, "context=rule"), (0.5, "context=evidence"), (0.7, "tape evaluate")):
        monkeypatch.setattr(verdict, "_seen", lambda fold_set, mean=mean: {"any-one": mean})
        assert told in verdict.verdict(fold_set, {}).following


def test_runs_that_cannot_be_loaded_are_said_not_raised(root):
    run = root / "tiny/any-one/folds-0/s00"
    counts = []
    lesioned = lesion_runs({"any-one": [run]}, progress=lambda *event: counts.append(event))
    assert lesioned["any-one"].reason.startswith("s00 cannot be loaded: ")
    assert counts == []
