from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype.roar import BeartypeDoorHintViolation
from scipy import stats

import shape_checks
from tapebench import env as envs
from tapebench.exam.exam import make_exam
from tapebench.physics import space
from tapebench.physics.families import LIFE
from tapebench.tasks import splits
from tapebench.tasks.schedule import Schedule
from tapebench.tasks.task import make_task
from tapebench.tasks.universe import ELEMENTARY


def run(env, params, steps, num, seed=0, step=None):
    """Random play of `num` environments; everything `step` gives, stacked over time."""
    keys = jax.random.split(jax.random.key(seed), num)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    cells = jax.random.randint(jax.random.key(seed + 1), (steps, num), 0, env.length)
    stepped = jax.vmap(step or env.step, in_axes=(None, 0, 0, None))

    def body(state, cell):
        out = stepped(None, state, cell, params)
        return out[1], (state, *out)

    return jax.lax.scan(body, state, cells)[1]


def test_the_readme_shape_of_gymnax_1():
    env, params = envs.make(length=8, horizon=4)
    key = jax.random.key(0)
    obs, state = env.reset(key, params)
    assert obs.shape == (9,)
    assert obs.dtype == jnp.float32
    result = env.step(jax.random.key(1), state, 3, params)
    obs, state, reward, terminated, truncated, info = result
    assert obs.shape == (9,)
    assert reward.dtype == jnp.float32
    assert terminated.dtype == truncated.dtype == bool
    assert info["final_observation"].shape == (9,)
    assert env.observation_space(params).contains(np.asarray(obs))
    assert env.action_space(params).n == env.num_actions == 8


def test_the_older_five_tuple_says_done():
    env, params = envs.make(length=8, horizon=3, rules=30)
    _, state = env.reset(jax.random.key(0), params)
    for t in range(3):
        _, state, _, done, info = env.step5(jax.random.key(1), state, t, params)
    assert bool(done) == bool(info["terminated"] | info["truncated"])


def test_without_auto_reset_the_state_stays_at_the_end():
    env, params = envs.make(length=8, horizon=1, rules=30)
    _, state = env.reset(jax.random.key(0), params)
    obs, ended, _, terminated, truncated, _ = env.step_env(None, state, 0, params)
    assert terminated | truncated
    assert ended.t == 1
    assert obs[-1] == 1.0
    obs, fresh, *_, info = env.step(None, state, 0, params)
    assert fresh.t == 0
    np.testing.assert_array_equal(info["final_observation"][:-1], space.unpack(ended.tape, 8))


@pytest.mark.slow
def test_auto_reset_starts_a_fresh_episode_exactly_where_one_ended():
    env, params = envs.make(length=6, horizon=5, rules="all")
    state, obs, after, _, terminated, truncated, info = run(env, params, 60, 200)
    ended = np.asarray(terminated | truncated)
    assert terminated.any()
    assert truncated.any()
    assert not (terminated & truncated).any()
    np.testing.assert_array_equal(after.t, np.where(ended, 0, state.t + 1))
    np.testing.assert_array_equal(after.stream.identity, state.stream.identity)
    np.testing.assert_array_equal(after.stream.counter, state.stream.counter + ended)
    final = np.asarray(info["final_observation"])
    np.testing.assert_array_equal(final[~ended], np.asarray(obs)[~ended])
    np.testing.assert_array_equal((final[..., :-1] == 0).all(-1), terminated)
    assert (np.asarray(after.tape) != 0).all()


@pytest.mark.slow
def test_an_episode_is_fixed_by_its_reset_key_and_actions():
    env, params = envs.make(length=9, noise=0.1)
    first = run(env, params, 50, 20)
    again = run(env, params, 50, 20)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    other = run(env, params, 50, 20, seed=7)
    assert (first[1] != other[1]).any()


def test_nothing_that_is_data_causes_a_new_compilation():
    env, params = envs.make(length=8)
    traces = 0

    @jax.jit
    def play(params):
        nonlocal traces
        traces += 1
        _, state = env.reset(jax.random.key(0), params)
        return env.step(None, state, 0, params)[0]

    table, count = envs.rule_table((1, 2, 3), ELEMENTARY)
    for changed in (
        params,
        envs.make(length=8, rules="test")[1],
        envs.make(length=8, rules=30, horizon=7, goal="10000000", noise=0.2)[1],
        replace(params, rules=table, num_rules=count),
        replace(params, success_bonus=jnp.float32(3), start_density=jnp.float32(0.2)),
        replace(params, hidden=jnp.array([3], jnp.uint32)),
    ):
        play(changed)
    assert traces == 1


