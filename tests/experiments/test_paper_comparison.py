"""The paper's numbers beside ours: nothing is mislabelled, and the checks say what they should."""

from dataclasses import replace

import numpy as np
import pytest

from stored_runs import finish_run
from tapebench import experiments
from tapebench.base import files
from tapebench.experiments import paper_checks, paper_comparison
from tapebench.experiments.api import ExperimentResults, Scale
from tapebench.experiments.main import examined_file, longer_exam, main_settings
from tapebench.runs import tracks
from tapebench.tasks import splits
from tapebench.tasks.universe import ELEMENTARY

TINY = replace(
    tracks.get_track("smoke"),
    name="tiny",
    agents=tracks.AGENTS,
    steps=2_000,
    evaluate_every=1_000,
    episodes=2,
    last=1,
)
ASKED = (4, 30, 90, 204)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Some runs of every experiment that the tables draw on."""
    untrained = ExperimentResults(
        Scale(TINY, seeds=2, rules=ASKED), tmp_path_factory.mktemp("runs"), {}
    )
    for name, settings in {
        "main": ("dqn", "ppo"),
        "train-on-test": ("ppo, trained on test",),
        "fixed-rules": ("rad, rule 204",),
        "small-scale": ("pearl, all rules", "rad, rule 30"),
    }.items():
        other = untrained.of(experiments.every()[name].settings)
        for setting in settings:
            for spec in other.settings[setting]:
                finish_run(other.root, spec)
    return untrained


@pytest.mark.slow
@pytest.mark.parametrize("name", paper_comparison.published_tables())
def test_what_is_measured_is_named_like_what_is_printed(results, name):
    table = paper_comparison.published_tables()[name]
    ours = paper_comparison.MEASURED[name](results, table.columns)
    # With other rules asked about, single-rule experiments have settings of their own.
    allowed = {*table.rows, *(f"{a}, rule {r}" for a in ("rad", "curl", "pearl") for r in ASKED)}
    assert set(ours) <= allowed
    for row in ours.values():
        for values in row.values():
            assert set(values) <= set(table.columns)


def test_the_main_table_holds_what_the_runs_came_to(results):
    table = paper_comparison.published_tables()["main"]
    made = paper_comparison.compare_with_paper(
        "main", table, paper_comparison.measured_main(results, table.columns), results
    )
    lines = {row.cells[:2]: row.cells[2:] for row in made.rows}
    assert lines["dqn", "paper"][0].low == 0.072
    assert set(lines["rad", "ours"]) == {None}
    main = results.of(main_settings)
    runs = main.summaries("dqn")
    reached, held_out, drop, returned, seeds = lines["dqn", "ours, dqn-conv, 2 of 20 seeds"]
    assert seeds == 2
    assert reached.mean == pytest.approx(np.mean([run["id"]["success"] for run in runs]))
    assert held_out.mean == pytest.approx(np.mean([run["ood"]["success"] for run in runs]))
    assert drop.mean == pytest.approx(reached.mean - held_out.mean)
    assert returned.mean < 0


def test_the_longer_horizon_is_shown_once_it_was_measured(results):
    keys = paper_comparison.published_tables()["holdout-length"].columns
    source = "ours, dqn-conv, 2 of 20 seeds"
    before = paper_comparison.measured_horizons(results, keys)["dqn"][source]
    assert before["32.id.success"] is not None
    assert before["64.id.success"] is None
    main = results.of(main_settings)
    for number, spec in enumerate(main.finished["dqn"]):
        file = examined_file(main, spec, longer_exam(main))
        file.parent.mkdir(parents=True, exist_ok=True)
        figures = {"success": 0.25 + 0.5 * number, "final_distance": 0.5}
        files.write_json(file, {"id": figures, "ood": figures})
    after = paper_comparison.measured_horizons(results, keys)["dqn"][source]
    assert after["64.id.success"].mean == 0.5
    assert after["64.ood.final_distance"].mean == 0.5


def test_the_full_track_has_the_settings_that_the_paper_prints():
    table = paper_comparison.published_tables()["protocol"]
    ours = paper_comparison.measured_protocol(None, ())
    assert set(ours) == set(table.rows)
    for name, row in table.rows.items():
        assert ours[name][f"{paper_comparison.OURS}, full"]["value"] == paper_comparison._short(
            row["value"]
        )


def test_success_and_soft_success_bound_the_final_distance():
    assert paper_checks.greatest_distance(0.073, 0.132) == pytest.approx(0.874, abs=5e-4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        distance = rng.integers(0, 33, 500) / 32
        success, soft = (distance == 0).mean(), (distance <= 0.1).mean()
        assert distance.mean() <= paper_checks.greatest_distance(success, soft) + 1e-12


def test_multiples_allow_for_rounding_and_for_no_more():
    for true in np.linspace(0.03, 0.09, 50):
        assert paper_checks.is_multiple(round(1.8 * true, 3), 1.8, round(true, 3))
        assert not paper_checks.is_multiple(round(1.8 * true + 0.004, 3), 1.8, round(true, 3))


def test_checks_on_printed_numbers_come_out_as_counted_by_hand():
    by_claim = {check.claim.split(":")[0][:30]: check for check in paper_checks.printed_checks()}
    agree = [check.agree for check in by_claim.values()]
    assert agree == ["no", "no", "–", "–", "OOD only", "no", *["yes"] * 2, "no", *["yes"] * 3]
    first = next(iter(by_claim.values())).finding
    assert "1 − success in 14 of 14" in first
    assert "1.8 · success in 7 of 7 ID" in by_claim["Soft success@0.1 counts final "].finding


@pytest.mark.slow
def test_measured_checks_state_exact_results_whatever_the_scale(results):
    made = {check.claim: check for check in paper_checks.measured_checks(results)}
    assert "138 of 256 rules" in made[paper_comparison.statements()["feasibility"]["says"]].finding
    assert "45 from none" in made[paper_comparison.statements()["feasibility"]["says"]].finding
    planner = next(check for claim, check in made.items() if claim.startswith("A planner"))
    assert planner.agree == paper_checks.OPEN  # eight cells say nothing about thirty-two
    assert all("mpc-" + name in planner.finding for name in ("final", "sum", "min"))
    mix = next(check for claim, check in made.items() if claim.startswith("Held-out rules"))
    ours = ELEMENTARY.count_types(splits.load("fps30").test)
    assert all(f"{count} {kind}" in mix.finding for kind, count in ours.items())
