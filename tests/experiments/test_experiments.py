"""Experiments by name: their runs, what they show, and `tape reproduce`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import tape
from stored_runs import finish_run
from tapebench import agents, experiments
from tapebench.exam.exam import SUBSETS, make_exam
from tapebench.experiments import ablations, api, contexts, filters, planning, unseen, world_models
from tapebench.experiments.api import Exhibit, ExperimentResults, Scale
from tapebench.experiments.paper_tables import published_tables
from tapebench.planning import mpc as mpcs
from tapebench.runs import sweep, tracks

SMOKE, LITE = tracks.get_track("smoke"), tracks.get_track("lite@2")
TINY = replace(SMOKE, name="tiny", steps=2_000, evaluate_every=1_000, episodes=2, last=1)
EVERY = experiments.every()
TRAINED = [name for name, one in EVERY.items() if one.settings is not api.untrained]


def make_tiny(patch):
    """A track that is over soon, a sweep of planners that is, and few runs of many a kind."""
    known = tracks.tracks()
    patch.setattr(mpcs, "SWEEP_PLANS", (1, 8))
    patch.setattr(mpcs, "SWEEP_CANDIDATES", (32, 512))
    patch.setattr(tracks, "tracks", lambda: {**known, "tiny": TINY})
    patch.setattr(ablations, "COUNTS", (1, 16))
    patch.setattr(unseen, "PARTITIONS", ("random-0", "fps-0"))
    # Each of these is a program that compiles for long.
    patch.setattr(world_models, "IMAGINED", (5, 10))
    patch.setattr(ablations, "CONTEXTS", (1, 16))
    patch.setattr(contexts, "LONGER", 1)
    patch.setattr(contexts, "AGENTS", {"pqn": {"network": "conv", "channels": 8, "depth": 1}})


@pytest.fixture
def tiny(monkeypatch):
    make_tiny(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A results directory with the runs of all experiments, many of which share theirs."""
    root = tmp_path_factory.mktemp("experiments")
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        scale = Scale(TINY, seeds=1, rules=(30, 90))
        specs = {
            spec.id: spec
            for name in TRAINED
            for spec in api.experiment_results(EVERY[name], scale, root).specs
        }
    # One after the other of an agent, so that its programs are there.
    assert sweep.run_all(sorted(specs.values(), key=lambda spec: spec.agent), root) == []
    return root


@pytest.mark.parametrize("name", TRAINED)
def test_the_runs_of_an_experiment_are_distinct_and_can_be_made(name):
    scale = Scale(LITE)
    settings = EVERY[name].settings(scale)
    specs = [spec for group in settings.values() for spec in group]
    assert len({spec.id for spec in specs}) == len(specs) > 1
    for spec in specs:
        agents.configure(spec.agent, **spec.options)
        # Without anything unusual it is a run of `tape bench`.
        usual = LITE.spec(spec.agent, spec.seed, experiment="lite", split=spec.split)
        assert (spec.experiment == "lite") == (spec == usual)
        assert spec.experiment.startswith("lite")
    few = api.experiment_results(
        EVERY[name], replace(scale, seeds=1, rules=(30, 204)), Path()
    ).specs
    assert {spec.seed for spec in few} == {0}
    assert {rule for spec in few for rule in spec.rules} == {30, 204}
    elsewhere = api.experiment_results(EVERY[name], replace(scale, split="matched30"), Path()).specs
    own = {LITE.split} if name == "unseen-law" else set()  # which it crosses with the other
    assert {spec.id.split for spec in elsewhere} == {"matched30", *own}


def test_every_table_and_figure_of_the_paper_has_an_experiment():
    named = {
        label.strip() for experiment in EVERY.values() for label in experiment.paper.split(",")
    }
    tables = {
        label.strip()
        for table in published_tables().values()
        for label in table.where.split(",")
        if label.strip().startswith("tab:")
    }
    figures = {"tape", "mechanism", "tape_evolution", "per_rule", "split_robustness"}
    assert len(tables) == 7
    assert named >= tables | {f"fig:{name}" for name in figures}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("trials", set()),
        ("informativeness", set()),
        ("law-in-memory", set()),
        ("budget", {"ppo, mlp, slow", "rppo, cells, slow"}),
    ],
)
def test_runs_of_networks_are_shared(name, own):
    made = EVERY["networks"].settings(Scale(LITE))
    settings = EVERY[name].settings(Scale(LITE))
    assert settings.keys() - made.keys() == own
    for setting in settings.keys() - own:
        assert settings[setting] == made[setting][: len(settings[setting])]


def test_the_usual_imagination_is_among_those_compared():
    assert world_models.usual_imagination() in world_models.IMAGINED


