from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapebench import agents
from tapebench import env as envs
from tapebench.base import seeding
from tapebench.exam import evaluate, lesion, policy
from tapebench.exam.exam import make_exam
from tapebench.exam.external import in_process
from tapebench.exam.policy import Policy, blind

EXAM = make_exam(length=6, horizon=4, episodes=6)


class FlipFirst:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.zeros(len(obs), int)


def first_one(memory, obs, stream):
    """Remembers everything and uses nothing of it."""
    return (obs[:, :6], memory[1] + 1), obs[:, :6].argmax(axis=-1)


def forgetful(backend):
    xp = np if backend == "numpy" else jnp

    def init(rule, num):
        return xp.zeros((num, 6), xp.float32), xp.zeros(num, xp.int32)

    return blind(Policy("forgetful", init, first_one, backend=backend))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_who_does_not_use_its_memory_loses_nothing(backend):
    losses = lesion.lesions(forgetful(backend), EXAM)
    assert losses.steps == (2, 3)
    for kind in lesion.KINDS:
        assert losses.lost[kind].shape == (2, len(EXAM.rules))
        assert not losses.lost[kind].any()


def test_who_acts_on_the_law_loses_by_every_lesion():
    ideal = policy.make("bayes-optimal", EXAM.task)
    summary = lesion.summarise([lesion.lesions(ideal, EXAM)], EXAM)
    for kind in lesion.KINDS:
        for place, row in enumerate(summary[kind]["id"], 2):
            assert row["step"] == place
            assert row["lost"] > 0
            assert row["interval"][0] < row["lost"] < row["interval"][1]
    # Knowledge of another law misleads, none does not.
    assert summary["swapped"]["id"][-1]["lost"] > summary["cleared"]["id"][-1]["lost"]
    # Before the last step a swap cannot go on.
    assert summary["swapped"]["id"][-1] == summary["swapped on"]["id"][-1]
    law = summary["law"]["id"]
    swapped, sham = (
        np.mean([row["lost"] for row in summary[kind]["id"]]) for kind in ("swapped on", "sham")
    )
    assert law["lost"] == pytest.approx(swapped - sham)
    assert law["interval"][0] > 0
    by_stratum = [group["law"]["id"] for group in summary["by_stratum"].values()]
    assert sum(row["rules"] for row in by_stratum) == len(EXAM.rows("id"))


def test_a_rule_and_its_mirror_image_count_once():
    by_rule = np.zeros(len(EXAM.rules))
    by_rule[[EXAM.rules.tolist().index(rule) for rule in (110, 124)]] = 1.0
    lost = {kind: np.tile(by_rule * (kind == "swapped on"), (2, 1)) for kind in lesion.KINDS}
    assert 110 in EXAM.rules[EXAM.rows("id")]
    assert 124 in EXAM.rules[EXAM.rows("id")]
    summary = lesion.summarise([lesion.Losses((2, 3), lost)], EXAM)
    twins = {EXAM.task.universe.twins(int(rule)) for rule in EXAM.rules[EXAM.rows("id")]}
    assert summary["law"]["id"]["lost"] == pytest.approx(1 / len(twins))


def turned(xp, length):
    """Plays by a rotation that it draws at the first step, and flips the first one from there."""

    def act(memory, obs, stream):
        drawn = xp.floor(length * seeding.uniform(stream, 1)[:, 0]).astype(xp.int32)
        turn = xp.where(memory < 0, drawn, memory)
        cells = (xp.arange(length) + turn[:, None]) % length
        first = xp.take_along_axis(obs[:, :length], cells, 1).argmax(axis=1)
        return turn, cells[xp.arange(len(obs)), first]

    return lambda rule, num: xp.full(num, -1, xp.int32), act


def clock(xp, length):
    """Counts the steps, and flips by what it has counted and the tape."""

    def act(memory, obs, stream):
        ones = obs[:, :length].sum(axis=1).astype(xp.int32)
        return memory + 1, (3 * memory + ones) % length

    return lambda rule, num: xp.zeros(num, xp.int32), act


