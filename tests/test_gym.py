import copy
import subprocess
import sys
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tapebench
from tapebench import env as envs
from tapebench.base import seeding
from tapebench.exam.exam import make_exam
from tapebench.physics import space
from tapebench.tasks import splits
from tapebench.tasks.task import describe, make_task

make = partial(gymnasium.make, "Tape-v1")
make_vec = partial(gymnasium.make_vec, "Tape-v1", vectorization_mode="vector_entry_point")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"length": 3, "horizon": 2},
        {"length": 100, "goal": "random", "observe_goal": True},
        {"noise": 0.1, "mask": [0, 1], "reward": "sparse", "reveal_rule": True},
        {"length": 5, "start_density": 0.1, "reward": "potential", "rules": "all"},
        {"render_mode": "ansi", "split": "matched30", "rules": "test"},
        {"switch": [2, 7], "reveal_rule": True},
        {"render_mode": "rgb_array", "rules": 30},
        {"family": "ring2", "length": 16, "rules": ["R2:2283010756", 30], "reveal_rule": True},
        {"family": "life", "shape": (5, 5), "rules": "B3/S23", "render_mode": "rgb_array"},
        {"family": "life", "shape": "6x7", "rules": ["23/3", "B36/S23"], "switch": 3},
        {"family": "life", "shape": [3, 4], "rules": 224, "render_mode": "ansi", "noise": 0.1},
        {"family": "ring2", "length": 16, "split": "ring2-H8-matched", "horizon": 8},
        {"family": "life", "shape": (5, 5), "split": "life-H6-matched-16", "rules": "test"},
    ],
)
def test_gymnasiums_own_checker_passes(options):
    check_env(make(**options).unwrapped)


@pytest.mark.slow
def test_importing_and_making_the_environment_imports_no_jax_and_takes_no_time():
    code = (
        "import sys, time; import gymnasium, numpy; t = time.perf_counter(); import tapebench;"
        "env = gymnasium.make('Tape-v1'); env.reset(seed=0); env.step(0);"
        "vec = gymnasium.make_vec('Tape-v1', num_envs=2, vectorization_mode='vector_entry_point');"
        "vec.reset(seed=0); vec.step(numpy.zeros(2, int));"
        "print(not {'jax', 'jaxtyping'}.isdisjoint(sys.modules), time.perf_counter() - t)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, seconds = out.stdout.split()
    assert imported == "False"
    assert float(seconds) < 1.0


@st.composite
def games(draw):
    """Options, rules, tapes, goals and actions of a few episodes played side by side."""
    family = draw(st.sampled_from(["elementary", "ring2", "life"]))
    if family == "life":
        shape = draw(st.integers(3, 9)), draw(st.integers(3, 9))
        length, rules = shape[0] * shape[1], [0, 224, 2**18 - 1, 174_320, 5]
        where = {"family": family, "shape": shape, "rules": rules}
    else:
        length = draw(st.integers(3 if family == "elementary" else 5, 70))
        rules = [0, 4, 8, 30, 90, 110, 204, 255]
        where = {"length": length, "rules": "all"}
    if family == "ring2":
        rules = [0, 2_283_010_756, 2**32 - 1, 3_000_000_001, 7]
        where |= {"family": family, "rules": rules}
    horizon = draw(st.integers(1, 12))
    options = {
        **where,
        "horizon": horizon,
        "reward": draw(st.sampled_from(["distance", "sparse", "potential"])),
        "success_bonus": draw(st.sampled_from([1.0, 0.0, 0.3])),
        "observe_goal": draw(st.booleans()),
        "mask": draw(st.sampled_from([None, [0, 2]])),
        "version": draw(st.sampled_from([0, 1])),
    }
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num = draw(st.integers(1, 4))
    rules = draw(st.lists(st.sampled_from(rules), min_size=num, max_size=num))
    tapes = rng.integers(0, 2, (num, length))
    goals = rng.integers(0, 2, (num, length)) * draw(st.integers(0, 1))
    tapes[(tapes == goals).all(axis=-1), 0] ^= 1
    return options, np.array(rules), tapes, goals, rng.integers(0, length, (horizon, num))


@pytest.mark.slow
@given(games())
@settings(max_examples=25)
def test_the_three_faces_play_identical_episodes(game):
    options, rules, tapes, goals, cells = game
    num = len(rules)
    vector = make_vec(num_envs=num, autoreset_mode="SameStep", **options)
    vec_obs, _ = vector.reset(options={"rule": rules, "tape": tapes, "goal": goals})
    env, params = envs.make(**options)
    state = envs.EnvState(
        tape=space.split(jnp.asarray(space.pack(tapes))),
        goal=space.split(jnp.asarray(space.pack(goals))),
        rule=jnp.asarray(rules, jnp.uint32),
        t=jnp.zeros(num, jnp.int32),
        stream=seeding.Stream(jnp.zeros(num, jnp.uint32), jnp.zeros(num, jnp.uint32)),
    )
    jax_step = jax.jit(jax.vmap(env.step_env, in_axes=(None, 0, 0, None)))
    np.testing.assert_array_equal(vec_obs, jax.vmap(env.observe, in_axes=(0, None))(state, params))
    singles = [make(**options).unwrapped for _ in range(num)]
    for index, single in enumerate(singles):
        obs, _ = single.reset(
            options={"rule": int(rules[index]), "tape": tapes[index], "goal": goals[index]}
        )
        np.testing.assert_array_equal(obs, vec_obs[index])
    running = np.ones(num, bool)
    for action in cells:
        jax_obs, state, jax_paid, jax_term, jax_trunc, jax_info = jax_step(
            None, state, jnp.asarray(action), params
        )
        vec_obs, vec_paid, vec_term, vec_trunc, vec_info = vector.step(action)
        assert vec_paid.dtype == np.float32
        for index in np.flatnonzero(running):
            obs, paid, term, trunc, info = singles[index].step(action[index])
            ended = term or trunc
            final = vec_info["final_obs"][index] if ended else vec_obs[index]
            final_info = vec_info["final_info"] if ended else vec_info
            np.testing.assert_array_equal(obs, final)
            np.testing.assert_array_equal(obs, jax_obs[index])
            assert np.float32(paid) == vec_paid[index] == jax_paid[index]
            assert (term, trunc) == (vec_term[index], vec_trunc[index])
            assert (term, trunc) == (jax_term[index], jax_trunc[index])
            assert info["distance"] == final_info["distance"][index] == jax_info["distance"][index]
            assert info["success"] == final_info["success"][index] == jax_info["success"][index]
        running &= ~(vec_term | vec_trunc)


def test_one_step_by_hand():
    env = make(length=8, horizon=4, rules=30)
    obs, info = env.reset(options={"tape": [1, 0, 0, 0, 0, 0, 0, 0]})
    assert obs.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0.0]
    assert info == {"distance": 1 / 8, "success": False, "is_success": False}
    obs, reward, terminated, truncated, info = env.step(4)
    # Cells 0 and 4 are one; rule 30 is left XOR (centre OR right).
    assert obs.tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 0.25]
    assert reward == -6 / 8
    assert not terminated
    assert not truncated


