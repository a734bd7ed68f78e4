import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from draws import streams
from tapebench import stats
from tapebench.base import seeding
from tapebench.exam import rollout, score
from tapebench.gym import TapeVectorEnv
from tapebench.physics import exact, space, starts
from tapebench.physics.families import elementary
from tapebench.planning import ball as balls
from tapebench.planning import beam, belief_planner
from tapebench.planning import mpc as mpcs
from tapebench.planning.mpc import OBJECTIVES, mpc
from tapebench.tasks import splits
from tapebench.tasks.task import make_task
from tapebench.tasks.universe import ELEMENTARY


def test_predecessors_are_all_tapes_that_update_to_the_given_ones():
    rng = np.random.default_rng(0)
    for rule in (0, 30, 45, 90, 110, 204):
        targets = np.unique(rng.integers(0, 2**9, 5).astype(np.uint32))
        predecessors, are_all = balls.predecessors(targets, rule, 9, 10**6, rng)
        expected = np.flatnonzero(np.isin(exact.all_images(rule, 9), targets))
        assert are_all
        np.testing.assert_array_equal(np.sort(predecessors), expected)


def test_live_tapes_are_those_that_some_tape_updates_to():
    for rule in (0, 30, 62, 90, 110, 204):
        for length in (3, 8, 9):
            is_live = balls._live_tapes(rule, length)(np.arange(2**length, dtype=np.uint32))
            images = np.unique(exact.all_images(rule, length))
            np.testing.assert_array_equal(np.flatnonzero(is_live), images)


def test_a_ball_within_its_limit_is_the_exact_answer():
    for rule in (30, 62, 90, 110, 234):
        ball = balls.ball(rule, 10)
        steps = exact.steps_to_goal(rule, 10, 254)
        can_be_met = np.union1d(exact.all_images(rule, 10), [0])
        expected = can_be_met[steps[can_be_met] != exact.UNREACHED]
        np.testing.assert_array_equal(ball.tapes, expected)
        np.testing.assert_array_equal(ball.steps, steps[ball.tapes])
        assert ball.is_complete


def test_a_thinned_ball_knows_real_ways_and_claims_no_completeness():
    ball = balls.ball(22, 24, limit=5000)
    assert not ball.is_complete
    assert 1000 < len(ball.tapes) <= 5000
    for index in range(0, len(ball.tapes), 97):
        tape = int(ball.tapes[index])
        way = ball.way_home(tape)
        assert len(way) == ball.steps[index]
        for cell in way:
            tape = elementary.step(tape, cell, 22, 24)
        assert tape == 0


@pytest.mark.slow
def test_complete_balls_at_32_cells_prove_what_is_out_of_reach():
    tapes = starts.exam_tapes(32, 20)[:, 0]
    every_flip = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for rule in (45, 60, 62, 90, 165):
        ball = balls.ball(rule, 32)
        assert ball.is_complete
        answer = exact.exam_answers()[rule]
        before, are_all = balls.predecessors(ball.tapes, rule, 32, 10**7, None)
        assert are_all
        reach = np.unique(np.append(before[:, None] ^ every_flip, np.uint32(0)))
        assert len(reach) == sum(answer["histogram"])
        home = ball.look_up(balls.successors(tapes, rule, 32)).min(axis=1)
        can = [way is not None for way in answer["exam_witnesses"]]
        assert (home < balls.OUTSIDE).tolist() == can


def test_search_looks_ahead_where_wrong_cells_mislead():
    """Rules whose goal is entered from ones, from stripes, or at every other step only."""
    weak = (3, 5, 47, 51, 79, 94)
    task = make_task(rules=weak)
    assert rollout.rollout(beam.beam(task), task).success.all()


SOME_OR_ALL = pytest.mark.parametrize(
    "episodes",
    [pytest.param(2, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.nightly)],
)
"""Start tapes of each rule at 32 cells: all of the exam's take minutes."""


@SOME_OR_ALL
def test_search_finds_nearly_every_exam_way_that_exists(episodes):
    answers = exact.exam_answers()
    task = make_task(rules="all")
    results = rollout.rollout(beam.beam(task), task, episodes=episodes)
    steps = [answers[rule]["exam_steps"][:episodes] for rule in range(256)]
    can = np.array([[s is not None for s in row] for row in steps])
    assert not results.success[~can].any()
    assert results.success[can].mean() > 0.99