@pytest.mark.slow
def test_parameters_can_be_vmapped_over():
    env, params = envs.make(length=8, rules=204)
    densities = jnp.array([0.1, 0.5, 0.9])
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), params)
    many = replace(many, start_density=densities)
    keys = jax.random.split(jax.random.key(0), 2000)
    draw = jax.vmap(jax.vmap(env.reset, in_axes=(0, None)), in_axes=(None, 0))
    obs, _ = draw(keys, many)
    np.testing.assert_allclose(obs[..., :8].mean(axis=(1, 2)), [0.176, 0.5, 0.9], atol=0.02)


@pytest.mark.slow
def test_rules_are_drawn_uniformly_from_the_set_and_from_nothing_else():
    env, params = envs.make(length=8, horizon=1, rules="test")
    state = run(env, params, 300, 100)[0]
    counts = np.bincount(np.asarray(state.rule).ravel(), minlength=256)
    held_out = list(splits.load("fps30").test)
    assert counts[held_out].sum() == 300 * 100
    assert stats.chisquare(counts[held_out]).pvalue > 1e-3


def test_held_out_rules_never_reach_training():
    env, params = envs.make(length=8, horizon=1, rules="train")
    state = run(env, params, 300, 200)[0]
    assert not np.isin(state.rule, splits.load("fps30").test).any()
    assert len(np.unique(state.rule)) == 226


@pytest.mark.parametrize("density", [0.5, 0.25])
def test_start_tapes_are_never_the_goal_and_otherwise_fair(density):
    env, params = envs.make(length=4, goal="0100", start_density=density)
    keys = jax.random.split(jax.random.key(0), 40_000)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    counts = np.bincount(np.asarray(state.tape)[:, 0], minlength=16)
    ones = np.array([tape.bit_count() for tape in range(16)])
    expected = density**ones * (1 - density) ** (4 - ones)
    expected[0b0010] = 0
    assert counts[0b0010] == 0
    others = np.arange(16) != 0b0010
    share = expected[others] / expected.sum()
    assert stats.chisquare(counts[others], 40_000 * share).pvalue > 1e-3


def test_a_density_that_cannot_leave_the_goal_still_does():
    env, params = envs.make(length=8)
    _, state = env.reset(jax.random.key(0), replace(params, start_density=jnp.float32(0)))
    assert space.hamming(state.tape, state.goal) == 1


def test_noise_flips_cells_at_its_rate():
    env, params = envs.make(length=32, rules=204, noise=0.2)
    state, _, after, *_ = run(env, params, 1, 4000, step=env.step_env)
    # Under the identity one chosen cell differs, the rest is noise on top.
    differing = space.hamming(np.asarray(state.tape), np.asarray(after.tape)).mean() / 32
    expected = (31 * 0.2 + 0.8) / 32
    assert abs(differing - expected) < 0.004


def test_noise_differs_from_step_to_step_and_from_cell_to_cell():
    env, params = envs.make(length=32, rules=204, noise=0.5)
    after = run(env, params, 8, 64, step=env.step_env)[2]
    assert len(np.unique(np.asarray(after.tape))) == 8 * 64


def test_an_action_out_of_range_flips_nothing():
    for length in (7, 32, 40):
        env, params = envs.make(length=length, rules=204)
        _, state = env.reset(jax.random.key(0), params)
        for action in (length, length + 32, 2**31 - 1, -1):
            _, after, *_ = env.step_env(None, state, jnp.int32(action), params)
            np.testing.assert_array_equal(after.tape, state.tape)


def test_hidden_cells_are_not_seen_but_count():
    env, params = envs.make(length=8, rules=204, mask=[0, 5])
    obs, state = env.reset(jax.random.key(3), params)
    state = replace(state, tape=jnp.array([0b00100001], jnp.uint32))
    obs, state, _, terminated, _, info = env.step_env(None, state, 0, params)
    assert not obs[:8].any()
    assert not terminated
    assert info["distance"] == 1 / 8
    *_, terminated, _, _ = env.step_env(None, state, 5, params)
    assert terminated


@pytest.mark.slow
def test_packed_observations_hold_what_the_float_ones_do():
    options = {"length": 40, "horizon": 7, "goal": "random", "observe_goal": True, "mask": [3, 39]}
    plain, params = envs.make(**options)
    packed, _ = envs.make(packed=True, **options)
    assert packed.observation_space(params)["tape"].shape == (2,)
    obs = run(plain, params, 20, 8)[1]
    words = run(packed, params, 20, 8)[1]
    np.testing.assert_array_equal(space.unpack(words["tape"], 40), obs[..., :40])
    np.testing.assert_array_equal(words["time"], obs[..., 40])
    np.testing.assert_array_equal(space.unpack(words["goal"], 40), obs[..., 41:])


