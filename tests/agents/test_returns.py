import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapebench.agents import returns


def slow_advantages(reward, value, ended, last, discount, trace):
    advantages, later, ahead = np.zeros_like(reward), 0.0, last
    for t in reversed(range(len(reward))):
        if ended[t]:
            later, ahead = 0.0, 0.0
        later = reward[t] + discount * ahead - value[t] + discount * trace * later
        advantages[t], ahead = later, value[t]
    return advantages


_advantages = jax.jit(returns.advantages)


@given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0, 1),
    trace=st.floats(0, 1),
    ends=st.floats(0, 1),
)
def test_advantages_equal_a_loop(seed, discount, trace, ends):
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, 7, 3)).astype(np.float32)
    last, ended = rng.normal(size=3).astype(np.float32), rng.random((7, 3)) < ends
    advantages = _advantages(reward, value, ended, last, discount, trace)
    for env in range(3):
        column = reward[:, env], value[:, env], ended[:, env], last[env]
        wanted = slow_advantages(*column, discount, trace)
        np.testing.assert_allclose(advantages[:, env], wanted, rtol=1e-4, atol=1e-5)


def test_advantages_of_a_hand_example():
    reward, value = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[0.5], [1.0], [3.0]])
    ended, last = jnp.array([[False], [True], [False]]), jnp.array([10.0])
    advantages = returns.advantages(reward, value, ended, last, 0.5, 0.5)
    # The errors are 1 + 0.5 - 0.5, 2 - 1 and 4 + 5 - 3; only the first has a successor.
    np.testing.assert_array_equal(advantages[:, 0], [1.0 + 0.25 * 1.0, 1.0, 6.0])


_lambda_returns = jax.jit(returns.lambda_returns)


@given(seed=st.integers(0, 2**32 - 1), trace=st.floats(0, 1))
def test_lambda_returns_equal_a_loop(seed, trace):
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, 7)).astype(np.float32)
    goes_on, last = rng.random(7).astype(np.float32), np.float32(rng.normal())
    lambda_returns = _lambda_returns(reward, value, goes_on, last, trace)
    later, ahead = last, last
    for t in reversed(range(7)):
        later = reward[t] + goes_on[t] * ((1 - trace) * ahead + trace * later)
        ahead = value[t]
        np.testing.assert_allclose(lambda_returns[t], later, rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), trace=st.floats(0, 1), ends=st.floats(0, 1))
def test_lambda_returns_of_certain_ends_are_advantages_above_the_value(seed, trace, ends):
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, 7, 3)).astype(np.float32)
    last, ended = rng.normal(size=3).astype(np.float32), rng.random((7, 3)) < ends
    lambda_returns = _lambda_returns(reward, value, np.float32(0.9 * ~ended), last, trace)
    wanted = value + _advantages(reward, value, ended, last, 0.9, trace)
    np.testing.assert_allclose(lambda_returns, wanted, rtol=1e-4, atol=1e-5)