def test_search_does_not_take_a_stranger_for_a_tape_of_the_ball():
    """Horizons above 254 once made the mark of an unknown tape look like a way."""
    tapes = starts.exam_tapes(10, 20)[:, 0]
    for rule in (45, 234):
        steps = exact.steps_to_goal(rule, 10, 254)[tapes]
        assert (steps == exact.UNREACHED).any()
        ways = beam.find_ways(tapes, [300] * 20, rule, 10, 0, streams(20))
        assert [way is not None for way in ways] == (steps != exact.UNREACHED).tolist()


def play_trials(policy, task, rule, tapes):
    """Drive `policy` through `tapes[K, B, L]`, each row at its own pace, and some steps more.

    Returns the steps each trial took (-1 if it failed) `[K, B]`, and the probability of the true
    rule after every call of `act`, if the policy has a belief.
    """
    trials, num = tapes.shape[:2]
    rows = np.arange(num)
    draws = streams(num)
    env = TapeVectorEnv(num, task=task, autoreset_mode=AutoresetMode.DISABLED)
    shown, _ = env.reset(seed=0, options={"rule": rule, "tape": tapes[0]})
    memory = policy.init(rule, num)
    trial, t = np.zeros(num, int), np.zeros(num, int)
    taken, masses = np.full((trials, num), -1), []
    for _ in range(trials * task.horizon + 3):
        memory, action = policy.act(memory, shown, draws)
        draws = seeding.advance(draws)
        if policy.belief is not None:
            masses.append(policy.belief(memory)[rows, rule])
        after, _, terminated, truncated, _ = env.step(action)
        t += 1
        is_running = trial < trials
        solved = is_running & terminated
        taken[trial[solved], rows[solved]] = t[solved]
        is_over = terminated | truncated
        shown = np.where(is_running[:, None], after, shown)  # what is over stands still
        if is_over.any():
            trial, t = trial + is_over, np.where(is_over, 0, t)
            options = {"rule": rule, "tape": tapes[trial.clip(max=trials - 1), rows]}
            after, _ = env.reset(options={**options, "reset_mask": is_over})
            shown = np.where((is_over & (trial < trials))[:, None], after, shown)
    return taken, np.array(masses)


def trials_at_12_cells():
    """Rules, tapes of four trials, and the fewest steps (-1 for none): balls are complete here."""
    task = make_task(length=12, horizon=12)
    rule = np.array([204, 30, 110, 45, 3, 0, 22, 90, 250, 106])
    tapes = np.random.default_rng(1).integers(1, 2**12, (4, len(rule))).astype(np.uint32)
    steps = np.array([exact.steps_to_goal(r, 12, 12)[tapes[:, i]] for i, r in enumerate(rule)]).T
    fewest = np.where(steps == exact.UNREACHED, -1, steps.astype(int))
    return task, rule, space.unpack(tapes[..., None], 12), fewest


@pytest.mark.parametrize("make", [beam.beam, beam.optimal])
def test_plans_begin_anew_in_every_row_whose_time_is_back_at_zero(make):
    task, rule, tapes, fewest = trials_at_12_cells()
    taken, _ = play_trials(make(task), task, rule, tapes)
    np.testing.assert_array_equal(taken, fewest)


def test_belief_planner_keeps_what_it_learned_and_plans_at_once_when_it_is_sure():
    task, rule, tapes, fewest = trials_at_12_cells()
    policy = belief_planner.belief_planner(task)
    taken, mass = play_trials(policy, task, rule, tapes)
    assert (taken[0] != fewest[0]).any()  # the first trial had to find the rule out
    known = mass[-1] > belief_planner.SURE
    assert known.sum() >= 8
    np.testing.assert_array_equal(taken[-1][known], fewest[-1][known])


def test_belief_planner_learns_nothing_from_a_restart_or_from_standing_still():
    """The true rule explains every real transition, so its probability never falls."""
    task, rule, tapes, _ = trials_at_12_cells()
    _, mass = play_trials(belief_planner.belief_planner(task), task, rule, tapes)
    assert (np.diff(mass, axis=0) > -1e-6).all()
    np.testing.assert_array_equal(mass[-1], mass[-2])


def test_belief_planner_exposes_a_posterior_and_leaves_memories_alone():
    task = make_task(length=12, horizon=12)
    policy = belief_planner.belief_planner(task, (30, 110))
    obs, _ = TapeVectorEnv(5, task=task).reset(seed=0)
    memory = policy.init(None, 5)
    results = [policy.act(memory, obs, streams(5)) for _ in range(2)]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    posterior = policy.belief(results[0][0])
    assert posterior.shape == (5, 256)
    np.testing.assert_allclose(posterior[:, [30, 110]], 0.5, rtol=1e-6)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.slow
