"""No random key is used twice. JAX can check that, at a price that other tests need not pay."""

import jax
import pytest

from learners import small_agent
from tapebench import agents
from tapebench import env as envs
from tapebench.base import seeding
from tapebench.runs import training


@pytest.fixture(autouse=True)
def _checked():
    with jax.debug_key_reuse(True):
        yield


def test_the_check_finds_a_key_that_is_used_twice():
    @jax.jit
    def careless(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    with jax.debug_key_reuse(False):
        careless(jax.random.key(0))  # compiled before, as most of what is checked below
    with pytest.raises(jax.errors.KeyReuseError):
        jax.eval_shape(careless, jax.random.key(0))


@pytest.mark.parametrize(
    ("name", "network"),
    [
        (name, network)
        for name in agents.NAMES
        for network in getattr(agents.load(name)[0], "networks", ("mlp", "conv"))
    ],
)
def test_an_agent_uses_no_key_twice(name, network):
    agent, _ = small_agent(name, network=network)
    state = jax.eval_shape(agent.init, seeding.key(0))
    jax.eval_shape(agent.train, state)


def test_the_environment_uses_no_key_twice():
    env, params = envs.make(length=8, horizon=8, noise=0.1, goal="random")
    key = seeding.key(0)
    _, state = jax.eval_shape(env.reset, key, params)
    jax.eval_shape(env.step, seeding.key(1), state, 0, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "rppo"])
def test_a_whole_run_uses_no_key_twice(tmp_path, name):
    spec = training.RunSpec(
        agent=name,
        seed=0,
        options={"width": 8, "num_envs": 8, "chunk": 200},
        length=8,
        horizon=8,
        steps=400,
        evaluate_every=200,
        episodes=1,
        last=1,
        rules=(0, 4),
    )
    training.run(spec, tmp_path)
