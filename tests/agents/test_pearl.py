import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import PROBE, check_delayed, observations, small_agent, trained, transitions
from tapebench import env as envs
from tapebench.agents import pearl, replay

GAMMA = PROBE["pearl"]["discount"]


def some_factors(num=3, context=5, latent=2):
    config = pearl.Config(latent_size=latent, encoder_width=8)
    encoder = pearl.make_encoder(jax.random.key(0), config, envs.TapeEnv(length=8))
    batch = transitions(0, num * context, 8)[0]
    tapes = [x[:, :8].reshape(num, context, 8) for x in (batch.obs, batch.next_obs)]
    return jax.jit(lambda *x: encoder(*x))(tapes[0], batch.action.reshape(num, context), tapes[1])


def test_the_posterior_does_not_depend_on_the_order_of_its_context():
    factors = some_factors()
    everything = jnp.ones((3, 5), bool)
    shuffled = pearl.Gaussian(*(x[:, jnp.array([3, 1, 4, 0, 2])] for x in factors))
    one, two = (
        pearl.latent_posterior(factors, everything),
        pearl.latent_posterior(shuffled, everything),
    )
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-5)
    np.testing.assert_allclose(one.precision, two.precision, rtol=1e-5)
    assert (one.precision > 1.0).all()


def test_without_context_the_posterior_is_the_prior():
    nothing = jnp.zeros((3, 5), bool)
    posterior = pearl.latent_posterior(some_factors(), nothing)
    np.testing.assert_array_equal(posterior.mean, np.zeros((3, 2)))
    np.testing.assert_array_equal(posterior.precision, np.ones((3, 2)))
    np.testing.assert_array_equal(pearl.kl_from_prior(posterior), np.zeros(3))


def test_the_posterior_is_the_product_of_gaussians():
    factors = pearl.Gaussian(jnp.array([[[3.0], [1.0]]]), jnp.array([[[6.0], [-2.0]]]))
    both = pearl.latent_posterior(factors, jnp.array([[True, True]]))
    np.testing.assert_allclose(both.mean, [[4 / 5]])
    np.testing.assert_allclose(both.precision, [[5.0]])
    wanted = 0.5 * (1 / 5 + (4 / 5) ** 2 - 1 + np.log(5))
    np.testing.assert_allclose(pearl.kl_from_prior(both), [wanted], rtol=1e-6)
    first_alone = pearl.latent_posterior(factors, jnp.array([[True, False]]))
    np.testing.assert_allclose(first_alone.mean, [[6 / 4]])
    drawn = pearl.Gaussian(*(jnp.tile(x, (20_000, 1)) for x in both)).draw(jax.random.key(0))
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0.8, 5**-0.5], atol=0.02)


def pearl_agent():
    sizes = {"context": 3, "latent_size": 2, "encoder_width": 8, "network": "conv"}
    # Under rule 51, which inverts every cell, hardly an episode ends before its horizon.
    return small_agent("pearl", rules=51, **sizes)[0]


@pytest.mark.slow
def test_the_policy_remembers_what_training_looks_back_on():
    env, params = envs.make(length=8, horizon=8, rules=51)
    agent = pearl_agent()
    state = agent.init(jax.random.key(0))
    policy = agent.policy(state)

    @jax.jit
    def step(memory, obs, running, stored):
        memory, action = policy.act(memory, obs, None)
        past = replay.past(stored, replay.present(stored), 3)
        factors = state.learner.model.encoder(past.before, past.action, past.after)
        wanted = pearl.latent_posterior(factors, past.is_real)
        posterior = pearl.latent_posterior(memory.factors, jnp.ones((4, 3), bool))
        obs, running, reward, *_ = jax.vmap(env.step, in_axes=(None, 0, 0, None))(
            None, running, action, params
        )
        return (memory, obs, running, replay.append(stored, action, reward, obs)), posterior, wanted

    obs = jax.jit(jax.vmap(env.observe, in_axes=(0, None)))(state.env, params)
    carry = policy.init(None, 4), obs, state.env, state.replay
    for t in range(6):
        carry, posterior, wanted = step(*carry)
        assert (posterior.precision > 1).all() == (t > 0)
        np.testing.assert_allclose(posterior.mean, wanted.mean, atol=1e-5)
        np.testing.assert_allclose(posterior.precision, wanted.precision, rtol=1e-5)


@pytest.mark.slow
def test_context_is_kept_across_episodes_but_no_transition_is_made_across_them():
    agent = pearl_agent()
    policy = agent.policy(agent.init(jax.random.key(0)))
    memory, act = policy.init(None, 2), jax.jit(policy.act)

    def see(memory, time, seed):
        cells = np.random.default_rng(seed).integers(2, size=(2, 8))
        obs = np.concatenate([cells, [[time], [time]]], axis=1).astype(np.float32)
        return act(memory, obs, None)[0]

    numbers = []
    # Two steps, one stands still because the goal is reached, then a second episode.
    for seed, time in enumerate((0.0, 0.25, 0.5, 0.5, 0.0, 0.25)):
        memory = see(memory, time, seed)
        numbers.append(int(memory.number[0]))
    assert numbers == [0, 1, 2, 2, 2, 3]
    assert (memory.factors.precision > 0).all()


CONTEXT = {"context": 2, "latent_size": 4, "encoder_width": 32}


@pytest.mark.slow
def test_pearl_learns_known_values_and_what_only_the_context_says():
    agent, state, _ = trained("pearl", probes.make(probes.HIDDEN), 12_000, **CONTEXT)
    policy = agent.policy(state)
    first = observations(*[[bit] * 3 + [0.0] for bit in (0, 0, 1, 1)])
    second = observations(*[[bit] * 3 + [0.5] for bit in (0, 1, 0, 1)])
    memory, _ = policy.act(policy.init(None, 4), first, None)
    network = memory.model.network
    known_later = network(first, jnp.zeros((4, 4)))
    np.testing.assert_allclose(known_later, np.full((4, 3), GAMMA), atol=0.15)
    memory, action = policy.act(memory, second, None)
    np.testing.assert_array_equal(action, [0, 1, 1, 0])
    latent = pearl.latent_posterior(memory.factors, jnp.ones((4, 2), bool)).mean
    wanted = np.where(np.arange(3) == np.array([0, 1, 1, 0])[:, None], 1.0, -1.0)
    np.testing.assert_allclose(network(second, latent), wanted, atol=0.2)

    state = trained("pearl", probes.make(probes.DELAYED), 8_000, **CONTEXT)[1]
    network = state.learner.model.network
    check_delayed(lambda obs: network(obs, jnp.zeros((len(obs), 4))))