@pytest.mark.parametrize(("version", "at_horizon"), [(0, (False, True)), (1, (True, False))])
def test_success_terminates_and_so_does_the_horizon_since_version_1(version, at_horizon):
    env = make(length=8, horizon=2, rules=204, success_bonus=2.5, version=version)
    env.reset(options={"tape": "10000000"})
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated, info["success"]) == (2.5, True, False, True)
    env.reset(options={"tape": "11100000"})
    assert env.step(0)[2:4] == (False, False)
    *_, info = ended = env.step(0)
    assert ended[2:4] == at_horizon
    assert not info["success"]
    env.reset(options={"tape": "11000000"})
    env.step(0)
    assert env.step(1)[2:4] == (True, False)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_of_version_1_terminates_at_the_horizon_and_tells_success_apart(mode):
    env = make_vec(num_envs=2, autoreset_mode=mode, length=8, horizon=2, rules=204)
    env.reset(options={"tape": "11000000"})
    assert not env.step(np.array([0, 5]))[2].any()
    _, _, terminated, truncated, info = env.step(np.array([1, 5]))
    assert terminated.tolist() == [True, True]
    assert truncated.tolist() == [False, False]
    info = info.get("final_info", info)
    assert info["success"].tolist() == info["is_success"].tolist() == [True, False]
    assert info["_is_success"].all()


def test_the_first_version_goes_on_as_it_was_and_gymnasium_names_the_newer():
    with pytest.warns(DeprecationWarning, match="upgrading to version `v1`"):
        old = gymnasium.make("Tape-v0", length=8, reveal_rule=True)
    new = make(length=8, reveal_rule=True)
    np.testing.assert_array_equal(old.reset(seed=3)[0], new.reset(seed=3)[0])
    for _ in range(32):
        obs, paid, terminated, truncated, info = old.step(0)
        same_obs, same_paid, ended, _, same_info = new.step(0)
        np.testing.assert_array_equal(obs, same_obs)
        assert paid == same_paid
        assert [type(value) for value in info.values()] == [float, bool, int]
        assert info == {name: same_info[name] for name in ("distance", "success", "rule")}
        if ended:
            break
    assert (terminated, truncated) == (bool(info["success"]), not info["success"])
    with pytest.raises(ValueError, match="unknown version 2: use 0 or 1"):
        make(version=2)


