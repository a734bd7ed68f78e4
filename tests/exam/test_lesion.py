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

EXAM = make_exam(length=6, horizon=3, episodes=6)


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
    assert losses.steps == (1, 2)
    for kind in lesion.KINDS:
        assert losses.lost[kind].shape == (2, len(EXAM.rules))
        assert not losses.lost[kind].any()


def test_who_acts_on_the_law_loses_by_every_lesion():
    ideal = policy.make("bayes-optimal", EXAM.task)
    summary = lesion.summarise([lesion.lesions(ideal, EXAM)], EXAM)
    for kind in lesion.KINDS:
        for place, row in enumerate(summary[kind]["id"], 1):
            assert row["step"] == place
            assert row["lost"] > 0
            assert row["interval"][0] < row["lost"] < row["interval"][1]
    # Knowledge of another law misleads, none does not.
    assert summary["swapped"]["id"][-1]["lost"] > summary["cleared"]["id"][-1]["lost"]
    # Before the last step a swap cannot go on.
    assert summary["swapped"]["id"][-1] == summary["swapped on"]["id"][-1]
    assert summary["swapped"]["id"][0]["lost"] < summary["swapped on"]["id"][0]["lost"]
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
    summary = lesion.summarise([lesion.Losses((1, 2), lost)], EXAM)
    twins = {EXAM.task.universe.twins(int(rule)) for rule in EXAM.rules[EXAM.rows("id")]}
    assert summary["law"]["id"]["lost"] == pytest.approx(1 / len(twins))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_draw_of_its_own_that_is_kept_in_memory_is_no_knowledge_of_the_law(backend):
    """It plays by a rotation that it draws at the first step, and loses by every exchange."""
    xp = np if backend == "numpy" else jnp
    exam = make_exam(length=6, horizon=4, episodes=16)

    def init(rule, num):
        return xp.full(num, -1, xp.int32)

    def act(memory, obs, stream):
        drawn = xp.floor(6 * seeding.uniform(stream, 1)[:, 0]).astype(xp.int32)
        turn = xp.where(memory < 0, drawn, memory)
        at = (xp.arange(6) + turn[:, None]) % 6
        return turn, at[xp.arange(len(obs)), xp.take_along_axis(obs[:, :6], at, 1).argmax(axis=1)]

    summary = lesion.summarise(
        [lesion.lesions(blind(Policy("turned", init, act, backend=backend)), exam)], exam
    )
    law = summary["law"]["id"]
    assert law["interval"][0] < 0 < law["interval"][1]
    assert abs(law["lost"]) < 0.01


def test_an_agent_that_draws_nothing_loses_nothing_by_a_sham():
    def act(memory, obs, stream):
        return memory + obs[:, :6].sum(axis=1), (memory % 6).astype(int)

    counter = blind(Policy("counter", lambda rule, num: np.zeros(num), act, backend="numpy"))
    lost = lesion.lesions(counter, EXAM).lost
    assert not lost["sham"].any()
    assert lost["swapped on"].any()


def test_the_memory_comes_from_another_rule_of_the_same_side():
    donor = lesion._donor_rules(EXAM)
    assert (donor != np.arange(len(EXAM.rules))).all()
    assert sorted(donor) == list(range(len(EXAM.rules)))
    np.testing.assert_array_equal(EXAM.subsets[donor], EXAM.subsets)


def test_a_swap_exchanges_what_is_an_episodes_own_for_that_of_an_undisturbed_donor():
    """Memories are names of rows, and what is acted on is watched."""
    exam = make_exam(length=6, horizon=3, episodes=2, rules=[30, 110, 204, 90])
    watched = []

    def act(memory, obs, stream):
        watched.append(memory)
        return memory, np.zeros(len(obs), int)

    def init(rule, num):
        return (np.arange(num), np.arange(3)), np.arange(num)[:, None]

    policy = blind(Policy("watched", init, act, backend="numpy"))
    is_own = lesion.own_parts(policy)
    assert is_own == [True, False, True]
    surgery = lesion._Surgery(exam, (1, 2))
    wounded = surgery.lesioned(policy, 2, is_own)
    num = 4 * 2
    total = surgery.groups * num
    memory = wounded.init(None, total)
    for time in (0, 1, 2):
        obs = np.full((total, 7), time / 3, np.float32)
        memory, _ = wounded.act(memory, obs, None)
    own = np.arange(num)
    stranger = num + (lesion._donor_rules(exam)[:, None] * 2 + np.arange(2)).ravel()
    for time, ((names, shared), column) in enumerate(watched):
        np.testing.assert_array_equal(column[:, 0], names)
        np.testing.assert_array_equal(shared, np.arange(3))
        groups = names.reshape(surgery.groups, num)
        np.testing.assert_array_equal(groups[:2].ravel(), np.arange(2 * num))  # undisturbed
        for place, (kind, step) in enumerate(
            ((kind, step) for kind in lesion.KINDS for step in (1, 2)), 2
        ):
            before = place * num + own
            expected = {
                "swapped on": stranger,
                "swapped": stranger,
                "sham": num + own,
                "cleared": before,
            }[kind]
            np.testing.assert_array_equal(groups[place], expected if time >= step else before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rppo", "pearl", "dreamer", "automata"])
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
        ({"horizon": 1}, "single step"),
    ):
        exam = make_exam(**{"length": 6, "horizon": 3, "episodes": 2} | options)
        with pytest.raises(lesion.NoLesionError, match=message):
            lesion.lesions(chosen, exam)


def test_long_episodes_are_lesioned_at_some_steps_only():
    assert lesion.default_steps(4) == (1, 2, 3)
    assert lesion.default_steps(32) == (1, 2, 4, 8, 16)
    assert lesion.check_steps([2, 1], EXAM) == (1, 2)
    for steps in ([], [0], [3]):
        with pytest.raises(ValueError, match="after 1 to 2 steps"):
            lesion.check_steps(steps, EXAM)


@pytest.mark.slow
def test_the_evaluator_reports_lesions_or_why_there_are_none():
    few = make_exam(length=6, horizon=3, episodes=2, rules=[30, 110, 204, 90])
    reported = evaluate.evaluate("bayes-optimal", exam=few, lesions=True, seeds=2).score["lesions"]
    assert len(reported["swapped"]["id"]) == 2
    guest = evaluate.evaluate(FlipFirst(), exam=few, lesions=True).score["lesions"]
    assert "cannot be exchanged from outside" in guest
    assert "lesions" not in evaluate.evaluate("flip-ones", exam=few).score
