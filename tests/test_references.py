import numpy as np
import pytest

from tapebench import dynamics, exact, rollout, rules, seeding, splits, stats
from tapebench.references import oracle, search
from tapebench.references.mpc import OBJECTIVES, mpc
from tapebench.task import make_task


def test_predecessors_are_all_tapes_that_update_to_the_given_ones():
    rng = np.random.default_rng(0)
    for rule in (0, 30, 45, 90, 110, 204):
        targets = np.unique(rng.integers(0, 2**9, 5).astype(np.uint32))
        found, are_all = search.predecessors(targets, rule, 9, 10**6, rng)
        expected = np.flatnonzero(np.isin(exact.all_images(rule, 9), targets))
        assert are_all
        np.testing.assert_array_equal(np.sort(found), expected)


def test_a_ball_within_its_limit_is_the_exact_answer():
    for rule in (30, 90, 110, 234):
        found = search.ball(rule, 10)
        steps = exact.steps_to_goal(rule, 10, 254)
        np.testing.assert_array_equal(found.tapes, np.flatnonzero(steps != exact.UNREACHED))
        np.testing.assert_array_equal(found.steps, steps[found.tapes])
        assert found.is_complete


def test_a_thinned_ball_knows_real_ways_and_claims_no_completeness():
    found = search.ball(22, 24, limit=5000)
    assert not found.is_complete
    assert 1000 < len(found.tapes) <= 5000
    for index in range(0, len(found.tapes), 97):
        tape = int(found.tapes[index])
        way = found.way_home(tape)
        assert len(way) == found.steps[index]
        for cell in way:
            tape = dynamics.step(tape, cell, 22, 24)
        assert tape == 0


def test_complete_balls_at_32_cells_prove_what_is_out_of_reach():
    tapes = seeding.exam_tapes(32, 20)[:, 0]
    for rule in (45, 60, 90, 165):
        found = search.ball(rule, 32)
        assert found.is_complete
        assert len(found.tapes) < 210_000
        answer = exact.exam_answers().get(rule)
        if answer is not None:
            assert len(found.tapes) == sum(answer["histogram"])
            inside = found.look_up(tapes) < 255
            assert inside.tolist() == [way is not None for way in answer["exam_witnesses"]]


@pytest.mark.slow
def test_search_finds_ways_that_work_under_chaotic_rules_at_32_cells():
    task = make_task(rules=[30, 22, 204])
    assert rollout.rollout(search.beam(task), task).success.mean() > 0.95


def test_optimal_is_exactly_at_the_ceiling_and_takes_the_fewest_steps():
    task = make_task(length=12, horizon=12, rules="all")
    episodes = rollout.rollout(search.optimal(task), task)
    tapes = seeding.exam_tapes(12, 20)[:, 0]
    for rule in range(256):
        steps = exact.steps_to_goal(rule, 12, 12)[tapes]
        can = steps != exact.UNREACHED
        np.testing.assert_array_equal(episodes.success[rule][can], True)
        np.testing.assert_array_equal(episodes.steps[rule][can], steps[can])
        assert not episodes.success[rule][~can].any()


def test_optimal_plays_the_shipped_answers_on_the_exam_at_32_cells():
    answers = exact.exam_answers()
    shipped = [rule for rule in (0, 1, 2, 30, 45, 60) if rule in answers]
    task = make_task(rules=shipped)
    episodes = rollout.rollout(search.optimal(task), task)
    for row, rule in enumerate(shipped):
        expected = [steps is not None for steps in answers[rule]["exam_steps"]]
        assert episodes.success[row].tolist() == expected


def test_optimal_serves_other_goals():
    task = make_task(length=9, horizon=9, rules=[30, 110, 204], goal="010010001")
    episodes = rollout.rollout(search.optimal(task), task)
    for row, rule in enumerate((30, 110, 204)):
        steps = exact.steps_to_goal(rule, 9, 9, task.goal)
        tapes = seeding.exam_tapes(9, 20, goals=np.full((20, 1), task.goal, np.uint32))[:, 0]
        np.testing.assert_array_equal(episodes.success[row], steps[tapes] != exact.UNREACHED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.1}, "noise=0"),
        ({"goal": "random"}, "fixed goal"),
        ({"mask": [0]}, "no hidden cells"),
        ({"length": 33}, "up to 32 cells, not 33"),
    ],
)
def test_planners_refuse_what_they_cannot_plan_for(options, message):
    with pytest.raises(ValueError, match=message):
        search.optimal(make_task(**options))


