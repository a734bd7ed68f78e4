import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapebench import agents
from tapebench import env as envs
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
    found = lesion.lesions(forgetful(backend), EXAM)
    assert found.steps == (1, 2)
    for kind in lesion.KINDS:
        assert found.lost[kind].shape == (2, len(EXAM.rules))
        assert not found.lost[kind].any()


def test_who_acts_on_the_law_loses_by_every_lesion():
    chosen = policy.make("bayes-optimal", EXAM.task)
    found = lesion.summarise([lesion.lesions(chosen, EXAM)], EXAM)
    for kind in lesion.KINDS:
        for place, row in enumerate(found[kind]["id"], 1):
            assert row["step"] == place
            assert row["lost"] > 0
            assert row["interval"][0] < row["lost"] < row["interval"][1]
    # Knowledge of another law misleads, none does not.
    assert found["swapped"]["id"][-1]["lost"] > found["cleared"]["id"][-1]["lost"]
    # Before the last step a swap cannot go on.
    assert found["swapped"]["id"][-1] == found["swapped on"]["id"][-1]
    assert found["swapped"]["id"][0]["lost"] < found["swapped on"]["id"][0]["lost"]
    law = found["law"]["id"]
    assert law["lost"] == pytest.approx(np.mean([row["lost"] for row in found["swapped on"]["id"]]))
    assert law["interval"][0] > 0
    by_stratum = [group["law"]["id"] for group in found["by_stratum"].values()]
    assert sum(row["rules"] for row in by_stratum) == len(EXAM.rows("id"))
    mean = sum(row["rules"] * row["lost"] for row in by_stratum) / law["rules"]
    assert mean == pytest.approx(law["lost"])


def test_the_memory_comes_from_the_same_tape_under_another_rule_of_the_same_side():
    donor = lesion._donors(EXAM).reshape(len(EXAM.rules), EXAM.episodes)
    np.testing.assert_array_equal(donor % EXAM.episodes, np.arange(EXAM.episodes)[None] + 0 * donor)
    giver = donor[:, 0] // EXAM.episodes
    assert (giver != np.arange(len(EXAM.rules))).all()
    assert sorted(giver) == list(range(len(EXAM.rules)))
    np.testing.assert_array_equal(EXAM.subsets[giver], EXAM.subsets)


def test_a_swap_exchanges_what_is_an_episodes_own_and_nothing_else():
    seen = []

    def act(memory, obs, stream):
        seen.append(memory)
        return memory, np.zeros(len(obs), int)

    def init(rule, num):
        return (np.arange(num), np.arange(3)), np.arange(num)[:, None]

    watched = blind(Policy("watched", init, act, backend="numpy"))
    is_own = lesion.own_parts(watched)
    assert is_own == [True, False, True]
    num = len(EXAM.rules) * EXAM.episodes
    obs = np.zeros((num, 7), np.float32)
    for kind in ("swapped", "swapped on"):
        wounded = lesion.lesioned(watched, EXAM, 1, kind, is_own)
        for time in (0, 1 / 3, 2 / 3):
            obs[:, 6] = time
            wounded.act(wounded.init(None, num), obs, None)
    donor = lesion._donors(EXAM)
    for at, ((own, shared), column) in enumerate(seen):
        expected = donor if at in (1, 4, 5) else np.arange(num)
        np.testing.assert_array_equal(own, expected)
        np.testing.assert_array_equal(column[:, 0], expected)
        np.testing.assert_array_equal(shared, np.arange(3))


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
    found = evaluate.evaluate("bayes-optimal", exam=few, lesions=True, seeds=2).score["lesions"]
    assert len(found["swapped"]["id"]) == 2
    guest = evaluate.evaluate(FlipFirst(), exam=few, lesions=True).score["lesions"]
    assert "cannot be exchanged from outside" in guest
    assert "lesions" not in evaluate.evaluate("flip-ones", exam=few).score