@pytest.mark.parametrize("name", TRAINED)
def test_nothing_is_shown_of_nothing(capsys, tmp_path, name):
    code, out, err = tape(capsys, "reproduce", name, "--show", "--results", str(tmp_path / "no"))
    assert (code, out) == (2, "")
    assert f"no run of {name} is done" in err


def test_runs_of_other_settings_are_neither_shown_nor_taken_for_done(capsys, tmp_path, tiny):
    experiment = EVERY["augmentations"]
    known = api.experiment_results(experiment, Scale(TINY, seeds=1), tmp_path)
    specs = known.settings["flip"] + known.settings["shift"]
    finish_run(tmp_path, specs[0])
    finish_run(tmp_path, replace(specs[1], options={**specs[1].options, "batch": 8}))
    results = api.experiment_results(experiment, Scale(TINY, seeds=1), tmp_path)
    assert list(results.finished) == ["flip"]
    command = ("reproduce", "augmentations", "--track", "tiny", "--seeds", "1")
    code, out, err = tape(capsys, *command, "--results", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"{specs[1].id} was made with another config, options: choose another --results" in err
    assert err.count("\n") == 1


def test_experiments_are_listed_with_their_state(capsys, tmp_path):
    code, out, _ = tape(capsys, "reproduce", "--json", "--results", str(tmp_path))
    listed = {row["name"]: row for row in json.loads(out)["experiments"]}
    assert code == 0
    assert set(listed) == set(EVERY)
    for name, row in listed.items():
        assert (row["done"], row["shown"]) == (0, False)
        assert (row["runs"] > 0) == (name in TRAINED)
        assert row["seconds"] > 0
        assert row["command"] == f"tape reproduce {row['name']} --track lite@2"
    code, out, _ = tape(capsys, "reproduce", "--results", str(tmp_path))
    assert code == 0
    assert "dreamer-credibility" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["dreamer-credibilty"], "did you mean 'dreamer-credibility'"),
        (["--track", "lit"], "unknown track 'lit': did you mean 'lite'"),
        (["--track", "lite"], "each of 5 in turn: use full, lite@2 or smoke"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["automata-control", "--rules", "train"], "--rules takes numbers"),
        (["automata-control", "--split", "fsp30"], "did you mean 'fps30'"),
    ],
)
def test_what_cannot_be_is_one_clear_line(capsys, argv, complaint):
    code, out, err = tape(capsys, "reproduce", *argv)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


MADE_WITHIN = 2400
"""Seconds for the runs of all experiments: a third of them compile a program for up to a minute."""


@pytest.mark.slow
@pytest.mark.timeout(MADE_WITHIN)
def test_an_experiment_makes_its_runs(capsys, tmp_path, tiny, made):
    command = ["reproduce", "training-rules", "--track", "tiny", "--seeds", "1", "--rules", "30,90"]
    code, out, err = tape(capsys, *command, "--results", str(tmp_path), "--json")
    assert code == 0
    assert "done already" not in err
    document = json.loads(out)
    _, out, err = tape(capsys, *command, "--results", str(made), "--json")
    assert "runs are done already" in err
    assert json.loads(out)["tables"] == document["tables"]


@pytest.mark.slow
@pytest.mark.timeout(MADE_WITHIN)
@pytest.mark.parametrize("name", EVERY)
def test_every_experiment_comes_to_tables_and_figures(capsys, tiny, made, name):
    command = ["reproduce", name, "--track", "tiny", "--seeds", "1", "--rules", "30,90"]
    command += ["--results", str(made), "--json"]
    code, out, _ = tape(capsys, *command)
    assert code == 0
    document = json.loads(out)
    place = Path(document["place"])
    assert document["missing"] == []
    assert document["tables"] or document["figures"]
    for table, content in document["tables"].items():
        assert {path.name for path in place.glob(f"{table}.*")} >= {
            f"{table}.{ending}" for ending in ("md", "tex", "csv")
        }
        assert content["rows"]
        assert all(len(row) == len(content["columns"]) for row in content["rows"])
    for figure in document["figures"]:
        assert (place / f"{figure}.svg").read_text().startswith("<?xml")
    page = (place / "index.html").read_text()
    assert page.count("<table class=sortable") == len(document["tables"])
    assert page.count("<figure") == len(document["figures"])
    # Again: nothing is made anew, and the same is shown.
    before = {path: path.read_bytes() for path in place.iterdir()}
    computed = {path: path.stat().st_mtime_ns for path in made.glob("computed/*/*")}
    code, out, err = tape(capsys, *command)
    assert json.loads(out) == document
    assert ("runs are done already" in err) == (name in TRAINED)
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    assert {path: path.stat().st_mtime_ns for path in made.glob("computed/*/*")} == computed


