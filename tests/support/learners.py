"""Agents small enough to train in a test, and what several files of tests ask of them."""

import hashlib
from collections import deque
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from tapebench import agents
from tapebench import env as envs
from tapebench.agents import api, dqn, dreamer, nn, offline, ppo, pqn, replay, rounds
from tapebench.base import seeding
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.physics.space import Space
from tapebench.tasks.task import make_task

_POLICIES_IN_PROBES = ppo.Config.SMALL | {
    "num_envs": 32,
    "rollout": 6,
    "chunk": 192 * 10,
    "learning_rate": 0.01,
    "total_steps": 30_000,
    "value_weight": 0.5,
    "entropy_weight": 0.001,
    "discount": 0.9,
    "trace": 0.8,
}
_Q_IN_PROBES = pqn.Config.SMALL | {
    "num_envs": 32,
    "rollout": 6,
    "chunk": 192 * 10,
    "learning_rate": 3e-3,
    "total_steps": 60_000,
    "discount": 0.95,
    "trace": 0.0,
    "epsilon_end": 1.0,
}
_DREAMS_IN_PROBES = dreamer.Config.SMALL | {
    "width": 32,
    "batch": 16,
    "starts": 64,
    "imagination": 4,
    "learning_rate": 3e-3,
    "actor_rate": 3e-3,
    "discount": 0.9,
    "replay_size": 4_000,
    "chunk": 800,
}
VALUE_BASED = tuple(name for name in agents.NAMES if issubclass(agents.load(name)[0], dqn.Options))

FROM_DATA = tuple(
    name for name in agents.NAMES if issubclass(agents.load(name)[0], offline.Options)
)
"""Agents that learn from datasets and meet no environment."""

SMALL = {name: agents.load(name)[0].SMALL for name in agents.NAMES}
"""Options of every agent for short tapes: few weights, short chunks."""

PROBE = {
    name: dqn.Config.SMALL | {"epsilon_end": 1.0, "n_step": 1}
    if name in VALUE_BASED
    else _POLICIES_IN_PROBES
    for name in agents.NAMES
    if name not in ("automata", *FROM_DATA)
}
PROBE["pearl"] = PROBE["pearl"] | {"encoder": "tapes"}
PROBE["dreamer"] = _DREAMS_IN_PROBES
PROBE["pqn"] = PROBE["rpqn"] = _Q_IN_PROBES
PROBE = {
    name: {"network": "gru" if name in ("rppo", "rpqn", "drqn") else "mlp"} | options
    for name, options in PROBE.items()
}
"""Options for environments of known values; value-based agents play at random there. Not all of
these environments are on a ring."""


def observations(*rows):
    return jnp.array(rows, jnp.float32)