def test_info_has_the_dtypes_of_the_vector_environment():
    """TorchRL asks each value for its dtype; Gymnasium makes arrays of them, not of objects."""
    single = make(reveal_rule=True).reset(seed=0)[1]
    vector = make_vec(num_envs=2, reveal_rule=True).reset(seed=0)[1]
    synced = gymnasium.make_vec("Tape-v1", 2, vectorization_mode="sync", reveal_rule=True)
    for info in (single, synced.reset(seed=0)[1]):
        dtypes = {name: value.dtype for name, value in info.items()}
        assert dtypes == {name: vector[name].dtype for name in dtypes}
    synced.close()


@pytest.mark.parametrize("vector", [False, True])
def test_seeds_fix_everything_and_differ_from_each_other(vector):
    def play(seed):
        env = make_vec(num_envs=3, noise=0.1) if vector else make(noise=0.1)
        seen = [env.reset(seed=seed)[0]]
        for t in range(70):
            action = np.full(3, t % 32) if vector else t % 32
            obs, _, terminated, truncated, _ = env.step(action)
            seen.append(obs)
            if not vector and (terminated or truncated):
                seen.append(env.reset()[0])
        return np.concatenate([np.ravel(obs) for obs in seen])

    np.testing.assert_array_equal(play(5), play(5))
    assert (play(5)[:33] != play(6)[:33]).any()


@pytest.mark.parametrize("density", [0.5, 0.2])
@pytest.mark.parametrize("vector", [False, True])
def test_starts_are_fair_over_all_tapes_but_the_goal(vector, density):
    options = {"length": 4, "goal": "0100", "start_density": density}
    if vector:
        seen = make_vec(num_envs=20_000, **options).reset(seed=0)[0]
    else:
        env = make(**options)
        seen = np.array([env.reset(seed=0 if i == 0 else None)[0] for i in range(20_000)])
    counts = np.bincount(space.pack(seen[:, :4])[:, 0], minlength=16)
    ones = np.array([tape.bit_count() for tape in range(16)])
    weight = density**ones * (1 - density) ** (4 - ones)
    others = np.arange(16) != 0b0010
    assert counts[0b0010] == 0
    share = weight[others] / weight[others].sum()
    assert stats.chisquare(counts[others], 20_000 * share).pvalue > 1e-3


