"""What agents are given about the rule: the same in training and in exams, and no more."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import fingerprint, small_agent, turn
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import context, nn
from tapebench.exam.rollout import rollout
from tapebench.physics.families import FAMILIES
from tapebench.physics.families.elementary import ELEMENTARY, table
from tapebench.physics.space import Space
from tapebench.tasks.task import make_task

WITH_CONTEXT = ("dqn", "pqn", "ppo")
STEPS, NUM = 24, 6


@cache
def played(is_told):
    """Observations `[T, B, D]`, flips and rules of random play that is informed."""
    inner, params = envs.make(length=8, horizon=5)
    env = context.InformedEnv(inner, is_told)
    step = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))
    keys = jax.random.split(jax.random.key(0), NUM)
    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    seen, flips, rules = [], [], []
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        action = rng.integers(8, size=NUM)
        np.testing.assert_array_equal(jax.vmap(env.observe, (0, None))(state, params), obs)
        seen.append(np.asarray(obs))
        flips.append(action)
        rules.append(np.asarray(state.inner.rule))
        obs, state, *_ = step(None, state, action, params)
    return np.array(seen), np.array(flips), np.array(rules)


def test_training_shows_what_the_episode_has_shown_and_forgets_it_with_the_rule():
    obs, _, rules = played(False)
    seen, value = obs[..., 9:17], obs[..., 17:]
    is_first = obs[..., 8] == 0
    assert is_first.sum() > 2 * NUM
    assert not seen[is_first].any()
    assert (seen[~is_first].sum(axis=-1) >= 1).all()
    grows = seen[1:][~is_first[1:]] >= seen[:-1][~is_first[1:]]
    assert grows.all()
    truth = table(rules)
    np.testing.assert_array_equal(value[seen == 1], truth[seen == 1])
    assert not value[seen == 0].any()
    assert 0.2 < seen[~is_first].mean() < 0.95


def test_a_privileged_agent_is_told_the_whole_table_from_the_start():
    obs, _, rules = played(True)
    assert (obs[..., 9:17] == 1).all()
    np.testing.assert_array_equal(obs[..., 17:], table(rules))


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_a_policy_works_out_in_an_exam_what_training_showed(name):
    agent, _ = small_agent(name, context="evidence")
    policy = agent.policy(agent.init(jax.random.key(0)))
    obs, flips, _ = played(False)
    memory = policy.init(None, NUM)
    for row, flip in zip(obs, flips, strict=True):
        if (row[:, 8] == 0).any():  # the training env has drawn other rules there
            fresh = policy.init(None, NUM)
            memory = jax.tree.map(
                lambda new, old, start=row[:, 8] == 0: (
                    jnp.where(start.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                    if new.ndim and new.shape[0] == NUM
                    else old
                ),
                fresh,
                memory,
            )
        memory, _ = policy.act(memory, row[:, :9], None)
        np.testing.assert_array_equal(policy.recall(memory), row[:, 9:])
        memory = policy.note(memory, flip)


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_who_is_told_the_rule_says_so_and_who_sees_evidence_is_blind(name):
    task = make_task(length=8, horizon=8)
    rules = jnp.array([30, 110, 204])
    for given in ("none", "evidence", "rule"):
        agent, _ = small_agent(name, context=given)
        policy = agent.policy(agent.init(jax.random.key(0)))
        assert policy.sees_rule == (given == "rule")
        episodes = rollout(policy, task, rules=[30, 110], episodes=2)
        assert episodes.success.shape == (2, 2)
        if given == "evidence":
            told, blind = policy.init(rules, 3), policy.init(None, 3)
            assert fingerprint(told) == fingerprint(blind)
        if given == "rule":
            np.testing.assert_array_equal(policy.recall(policy.init(rules, 3))[:, 8:], table(rules))


def test_evidence_is_kept_over_trials_and_no_step_is_seen_between_them():
    agent, _ = small_agent("dqn", context="evidence")
    policy = agent.policy(agent.init(jax.random.key(0)))
    rng = np.random.default_rng(0)

    def obs(time):
        return np.append(rng.integers(2, size=(4, 8)), np.full((4, 1), time), 1).astype(np.float32)

    memory = policy.init(None, 4)
    for time in (0.0, 0.125, 0.25):
        memory, _ = policy.act(memory, obs(time), None)
    known = np.asarray(policy.recall(memory))
    assert known.any()
    for time in (0.0, 0.0):  # the next trial, and an episode that stands still
        memory, _ = policy.act(memory, obs(time), None)
        np.testing.assert_array_equal(policy.recall(memory), known)


def test_evidence_needs_every_cell_and_memories_find_out_by_themselves():
    hidden = envs.make(length=8, horizon=8, mask=[0, 4])
    with pytest.raises(ValueError, match="leave out the mask"):
        agents.make("dqn", *hidden, context="evidence")
    with pytest.raises(ValueError, match="unknown context 'evidenc': did you mean 'evidence'"):
        agents.configure("ppo", context="evidenc")
    for name in ("rppo", "rpqn", "drqn"):
        with pytest.raises(ValueError, match=f"unknown option of {name} 'context'"):
            agents.configure(name, context="rule")


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("elementary", (3,)),
        ("elementary", (9,)),
        ("ring2", (5,)),
        ("ring2", (9,)),
        ("life", (3, 3)),
        ("life", (4, 5)),
    ],
)
def test_every_cell_looks_up_its_entry_and_those_after_flips(family, shape):
    laws, space = FAMILIES[family], Space(shape)
    rng = np.random.default_rng(space.size)
    cells = rng.integers(2, size=(5, space.size))
    given = rng.random((5, 2 * laws.entries), np.float32)
    said = nn.look_up(jnp.float32(cells), jnp.asarray(given), laws, space, nn.KNOWN)
    by_tape = np.moveaxis(np.asarray(said).reshape(2, -1, space.size, 5), (3, 2), (0, 1))

    def entries(cells):
        return np.ravel(laws.codes(cells.reshape(shape), space))

    for row, known, by_site in zip(cells, given.reshape(5, 2, -1), by_tape, strict=True):
        now = entries(row)
        after = np.array([entries(row ^ flip) for flip in np.eye(space.size, dtype=int)])
        for site, numbers in enumerate(by_site):
            assert tuple(numbers[:, 0]) == tuple(known[:, now[site]])
            # A flip of a cell that it does not read leaves the entry that it reads now.
            wanted = {tuple(known[:, entry]) for entry in after[:, site]}
            assert set(map(tuple, numbers.T)) == wanted | {tuple(known[:, now[site]])}
            assert numbers.shape[1] == 1 + {"elementary": 3, "ring2": 5, "life": 9}[family]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_convolution_with_a_context_turns_with_the_tape(layer_norm):
    sizes = {"num_actions": 8, "width": 8, "channels": 8, "depth": 2, "kernel": 3}
    network = nn.make(
        jax.random.key(0),
        "conv",
        space=Space((8,)),
        observation_size=25,
        family=ELEMENTARY,
        layer_norm=layer_norm,
        dueling=True,
        **sizes,
    )
    rng = np.random.default_rng(0)
    obs, given = rng.integers(2, size=(4, 9)), rng.integers(2, size=(4, 16))
    values = jax.jit(lambda obs: network(obs))
    straight = values(np.append(obs, given, 1).astype(np.float32))
    turned = values(np.append(turn(obs, 3), given, 1).astype(np.float32))
    np.testing.assert_allclose(turned, np.roll(straight, 3, axis=-1), atol=1e-5)
    other = values(np.append(obs, 1 - given, 1).astype(np.float32))
    assert np.abs(np.asarray(other - straight)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("given", ["evidence", "rule"])
def test_an_informed_run_goes_on_from_its_arrays_to_the_bit(given):
    from tapebench.agents import api

    agent, _ = small_agent("ppo", context=given)
    state, _ = agent.train(agent.init(jax.random.key(0)))
    shape = jax.eval_shape(agent.init, jax.random.key(0))
    back = api.from_arrays(shape, {k: v.copy() for k, v in api.to_arrays(state).items()})
    assert fingerprint(agent.train(back)[0]) == fingerprint(agent.train(state)[0])
