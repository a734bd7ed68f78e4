"""Exams on rules of every family."""

import json
from itertools import product

import numpy as np
import pytest

from tapebench.exam import baselines, bundle, by_stratum, rollout
from tapebench.exam.exam import IMPOSSIBLE, UNKNOWN, Exam, from_identity, make_exam
from tapebench.physics import exact, starts
from tapebench.physics.families import LIFE, RING2
from tapebench.physics.space import Space
from tapebench.runs import compare, evaluation
from tapebench.tasks import splits
from tapebench.tasks.universe import listed

SMALL = {
    "elementary": {"length": 8, "rules": [0, 4, 30, 110, 22]},
    "ring2": {"split": "ring2-H8-matched-16", "length": 9},
    "life": {"split": "life-H8-matched-16", "shape": (3, 4)},
}
"""A few rules of each family on few cells."""

FAMILIES = pytest.mark.parametrize("family", SMALL)


def few(family: str, **changes) -> Exam:
    """An exam on a few rules of a family, on both sides."""
    options = {"family": family, "horizon": 5, "episodes": 6} | SMALL[family] | changes
    if family != "elementary" and "rules" not in changes:
        split = splits.load(options["split"])
        options["rules"] = [*split.train[:5], *split.test[:4]]
    return make_exam(**options)


@FAMILIES
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"exam": "fresh:x"}, {"trials": 2}, {"noise": 0.1}, {"switch": [1, 3]}),
        *({"goal": "random", "observe_goal": True}, {"mask": [0, 4]}),
    ],
)
def test_an_identity_stands_for_its_exam_and_a_bundle_of_it_verifies(family, changes, tmp_path):
    made = few(family, **changes)
    again = from_identity(json.loads(json.dumps(made.identity)))
    assert again == made
    assert again.hash == made.hash
    evaluation.evaluate("random", made).write_bundle(tmp_path / "b")
    assert bundle.verify(tmp_path / "b").exam == made


@FAMILIES
def test_identities_name_family_and_shape_where_they_are_not_the_usual(family):
    identity = few(family).identity
    assert identity.get("family", "elementary") == family
    assert identity.get("shape") == ([3, 4] if family == "life" else None)
    for key, value in (("family", "life"), ("shape", [4, 4]), ("rules", [1]), ("length", 13)):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            from_identity(identity | {key: value} if identity.get(key) != value else {})


def test_the_exams_of_drawn_universes_are_pinned():
    hashes = {
        make_exam(split=f"{family}-H8-{kind}", family=family, shape=shape, horizon=8).hash
        for family, shape in (("ring2", 16), ("life", "5x5"))
        for kind in ("matched", "matched-16")
    }
    assert hashes == {
        *("1ff389422127c446", "d2c5cda7af556481", "dc637a374c14a950", "adf6762a76c08b4a"),
    }


def test_rules_are_on_the_sides_that_their_split_has_them_on():
    identity = few("life").identity
    swapped = identity | {"train": identity["test"], "test": identity["train"]}
    with pytest.raises(ValueError, match="not on the sides that the split life-H8-matched-16"):
        from_identity(swapped)


def test_an_exam_of_a_splits_own_rules_needs_no_universe():
    """Somebody else's split of rules that were never drawn."""
    rules = (3, 2**32 - 1, 2**31)
    universe, _ = listed(RING2, rules)
    split = splits.Split("mine", rules[:2], rules[2:], universe=universe)
    for side in ("train", "test", None):
        made = make_exam(split=split, family="ring2", length=7, horizon=3, rules=side)
        again = from_identity(made.identity)
        assert again.identity == made.identity
        assert (again.train, again.test) == (made.train, made.test)
        np.testing.assert_array_equal(again.types, made.types)
        assert set(made.types) <= {"density from 0.00", "density from 0.75"}


def test_start_tapes_depend_on_the_shape_and_not_on_the_family():
    boards, ring = Space((3, 4)), Space((12,))
    assert (starts.exam_tapes(boards, 9) != starts.exam_tapes(ring, 9)).any()
    assert (starts.exam_tapes(boards, 9) != starts.exam_tapes(Space((4, 3)), 9)).any()
    np.testing.assert_array_equal(starts.exam_tapes(12, 9), starts.exam_tapes(ring, 9))
    np.testing.assert_array_equal(few("life").tapes(), starts.exam_tapes(boards, 6))
    np.testing.assert_array_equal(few("ring2").tapes(), starts.exam_tapes(9, 6))
    for family in SMALL:
        exam = few(family)
        begun = rollout.exam_start(exam.task, exam.rules, exam.episodes, "").tape[0]
        np.testing.assert_array_equal(begun[: exam.episodes], exam.tapes())


@FAMILIES
@pytest.mark.parametrize("goal", ["zeros", "random", "some"])
@pytest.mark.parametrize("switch", [None, 2])
def test_optimal_steps_are_those_of_trying_everything(family, goal, switch):
    cells = few(family).task.length
    goal = "1" + "0" * (cells - 1) if goal == "some" else goal
    exam = few(family, goal=goal, switch=switch, horizon=3)
    task, optimal_steps = exam.task, exam.optimal_steps()
    if goal == "random":
        assert (optimal_steps == UNKNOWN).all()
        assert np.isnan(exam.ceilings(optimal_steps)).all()
        assert exam.no_ceilings
        return
    start = rollout.exam_start(task, exam.rules, exam.episodes, exam.salt).trial(0)
    t = np.arange(task.horizon)[:, None]
    acting = task.schedule.rule_at(t, start.rule, start.later.T)
    acting = np.broadcast_to(acting, (task.horizon, len(start.rule))).T
    shape = (len(exam.rules), exam.episodes)
    for row, column in product(range(0, shape[0], 3), range(shape[1])):
        place = row * exam.episodes + column
        tapes, steps = {int(start.tape[place, 0])}, IMPOSSIBLE
        for taken, rule in enumerate(acting[place], 1):
            tapes = {
                task.family.step(tape, cell, int(rule), task.space)
                for tape in tapes
                for cell in range(cells)
            }
            if task.goal in tapes:
                steps = taken
                break
        assert optimal_steps[row, column] == steps
    assert len(np.unique(optimal_steps)) > 1
    ceilings = exam.ceilings(optimal_steps)
    np.testing.assert_array_equal(ceilings, (optimal_steps >= 0).mean(axis=1))