def marked(xp, length):
    """Draws nothing: keeps a mark of the second tape, and flips the first one from there."""

    def act(memory, obs, stream):
        is_second = xp.rint(obs[:, length] * 6) == 1
        tape = (obs[:, :length] * 2 ** xp.arange(length)).sum(axis=1).astype(xp.int32)
        mark = xp.where(is_second, (tape * 31 + tape // 5) % length, memory)
        cells = (xp.arange(length) + mark[:, None]) % length
        first = xp.take_along_axis(obs[:, :length], cells, 1).argmax(axis=1)
        return mark, cells[xp.arange(len(obs)), first]

    return lambda rule, num: xp.zeros(num, xp.int32), act


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("make", [turned, clock, marked])
def test_a_memory_that_knows_nothing_of_the_law_is_not_taken_for_one_that_does(make, backend):
    exam = make_exam(length=6, horizon=6, episodes=20)
    init, act = make(np if backend == "numpy" else jnp, 6)
    losses = lesion.lesions(blind(Policy(make.__name__, init, act, backend=backend)), exam)
    law = lesion.summarise([losses], exam)["law"]["id"]
    assert abs(law["lost"]) < 0.01
    assert law["interval"][0] <= 0 <= law["interval"][1]
    if make is clock:  # all clocks show the same
        assert not losses.lost["swapped on"].any()
        assert losses.lost["cleared"].any()


def test_the_memory_comes_from_another_rule_of_the_same_side():
    donor = lesion._donor_rules(EXAM)
    assert (donor != np.arange(len(EXAM.rules))).all()
    assert sorted(donor) == list(range(len(EXAM.rules)))
    np.testing.assert_array_equal(EXAM.subsets[donor], EXAM.subsets)


def watch(exam, steps):
    """A policy whose memories are names of rows, what it acts on, and the lesions of it."""
    acted_on = []

    def act(memory, obs, stream):
        acted_on.append(memory)
        return memory, np.zeros(len(obs), int)

    def init(rule, num):
        names = np.arange(num)
        return {"own": names, "shared": np.arange(3), "layers": [np.tile(names, (2, 1))]}, None

    policy = blind(Policy("watched", init, act, backend="numpy"))
    axes = lesion.batch_axes(policy)
    assert axes == (0, None, 1)
    surgery = lesion._Surgery(exam, steps)
    return acted_on, surgery, surgery.lesioned(policy, exam.episodes, axes)


def test_a_swap_exchanges_what_is_an_episodes_own_for_that_of_an_undisturbed_donor():
    exam = make_exam(length=6, horizon=4, episodes=3, rules=[30, 110, 204, 90])
    acted_on, surgery, wounded = watch(exam, (2, 3))
    num = 4 * 3
    total = surgery.groups * num
    memory = wounded.init(None, total)
    for time in range(4):
        memory, _ = wounded.act(memory, np.full((total, 7), time / 4, np.float32), None)
    own = np.arange(num)

    def donors(rules, tapes):
        return num + (np.asarray(rules)[:, None] * 3 + tapes).ravel()

    other = lesion._donor_rules(exam)
    stranger, same, near = (
        donors(rules, tapes)
        for rules, tapes in ((other, [1, 2, 0]), (range(4), [1, 2, 0]), (other, [0, 1, 2]))
    )
    for time, (memory, _) in enumerate(acted_on):
        np.testing.assert_array_equal(memory["layers"][0], np.tile(memory["own"], (2, 1)))
        np.testing.assert_array_equal(memory["shared"], np.arange(3))
        groups = memory["own"].reshape(surgery.groups, num)
        np.testing.assert_array_equal(groups[:2].ravel(), np.arange(2 * num))  # undisturbed
        for place, (kind, step) in enumerate(product(lesion.KINDS, (2, 3)), 2):
            before = place * num + own
            after = {"swapped on": stranger, "swapped": stranger, "sham": same, "same tape": near}
            after["cleared"] = before
            np.testing.assert_array_equal(groups[place], after[kind] if time >= step else before)


def test_a_donor_whose_episode_is_over_gives_nothing():
    exam = make_exam(length=6, horizon=4, episodes=2, rules=[30, 110, 204, 90])
    acted_on, surgery, wounded = watch(exam, (2,))
    num = 4 * 2
    total = surgery.groups * num
    memory = wounded.init(None, total)
    for time in range(3):
        obs = np.full((total, 7), time / 4, np.float32)
        obs[num : num + 2, 6] = min(time, 1) / 4  # both donors of the first rule ended at once
        memory, _ = wounded.act(memory, obs, None)
    swapped = acted_on[2][0]["own"].reshape(surgery.groups, num)[2]
    is_kept = swapped == 2 * num + np.arange(num)
    given_by_first = np.repeat(lesion._donor_rules(exam) == 0, 2)
    np.testing.assert_array_equal(is_kept, given_by_first)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (lambda rule, num: None, "it has no memory"),
        (lambda rule, num: np.zeros((num, num)), "not laid out by episode"),
        (lambda rule, num: np.zeros(2 * num), "not laid out by episode"),
        (lambda rule, num: np.zeros(3), "it has no memory"),
        (lambda rule, num: object(), "its own affair"),
    ],
)
def test_memories_that_cannot_be_exchanged_are_refused_and_never_in_part(init, message):
    with pytest.raises(lesion.NoLesionError, match=message):
        lesion.batch_axes(blind(Policy("odd", init, first_one, backend="numpy")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rppo", "pearl", "dreamer", "automata", "dpt"])
def test_memories_of_our_agents_can_be_exchanged(name):
    exam = make_exam(length=6, horizon=3, episodes=2, rules=[30, 110, 204, 90])
    env, params = envs.make(length=6, horizon=3)
    agent = agents.make(name, env, params)
    learned = agent.policy(agent.init(jax.random.key(0)))
    lost = lesion.lesions(learned, exam, steps=[2]).lost
    assert all(part.shape == (1, 4) and np.isfinite(part).all() for part in lost.values())


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (policy.make("flip-ones", EXAM.task), "it has no memory"),
        (policy.make("greedy", EXAM.task), "told the rule"),
        (in_process(FlipFirst(), "guest", EXAM.task), "cannot be exchanged from outside"),
    ],
)
def test_who_cannot_be_lesioned_says_why(chosen, message):
    with pytest.raises(lesion.NoLesionError, match=message):
        lesion.lesions(chosen, EXAM)