def train_until(check, agent, steps):
    """Train until `check(state, metrics)` asserts nothing any more, which it has to by `steps`.

    It is asked after every chunk, as what is learned sooner need not be trained for longer.
    """
    state = agent.init(seeding.key(0, agent.name))
    for left in reversed(range(steps // agent.chunk)):
        state, metrics = agent.train(state)
        try:
            return check(state, metrics)
        except AssertionError:
            if not left:
                raise


def probed(name, probe, **overrides):
    """An agent in a probe."""
    return agents.make(name, *probe, **PROBE[name] | overrides)


def trained(name, probe, steps, **overrides):
    """An agent after so many steps in a probe, its state and what it reported last."""
    agent = probed(name, probe, **overrides)
    state, metrics = agent.init(seeding.key(0, name)), {}
    for _ in range(steps // agent.chunk):
        state, metrics = agent.train(state)
    return agent, state, metrics


def small_agent(name, rules="train", **overrides):
    """An agent for short tapes, the same program in every test, and its task."""
    task = make_task(length=8, horizon=8, rules=rules)
    return agents.make(name, *envs.make(task=task), **SMALL[name] | overrides), task


def fingerprint(tree):
    digest = hashlib.sha256()
    for name, array in sorted(api.to_arrays(tree).items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def check_delayed(values):
    """Whether these are the action values of the probe `DELAYED` under random play."""
    gamma = PROBE["dqn"]["discount"]
    before = values(observations([0, 0, 0, 0], [0, 0, 0, 1 / 3], [0, 0, 0, 2 / 3]))
    wanted = [[0, gamma**2, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(before, wanted, atol=0.1)
    after = values(observations([1, 1, 1, 1 / 3], [1, 1, 1, 2 / 3]))
    np.testing.assert_allclose(after, [[gamma] * 3, [1] * 3], atol=0.1)


def transitions(seed, num=64, length=16):
    """Real transitions of random tapes under random rules, and the rules."""
    rng = np.random.default_rng(seed)
    cells, rule = rng.integers(2, size=(num, length)), rng.integers(256, size=num)
    cell = rng.integers(length, size=num)
    after = space.unpack(elementary.step(space.pack(cells), cell, rule, length), length)

    def observe(cells, time):
        return np.concatenate([cells, np.full((num, 1), time)], axis=1).astype(np.float32)

    nothing = np.zeros(num, np.float32)
    once = np.ones(num, np.int32)
    return replay.Batch(
        observe(cells, 0.25), cell, nothing, observe(after, 0.5), nothing > 0, once
    ), rule


def turn(obs, by):
    """Observations of the rotated tape."""
    return np.concatenate([np.roll(obs[..., :-1], by, axis=-1), obs[..., -1:]], axis=-1)


def conv_network(key, shape=(16,), **sizes):
    where = Space(shape)
    sizes = {"observation_size": where.size + 1, "num_actions": where.size, "depth": 2} | sizes
    return nn.make(key, "conv", space=where, **{"width": 8, "channels": 8, "kernel": 3} | sizes)


def plain_network(key, length=8):
    sizes = {"num_actions": length, "width": 8, "channels": 8, "depth": 1, "kernel": 3}
    return nn.make(key, "mlp", space=Space((length,)), observation_size=length + 1, **sizes)


def play(env, params, steps, num_envs, capacity, seed=0):
    """Random play into a replay, and the same transitions in one deque per environment."""

    @jax.jit
    def run(key, params):
        reset_key, action_key = jax.random.split(key)
        keys = jax.random.split(reset_key, num_envs)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
        stored = replay.empty(obs, capacity, env.length, params.horizon)

        def body(carry, action):
            stored, state, obs = carry
            step = jax.vmap(env.step, in_axes=(None, 0, 0, None))
            after, state, reward, terminated, truncated, _ = step(None, state, action, params)
            stored = replay.append(stored, action, reward, after)
            return (stored, state, after), (obs, action, reward, after, terminated | truncated)

        actions = jax.random.randint(action_key, (steps, num_envs), 0, env.num_actions)
        (stored, *_), seen = jax.lax.scan(body, (stored, state, obs), actions)
        return stored, seen

    stored, seen = run(jax.random.key(seed), params)
    deques = [deque(maxlen=-(-capacity // num_envs)) for _ in range(num_envs)]
    for rows in zip(*map(np.asarray, seen), strict=True):
        for index, transitions in enumerate(deques):
            transitions.append([row[index] for row in rows])
    return stored, deques


def played(module, config, env, params, seed=0, num_rounds=1):
    """A fresh model, what it remembered at the start of the last round, and that round."""
    size = 1 + env.length
    algorithm = module._algorithm(*(["ppo"] if module is ppo else []), config, env, size)
    steps = jnp.int32(0)

    @jax.jit
    def run(key):
        model_key, env_key, key = jax.random.split(key, 3)
        model = algorithm.init(model_key)
        keys = jax.random.split(env_key, config.num_envs)
        obs, running = jax.vmap(env.reset, in_axes=(0, None))(keys, params)

        def play(last, key):
            after, segment, _ = rounds.play(key, config, env, algorithm, params, model, last, steps)
            return after, (last[0], segment)

        first = algorithm.begin(config.num_envs), running, obs
        rows = jax.lax.scan(play, first, jax.random.split(key, num_rounds))[1]
        return model, *jax.tree.map(lambda leaf: leaf[-1], rows)

    return algorithm, *run(jax.random.key(seed))


@cache
def played_tapes(module, network):
    """A config and what `played` gives of the second round, which starts within episodes."""
    config = module.Config(**SMALL["ppo"] | {"network": network, "rollout": 12, "chunk": 96})
    return config, *played(module, config, *envs.make(length=8, horizon=7), num_rounds=2)