@pytest.mark.slow
def test_random_goals_are_drawn_anew_for_every_episode():
    env, params = envs.make(length=16, horizon=1, goal="random", observe_goal=True)
    after = run(env, params, 20, 10)[2]
    assert len(np.unique(np.asarray(after.goal))) > 190
    assert (np.asarray(after.goal) != np.asarray(after.tape)).all()


def test_the_rule_is_in_info_only_if_revealed_and_never_observed():
    for reveal in (False, True):
        env, params = envs.make(length=8, rules=30, reveal_rule=reveal)
        _, state = env.reset(jax.random.key(0), params)
        info = env.step(None, state, 0, params)[-1]
        assert ("rule" in info) == reveal
    # Two rules that agree on a tape look the same.
    env, params = envs.make(length=8, rules=[0, 8])
    state = env.reset(jax.random.key(0), params)[1]
    seen = [env.observe(replace(state, rule=jnp.uint32(rule)), params) for rule in (0, 8)]
    np.testing.assert_array_equal(*seen)


@pytest.mark.slow
def test_time_is_observed_as_a_share_of_the_horizon_rounded_once():
    env, params = envs.make(length=8, horizon=7, rules=204)
    obs = run(env, params, 7, 4, step=env.step_env)[1]
    np.testing.assert_array_equal(obs[:, 0, -1], (np.arange(1, 8) / 7).astype(np.float32))


def test_an_unknown_reward_is_refused():
    with pytest.raises(ValueError, match="unknown reward 'dist'"):
        envs.TapeEnv(reward="dist")


@pytest.mark.parametrize(
    "options",
    [
        {"length": 8, "horizon": 64, "rules": "test", "split": "matched30", "noise": 0.1},
        {"length": 6, "switch": 2, "goal": "010000", "mask": [1], "success_bonus": 2.0},
        {"family": "life", "shape": (5, 5), "rules": "B3/S23"},
        {"task": make_exam(length=6, horizon=4, switch=2).task},
    ],
)
def test_default_params_are_those_of_make(options):
    env, params = envs.make(**options)
    default = env.default_params
    assert jax.tree.structure(default) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(default), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    by_hand = envs.TapeEnv(length=12).default_params
    assert by_hand.num_rules == 226
    assert by_hand.hidden.shape == (1,)


def test_default_params_that_another_program_could_mistake_are_refused():
    env, _ = envs.make(length=8)
    with pytest.raises(ValueError, match="inside a compiled function"):
        jax.jit(lambda key: env.reset(key, env.default_params))(jax.random.key(0))
    with pytest.raises(ValueError, match="of another length"):
        _ = replace(env, length=9).default_params


def test_version_1_terminates_at_the_horizon_and_tells_success_apart():
    env, params = envs.make(length=6, horizon=3, rules=204, version=1)
    assert env.name == "Tape-v1"
    _, state = env.reset(jax.random.key(0), params)
    ends = {}
    for tape in (0b001000, 0b111111):
        state = replace(state, tape=jnp.array([tape], jnp.uint32), t=jnp.int32(2))
        ended = env.step(None, state, 3, params)
        *_, terminated, truncated, info = ended
        assert ended[1].t == 0
        ends[tape] = bool(terminated), bool(truncated), bool(info["success"])
        assert info["is_success"] == info["success"]
    assert ends == {0b001000: (True, False, True), 0b111111: (True, False, False)}
    old, _ = envs.make(length=6, horizon=3, rules=204)
    assert old.name == "Tape-v0"
    *_, terminated, truncated, info = old.step(None, state, 3, params)
    assert (bool(terminated), bool(truncated)) == (False, True)
    assert "is_success" not in info
    with pytest.raises(ValueError, match="unknown version 2"):
        envs.make(version=2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"length": 40, "goal": "random", "observe_goal": True, "noise": 0.1},
        {"switch": 2, "reward": "potential", "start_density": 0.2, "packed": True},
        {"family": "life", "shape": (5, 5), "rules": "B3/S23", "reward": "sparse"},
        {"family": "ring2", "length": 40, "rules": [30, 7], "version": 1},
    ],
)
def test_nothing_rests_on_implicit_promotion(options):
    env, params = envs.make(**options)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        _, state = jax.eval_shape(env.reset, jax.random.key(0), params)
        jax.eval_shape(env.step, jax.random.key(0), state, jnp.int32(3), params)


