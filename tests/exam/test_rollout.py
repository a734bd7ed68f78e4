from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapebench import agents
from tapebench import env as envs
from tapebench.base import seeding
from tapebench.exam import policy, rollout, seating
from tapebench.physics import exact, space, starts
from tapebench.tasks.schedule import NEVER
from tapebench.tasks.task import make_task


def replay(episodes):
    """A NumPy policy that takes the very actions of these episodes."""
    cells = np.where(episodes.cells < 0, 0, episodes.cells).reshape(-1, episodes.task.horizon)
    order = seating.OWN.order(len(cells))
    return policy.Policy(
        "replay",
        lambda rule, num: 0,
        lambda t, obs, stream: (t + 1, cells[order, t]),
        backend="numpy",
        sees_rule=False,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": 0.05},
        {"goal": "random", "observe_goal": True, "noise": 0.01},
        {"length": 7, "horizon": 9, "reward": "potential"},
        {"length": 70, "horizon": 5, "mask": [1, 2], "goal": "01" * 35},
        {"length": 9, "horizon": 6, "switch": [1, 4], "noise": 0.02},
    ],
)
def test_identical_actions_give_identical_episodes_in_numpy_and_jax(options):
    task = make_task(rules=[0, 30, 90, 204, 110], **options)
    by_jax = rollout.rollout(policy.random(task), task)
    by_numpy = rollout.rollout(replay(by_jax), task)
    np.testing.assert_array_equal(by_jax.cells, by_numpy.cells)
    np.testing.assert_array_equal(by_jax.wrong, by_numpy.wrong)


def test_episodes_equal_the_gymnasium_environment_step_by_step():
    import gymnasium

    import tapebench  # noqa: F401

    task = make_task(length=10, horizon=8, rules=[4, 30, 204], reward="potential")
    episodes = rollout.rollout(policy.flip_ones(task), task, episodes=6)
    tapes = space.unpack(starts.exam_tapes(10, 6), 10)
    env = gymnasium.make("Tape-v1", task=task).unwrapped
    for r, rule in enumerate(episodes.rules):
        for e in range(6):
            _, info = env.reset(options={"rule": int(rule), "tape": tapes[e]})
            total, distances = 0.0, []
            for cell in episodes.cells[r, e, : episodes.steps[r, e]]:
                _, reward, terminated, truncated, info = env.step(cell)
                total += reward
                distances.append(float(info["distance"]))
            assert terminated
            assert not truncated
            assert info["success"] == episodes.success[r, e]
            assert episodes.returns[r, e] == pytest.approx(total, abs=1e-6)
            assert episodes.final_distance[r, e] == pytest.approx(distances[-1])
            assert episodes.auc_distance[r, e] == pytest.approx(sum(distances) / 8)


def test_metrics_by_hand():
    task = make_task(length=10, horizon=4, rules=204, success_bonus=2.0)
    episodes = rollout.Episodes(
        "hand",
        task,
        rules=np.array([204]),
        cells=np.array([[[0, 1, -1, -1], [0, 1, 2, 3]]], np.int16),
        wrong=np.array([[[2, 1, 0, 0, 0], [5, 4, 3, 2, 1]]], np.int16),
    )
    assert episodes.success.tolist() == [[True, False]]
    assert episodes.steps.tolist() == [[2, 4]]
    assert episodes.final_distance.tolist() == [[0.0, 0.1]]
    np.testing.assert_allclose(episodes.auc_distance, [[0.025, 0.25]])
    np.testing.assert_allclose(episodes.returns, [[1.9, -1.0]])
    assert episodes.soft_success(0.1).tolist() == [[True, True]]
    assert episodes.soft_success(1 / 16).tolist() == [[True, False]]


@pytest.mark.slow
def test_trivial_policies_reach_their_known_success_on_all_rules():
    task = make_task(rules="all")
    known = {"random": (0.058, 0.499), "flip-ones": (0.266, 0.410), "greedy": (0.268, None)}
    for name, (success, distance) in known.items():
        episodes = rollout.rollout(policy.make(name, task), task, episodes=200)
        assert abs(episodes.success.mean() - success) < 0.005, name
        if distance is not None:
            assert abs(episodes.final_distance.mean() - distance) < 0.004, name