@pytest.mark.parametrize("vector", [False, True])
def test_rules_are_drawn_uniformly_from_the_split(vector):
    if vector:
        env = make_vec(num_envs=30_000, rules="test", reveal_rule=True)
        drawn = env.reset(seed=1)[1]["rule"]
    else:
        env = make(rules="test", reveal_rule=True)
        drawn = [env.reset(seed=1 if i == 0 else None)[1]["rule"] for i in range(30_000)]
    counts = np.bincount(drawn, minlength=256)[list(splits.load("fps30").test)]
    assert counts.sum() == 30_000
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("vector", [False, True])
def test_rules_of_a_larger_family_are_drawn_from_its_split(vector):
    split = splits.load("life-H8-matched-16")
    options = {"family": "life", "shape": (5, 5), "split": split.name, "reveal_rule": True}
    if vector:
        rules = make_vec(num_envs=500, **options).reset(seed=0)[1]["rule"]
    else:
        env = make(**options)
        rules = [env.reset(seed=seed)[1]["rule"] for seed in range(200)]
    assert set(map(int, rules)) == set(split.train)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasiums_own_vectorisation_of_the_single_environment(mode):
    # In a process of its own: the asynchronous one forks, which JAX in this process forbids.
    code = f"""
import gymnasium, numpy as np, tapebench
if __name__ == "__main__":
    env = gymnasium.make_vec(
        "Tape-v1", num_envs=2, vectorization_mode="{mode}", length=8, horizon=3
    )
    obs = [env.reset(seed=0)[0]] + [env.step(np.array([0, 7]))[0] for _ in range(6)]
    env.close()
    print(np.array(obs).shape, (3 * np.array(obs)[:, 0, -1]).astype(int).tolist())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "(7, 2, 9) [0, 1, 2, 3, 0, 1, 2]"


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_autoreset_modes_are_those_of_gymnasiums_sync_vector_env(mode):
    options = {"length": 5, "horizon": 3, "rules": 0}
    ours = make_vec(num_envs=2, autoreset_mode=mode, **options)
    theirs = gymnasium.vector.SyncVectorEnv([partial(make, **options)] * 2, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] == mode
    start = {"tape": [1, 1, 0, 0, 0], "rule": 204}
    ours.reset(options=dict(start))
    theirs.reset(options=dict(start))
    # The first episode succeeds at its second step, the other runs into the horizon.
    for actions in ([0, 4], [1, 4], [2, 4]):
        mine = ours.step(np.array(actions))
        wanted = theirs.step(np.array(actions))
        ended = mine[2] | mine[3]
        np.testing.assert_array_equal(mine[2], wanted[2])
        np.testing.assert_array_equal(mine[3], wanted[3])
        assert set(mine[4]) == set(wanted[4])
        if mode is AutoresetMode.SAME_STEP and ended.any():
            np.testing.assert_array_equal(mine[4]["_final_obs"], wanted[4]["_final_obs"])
            for key in ("distance", "success", "_distance", "_success"):
                np.testing.assert_array_equal(
                    mine[4]["final_info"][key], wanted[4]["final_info"][key]
                )
            for a, b in zip(mine[4]["final_obs"], wanted[4]["final_obs"], strict=True):
                np.testing.assert_array_equal(a, b)
        if mode is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(ResetNeeded, match="reset_mask"):
                ours.step(np.array(actions))
            restart = {"reset_mask": ended, **start}
            a, b = ours.reset(options=dict(restart))[0], theirs.reset(options=dict(restart))[0]
            np.testing.assert_array_equal(a, b)
        elif mode is AutoresetMode.NEXT_STEP and not ended.any():
            np.testing.assert_array_equal(mine[1], np.float32(wanted[1]))


def test_next_step_mode_ignores_the_action_of_the_step_that_resets():
    env = make_vec(num_envs=1, length=5, horizon=1, rules=204)
    env.reset(options={"tape": "11000"})
    assert env.step(np.array([4]))[2]
    obs, reward, terminated, truncated, info = env.step(np.array([0]))
    assert obs[0, -1] == 0
    assert (reward[0], terminated[0], truncated[0]) == (0, False, False)
    assert info["distance"][0] == obs[0, :5].mean()


def test_a_goal_given_at_reset_holds_for_that_episode_only():
    env = make_vec(num_envs=1, length=5, horizon=1, rules=204, observe_goal=True)
    obs, _ = env.reset(options={"tape": "11000", "goal": "01000"})
    assert obs[0, 6:].tolist() == [0, 1, 0, 0, 0]
    assert env.step(np.array([0]))[2]
    assert not env.step(np.array([0]))[0][0, 6:].any()


def test_what_step_returned_is_not_changed_by_later_steps():
    env = make_vec(num_envs=4, length=8, horizon=2, autoreset_mode="SameStep")
    returned = [env.reset(seed=0)]
    copies = []
    for t in range(6):
        returned.append(env.step(np.full(4, t)))
        copies.append(repr(returned))
    returned.append(env.reset())
    for t, shown in enumerate(copies):
        assert repr(returned[: t + 2]) == shown


def test_a_copy_of_an_environment_goes_on_like_the_original():
    for env, action in (
        (make_vec(num_envs=3, length=8, noise=0.1), np.array([0, 3, 7])),
        (make(length=8, noise=0.1).unwrapped, 3),
    ):
        env.reset(seed=0)
        twin = copy.deepcopy(env)
        for _ in range(5):
            np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])


def test_a_refused_reset_leaves_the_episode_as_it_was():
    for vector in (False, True):
        env = make_vec(num_envs=1, length=8) if vector else make(length=8).unwrapped
        env.reset(seed=0, options={"rule": 204, "tape": "11000000"})
        with pytest.raises(ValueError, match="tape must have shape"):
            env.reset(options={"rule": 0, "goal": "1" * 8, "tape": "111"})
        obs, *_, info = env.step(np.zeros(1, int) if vector else 0)
        assert np.ravel(obs)[:8].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
        assert np.ravel(info["distance"])[0] == 1 / 8


@pytest.mark.parametrize(
    "options",
    [
        {"start_density": 0.0, "goal": "111"},
        {"start_density": 0.0, "goal": "random"},
        {"start_density": 1e-12},
    ],
)
def test_a_density_that_leaves_only_the_goal_still_starts_elsewhere(options):
    goal_option = {"goal": "zeros"} if options.get("goal") == "111" else {}
    for seed in range(20):
        _, info = make(length=3, **options).reset(seed=seed, options=dict(goal_option))
        assert info["distance"] > 0
    _, info = make_vec(num_envs=50, length=3, **options).reset(seed=0, options=dict(goal_option))
    assert (info["distance"] > 0).all()


@pytest.mark.parametrize("vector", [False, True])
def test_noise_flips_cells_at_its_rate(vector):
    env = make_vec(num_envs=2000, rules=204, noise=0.2) if vector else make(rules=204, noise=0.2)
    shares = []
    for number in range(1 if vector else 2000):
        before, _ = env.reset(seed=number)
        after = env.step(np.zeros(2000, int) if vector else 0)[0]
        shares.append((before[..., :32] != after[..., :32]).mean())
    # Under the identity the chosen cell differs, the rest is noise on top.
    assert abs(np.mean(shares) - (31 * 0.2 + 0.8) / 32) < 0.006


@pytest.mark.parametrize("vector", [False, True])
def test_random_goals_are_drawn_anew_for_every_episode(vector):
    options = {"length": 16, "goal": "random", "observe_goal": True}
    if vector:
        goals = make_vec(num_envs=200, **options).reset(seed=0)[0][:, 17:]
    else:
        env = make(**options)
        goals = np.array([env.reset(seed=seed)[0][17:] for seed in range(200)])
    assert len(np.unique(goals, axis=0)) > 190
    assert abs(goals.mean() - 0.5) < 0.05


def test_a_partial_reset_gives_each_environment_its_own_options_and_leaves_the_others():
    env = make_vec(
        num_envs=3, length=8, autoreset_mode="Disabled", reveal_rule=True, observe_goal=True
    )
    env.reset(seed=0, options={"rule": 204, "tape": "11111111"})
    env.step(np.array([0, 1, 2]))
    tapes, goals = np.eye(3, 8, dtype=int), np.eye(3, 8, k=4, dtype=int)
    mask = np.array([False, True, False])
    options = {"reset_mask": mask, "rule": [1, 2, 3], "tape": tapes, "goal": goals}
    obs, info = env.reset(options=options)
    assert info["rule"].tolist() == [204, 2, 204]
    assert obs[1, :8].tolist() == tapes[1].tolist()
    assert obs[1, 9:].tolist() == goals[1].tolist()
    assert obs[:, 8].tolist() == [1 / 32, 0, 1 / 32]
    assert obs[0, :8].tolist() == [0, 1, 1, 1, 1, 1, 1, 1]
    assert obs[2, :8].tolist() == [1, 1, 0, 1, 1, 1, 1, 1]


def test_what_info_holds_is_not_the_state_itself():
    env = make_vec(num_envs=2, length=8, reward="potential", rules=204)
    env.reset(seed=0)[1]["distance"][:] = 9
    assert (np.abs(env.step(np.zeros(2, int))[1]) <= 2).all()


def test_noise_of_a_given_stream_is_the_same_in_numpy_and_jax():
    num = 50
    rng = np.random.default_rng(0)
    stream = seeding.Stream(*rng.integers(0, 2**32, (2, num), dtype=np.uint32))
    tapes = rng.integers(0, 2, (num, 40))
    vector = make_vec(num_envs=num, length=40, noise=0.3, rules=30)
    vector.reset(options={"tape": tapes, "stream": stream})
    env, params = envs.make(length=40, noise=0.3, rules=30)
    state = envs.EnvState(
        tape=space.split(jnp.asarray(space.pack(tapes))),
        goal=space.split(jnp.zeros((num, 2), jnp.uint32)),
        rule=jnp.full(num, 30, jnp.uint32),
        t=jnp.zeros(num, jnp.int32),
        stream=seeding.Stream(*map(jnp.asarray, stream)),
    )
    for t in range(5):
        obs = vector.step(np.full(num, t))[0]
        jax_obs, state, *_ = jax.vmap(env.step_env, in_axes=(None, 0, None, None))(
            None, state, t, params
        )
        np.testing.assert_array_equal(obs, jax_obs)


def test_rendering_marks_the_flips():
    env = make(length=5, rules=204, render_mode="ansi")
    env.reset(options={"tape": "10100"})
    env.step(0)
    env.step(4)
    assert env.render() == "◙·█··\n··█·○\n··█·█\n"
    env = make(length=5, rules=204, render_mode="rgb_array")
    env.reset(options={"tape": "10100"})
    env.step(0)
    pixels = env.render()
    assert pixels.shape == (33 * 8, 40, 3)
    assert pixels[20, 0].tolist() == [224, 224, 224]
    assert pixels[4, 4].tolist() == [230, 159, 0]
    assert pixels[0, 0].tolist() == [26, 26, 26]
    assert pixels[8, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
@pytest.mark.parametrize(
    "where",
    [
        {"length": 5, "rules": 204},
        {"family": "life", "shape": (3, 4), "rules": "B/S012345678"},
    ],
)
def test_a_vector_renders_each_episode_as_a_single_environment_does(render_mode, where):
    options = {"horizon": 3, "render_mode": render_mode, **where}
    vector = make_vec(num_envs=2, autoreset_mode="SameStep", **options)
    size = vector.single_action_space.n
    obs, _ = vector.reset(options={"tape": np.ones(size, int)})
    singles = [make(**options) for _ in range(2)]
    for single, row in zip(singles, obs, strict=True):
        single.reset(options={"tape": row[:size]})
    for t in range(2):
        vector.step(np.array([t, 2 - t]))
        for single, cell in zip(singles, (t, 2 - t), strict=True):
            single.step(cell)
    for single, frame in zip(singles, vector.render(), strict=True):
        np.testing.assert_array_equal(frame, single.render())
    obs, _, ended, *_ = vector.step(np.array([0, 0]))
    assert ended.all()
    fresh = make(**options)
    fresh.reset(options={"tape": obs[1, :size]})
    np.testing.assert_array_equal(vector.render()[1], fresh.render())


def test_a_vector_without_a_render_mode_says_so():
    with pytest.warns(UserWarning, match="to render"):
        assert make_vec(num_envs=2).render() is None
    with pytest.raises(ResetNeeded):
        make_vec(num_envs=2, render_mode="ansi").render()


def test_a_torus_is_rendered_as_a_strip_of_boards():
    options = {"family": "life", "shape": (3, 4), "rules": "B/S012345678", "horizon": 6}
    env = make(render_mode="ansi", **options)
    env.reset(options={"tape": "100000000001"})
    env.step(0)
    env.step(6)
    assert env.render() == "◙···  ····  ····\n····  ··○·  ··█·\n···█  ···█  ···█\n"
    env = make(render_mode="rgb_array", **options)
    env.reset(options={"tape": "100000000001"})
    env.step(0)
    pixels = env.render()
    assert pixels.shape == ((3 * 4 - 1) * 8, (2 * 5 + 4) * 8, 3)  # seven boards in lines of three
    assert pixels[4, 4].tolist() == [230, 159, 0]
    assert pixels[0, 0].tolist() == [26, 26, 26]
    assert pixels[0, 8].tolist() == [255, 255, 255]
    assert pixels[0, 4 * 8].tolist() == [224, 224, 224]
    assert pixels[2 * 8, 8 * 8].tolist() == [26, 26, 26]
    assert pixels[4 * 8, 0].tolist() == [224, 224, 224]


@pytest.mark.parametrize("vector", [False, True])
def test_a_rule_given_at_reset_by_label_acts_even_if_it_is_none_of_the_tasks(vector):
    options = {"family": "life", "shape": (5, 5), "rules": ["B/S", "B36/S23"], "reveal_rule": True}
    blinker = np.zeros((5, 5), int)
    blinker[2, 1:4] = 1
    env = make_vec(num_envs=3, **options) if vector else make(**options)
    at_reset = {"rule": "B3/S23", "tape": blinker}
    if vector:
        at_reset["rule"] = ["B3/S23", "B36/S23", "B0/S"]
    _, info = env.reset(options=at_reset)
    assert np.ravel(info["rule"])[0] == 224
    obs = env.step([0] * 3 if vector else 0)[0]  # a cell that is far from the blinker's counts
    first = np.atleast_2d(obs)[0, :25]
    assert first[[7, 12, 17]].all()
    if vector:
        again = make(**options)
        boards = {"tape": np.stack([blinker] * 3), "goal": np.eye(5)}
        _, info = env.reset(options=at_reset | boards)
        assert info["distance"].tolist() == [np.float32(6 / 25)] * 3
        for row, rule in enumerate(at_reset["rule"]):
            again.reset(options={"rule": rule, "tape": blinker})
            np.testing.assert_array_equal(again.step(0)[0], obs[row])


@pytest.mark.parametrize("action", [-1, 32, 100])
def test_an_action_out_of_range_is_refused(action):
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="choose from 0 to 31"):
        env.step(action)
    vector = make_vec(num_envs=2)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match=f"action {action} is no cell: choose from 0 to 31"):
        vector.step(np.array([0, action]))


@pytest.mark.parametrize("action", [1.5, "3", None, [1, 2], np.array([1.0])])
def test_an_action_of_the_wrong_kind_is_refused(action):
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="one integer cell"):
        env.step(action)


def test_actions_of_the_wrong_shape_or_dtype_are_refused():
    vector = make_vec(num_envs=2)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2,\), not \(3,\)"):
        vector.step(np.zeros(3, int))
    with pytest.raises(ValueError, match="must be integers, not float64"):
        vector.step(np.zeros(2))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.int64, ">i8"])
def test_actions_of_every_integer_dtype_are_taken(kind):
    vector = make_vec(num_envs=2, rules=204, length=8)
    vector.reset(options={"tape": "11000000"})
    assert vector.step(np.array([0, 7], kind))[0][:, :8].tolist() == [
        [0, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 1],
    ]


def test_stepping_before_reset_and_after_the_end_is_refused():
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before step"):
        make().unwrapped.step(0)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before step"):
        make_vec(num_envs=2).step(np.zeros(2, int))
    env = make(horizon=1).unwrapped
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ResetNeeded, match="the episode has ended"):
        env.step(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tpae": [0]}, "unknown reset option 'tpae': did you mean 'tape'"),
        ({"rule": 256}, "integer from 0 to 255"),
        ({"tape": [0, 1]}, "tape must have shape"),
        ({"tape": [0] * 8}, "is the goal|is its goal"),
        ({"goal": [3] * 8}, "only 0 and 1"),
        ({"goal": "random!"}, "unknown goal"),
        ({"goal": "random"}, 'use "zeros" or 8 cells'),
    ],
)
@pytest.mark.parametrize("vector", [False, True])
def test_bad_reset_options_are_refused(vector, options, message):
    env = make_vec(num_envs=2, length=8) if vector else make(length=8)
    with pytest.raises(ValueError, match=message):
        env.reset(seed=0, options=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": [1, 2, 3]}, "one rule or 2 of them"),
        ({"stream": np.zeros((2, 2))}, "seeding.Stream"),
        ({"reset_mask": [True]}, "reset_mask must be 2 booleans"),
        ({"reset_mask": np.array([False, False])}, "at least one True"),
    ],
)
def test_bad_vector_reset_options_are_refused(options, message):
    env = make_vec(num_envs=2, length=8)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.reset(options=options)


def test_bad_constructor_arguments_are_refused():
    with pytest.raises(ValueError, match="num_envs must be a positive integer"):
        make_vec(num_envs=0)
    with pytest.raises(ValueError, match="unknown autoreset_mode"):
        make_vec(num_envs=2, autoreset_mode="Sometimes")
    with pytest.raises(ValueError, match="unknown render_mode"):
        tapebench.gym.TapeEnv(render_mode="human")
    with pytest.raises(ValueError, match="unknown render_mode"):
        tapebench.gym.TapeVectorEnv(2, render_mode="human")


SWITCHING = {"length": 9, "horizon": 7, "rules": [0, 30, 90, 110, 204], "switch": [2, 5]}


def test_the_three_faces_switch_rules_alike():
    """Drawn from the same stream in NumPy and JAX, given to the single environment."""
    num, rng = 12, np.random.default_rng(5)
    rules = rng.choice([30, 90, 110, 204], num)
    tapes = rng.integers(0, 2, (num, 9))
    tapes[:, 0] = 1
    stream = seeding.Stream(*rng.integers(0, 2**32, (2, num), dtype=np.uint32))
    options = {**SWITCHING, "reveal_rule": True, "noise": 0.0}
    vector = make_vec(num_envs=num, autoreset_mode="SameStep", **options)
    _, info = vector.reset(options={"rule": rules, "tape": tapes, "stream": stream})
    env, params = envs.make(**options)
    own = seeding.Stream(*map(jnp.asarray, stream))
    place = jnp.asarray([options["rules"].index(rule) for rule in rules], jnp.uint32)
    places = jax.jit(env.schedule.draw)(own, place, params.num_seen, params.num_rules)
    later = tuple(params.rules[number].astype(jnp.uint32) for number in places)
    state = envs.EnvState(
        tape=space.split(jnp.asarray(space.pack(tapes))),
        goal=space.split(jnp.zeros((num, 1), jnp.uint32)),
        rule=jnp.asarray(rules, jnp.uint32),
        t=jnp.zeros(num, jnp.int32),
        stream=own,
        later=later,
    )
    singles = [make(**options).unwrapped for _ in range(num)]
    for index, single in enumerate(singles):
        following = [int(part[index]) for part in later]
        single.reset(options={"rule": rules[index], "tape": tapes[index], "switch_to": following})
    jax_step = jax.jit(jax.vmap(env.step_env, in_axes=(None, 0, 0, None)))
    running, seen = np.ones(num, bool), [info["rule"]]
    for action in rng.integers(0, 9, (7, num)):
        jax_obs, state, *_, jax_info = jax_step(None, state, jnp.asarray(action), params)
        obs, _, terminated, truncated, info = vector.step(action)
        ended = terminated | truncated
        for index in np.flatnonzero(running):
            single_obs, _, *_, single_info = singles[index].step(action[index])
            whole = info["final_info"] if ended[index] else info
            np.testing.assert_array_equal(single_obs, jax_obs[index])
            shown = info["final_obs"][index] if ended[index] else obs[index]
            np.testing.assert_array_equal(single_obs, shown)
            assert single_info["rule"] == whole["rule"][index] == jax_info["rule"][index]
        running &= ~ended
        seen.append(np.asarray(jax_info["rule"]))
    changes = np.diff(np.stack(seen), axis=0) != 0
    assert changes[[1, 4]].all()
    assert not changes[[0, 2, 3, 5, 6]].any()


def test_a_switch_changes_the_law_of_the_next_update_and_not_before():
    env = make(length=6, horizon=4, rules=[0, 204], switch=2, reveal_rule=True).unwrapped
    _, info = env.reset(options={"rule": 204, "tape": "111111", "switch_to": [0]})
    assert info["rule"] == 204
    assert env.step(0)[0][:6].tolist() == [0, 1, 1, 1, 1, 1]
    obs, *_, info = env.step(1)
    assert obs[:6].tolist() == [0, 0, 1, 1, 1, 1]
    assert info["rule"] == 0, "what is revealed acts on the next flip"
    assert env.step(2)[2], "rule 0 makes zeros of everything"


@pytest.mark.parametrize("vector", [False, True])
def test_rules_that_follow_are_drawn_from_the_others_and_fixed_by_the_seed(vector):
    def play(seed):
        env = make_vec(num_envs=1, **SWITCHING) if vector else make(**SWITCHING).unwrapped
        later = []
        for episode in range(40):
            env.reset(seed=seed if episode == 0 else None)
            later.append(
                (int(env._rule[0]), *env._later[0].tolist())
                if vector
                else (env._rule, *env._coming.values())
            )
        return later

    sequences = play(3)
    assert sequences == play(3)
    assert sequences != play(4)
    assert all(a != b != c for a, b, c in sequences)
    assert {rule for rules in sequences for rule in rules} == {0, 30, 90, 110, 204}


def test_a_schedule_moves_no_other_draw():
    for faces in (make, make_vec):
        first = [
            faces(**{**SWITCHING, "switch": switch}).reset(seed=7)[0] for switch in (None, [2, 5])
        ]
        np.testing.assert_array_equal(*first)


def test_rules_to_switch_to_are_checked():
    plain, switching = make(length=8).unwrapped, make(**SWITCHING).unwrapped
    several = make_vec(num_envs=3, **SWITCHING)
    for env, options, message in (
        (plain, {"switch_to": [30]}, "set switch"),
        (switching, {"switch_to": [30]}, "2 of the rules"),
        (switching, {"switch_to": [30, 300]}, "0 to 255"),
        (switching, {"rule": 45}, "rule 45 is not one of the task's"),
        (several, {"switch_to": [[30, 90]] * 2}, "2 of the rules"),
        (several, {"rule": 45}, "rule 45 is not one of the task's"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(options=options)
    switching.reset(options={"rule": 45, "switch_to": [30, 30]})


def test_the_spec_says_the_horizon_and_what_is_made_of_it_has_no_time_limit():
    env = make(length=8, horizon=5, rules=204)
    assert env.spec.max_episode_steps == env.unwrapped.spec.max_episode_steps == 5
    timed = gymnasium.wrappers.TimeAwareObservation(env, normalize_time=True)
    obs, _ = timed.reset(options={"tape": "11111111"})
    for _ in range(5):
        obs, _, terminated, truncated, _ = timed.step(0)
    assert obs[-2:].tolist() == [1.0, 1.0]
    assert (terminated, truncated) == (True, False)
    for again in (
        env.spec.make(),
        gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())),
    ):
        assert again.spec.max_episode_steps == 5
        again.reset(options={"tape": "11111111"})
        flags = [again.step(0)[2:4] for _ in range(5)]
        assert flags == [(False, False)] * 4 + [(True, False)]
    shorter = make(horizon=5, max_episode_steps=2)
    recovered = gymnasium.make(shorter.spec.from_json(shorter.spec.to_json()))
    assert shorter.spec.max_episode_steps == recovered.spec.max_episode_steps == 2


@pytest.mark.parametrize(
    "options",
    [
        {"task": make_task(length=8, horizon=3, mask=[1], noise=0.1, goal="10000000")},
        {"task": make_exam(length=6, horizon=4, switch=[1, 3]).task},
        {"task": make_task(family="life", shape=(5, 5), split="life-H8-matched-16")},
        {"task": make_task(family="ring2", length=9, rules=[7, 30], goal="random")},
        {"mask": np.array([0, 3]), "rules": np.array([4, 30]), "length": np.int64(9)},
    ],
)
def test_a_spec_survives_json_whatever_it_was_made_with(options):
    from_json = gymnasium.envs.registration.EnvSpec.from_json
    env = make(**options)
    text = env.spec.to_json()
    again = gymnasium.make(from_json(text))
    assert again.unwrapped.task == env.unwrapped.task
    assert again.unwrapped.version == 1
    assert again.spec.to_json() == text
    vector = make_vec(num_envs=3, autoreset_mode=AutoresetMode.SAME_STEP, **options)
    again = gymnasium.make_vec(from_json(vector.spec.to_json()))
    assert again.task == vector.task
    assert again.num_envs == 3
    assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seen": [0, 255]}, "seen must be|calls seen"),
        ({"universe": "life-H8"}, "not all of the universe life-H8"),
        ({"horizon": -1}, "horizon must be"),
    ],
)
def test_a_description_of_a_task_is_validated(change, message):
    description = describe(make_task(length=8, rules=[4, 30])) | change
    with pytest.raises(ValueError, match=message):
        make(task=description)