@pytest.mark.parametrize("options", [{}, {"length": 40, "observe_goal": True}])
def test_a_state_that_was_donated_takes_no_parameters_with_it(options):
    env, params = envs.make(**options)
    _, state = env.reset(jax.random.key(0), params)
    step = jax.jit(env.step, donate_argnums=1)
    step(None, state, jnp.int32(0), params)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("options", "num"),
    [
        ({"family": "life", "shape": (5, 5), "rules": ["B3/S23", "B36/S23"]}, 25),
        ({"family": "life", "shape": (6, 7), "rules": "B3/S23", "observe_goal": True}, 42),
        ({"family": "ring2", "length": 16, "rules": [4_294_967_295, 2_283_010_756, 0]}, 16),
        ({"family": "ring2", "length": 16, "split": "ring2-H4-matched-16"}, 16),
        ({"family": "life", "shape": (5, 5), "split": "life-H8-matched-16"}, 25),
    ],
)
def test_every_family_in_the_functions_of_gymnax(options, num):
    env, params = envs.make(horizon=6, **options)
    state, obs, after, _, terminated, truncated, _ = run(env, params, 20, 50)
    assert env.num_actions == num
    assert obs.shape[-1] == env.observation_space(params).shape[0]
    assert set(np.unique(state.rule)) == set(make_task(**options).rules)
    ended = np.asarray(terminated | truncated)
    np.testing.assert_array_equal(after.t, np.where(ended, 0, state.t + 1))
    assert envs.make(**options)[0] == env
    with pytest.raises(ValueError, match="rules="):
        _ = replace(env, defaults=None).default_params


def test_a_torus_has_as_many_cells_as_it_says():
    with pytest.raises(ValueError, match=r"a torus of \(5, 5\) has 25 cells"):
        envs.TapeEnv(length=24, shape=(5, 5), family=LIFE)
    with pytest.raises(ValueError, match="need a torus"):
        envs.TapeEnv(length=25, family=LIFE)


def test_a_schedule_that_never_switches_leaves_no_trace_in_the_program(monkeypatch):
    """Not even by being looked at: all that a schedule does is out of reach here."""

    def refuse(*_):
        raise AssertionError("the schedule was asked")

    for method in ("draw", "rule_at", "later_rules"):
        monkeypatch.setattr(Schedule, method, refuse)
    env, params = envs.make(length=8, reveal_rule=True)
    _, state = jax.eval_shape(env.reset, jax.random.key(0), params)
    assert len(jax.tree.leaves(params)) == 8
    assert len(jax.tree.leaves(state)) == 6
    program = jax.make_jaxpr(lambda state: env.step_env(None, state, 0, params)[1].rule)(state)
    rule = next(
        variable
        for variable, (path, _) in zip(
            program.jaxpr.invars, jax.tree_util.tree_leaves_with_path(state), strict=True
        )
        if path[0].name == "rule"
    )
    assert program.jaxpr.outvars == [rule], "the rule goes through as it came"


@pytest.mark.slow
def test_an_episode_switches_to_another_rule_of_its_side_and_the_next_draws_anew():
    task = make_exam(length=6, horizon=4, switch=[1, 3], rules=[0, 4, 30, 45, 22, 18]).task
    env, params = envs.make(task=task)
    state, _, _, _, terminated, truncated, _ = run(env, params, 40, 60)
    ended = np.asarray(terminated | truncated)
    rules, t = np.asarray(state.rule), np.asarray(state.t)
    changed = rules[1:] != rules[:-1]
    np.testing.assert_array_equal(changed[~ended[:-1]], np.isin(t[1:], (1, 3))[~ended[:-1]])
    is_seen = np.isin(rules, task.schedule.seen)
    assert is_seen.any()
    assert not is_seen.all()
    np.testing.assert_array_equal(is_seen[1:][~ended[:-1]], is_seen[:-1][~ended[:-1]])
    pairs = {(a, b) for a, b in zip(rules[:-1][changed], rules[1:][changed], strict=True)}
    assert len(pairs) > 10


def test_other_rules_do_not_compile_another_program_for_a_schedule():
    tasks = [make_exam(length=6, horizon=4, switch=2, rules=r).task for r in ("test", "all")]
    assert envs.make(task=tasks[0])[0] == envs.make(task=tasks[1])[0]
    assert envs.TapeEnv(length=6, schedule=Schedule((2,))).default_params.num_seen == 0


@pytest.mark.parametrize("length", [8, 40])
def test_parameters_and_states_hold_what_their_fields_say(length):
    env, params = envs.make(length=length)
    state = env.reset(jax.random.key(0), params)[1]
    for held in (params, state, jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), state)):
        shape_checks.check_fields(held)
    with pytest.raises(BeartypeDoorHintViolation):
        shape_checks.check_fields(replace(state, t=jnp.zeros(3, jnp.int32)))