def test_figures_of_forecasts_are_means_over_rules_and_seeds():
    def one(error):
        figures = dict.fromkeys(("bits", "whole", "warned", "calibration_error"), 0.5)
        parts = {name: np.array([0.5, 0.5]) for name in ("share", "confidence", "right")}
        return {"id": {**figures, **parts, "depth": [error, 0.4], "error": error}}

    by_model = {"dreamer": [one(0.1), one(0.3)], "filter, all rules": [one(0.02)]}
    (table,) = world_models._one_step_tables(by_model)
    (model, error, *_), (_, least, *_) = (row.cells for row in table.rows)
    assert model == "dreamer"
    assert error.mean == pytest.approx(0.2)
    assert error.low < 0.1 < 0.3 < error.high
    assert (least.mean, least.low) == (0.02, 0.02)
    assert [row.kind for row in table.rows] == ["agent", "reference"]


def test_an_exhibit_is_saved_whole(tmp_path):
    by_model = {"a": [{"id": {"depth": [0.1, 0.2, float("nan")]}}]}
    picture = world_models._depth_picture(by_model)
    Exhibit(pictures=(picture,)).save(tmp_path / "new", pdf=True)
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".svg", ".pdf"}
    Exhibit(pictures=(picture,)).save(tmp_path / "new")
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".svg"}


@pytest.mark.slow
def test_a_policy_that_learns_nothing_pays_nothing_for_unseen_laws(tmp_path, tiny):
    scale = Scale(replace(TINY, agents=("ppo", "dqn")), seeds=2)
    experiment = EVERY["unseen-law"]
    settings = experiment.settings(scale)
    for name in ("ppo on fps30", "ppo on matched30", "dqn on fps30"):
        for spec in settings[name]:
            finish_run(tmp_path, spec)
    results = api.experiment_results(experiment, scale, tmp_path)
    exhibit = experiment.show(results)
    cells_of = {row.cells[0]: row.cells[1:] for row in exhibit.tables[0].rows}
    _, _, _, *drops, by_fps30, by_matched30, both, fresh, seeds, seeds_anew = cells_of["ppo-conv"]
    for split, drop in zip(("fps30", "matched30"), drops, strict=True):
        runs = results.summaries(f"ppo on {split}")
        assert drop.mean == pytest.approx(np.mean([run["drop"] for run in runs]))
    assert max(abs(drop.mean) for drop in drops) > 0.001
    for cost in (by_fps30, by_matched30, both):
        assert cost.mean == pytest.approx(0, abs=1e-12)
        assert cost.low <= 0 <= cost.high
    assert (fresh, seeds, seeds_anew) == (
        None,
        "2 / 2",
        None,
    )  # nothing was learned that could sit it
    assert cells_of["dqn-conv"][5:] == (None, None, None, None, "2 / 0", None)
    assert unseen.costs(scale, tmp_path).keys() == {"ppo-conv"}
    assert len(exhibit.pictures) == 1


def untrained_results(root, **fields):
    return ExperimentResults(Scale(TINY, **fields), root, {})


def test_a_scale_asks_about_its_own_rules_else_about_those_of_the_track():
    assert Scale(LITE).exam().hash == LITE.exam().hash
    assert Scale(LITE, rules=(30, 204)).exam().rules.tolist() == [30, 204]
    elsewhere = Scale(LITE, split="matched30").exam()
    assert (elsewhere.split, len(elsewhere.rules)) == ("matched30", len(LITE.rules))
    assert elsewhere.hash == LITE.spec("ppo", split="matched30").exam.hash


def test_what_is_computed_is_kept_for_each_exam_and_name(tmp_path):
    results, calls = untrained_results(tmp_path, rules=(30, 204)), []

    def compute():
        calls.append(1)
        return {"calls": len(calls)}

    exam, other = results.scale.exam(), results.scale.exam(length=9, horizon=9)
    values = [
        results.cached(*of, compute)["calls"] for of in [(exam, "a"), (exam, "b"), (other, "a")]
    ]
    assert values == [1, 2, 3]
    assert results.cached(exam, "a", compute) == {"calls": 1}
    assert len(calls) == 3


def test_counts_of_solvable_rules_are_those_of_the_exhaustive_search():
    table = planning.feasibility(Scale(tracks.get_track("full")).exam())
    cells_of = {row.cells[0]: row.cells[1:] for row in table.rows}
    rules, ceiling, seen, held_out, every_tape, _, no_tape = cells_of["L = H = 16"]
    assert (rules, every_tape, no_tape) == (256, 138, 45)
    assert ceiling == pytest.approx(0.5533, abs=5e-5)
    assert ceiling == pytest.approx((226 * seen + 30 * held_out) / 256)
    few = planning.feasibility(Scale(LITE, rules=(204, 90)).exam()).rows
    assert [row.cells[1] for row in few] == [2] * len(planning.LENGTHS)
    assert [row.cells[5] for row in few] == [1] * len(planning.LENGTHS)


