import math
import re
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slow_tape
from tapebench.exam import policy, rollout
from tapebench.exam.exam import make_exam
from tapebench.physics import space, starts
from tapebench.physics.families import elementary
from tapebench.planning import belief, belief_planner
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

THEORY = Path(__file__).parents[2] / "docs" / "theory.md"

ALL = tuple(range(256))
LENGTHS = st.sampled_from([3, 8, 33])
"""The shortest ring, a usual one, and two words. Few, since JAX compiles for each."""


def as_cells(tape, length):
    return [tape >> i & 1 for i in range(length)]


def as_tape(cells):
    return sum(cell << i for i, cell in enumerate(cells))


@st.composite
def transitions(draw, rule, length):
    """A tape, the cell flipped on it, and what the rule made of that."""
    tape = draw(st.integers(0, 2**length - 1))
    cell = draw(st.integers(0, length - 1))
    return tape, cell, as_tape(slow_tape.step(as_cells(tape, length), cell, rule))


@st.composite
def beliefs(draw):
    """A belief over the rules: spread out or nearly certain, over few of them or all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    probabilities = rng.dirichlet(np.full(256, draw(st.sampled_from([0.01, 0.3, 10.0]))))
    probabilities[rng.random(256) < draw(st.sampled_from([0.0, 0.9]))] = 0
    probabilities[probabilities < 1e-12] = 0
    probabilities[rng.integers(256)] += 0.1
    return probabilities / probabilities.sum()


def count_wrong(tape, cell, after, rule, length):
    """In how many cells a rule contradicts a transition, by the loop that is the specification."""
    predicted = slow_tape.step(as_cells(tape, length), cell, rule)
    return sum(a != b for a, b in zip(predicted, as_cells(after, length), strict=True))


def mismatches(tape, cell, after, length):
    words = [space.to_words(t, length) for t in (tape, after)]
    return np.asarray(belief.mismatches(words[0], np.array(cell), words[1], length))


@cache
def scores(length):
    """Expected distances to a goal and information gains of every flip, compiled."""

    def both(belief_now, tape, goal):
        every_cell = np.arange(length, dtype=np.uint32)[None]
        places = belief.neighbourhoods(space.flip(tape[None, None], every_cell), length)
        far = belief.expected_distances(belief_now[None], places, goal, length)
        return far[0], belief.information_gains(belief_now[None], places)[0]

    compiled = jax.jit(both)

    def of(belief_now, tape, goal=0):
        words = [space.to_words(t, length) for t in (tape, goal)]
        far, gains = compiled(belief_now.astype(np.float32), *words)
        return np.asarray(far), np.asarray(gains)

    return of


def gain(belief_now, tape, cell, length, noise=0.0):
    return belief.information_gain(belief_now, belief.outcomes(tape, cell, length, noise))


@given(st.data(), LENGTHS, st.integers(0, 255))
def test_a_rule_mismatches_where_it_predicts_another_cell(data, length, rule):
    tape, cell, _ = data.draw(transitions(rule, length))
    after = data.draw(st.integers(0, 2**length - 1))
    expected = [count_wrong(tape, cell, after, other, length) for other in ALL]
    np.testing.assert_array_equal(mismatches(tape, cell, after, length), expected)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
@given(data=st.data(), length=LENGTHS, rule=st.integers(0, 255))
def test_the_posterior_is_the_one_of_brute_force_bayes(noise, data, length, rule):
    candidates = sorted({rule, *data.draw(st.sets(st.integers(0, 255), max_size=20))})
    log_belief = belief.log_prior(tuple(candidates))
    weights = np.zeros(256)
    weights[candidates] = 1
    for _ in range(2):
        tape, cell, after = data.draw(transitions(rule, length))
        if noise:
            after ^= data.draw(st.sampled_from([0, 1, 0b101]))
        log_belief = belief.update(log_belief, mismatches(tape, cell, after, length), noise, 1e-4)
        wrong = np.array([count_wrong(tape, cell, after, other, length) for other in ALL])
        if noise:
            weights *= noise**wrong * (1 - noise) ** (length - wrong)
        else:
            weights *= np.where(wrong == 0, 1, 1e-4)
    expected = weights / weights.sum()
    posterior = np.exp(np.asarray(log_belief))
    np.testing.assert_allclose(posterior, expected, rtol=1e-3, atol=1e-12)
    assert posterior.sum() == pytest.approx(1, abs=1e-5)
    assert (posterior[np.setdiff1d(ALL, candidates)] == 0).all()


def test_a_transition_that_contradicts_every_candidate_changes_nothing():
    tape, cell = 0b0010111000011010, 3
    after = as_tape(slow_tape.step(as_cells(tape, 16), cell, 30))
    wrong = mismatches(tape, cell, after, 16)
    uneven = np.full(256, -np.inf, np.float32)
    uneven[[90, 110, 204]] = np.log([0.7, 0.2, 0.1])
    assert (wrong[[90, 110, 204]] > 0).all()
    np.testing.assert_allclose(belief.update(uneven, wrong), uneven, atol=1e-5)
    # Counting cells instead, the belief moves to the candidates that are wrong in the fewest.
    moved = np.exp(np.asarray(belief.update(uneven, wrong, noise=0.01)))
    nearest = min((90, 110, 204), key=lambda rule: wrong[rule])
    assert moved[nearest] > 0.98 > np.exp(uneven[nearest])


def test_a_rule_that_changes_is_found_after_as_many_steps_as_it_was_believed_false():
    """The filter assumes one rule per episode; only the floor lets it change its mind."""
    tape, cell = 0b0010111000011010, 3
    seen = {
        rule: mismatches(tape, cell, as_tape(slow_tape.step(as_cells(tape, 16), cell, rule)), 16)
        for rule in (30, 110)
    }
    log_belief = belief.log_prior(ALL)
    for _ in range(5):
        log_belief = belief.update(log_belief, seen[30])
    believed = []
    for _ in range(6):
        log_belief = belief.update(log_belief, seen[110])
        believed.append(float(np.exp(log_belief[110])))
    assert max(believed[:4]) < 1e-5
    assert believed[4] == pytest.approx(0.5, abs=0.01)
    assert believed[5] > 0.99


def run_length_mixture(fits, hazard):
    """Bayesian online changepoint detection written out, after Adams and MacKay (2007).

    `fits[T, rules]` says which rules explain each transition. A run is a time without a redraw of
    the rule; each has a weight and the set of rules that explain all of it. Gives the probabilities
    of the rules at the step after the last.
    """
    num = fits.shape[1]
    runs = [(1.0, np.ones(num, bool))]
    for fit in fits:
        # The evidence of a transition within a run: how many of its rules explain it.
        seen = [(weight * (alive & fit).sum() / alive.sum(), alive & fit) for weight, alive in runs]
        total = sum(weight for weight, _ in seen)
        runs = [(weight / total * (1 - hazard), alive) for weight, alive in seen if weight]
        runs.append((hazard, np.ones(num, bool)))
    return sum(weight * alive / alive.sum() for weight, alive in runs)


def random_transitions(rules, length, rng):
    """Mismatches of one transition from a random tape under each of these rules."""
    return [
        mismatches(tape, cell, as_tape(slow_tape.step(as_cells(tape, length), cell, rule)), length)
        for rule in rules
        for tape, cell in [(int(rng.integers(2**length)), int(rng.integers(length)))]
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_filter_that_allows_for_change_is_the_mixture_over_all_run_lengths(seed):
    rng = np.random.default_rng(seed)
    acting = [30] * 3 + [110] * 2 + [45] * 3
    seen = random_transitions(acting, 5, rng)
    hazard, candidates = 0.2, np.ones(256, bool)
    log_belief = belief.log_prior(ALL)
    for number, mismatch in enumerate(seen, 1):
        log_belief = belief.update(log_belief, mismatch, floor=1e-30)
        log_belief = belief.shift(log_belief, candidates, hazard)
        # The mixture draws the rule anew and so the same one again once in 256 times.
        fits = np.array([wrong == 0 for wrong in seen[:number]])
        expected = run_length_mixture(fits, hazard * 256 / 255)
        np.testing.assert_allclose(np.exp(log_belief), expected, atol=1e-5)


def test_a_change_goes_to_the_other_candidates_and_to_nothing_else():
    candidates = np.isin(ALL, (30, 90, 110))
    sure = np.where(np.array(ALL) == 30, 0.0, -np.inf)
    moved = np.exp(belief.shift(sure, candidates, 0.3))
    np.testing.assert_allclose(moved[[30, 90, 110]], [0.7, 0.15, 0.15], atol=1e-6)
    assert moved.sum() == pytest.approx(1, abs=1e-6)
    alone = np.isin(ALL, (30,))
    np.testing.assert_allclose(np.exp(belief.shift(sure, alone, 0.3)), alone)


def test_a_filter_that_allows_for_change_finds_the_new_rule_within_two_steps():
    """Where the plain one needs as many as it has believed in the old rule."""
    task = make_task(length=16, horizon=12, rules=[30, 45, 110, 73], switch=5)

    def share_found(filtering):
        shown = belief.identify(filtering, task, episodes=15)
        lasted = shown.episodes.steps == task.horizon
        assert lasted.sum() > 20
        return (shown.mass[lasted] > 0.5).mean(axis=0)

    allowing = share_found(belief.bayes_filter(task))
    plain = share_found(belief.bayes_filter(task, hazard=0.0))
    assert allowing[4] > 0.95 < plain[4]
    assert allowing[5] == plain[5] == 0, "nobody can know before the rule has acted"
    assert allowing[7] > 0.8
    assert allowing[8] > 0.95
    assert plain[5:9].max() < 0.05


def test_without_a_switch_the_filter_knows_nothing_of_change():
    task = make_task(length=8, horizon=8, rules=[30, 110])
    plain = belief.bayes_filter(task).init(None, 2)
    assert plain.hazard is None
    assert belief.expected_hazard(task) == 0
    assert belief.expected_hazard(make_task(length=8, horizon=9, switch=[2, 5])) == 0.25
    assert len(jax.tree.leaves(plain)) == 8


@pytest.mark.slow
def test_paid_for_information_a_filter_that_allows_for_change_never_stops_asking():
    """The figures of docs/theory.md."""
    task = make_exam(length=16, horizon=12, switch=6).task
    for hazard, beta, figure in (
        (None, 0.0, 0.400),
        (None, 0.25, 0.182),
        (0.0, 0.0, 0.318),
        (0.0, 0.25, 0.311),
    ):
        filtering = belief.bayes_filter(task, beta=beta, hazard=hazard)
        success = rollout.rollout(filtering, task, episodes=4).success.mean()
        assert success == pytest.approx(figure, abs=0.01)
        assert f"{figure:.3f}" in THEORY.read_text()


@pytest.mark.slow
def test_planning_with_a_belief_that_allows_for_change_recovers_after_a_switch():
    exam = make_exam(length=8, horizon=8, switch=2, rules=[30, 45, 110, 73], episodes=10)
    possible = (exam.optimal_steps() >= 0).mean()
    planner = belief_planner.belief_planner(exam.task)
    success = rollout.rollout(planner, exam.task, episodes=10).success.mean()
    assert possible - 0.15 < success <= possible


@given(beliefs(), st.sampled_from([3, 5, 8]), st.integers(0, 2**8 - 1), st.integers(0, 2**8 - 1))
def test_expected_distance_is_the_mean_over_the_belief(now, length, tape, goal):
    tape, goal = tape % 2**length, goal % 2**length
    far, _ = scores(length)(now, tape, goal)
    for cell in range(length):
        nexts = [as_tape(slow_tape.step(as_cells(tape, length), cell, rule)) for rule in ALL]
        wrong = np.array([(after ^ goal).bit_count() for after in nexts])
        assert far[cell] == pytest.approx(now @ wrong / length, abs=1e-5)


@given(beliefs(), st.sampled_from([3, 8, 14]), st.integers(0, 2**14 - 1))
def test_fast_information_gain_follows_the_definition_for_every_flip(now, length, tape):
    tape %= 2**length
    expected = [gain(now, tape, cell, length) for cell in range(length)]
    np.testing.assert_allclose(scores(length)(now, tape)[1], expected, atol=2e-5)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@given(now=beliefs(), tape=st.integers(0, 2**7 - 1), cell=st.integers(0, 6))
def test_information_gain_is_mutual_information_and_expected_divergence(noise, now, tape, cell):
    likelihood = belief.outcomes(tape, cell, 7, noise)
    joint = now[:, None] * likelihood
    evidence = joint.sum(axis=0)
    occurs = joint > 0
    independent = now[:, None] * evidence
    mutual = (joint[occurs] * np.log(joint[occurs] / independent[occurs])).sum()
    divergence = 0.0
    for s in np.flatnonzero(evidence):
        posterior = joint[:, s] / evidence[s]
        possible = posterior > 0
        ratio = posterior[possible] / now[possible]
        divergence += evidence[s] * (posterior[possible] * np.log(ratio)).sum()
    gain = belief.information_gain(now, likelihood)
    assert gain == pytest.approx(mutual, abs=1e-9)
    assert gain == pytest.approx(divergence, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@given(now=beliefs(), tape=st.integers(0, 2**7 - 1), cell=st.integers(0, 6))
def test_information_gain_lies_between_nothing_and_the_entropy(noise, now, tape, cell):
    assert -1e-9 <= gain(now, tape, cell, 7, noise) <= belief.entropy(now) + 1e-9


def test_a_surprising_step_leaves_more_uncertainty_than_there_was():
    now = np.full(256, 0.1 / 255)
    now[30] = 0.9
    tape, cell = 0b10, 0
    after = as_tape(slow_tape.step(as_cells(tape, 8), cell, 204))
    surprised = now * (mismatches(tape, cell, after, 8) == 0)
    assert belief.entropy(surprised / surprised.sum()) > belief.entropy(now)
    assert gain(now, tape, cell, 8) > 0


@given(beliefs(), st.integers(0, 2**7 - 1), st.integers(0, 6))
def test_information_gain_is_the_entropy_of_the_predicted_next_tape(now, tape, cell):
    probability = {}
    for rule in ALL:
        after = as_tape(slow_tape.step(as_cells(tape, 7), cell, rule))
        probability[after] = probability.get(after, 0) + now[rule]
    predicted = belief.entropy(np.array(list(probability.values())))
    assert gain(now, tape, cell, 7) == pytest.approx(predicted, abs=1e-9)


@given(beliefs(), st.integers(0, 2**7 - 1), st.integers(0, 6))
def test_noise_takes_information_and_the_noise_itself_is_none(now, tape, cell):
    noisy = gain(now, tape, cell, 7, noise=0.1)
    assert noisy <= gain(now, tape, cell, 7) + 1e-9
    # The next tape is less predictable by the entropy of its seven inverted-or-not cells.
    next_tape = belief.entropy(now @ belief.outcomes(tape, cell, 7, noise=0.1))
    assert noisy == pytest.approx(next_tape - 7 * belief.entropy(np.array([0.1, 0.9])), abs=1e-9)


@given(beliefs(), st.integers(0, 2**8 - 1), st.integers(0, 7))
def test_the_promised_information_arrives_on_average_if_the_belief_is_right(now, tape, cell):
    possible = np.flatnonzero(now)
    tapes = np.tile(space.to_words(tape, 8), (len(possible), 1))
    after = elementary.step(tapes, np.array(cell), possible, 8)
    fits = np.asarray(belief.mismatches(tapes, np.array(cell), after, 8)) == 0
    posteriors = now * fits / (now * fits).sum(axis=-1, keepdims=True)
    arrived = now[possible] @ (belief.entropy(now) - belief.entropy(posteriors.T))
    assert arrived == pytest.approx(gain(now, tape, cell, 8), abs=1e-9)


def test_the_promised_information_does_not_arrive_for_a_rule_without_support():
    split = splits.load("fps30")
    prior = belief.log_prior(split.train)
    now = np.exp(np.asarray(prior, float))
    tape, cell = 0b0010111000011010, 3
    promised = gain(now, tape, cell, 16)
    assert promised == pytest.approx(math.log(len(split.train)), abs=1e-5)
    for rule in split.test:
        after = as_tape(slow_tape.step(as_cells(tape, 16), cell, rule))
        posterior = np.exp(np.asarray(belief.update(prior, mismatches(tape, cell, after, 16))))
        assert belief.entropy(posterior) == pytest.approx(promised, abs=1e-4)


def test_the_flip_that_reaches_the_goal_can_be_the_one_that_tells_least():
    candidates = [rule for rule in ALL if rule % 2 == 0]
    now = np.exp(np.asarray(belief.log_prior(tuple(candidates))))
    far, gains = scores(8)(now, 1 << 5)
    assert far.argmin() == gains.argmin() == 5
    assert far[5] == pytest.approx(0, abs=1e-6)
    assert gains[5] == pytest.approx(0, abs=1e-5)
    assert np.delete(gains, 5).min() > math.log(2)


def test_a_flip_that_tells_nothing_can_be_the_way_to_one_that_tells_all():
    now = np.exp(np.asarray(belief.log_prior((204, 204 - 128))))  # do three ones in a row last?
    for tape in (0b000, 0b001):
        np.testing.assert_allclose(scores(8)(now, tape)[1], 0, atol=1e-5)
    assert scores(8)(now, 0b011)[1].max() == pytest.approx(math.log(2), abs=1e-5)


@pytest.mark.parametrize(("length", "share"), [(8, 0.06), (16, 0.37), (32, 0.84)])
def test_one_transition_from_a_random_tape_often_tells_the_whole_rule(length, share):
    tapes = starts.exam_tapes(length, 20_000)
    rule = np.arange(20_000, dtype=np.uint32) % 256
    cell = np.zeros(20_000, np.uint32)
    after = elementary.step(tapes, cell, rule, length)
    fits = np.asarray(belief.mismatches(tapes, cell, after, length)) == 0
    assert fits[np.arange(20_000), rule].all()
    assert (fits.sum(axis=-1) == 1).mean() == pytest.approx(share, abs=0.01)


def test_the_filter_is_blind_and_solves_the_identity_through_the_evaluator():
    task = make_task(length=8, horizon=8, rules=[204])
    filtering = belief.bayes_filter(task)
    assert not filtering.sees_rule
    episodes = rollout.rollout(filtering, task, episodes=200)
    assert episodes.success.mean() > 0.9
    for beta in (0.0, 1.0):
        other = belief.bayes_filter(task, beta=beta)
        assert other.act is filtering.act, "another weight must not compile another program"
        assert rollout.rollout(other, task, episodes=200).success.mean() > 0.5


def test_a_filter_that_believes_in_the_true_rule_alone_is_greedy():
    task = make_task(length=8, horizon=8, rules=[110])
    certain = belief.bayes_filter(task, [110], name="greedy")
    np.testing.assert_array_equal(
        rollout.rollout(certain, task).cells, rollout.rollout(policy.greedy(task), task).cells
    )


@pytest.mark.slow
def test_the_filter_plans_for_the_goal_it_is_given_or_shown():
    for options in ({"goal": "01100101"}, {"goal": "random", "observe_goal": True}):
        task = make_task(length=8, horizon=12, rules=[204], **options)
        assert rollout.rollout(belief.bayes_filter(task), task).success.mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"noise": 0.05}, {"goal": "random", "observe_goal": True, "mask": [2]}]
)
def test_watching_a_belief_changes_no_episode(options):
    task = make_task(length=8, horizon=8, rules=[4, 30, 204], **options)
    filtering = belief.bayes_filter(task)
    watched = belief.identify(filtering, task, episodes=10, seed=3)
    plain = rollout.rollout(filtering, task, episodes=10, seed=3)
    np.testing.assert_array_equal(watched.episodes.cells, plain.cells)
    np.testing.assert_array_equal(watched.episodes.wrong, plain.wrong)


def test_the_belief_watched_is_that_of_all_transitions_up_to_the_end_of_the_episode():
    task = make_task(length=8, horizon=8, rules=[4, 30, 204])
    watched = belief.identify(belief.bayes_filter(task, beta=0.0), task, episodes=10)
    ended_early = watched.episodes.steps < 8
    assert ended_early.any()
    assert not ended_early.all()
    for r, rule in enumerate(watched.episodes.rules):
        for e in range(10):
            tapes, cells = watched.episodes.trace(r, e)
            log_belief = belief.log_prior(ALL)
            masses = [1 / 256]
            for before, cell, after in zip(tapes, cells, tapes[1:], strict=False):
                wrong = mismatches(as_tape(before.tolist()), cell, as_tape(after.tolist()), 8)
                log_belief = belief.update(log_belief, wrong)
                masses.append(float(np.exp(log_belief[rule])))
            masses += masses[-1:] * (9 - len(masses))
            np.testing.assert_allclose(watched.mass[r, e], masses, rtol=1e-4)
            assert watched.entropy[r, e, -1] == pytest.approx(
                belief.entropy(np.exp(np.asarray(log_belief))), abs=1e-4
            )


def test_steps_to_identify_by_hand():
    shown = belief.Identification(
        episodes=None,
        mass=np.array([[[0.1, 0.5, 1.0], [0.1, 0.1, 0.1], [1.0, 1.0, 1.0]]]),
        entropy=None,
        bits=None,
        calibration=None,
    )
    assert shown.steps.tolist() == [[2, -1, 0]]
    assert shown.steps_to(0.5).tolist() == [[1, -1, 0]]


@pytest.mark.slow
def test_the_filter_is_calibrated_on_its_candidates_and_cannot_be_outside_of_them():
    split = splits.load("fps30")
    task = make_task(length=8, horizon=8, rules="all")
    right = belief.identify(belief.bayes_filter(task), task)
    table = right.calibration
    assert table.count.sum() == 256 * (right.episodes.steps + 1).sum()
    filled = table.count > 0
    assert filled.sum() > 3
    np.testing.assert_allclose(table.predicted[filled], table.frequency[filled], atol=0.03)
    assert np.isnan(table.predicted[~filled]).all()

    wrong = belief.identify(belief.bayes_filter(task, "train"), task, rules=split.test)
    assert (wrong.mass == 0).all()
    assert (wrong.steps == -1).all()
    table = wrong.calibration
    assert table.predicted[-1] > 0.9
    assert table.frequency[-1] == 0
    assert wrong.bits[..., -1].mean() < right.bits[list(split.test), :, -1].mean() - 0.1


def test_any_policy_can_show_a_belief():
    task = make_task(length=8, horizon=4, rules=[30, 90])
    always_thirty = jax.nn.one_hot(np.full(6, 30), 256)
    stubborn = policy.Policy(
        "stubborn",
        lambda rule, num: always_thirty,
        policy.random(task).act,
        belief=lambda memory: memory,
    )
    shown = belief.identify(stubborn, task, episodes=3)
    np.testing.assert_array_equal(shown.mass[:, :, -1], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(shown.bits[1], 1 - (30 ^ 90).bit_count() / 8)
    assert shown.calibration.frequency[-1] == 0.5
    mute = policy.Policy("n", lambda rule, num: (), lambda *_: (), backend="numpy")
    with pytest.raises(ValueError, match="n exposes no belief"):
        belief.identify(mute, task)
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        belief.identify(stubborn, task, episodes=0)


@pytest.mark.slow
def test_hidden_cells_never_speak_against_the_true_rule():
    task = make_task(length=16, horizon=12, rules="all", mask=[2, 3, 9])
    shown = belief.identify(belief.bayes_filter(task), task, episodes=2)
    assert (np.diff(shown.mass, axis=-1) > -1e-5).all()
    assert (shown.steps >= 0).mean() > 0.9
    everything_touched = make_task(length=16, horizon=3, rules=[30], mask=range(0, 16, 3))
    shown = belief.identify(belief.bayes_filter(everything_touched), everything_touched)
    np.testing.assert_allclose(shown.mass, 1 / 256, rtol=1e-5)


def test_only_cells_without_a_hidden_neighbour_are_readable():
    hidden = 0b0000100000000001
    cells = space.unpack(belief.readable_cells(hidden, 16), 16)
    assert np.flatnonzero(cells == 0).tolist() == [0, 1, 10, 11, 12, 15]
    assert (space.unpack(belief.readable_cells(0, 40), 40) == 1).all()


@pytest.mark.slow
def test_the_noise_relaxed_filter_finds_the_rule_where_the_strict_one_loses_it():
    task = make_task(length=8, horizon=8, rules="all", noise=0.1)
    strict = belief.identify(belief.bayes_filter(task, noise=0.0), task)
    # Every rule sits an exam with the same noise, so that only exams count as separate evidence.
    relaxed = [
        belief.identify(belief.bayes_filter(task), task, salt=salt) for salt in ("", *"abcd")
    ]
    assert relaxed[0].mass[..., -1].mean() > strict.mass[..., -1].mean() + 0.1
    assert strict.calibration.predicted[-1] > strict.calibration.frequency[-1] + 0.1
    counts = np.array([shown.calibration.count for shown in relaxed])
    often = counts.min(axis=0) > 500
    assert often.sum() > 5
    predicted, frequency = (
        np.average(
            [getattr(shown.calibration, what)[often] for shown in relaxed], 0, counts[:, often]
        )
        for what in ("predicted", "frequency")
    )
    np.testing.assert_allclose(predicted, frequency, atol=0.04)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": []}, "candidate set is empty"),
        ({"candidates": [30, 300]}, "0 to 255"),
        ({"candidates": "trian"}, "unknown rule set"),
        ({"beta": math.inf}, "beta must be finite"),
        ({"goal_weight": -1.0}, "goal_weight must be finite and not negative"),
        ({"floor": 0.0}, "floor must be above 0"),
        ({"noise": 1.0}, "noise must be at least 0 and below 1"),
        ({"hazard": 1.5}, "hazard must be from 0 to 1"),
    ],
)
def test_nonsense_is_refused_with_a_reason(options, message):
    with pytest.raises(ValueError, match=message):
        belief.bayes_filter(make_task(), **options)


def test_an_unknown_goal_is_refused():
    with pytest.raises(ValueError, match="observe_goal=True"):
        belief.bayes_filter(make_task(goal="random"))


@pytest.mark.slow
@pytest.mark.parametrize("salt", ["fresh", "other"])
def test_information_gain_costs_success_on_held_out_rules_if_they_are_no_candidates(salt):
    task = make_task(rules=splits.load("fps30").test)

    def success(candidates, beta, noise=None):
        filtering = belief.bayes_filter(task, candidates, beta=beta, noise=noise)
        return rollout.rollout(filtering, task, salt=salt).success.mean()

    assert success("train", 0.25) < success("train", 0.0) - 0.05
    assert success("train", 0.25) < success("train", 0.25, noise=0.01) - 0.05
    assert success("all", 0.25) == pytest.approx(success("all", 0.0), abs=0.02)


WEIGHTS = {"0": (1, 0), "0.25": (1, 0.25), "1": (1, 1), "only": (0, 1), "random": (0, 0)}
"""Of the distance and of information gain, by the label in the table of docs/theory.md."""


def table_rows():
    """The table of docs/theory.md, computed again: label -> its figures."""
    held_out = np.isin(ALL, splits.load("fps30").test)
    rows = {}
    for length in (8, 32):
        task = make_task(length=length, horizon=length, rules="all")
        for candidates in ("all", "train"):
            for label, (goal_weight, beta) in WEIGHTS.items():
                if (candidates, label) == ("train", "random"):
                    continue  # its flips are those of the row for all rules
                filtering = belief.bayes_filter(
                    task, candidates, goal_weight=goal_weight, beta=beta
                )
                shown = belief.identify(filtering, task)
                success, known = shown.episodes.success, shown.steps >= 0
                rows[str(length), candidates, label] = (
                    success[~held_out].mean(),
                    success[held_out].mean(),
                    known[~held_out].mean(),
                    shown.steps[known & ~held_out[:, None]].mean(),
                    known[held_out].mean(),
                    shown.entropy[held_out][..., -1].mean(),
                )
    return rows


@pytest.mark.slow
def test_the_table_in_the_theory_is_what_the_exam_gives():
    computed = {
        label: "| " + " | ".join([*label, *(f"{figure:.3f}" for figure in row)]) + " |"
        for label, row in table_rows().items()
    }
    lines = [line for line in THEORY.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    shown = {tuple(line.strip("| ").split(" | ")[:3]): line for line in lines}
    assert shown.keys() == computed.keys()
    for label, line in shown.items():
        figures = [
            np.array(row.strip("| ").split(" | ")[3:], float) for row in (line, computed[label])
        ]
        np.testing.assert_allclose(*figures, atol=0.01, err_msg="\n".join(computed.values()))


def test_the_theory_names_only_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", THEORY.read_text()))
    assert len(named) > 8
    assert named <= set(globals())


def test_a_policy_without_a_belief_cannot_be_watched():
    task = make_task(length=8, horizon=2, rules=[30])
    with pytest.raises(ValueError, match="random exposes no belief"):
        belief.identify(policy.random(task), task)