def test_nobody_does_better_than_the_exact_ceiling_or_faster_than_optimal():
    task = make_task(length=12, horizon=12, rules="all")
    tapes = starts.exam_tapes(12, 20)[:, 0]
    episodes = rollout.rollout(policy.greedy(task), task)
    for r in range(0, 256, 5):
        optimal = exact.steps_to_goal(r, 12, 12)[tapes]
        reached = episodes.success[r]
        assert (episodes.steps[r][reached] >= optimal[reached]).all()


def test_every_rule_sits_the_same_exam_and_a_salt_makes_it_another():
    task = make_task(length=16, rules=[30, 90])
    standard = rollout.rollout(policy.random(task), task)
    np.testing.assert_array_equal(standard.wrong[0, :, 0], standard.wrong[1, :, 0])
    fresh = rollout.rollout(policy.random(task), task, salt="other")
    assert (standard.wrong[0, :, 0] != fresh.wrong[0, :, 0]).any()


def test_the_seed_decides_a_policys_own_draws():
    task = make_task(rules=[30])
    runs = [rollout.rollout(policy.random(task), task, seed=seed).cells for seed in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_a_blind_policy_is_not_given_the_rule():
    rules_seen = []

    def init(rule, num):
        rules_seen.append(rule)
        return ()

    task = make_task(length=8, horizon=2, rules=[30])
    seeing = policy.Policy("spy", init, policy.random(task).act)
    assert seeing.sees_rule
    rollout.rollout(seeing, task, episodes=2)
    assert np.asarray(rules_seen[-1]).tolist() == [30, 30]
    blinded = policy.blind(seeing)
    assert not blinded.sees_rule
    rollout.rollout(blinded, task, episodes=2)
    assert rules_seen[-1] is None
    assert not policy.random(task).sees_rule
    assert not policy.flip_ones(task).sees_rule
    assert policy.greedy(task).sees_rule


def test_the_program_is_compiled_once_for_all_rule_sets_of_a_size_and_all_parameters():
    traces = 0

    def act(memory, obs, stream):
        nonlocal traces
        traces += 1
        return memory, seeding.uniform(stream, 8).argmax(axis=-1)

    for parameters in (1.0, 2.0):
        for rules in ([1, 2, 3], [30, 90, 110]):
            task = make_task(length=8, horizon=3, rules=rules)
            rollout.rollout(policy.Policy("p", lambda rule, num, p=parameters: p, act), task)
    assert traces == 1


def test_a_traced_episode_ends_where_the_episode_did():
    task = make_task(length=12, horizon=20, rules=[204, 30], noise=0.02, mask=[0])
    episodes = rollout.rollout(policy.flip_ones(task), task, episodes=3)
    for r in range(2):
        tapes, cells = episodes.trace(r, 2)
        assert len(tapes) == len(cells) + 1
        wrong = episodes.wrong[r, 2, : len(tapes)]
        np.testing.assert_array_equal(tapes.sum(axis=-1), wrong)


@pytest.mark.slow
def test_greedy_plans_for_the_goal_it_is_given_or_shown():
    for options in ({"goal": "0110010"}, {"goal": "random", "observe_goal": True}):
        task = make_task(length=7, horizon=7, rules=[204], **options)
        assert rollout.rollout(policy.greedy(task), task).success.all()
    with pytest.raises(ValueError, match="observe_goal=True"):
        policy.greedy(make_task(goal="random"))


def test_actions_out_of_range_are_refused_whatever_the_backend():
    task = make_task(length=8, horizon=2, rules=[30])
    for action in (-1, 8):
        for backend, full in (("jax", jax.numpy.full), ("numpy", np.full)):
            bad = policy.Policy(
                "bad",
                lambda rule, num: (),
                lambda memory, obs, stream, f=full, a=action: (memory, f(len(obs), a)),
                backend,
            )
            with pytest.raises(ValueError, match=r"(cells are|choose from) 0 to 7"):
                rollout.rollout(bad, task)
    with pytest.raises(ValueError, match="unknown backend 'JAX'"):
        policy.Policy("bad", None, None, "JAX")
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        rollout.rollout(policy.random(task), task, episodes=0)


def test_unknown_policies_suggest_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'flip-ones'"):
        policy.make("flip_ones", make_task())
    with pytest.raises(ValueError, match="0 to 255"):
        rollout.rollout(policy.random(make_task()), make_task(), rules=[256])


def first_one(backend):
    """Deterministic and with a memory: flips the k-th one of the tape in its k-th trial."""
    import jax.numpy as jnp

    xp = jnp if backend == "jax" else np

    def act(begun, obs, stream):
        begun = begun + (obs[:, -1] == 0)
        rank = xp.cumsum(obs[:, :-1], axis=1) * obs[:, :-1]
        return begun, xp.abs(rank - begun[:, None]).argmin(axis=1)

    return policy.Policy("first-one", lambda rule, num: xp.zeros(num, int), act, backend=backend)


@pytest.mark.slow
def test_trials_keep_the_memory_and_go_on_where_an_episode_ends():
    task = make_task(length=9, horizon=7, rules=[0, 4, 30, 204, 232])
    by_jax = rollout.rollout(first_one("jax"), task, episodes=5, trials=3)
    by_numpy = rollout.rollout(first_one("numpy"), task, episodes=5, trials=3)
    np.testing.assert_array_equal(by_jax.cells, by_numpy.cells)
    np.testing.assert_array_equal(by_jax.wrong, by_numpy.wrong)
    assert by_jax.by_trial(by_jax.success).shape == (3, 5, 5)
    once = rollout.rollout(first_one("jax"), task, episodes=5)
    np.testing.assert_array_equal(by_jax.cells[:, :5], once.cells)
    for column in range(15):
        tapes, actions = by_jax.trace(3, column)
        trial = column // 5 + 1
        ones = np.flatnonzero(tapes[0])
        assert actions[0] == ones[min(trial, len(ones)) - 1]
        np.testing.assert_array_equal(tapes[0], space.unpack(starts.exam_tapes(9, 15), 9)[column])


def test_what_is_watched_belongs_to_steps_that_were_taken():
    task = make_task(length=9, horizon=7, rules=[0, 204])
    for backend in ("jax", "numpy"):
        episodes, seen, is_fresh = rollout.watch(
            first_one(backend), task, look_at_begun, episodes=5, trials=2
        )
        np.testing.assert_array_equal(
            is_fresh.sum(axis=1) - 1, episodes.by_trial(episodes.steps).sum(0).ravel()
        )
        assert seen["begun"].shape == is_fresh.shape == (10, 15)
        # Under rule 0 every episode takes one step: the second trial is seen from the second look.
        np.testing.assert_array_equal(seen["begun"][:5, :2], [[1, 2]] * 5)


def look_at_begun(memory, rule):
    return {"begun": memory}


@pytest.mark.slow
def test_a_part_of_the_rules_gives_the_same_episodes_as_all_of_them():
    task = make_task(length=9, horizon=7, rules=[0, 4, 30, 204, 232])
    for made in (first_one("jax"), policy.flip_ones(task)):
        whole = rollout.rollout(made, task, episodes=3)
        part = rollout.rollout(made, task, [4, 204], 3)
        np.testing.assert_array_equal(part.cells, whole.cells[[1, 3]])
        np.testing.assert_array_equal(part.wrong, whole.wrong[[1, 3]])


def count_up(name, start):
    """Flips the cell after the one that was flipped last, whoever did it; begins at `start`."""
    return policy.Policy(
        name,
        lambda rule, num: jnp.full(num, start - 1),
        _after_the_last,
        sees_rule=False,
        note=lambda memory, cell: cell,
    )


def _after_the_last(memory, obs, stream):
    cell = (memory + 1) % 8
    return cell, cell


def stay(cell):
    """Flips always the same cell."""
    return policy.Policy(
        f"stay-{cell}",
        lambda rule, num: jnp.full(num, cell),
        lambda memory, obs, stream: (memory, memory),
        sees_rule=False,
        note=lambda memory, cell: memory,
    )


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_a_guide_makes_the_first_flips_of_every_episode_and_the_policy_remembers_them(steps):
    task = make_task(length=8, horizon=8, rules=[204])
    led = policy.guided(count_up("up", 1), stay(5), steps, task)
    flips = rollout.rollout(led, task, episodes=10, trials=2).cells[0]
    own = [(1 if steps == 0 else 6) + n for n in range(8 - steps)]
    expected = np.array([5] * steps + own) % 8
    # In the second trial the policy goes on from the first; the guide begins anew.
    for cells in flips[:10]:
        assert (cells[cells >= 0] == expected[: (cells >= 0).sum()]).all()
    for cells in flips[10:]:
        taken = cells[cells >= 0]
        assert (taken[:steps] == 5).all()
        assert (np.diff(taken[steps:]) % 8 == 1).all()


def test_guided_policies_share_their_program_and_say_whether_one_sees_the_rule():
    task = make_task(length=8, horizon=8)
    own, guide = count_up("up", 1), policy.random(task)
    few, many = (policy.guided(own, guide, steps, task) for steps in (1, 4))
    assert few.act is not own.act
    assert policy.guided(own, guide, 2, task).act is few.act is many.act
    assert not few.sees_rule
    telling = replace(guide, sees_rule=True)
    assert policy.guided(own, telling, 1, task).sees_rule


def test_who_cannot_be_told_of_others_flips_is_not_guided():
    task = make_task(length=8, horizon=8)
    with pytest.raises(ValueError, match="greedy cannot be told of flips that are not its own"):
        policy.guided(policy.greedy(task), policy.random(task), 1, task)
    with pytest.raises(ValueError, match="from 0 to 8 flips, not 9"):
        policy.guided(policy.random(task), policy.random(task), 9, task)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pearl", "rppo"])
def test_agents_with_a_context_remember_the_flips_that_they_are_told_of(name):
    env, params = envs.make(length=8, horizon=8)
    agent = agents.make(name, env, params)
    learned = agent.policy(agent.init(jax.random.key(0)))
    before, after = jnp.zeros((4, 9)), jnp.zeros((4, 9)).at[:, 2].set(1).at[:, 8].set(1 / 8)
    memory, cell = learned.act(learned.init(None, 4), before, None)

    def next_memory(memory):
        return jax.tree.leaves(learned.act(memory, after, None)[0])

    own, noted, here, elsewhere = (
        next_memory(one)
        for one in (
            memory,
            learned.note(memory, cell),
            learned.note(memory, jnp.full_like(cell, 2)),
            learned.note(memory, jnp.full_like(cell, 6)),
        )
    )
    assert all(map(np.array_equal, own, noted))
    # The cell that is set afterwards was flipped, or another one was and it was set by the rule.
    assert not all(map(np.array_equal, here, elsewhere))


def test_episodes_whose_rule_switches_equal_the_gymnasium_environment():
    import gymnasium

    task = make_task(length=8, horizon=6, rules=[4, 30, 204, 90], switch=[2, 4])
    episodes = rollout.rollout(policy.random(task), task, episodes=5)
    start = rollout.exam_start(task, episodes.rules.astype(np.uint32), 5, "").trial(0)
    env = gymnasium.make("Tape-v1", task=task).unwrapped
    for row, (rule, later) in enumerate(zip(start.rule, start.later, strict=True)):
        r, e = divmod(row, 5)
        tape = space.unpack(start.tape[row], 8)
        obs, _ = env.reset(options={"rule": rule, "tape": tape, "switch_to": later})
        tapes = [obs[:8]]
        for cell in episodes.cells[r, e, : episodes.steps[r, e]]:
            tapes.append(env.step(cell)[0][:8])
        np.testing.assert_array_equal(episodes.trace(r, e)[0], tapes)
        assert int(tapes[-1].sum()) == episodes.wrong[r, e, -1]


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_what_is_watched_is_told_the_rule_that_acts_next(backend):
    task = make_task(length=8, horizon=5, rules=[30, 90, 110], switch=[2])
    player = policy.random(task)
    if backend == "numpy":
        player = replace(player, act=lambda m, obs, s: (m, obs[:, :8].argmax(1)), backend=backend)
    _, seen, is_fresh = rollout.watch(player, task, lambda _, rule: {"rule": rule})
    start = rollout.exam_start(task, np.array(task.rules, np.uint32), 20, "").trial(0)
    expected = np.where(np.arange(6) < 2, start.rule[:, None], start.later)
    np.testing.assert_array_equal(seen["rule"][is_fresh], expected[is_fresh])


@pytest.mark.parametrize("name", ["greedy", "mpc", "beam", "optimal"])
def test_who_is_told_one_rule_is_refused_where_it_switches(name):
    task = make_task(length=8, horizon=8, rules=[30, 110], switch=4)
    with pytest.raises(ValueError, match="is told one rule, and in this task the rule switches"):
        policy.make(name, task)
    plain = policy.make(name, replace(task, schedule=NEVER))
    with pytest.raises(ValueError, match="the rule switches"):
        rollout.rollout(plain, task)