@FAMILIES
def test_under_noise_the_ceiling_is_the_best_chance_from_the_exams_own_tapes(family):
    exam = few(family, noise=0.05, horizon=3)
    task = exam.task
    chances = exact.chances_under_noise(int(exam.rules[-1]), task.space, 3, 0.05, 0, task.family)
    ceilings = exam.ceilings(exam.optimal_steps())
    assert ceilings[-1] == pytest.approx(chances[exam.tapes()[:, 0]].mean())


def test_what_is_not_computed_is_nan_and_said():
    shown = {}
    for name, changes in {
        "noise": {"noise": 0.1},
        "switch": {"switch": 2},
        "goal": {"goal": "1" * 25},
        "both": {"noise": 0.1, "switch": 2},
    }.items():
        exam = few("life", shape="5x5", **changes)
        steps = exam.optimal_steps()
        assert (steps == UNKNOWN).all()
        assert np.isnan(exam.ceilings(steps)).all()
        shown[name] = exam.no_ceilings
    assert len(set(shown.values())) == 4
    assert shown["noise"] == "under noise it is computed up to 16 cells"
    score = evaluation.evaluate("random", few("life", noise=0.1, shape="3x6", trials=2)).score
    assert score["id"]["ceiling"] is None
    assert score["no_ceiling"] == shown["noise"]


@pytest.mark.parametrize("name", ["ring2-H8-matched-16", "life-H8-matched-16"])
def test_drawn_rules_are_all_solved_where_they_were_drawn_for(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    split = splits.load(name)
    size = split.universe.space
    rules = [*split.train[::4], *split.test[::16]]
    exam = make_exam(
        split=name, family=split.universe.family.name, shape=size.shape, horizon=8, rules=rules
    )
    steps = exam.optimal_steps()
    assert (exam.ceilings(steps) == 1).all()
    for rule, needed in zip(exam.rules.tolist(), steps, strict=True):
        assert needed.max() <= split.universe.counts[rule].max_steps
    kept = list(tmp_path.rglob("answers/*.json"))
    assert len(kept) == (size.size > 20)
    np.testing.assert_array_equal(exam.optimal_steps(), steps)
    for file in kept:
        file.write_text(json.dumps({"steps": [[1]]}))
        np.testing.assert_array_equal(exam.optimal_steps(), steps)


@FAMILIES
def test_scores_group_rules_by_what_is_known_of_them(family):
    exam = few(family)
    outcome = evaluation.evaluate("flip-ones", exam)
    score = outcome.score
    kinds = set(exam.types)
    assert set(score["by_type"]) == kinds
    assert all(kind.startswith("density") for kind in kinds) == (family != "elementary")
    assert score.get("family", "elementary") == family
    rows = outcome.rows()
    assert rows["rule"].tolist() == np.repeat(exam.rules, exam.episodes).tolist()
    assert rows["rule"].dtype == (np.int16 if family == "elementary" else np.int64)
    again = compare.ExamResult("a", exam, rows["success"].reshape(1, len(exam.rules), -1))
    document = compare.compare(again, again)
    assert document["ood"]["difference"] == 0
    assert bool(document["no_strata"]) == bool(by_stratum.why_unknown(exam))


def test_baselines_of_large_exams_are_kept(tmp_path, monkeypatch):
    exam = few("elementary")
    measured = baselines.load(exam)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(baselines, "run_baselines", lambda exam, progress: measured)
    assert not list(tmp_path.rglob("*.json"))
    monkeypatch.setattr(baselines, "KEPT_EPISODES", 1)
    assert list(baselines.load(exam)) == list(measured)
    (kept,) = tmp_path.rglob(f"lines/{exam.hash}-*.json")
    monkeypatch.setattr(baselines, "run_baselines", lambda exam, progress: {})
    read = baselines.load(exam)
    assert list(read) == list(measured)
    np.testing.assert_array_equal(read["mpc"]["success"], measured["mpc"]["success"])
    kept.write_text('{"lines": {"mpc": {"success": [1]}}}')
    assert baselines.load(exam) == {}


def test_an_exam_of_another_family_than_its_split_is_refused():
    with pytest.raises(ValueError, match="say family='life'"):
        make_exam(split="life-H8-matched", shape="5x5")
    with pytest.raises(ValueError, match="choose one of ring2 rules, like ring2-H4-matched"):
        make_exam(family="ring2", rules=[1, 2])
    with pytest.raises(ValueError, match="rule B/S is on neither side of life-H8-matched"):
        make_exam(split="life-H8-matched", family="life", shape="5x5", rules=["B/S"])
    label = LIFE.label(splits.load("life-H8-matched").test[0])
    named = make_exam(split="life-H8-matched", family="life", shape="5x5", rules=[label])
    assert [LIFE.label(rule) for rule in named.test] == [label]