def test_exams_that_lesions_make_no_sense_in_are_refused():
    chosen = policy.make("bayes-optimal", EXAM.task)
    for options, message in (
        ({"trials": 2}, "single trial"),
        ({"horizon": 2}, "within 2 steps no memory"),
        ({"episodes": 1}, "another start tape"),
    ):
        exam = make_exam(**{"length": 6, "horizon": 3, "episodes": 2} | options)
        with pytest.raises(lesion.NoLesionError, match=message):
            lesion.lesions(chosen, exam)


def test_long_episodes_are_lesioned_at_some_steps_only():
    assert lesion.default_steps(4) == (2, 3)
    assert lesion.default_steps(32) == (2, 4, 8, 16)
    assert lesion.check_steps([3, 2], EXAM) == (2, 3)
    for steps in ([], [1], [4]):
        with pytest.raises(ValueError, match="after 2 to 3 steps"):
            lesion.check_steps(steps, EXAM)


@pytest.mark.slow
def test_the_evaluator_reports_lesions_or_why_there_are_none():
    few = make_exam(length=6, horizon=4, episodes=2, rules=[30, 110, 204, 90])
    reported = evaluate.evaluate("bayes-optimal", exam=few, lesions=True, seeds=2).score["lesions"]
    assert len(reported["swapped"]["id"]) == 2
    guest = evaluate.evaluate(FlipFirst(), exam=few, lesions=True).score["lesions"]
    assert "cannot be exchanged from outside" in guest
    assert "lesions" not in evaluate.evaluate("flip-ones", exam=few).score
