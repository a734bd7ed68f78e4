"""Every learned agent under every family of laws, and networks that commute with its shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import FROM_DATA, SMALL, conv_network, fingerprint, small_agent
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import api, dreamer, memory, nn, rppo
from tapebench.exam.rollout import rollout
from tapebench.physics.families import FAMILIES
from tapebench.physics.space import Space
from tapebench.tasks.task import make_task

WORLDS = {
    "ring2": {"split": "ring2-H8-matched", "length": 10},
    "life": {"split": "life-H8-matched", "shape": (4, 4)},
}
KINDS = {"dreamer": {"network": "conv"}}
"""Small agents have the other network."""

QUICK = (("dqn", "life"), ("rppo", "ring2"), ("rppo", "life"))
CASES = [
    pytest.param(name, family, marks=[] if (name, family) in QUICK else pytest.mark.slow)
    for family in WORLDS
    for name in agents.NAMES
    if name not in FROM_DATA
]
TORUS = Space((3, 5))


def small(name, family, **overrides):
    task = make_task(family=family, horizon=8, **WORLDS[family])
    options = SMALL[name] | KINDS.get(name, {}) | overrides
    return agents.make(name, *envs.make(task=task), **options), task


@pytest.mark.parametrize(("name", "family"), CASES)
def test_an_agent_trains_and_acts_under_every_family(name, family):
    agent, task = small(name, family)
    begun = agent.init(jax.random.key(0))
    before = api.learned(api.to_arrays(begun))
    state, metrics = agent.train(begun)
    assert all(np.isfinite(metric) for metric in metrics.values())
    after = api.learned(api.to_arrays(state))
    assert all(np.isfinite(array).all() for array in after.values())
    assert any((after[part] != before[part]).any() for part in before)
    assert int(state.steps) == agent.chunk
    policy = agent.policy(state)
    assert not policy.sees_rule
    episodes = rollout(policy, task, rules=task.rules[:2], episodes=3)
    assert episodes.success.shape == (2, 3)
    assert len(np.unique(episodes.cells)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("family", WORLDS)
@pytest.mark.parametrize("context", ["evidence", "rule"])
def test_a_context_is_of_the_entries_of_the_family(family, context):
    agent, task = small("dqn", family, context=context)
    state, metrics = agent.train(agent.init(jax.random.key(0)))
    assert np.isfinite(metrics["loss"])
    policy, rules = agent.policy(state), np.array(task.rules[-2:], np.uint32)
    entries = task.family.entries
    known = np.asarray(policy.recall(policy.init(jnp.asarray(rules), 2)))
    assert known.shape == (2, 2 * entries)
    if context == "rule":
        np.testing.assert_array_equal(known[:, entries:], task.family.table(rules))
    else:
        assert not known.any()
    assert rollout(policy, task, rules=task.rules[-2:], episodes=2).success.shape == (2, 2)


@pytest.mark.parametrize("family", WORLDS)
def test_there_are_no_datasets_of_other_families(family):
    with pytest.raises(ValueError, match=f"there are none of {family} rules"):
        small("dpt", family)


def test_every_entry_of_a_larger_table_is_remembered_with_as_many_numbers():
    config = rppo.Config(memory_size=16)
    for family, wanted in (("ring2", 64), ("life", 36)):
        task = make_task(family=family, horizon=8, **WORLDS[family])
        assert memory.hidden_size(config, envs.make(task=task)[0]) == wanted
    assert memory.hidden_size(config, envs.TapeEnv()) == 16
    with pytest.raises(ValueError, match="multiple of the 8 entries"):
        memory.hidden_size(rppo.Config(memory_size=12), envs.TapeEnv())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("dqn", "1165995b0d7c71e7"),
        ("rppo", "5fa03a398be146ad"),
        ("pearl", "5069885fd62b4a9a"),
        pytest.param("dreamer", "d7abc53d78af3ecc", marks=pytest.mark.slow),
    ],
)
def test_under_elementary_rules_agents_begin_as_before_there_were_others(name, wanted):
    agent, _ = small_agent(name, **KINDS.get(name, {}))
    assert fingerprint(agent.init(jax.random.key(0)))[:16] == wanted


# Shifts.


def all_shifts(space):
    """How many cells along each side, by the cell that the first comes to."""
    return np.unravel_index(np.arange(space.size), space.shape)


def shifted(cells, space):
    """Cells `[L]` after each shift, `[L, L]`."""
    back = [-offset[:, None] for offset in all_shifts(space)]
    return np.asarray(cells)[space.shift(np.arange(space.size), back)]


def observations(space, seed=0, more=0):
    """An observation `[L, D]` with a goal after each shift, and so many numbers behind it."""
    rng = np.random.default_rng(seed)
    cells, goal = rng.integers(2, size=(2, space.size))
    rest = np.tile(rng.random(1 + more), (space.size, 1))
    parts = [shifted(cells, space), rest[:, :1], shifted(goal, space), rest[:, 1:]]
    return np.concatenate(parts, axis=1).astype(np.float32)


def test_a_shift_moves_every_cell_round_the_torus():
    cells = np.arange(15)
    boards = shifted(cells, TORUS).reshape(15, 3, 5)
    for place, board in enumerate(boards):
        row, column = divmod(place, 5)
        np.testing.assert_array_equal(board, np.roll(cells.reshape(3, 5), (row, column), (0, 1)))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(
    ("family", "shape"), [(None, (3, 5)), ("life", (3, 5)), ("life", (4, 4)), ("ring2", (9,))]
)
def test_values_of_a_convolution_are_shifted_with_the_tape(family, shape, layer_norm):
    space, laws = Space(shape), family and FAMILIES[family]
    more = nn.table_size(laws, nn.KNOWN)
    network = conv_network(
        jax.random.key(0),
        shape,
        observation_size=2 * space.size + 1 + more,
        family=laws,
        layer_norm=layer_norm,
        dueling=True,
    )
    obs = observations(space, more=more)
    values, features = jax.jit(lambda obs: (network(obs), network.features(obs)))(obs)
    np.testing.assert_allclose(values, shifted(values[0], space), atol=2e-5)
    np.testing.assert_allclose(features, np.tile(features[:1], (space.size, 1)), atol=2e-5)
    assert np.ptp(values[0]) > 1e-3


@pytest.mark.parametrize("network", ["cells", "entries"])
def test_memories_and_policies_are_shifted_with_the_tape(network):
    config = rppo.Config(**SMALL["rppo"] | {"network": network, "memory_size": 16, "depth": 2})
    env = envs.TapeEnv(length=15, shape=(3, 5), family=FAMILIES["life"], observe_goal=True)
    algorithm = rppo._algorithm(config, env, 31)
    model = jax.jit(algorithm.init)(jax.random.key(0))
    obs = np.stack([observations(TORUS, seed) for seed in range(3)])
    obs[..., 15] = np.arange(3)[:, None] / 8
    flips = [TORUS.shift(cell, all_shifts(TORUS)) for cell in (4, 11)]
    run = jax.jit(lambda *x: model.run(*x))
    (logits, value), hidden = run(algorithm.begin(15), obs, np.stack(flips))
    for row in range(3):
        np.testing.assert_allclose(logits[row], shifted(logits[row, 0], TORUS), atol=2e-5)
    np.testing.assert_allclose(value, np.tile(value[:, :1], 15), atol=2e-5)
    np.testing.assert_allclose(hidden, np.repeat(hidden[:, :1], 15, axis=1), atol=2e-5)
    assert np.ptp(logits[1:, 0]) > 1e-5
    assert np.abs(hidden[1:]).max() > 1e-3


def test_the_world_model_in_every_cell_is_shifted_with_the_tape():
    config = dreamer.Config(**SMALL["dreamer"] | {"network": "conv"})
    env = envs.TapeEnv(length=15, shape=(3, 5), family=FAMILIES["life"], observe_goal=True)
    make = jax.jit(dreamer.make_model, static_argnums=(1, 2, 3))
    model = jax.tree.map(lambda leaf: 2.0 * leaf, make(jax.random.key(0), config, env, 31))

    @jax.jit
    def foresee(obs, cell):
        latent = dreamer.observe(model, model.world.begin(15), obs, None)
        ahead = model.world.advance(latent, cell)
        cells = model.world.cells(ahead, latent.z)
        return model.policy(latent), cells, model.world.outcome(ahead)[0]

    policy, cells, reward = foresee(observations(TORUS), TORUS.shift(7, all_shifts(TORUS)))
    np.testing.assert_allclose(policy, shifted(policy[0], TORUS), atol=1e-4)
    np.testing.assert_allclose(cells, shifted(cells[0], TORUS), atol=1e-4)
    np.testing.assert_allclose(reward, np.tile(reward[:1], 15), atol=1e-4)
    assert min(np.ptp(policy[0]), np.ptp(cells[0])) > 1e-4