def test_belief_planner_is_at_the_ceiling_without_being_told_the_rule():
    task = make_task(rules=[3, 45, 79, 110, 204])
    success = rollout.rollout(belief_planner.belief_planner(task), task).success.mean(axis=1)
    assert success[1] == 0
    assert success[[0, 2, 3, 4]].min() >= 0.95


@SOME_OR_ALL
def test_belief_planner_reaches_95_percent_of_the_ceiling_on_both_sides(episodes):
    answers = exact.exam_answers()
    for side in ("train", "test"):
        members = getattr(splits.load("fps30"), side)
        task = make_task(rules=members)
        results = rollout.rollout(belief_planner.belief_planner(task), task, episodes=episodes)
        steps = [s for rule in members for s in answers[rule]["exam_steps"][:episodes]]
        success, ceiling = results.success.mean(), np.mean([s is not None for s in steps])
        assert success >= 0.95 * ceiling


def test_optimal_is_exactly_at_the_ceiling_and_takes_the_fewest_steps():
    task = make_task(length=12, horizon=12, rules="all")
    episodes = rollout.rollout(beam.optimal(task), task)
    tapes = starts.exam_tapes(12, 20)[:, 0]
    for rule in range(256):
        steps = exact.steps_to_goal(rule, 12, 12)[tapes]
        can = steps != exact.UNREACHED
        np.testing.assert_array_equal(episodes.success[rule][can], True)
        np.testing.assert_array_equal(episodes.steps[rule][can], steps[can])
        assert not episodes.success[rule][~can].any()


def test_optimal_plays_the_shipped_answers_on_the_exam_at_32_cells():
    answers = exact.exam_answers()
    task = make_task(rules="all")
    episodes = rollout.rollout(beam.optimal(task), task)
    for rule in range(256):
        expected = answers[rule]["exam_steps"]
        assert episodes.success[rule].tolist() == [steps is not None for steps in expected]
        taken = [
            int(s) if ok else None
            for s, ok in zip(episodes.steps[rule], episodes.success[rule], strict=True)
        ]
        assert taken == expected


def test_optimal_serves_other_goals():
    task = make_task(length=9, horizon=9, rules=[30, 110, 204], goal="010010001")
    episodes = rollout.rollout(beam.optimal(task), task)
    for row, rule in enumerate((30, 110, 204)):
        steps = exact.steps_to_goal(rule, 9, 9, task.goal)
        tapes = starts.exam_tapes(9, 20, goals=np.full((20, 1), task.goal, np.uint32))[:, 0]
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
        beam.optimal(make_task(**options))


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
    tapes = starts.exam_tapes(8, 20)[:, 0]
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
    runs = score.run_seeds(mpc(task, candidates=8), task, episodes=4, seeds=3)
    summary = score.summarise_rules(runs, split.test)
    assert summary["rules"] == 30
    assert summary["episodes"] == 120
    rows = list(split.test)
    expected = np.mean([run.success[rows].mean() for run in runs])
    assert summary["success"]["mean"] == pytest.approx(expected)
    for name in ("success", "final_distance", "auc_distance", "return"):
        for kind in ("seeds", "rules_tapes"):
            low, high = summary[name][kind]
            assert low <= summary[name]["mean"] <= high


def test_by_type_counts_every_episode_once():
    task = make_task(length=8, horizon=8, rules="test")
    runs = score.run_seeds(mpc(task, candidates=8), task, episodes=1, seeds=1)
    by_type = score.by_type(runs)
    counts = ELEMENTARY.count_types(splits.load("fps30").test)
    assert {kind: by_type[kind]["episodes"] for kind in counts} == counts
    assert by_type["all"]["episodes"] == 30


@pytest.mark.slow
def test_the_sweep_covers_every_combination(monkeypatch):
    monkeypatch.setattr(mpcs, "SWEEP_PLANS", (1, 2))
    monkeypatch.setattr(mpcs, "SWEEP_CANDIDATES", (4,))
    task = make_task(length=8, horizon=4, rules=[30, 204])
    points = list(mpcs.sweep(task, episodes=2))
    assert len(points) == 3 * 2 * 1
    assert all(0 <= point["success"] <= 1 for point in points)


def test_unknown_sides_are_refused():
    with pytest.raises(ValueError, match="unknown side 'odd'"):
        splits.sides(splits.load("fps30"), "odd")


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