@pytest.mark.slow
def test_mpc_reaches_what_its_objective_lets_it():
    task = make_task(rules="all")
    success = {
        objective: rollout.rollout(mpc(task, objective), task).success.mean()
        for objective in OBJECTIVES
    }
    assert success["final"] < 0.2
    assert success["min"] > 0.4
    assert success["final"] < success["sum"] < success["min"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_mpc_finds_the_goal_when_it_is_in_sight(objective):
    task = make_task(length=8, horizon=8, rules="all")
    tapes = seeding.exam_tapes(8, 20)[:, 0]
    episodes = rollout.rollout(mpc(task, objective, plan=2, candidates=2048), task)
    for rule in range(256):
        close = exact.steps_to_goal(rule, 8, 8)[tapes] <= 2
        assert episodes.success[rule][close].all()
        optimal = exact.steps_to_goal(rule, 8, 8)[tapes]
        np.testing.assert_array_equal(episodes.steps[rule][close], optimal[close])


def test_mpc_refuses_bad_budgets_and_unknown_objectives():
    task = make_task()
    with pytest.raises(ValueError, match="did you mean 'final'"):
        mpc(task, "finl")
    with pytest.raises(ValueError, match="planning horizon must be at least 1"):
        mpc(task, plan=0)
    with pytest.raises(ValueError, match="number of candidates must be at least 1"):
        mpc(task, candidates=0)


def test_summaries_hold_both_intervals_and_the_right_rules():
    task = make_task(length=8, horizon=8, rules="all")
    split = splits.load("fps30")
    runs = oracle.run_seeds(mpc(task, candidates=8), task, episodes=4, seeds=3)
    summary = oracle.summarise(runs, split.test)
    assert summary["rules"] == 30
    assert summary["episodes"] == 120
    rows = list(split.test)
    expected = np.mean([run.success[rows].mean() for run in runs])
    assert summary["success"]["mean"] == pytest.approx(expected)
    for name in oracle.METRICS:
        for kind in ("seeds", "rules_tapes"):
            low, high = summary[name][kind]
            assert low <= summary[name]["mean"] <= high


def test_by_type_counts_every_episode_once():
    task = make_task(length=8, horizon=8, rules="test")
    runs = oracle.run_seeds(mpc(task, candidates=8), task, episodes=1, seeds=1)
    found = oracle.by_type(runs)
    counts = rules.count_types(splits.load("fps30").test)
    assert {kind: found[kind]["episodes"] for kind in counts} == counts
    assert found["all"]["episodes"] == 30


def test_the_sweep_covers_every_combination(monkeypatch):
    monkeypatch.setattr(oracle, "SWEEP_PLANS", (1, 2))
    monkeypatch.setattr(oracle, "SWEEP_CANDIDATES", (4,))
    task = make_task(length=8, horizon=4, rules=[30, 204])
    points = list(oracle.sweep(task, episodes=2))
    assert len(points) == 3 * 2 * 1
    assert all(0 <= point["success"] <= 1 for point in points)


def test_unknown_sides_are_refused():
    with pytest.raises(ValueError, match="unknown side 'odd'"):
        oracle.sides(splits.load("fps30"), "odd")


def test_t_intervals_equal_the_closed_form():
    interval = stats.t_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert interval.mean == 2.5
    assert interval.high - 2.5 == pytest.approx(3.182446 * np.sqrt(5 / 3 / 4), abs=1e-5)
    assert stats.t_interval(np.array([0.3])) == stats.Interval(0.3, 0.3, 0.3)


@pytest.mark.slow
def test_rule_tape_bootstrap_covers_and_is_fixed_by_its_generator():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        scores = rng.normal(size=(40, 1)) + rng.normal(size=(1, 20)) + rng.normal(size=(40, 20))
        interval = stats.rule_tape_bootstrap(scores, rng, resamples=300)
        covered += interval.low <= 0 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99
    once, again = (
        stats.rule_tape_bootstrap(scores, np.random.default_rng(1), 100) for _ in range(2)
    )
    assert once == again
