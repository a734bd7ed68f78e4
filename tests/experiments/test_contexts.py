"""What an agent lacks, from runs over folds that are given the rule, evidence of it, or nothing."""

from dataclasses import replace

import numpy as np
import pytest

from stored_folds import RULES
from stored_runs import finish_run
from tapebench.experiments import api, contexts, every
from tapebench.experiments.api import Scale
from tapebench.runs import tracks
from tapebench.stats import Training

CORE = replace(
    tracks.get_track("core"), steps=1_000, evaluate_every=1_000, episodes=3, last=1, rules=RULES
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("contexts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "AGENTS", {"pqn": {"network": "conv"}})
        patch.setattr(contexts, "LONGER", 1)
        found = api.experiment_results(every()["contexts"], Scale(CORE), root)
        for spec in found.specs:
            finish_run(root, spec)
        found = api.experiment_results(every()["contexts"], Scale(CORE), root)
        yield found


def test_every_context_is_trained_with_every_fold(results):
    given = {(spec.config["context"], spec.split, spec.seed) for spec in results.specs}
    assert len(given) == len(results.specs) == 3 * 5 * 2
    assert {context for context, *_ in given} == {"none", "evidence", "rule"}


def test_a_rule_is_seen_by_the_runs_of_four_folds_and_unseen_by_those_of_one(results):
    of = contexts.trainings(results)["pqn", "rule"]
    assert list(of) == [f"folds-{number}" for number in range(5)]
    rule = RULES[0]
    columns = {name: training.rules.tolist().index(rule) for name, training in of.items()}
    held = {name: bool(of[name].held_out[column]) for name, column in columns.items()}
    assert sum(held.values()) == 1
    seen = np.mean([of[name].scores[:, columns[name]] for name in of if not held[name]])
    (unseen,) = (of[name].scores[:, columns[name]].mean() for name in of if held[name])
    assert contexts.by_rule(of, [rule], "seen")[0] == pytest.approx(seen)
    assert contexts.by_rule(of, [rule], "unseen")[0] == pytest.approx(unseen)


def test_what_nobody_did_is_not_a_number():
    training = Training(np.array([[0.5, 1.0]]), np.array([1, 2]), np.array([False, True]))
    of = {"folds-0": training}
    np.testing.assert_array_equal(contexts.by_rule(of, [1, 2, 3], "seen"), [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(contexts.by_rule(of, [1, 2, 3], "unseen"), [np.nan, 1.0, np.nan])


def test_gaps_add_up_to_what_lies_between_ceiling_and_none(results):
    exhibit = results_exhibit(results)
    success, gaps = exhibit.tables
    names = [column.name for column in success.columns]
    assert names[:5] == [
        "agent",
        "given",
        "beyond-reflex seen",
        "beyond-reflex unseen",
        "beyond-reflex cost",
    ]
    rows = {(row.cells[0], row.cells[1]): row.cells for row in success.rows}
    assert ("pqn-conv", "rule") in rows
    assert [label for label, _ in rows][-3:] == ["memoryless", "blind ceiling", "exact ceiling"]
    ceiling = rows["exact ceiling", None]
    for row in gaps.rows:
        _, group, side, *between = row.cells
        place = names.index(side if group == "all" else f"{group} {side}")
        none = rows["pqn-conv", "none"][place]
        total = sum(gap.mean for gap in between)
        assert total == pytest.approx(ceiling[place] - none.mean, abs=1e-9)
    assert len(gaps.rows) == 4


def results_exhibit(results):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "AGENTS", {"pqn": {"network": "conv"}})
        return contexts.show_contexts(results)