@pytest.mark.slow
def test_the_planner_stays_below_the_ceiling_on_every_side(tmp_path):
    results = untrained_results(tmp_path, rules=(4, 30, 90, 204))
    bounds, _ = planning.show_bounds(results).tables
    *planned, (_, *ceilings, _, _) = (row.cells for row in bounds.rows)
    assert [cells[0] for cells in planned] == ["mpc-final", "mpc-sum", "mpc-min"]
    exam = results.scale.exam()
    for _, *reached, _, _ in planned:
        assert all(0 < cell.mean <= most for cell, most in zip(reached, ceilings, strict=True))
    by_type = planning.show_types(results).tables[0]
    names = [column.name for column in by_type.columns]
    for cells in (row.cells for row in by_type.rows if row.cells[1] == "all"):
        whole = next(row for row in planned if row[0] == cells[0])
        for number, side in enumerate(SUBSETS, 1):
            assert cells[names.index(f"{side.upper()} success")].mean == whole[number].mean
            assert cells[names.index(f"{side.upper()} rules")] == len(exam.rows(side))


@pytest.mark.slow
def test_the_shipped_draws_of_the_filter_are_what_it_plays(monkeypatch, tmp_path):
    monkeypatch.setattr(filters, "DRAWS", 2)
    exam = make_exam(rules=(4, 30, 90, 204))
    played = filters.play(exam, "train", filters.BETA)
    monkeypatch.undo()
    shipped = filters.load_shipped(exam, "train", filters.BETA)
    assert shipped.shape == (20, 4, 20)
    np.testing.assert_array_equal(played, shipped[:2])
    assert filters.load_shipped(replace(exam, salt="fresh"), "train", filters.BETA) is None
    over_draws, over_rules = (of(exam, shipped) for of in (filters.over_draws, filters.over_rules))
    for key in (*SUBSETS, "drop"):
        assert over_draws[key].mean == pytest.approx(over_rules[key].mean)
    np.testing.assert_array_equal(filters.unpack(filters.pack(shipped), 20), shipped)


@pytest.mark.slow
def test_a_filter_without_the_true_rule_never_finds_it(tmp_path):
    results = untrained_results(tmp_path, rules=(4, 30, 90, 204))
    exam = results.scale.exam()
    for candidates in filters.CANDIDATE_SETS:
        watched = filters.watch_filter(results, exam, candidates, filters.BETA)
        rows = exam.rows("ood")
        assert watched.mass.shape == (4, exam.task.horizon + 1)
        assert (watched.identified(rows) > 0) == (candidates == "all")
        assert (watched.wait(rows) is None) == (candidates == "train")
        assert watched.identified(exam.rows("id")) > 0.5


def test_published_runs_are_read_by_their_stored_config_whatever_the_defaults(
    monkeypatch, tmp_path
):
    asked = TINY.spec("dqn", 0, experiment="tiny")
    stored = replace(asked, options={"network": "conv", "batch": 32})
    finish_run(tmp_path, stored)
    settings = {"dqn": [asked]}
    assert not ExperimentResults(Scale(TINY), tmp_path, settings).finished
    monkeypatch.setattr(api.published, "is_directory", lambda root: root == tmp_path)
    results = ExperimentResults(Scale(TINY), tmp_path, settings)
    ((spec,),) = results.finished.values()
    assert spec.id == asked.id
    assert spec.config == stored.config != asked.config
    assert results.label("dqn") == "dqn-conv"
    longer = replace(asked, steps=2 * asked.steps)
    assert not ExperimentResults(Scale(TINY), tmp_path, {"dqn": [longer]}).finished


def test_published_runs_are_found_by_what_was_asked_whatever_they_are_called(monkeypatch, tmp_path):
    """A default that changed: what it was stays under the name, what it is has a hash in its."""
    was = TINY.spec("rad", 0, experiment="tiny", options={"augment": "shift+flip"})
    now = TINY.spec("rad", 0, experiment="tiny")
    for spec in (was, replace(now, experiment="tiny+0123abcd")):
        finish_run(tmp_path, spec)
    monkeypatch.setattr(api.published, "is_directory", lambda root: root == tmp_path)
    ablation = replace(was, experiment="tiny-augmentations")
    elsewhere = replace(now, experiment="tiny-other", options={"width": 32})
    asked = {"rad": [now], "rad, old": [ablation], "none": [elsewhere]}
    results = ExperimentResults(Scale(TINY), tmp_path, asked)
    experiments_of = {name: group[0].experiment for name, group in results.finished.items()}
    assert experiments_of == {
        "rad": "tiny+0123abcd",
        "rad, old": "tiny",
    }
    assert [results.label(name) for name in ("rad", "rad, old")] == [
        "rad-conv",
        "rad-label-shift-conv, old",
    ]
    assert results.remaining == [elsewhere]
