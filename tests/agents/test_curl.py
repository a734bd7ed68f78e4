from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import check_delayed, plain_network, trained, transitions
from tapebench.agents import curl, rad


def test_the_contrastive_loss_of_a_hand_example():
    query = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    key = jnp.array([[1.0, 1.0], [0.0, 3.0]])
    bilinear = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    # Similarities: [[2, 0], [2, 6]].
    wanted = (np.log(1 + np.exp(-2.0)) + np.log(1 + np.exp(-4.0))) / 2
    np.testing.assert_allclose(curl.info_nce(query, key, bilinear), wanted, rtol=1e-6)


@pytest.mark.slow
def test_the_contrastive_loss_teaches_features_and_the_slow_copy_follows():
    auxiliary = curl.contrast(rad.augmentation("flip", 8, None, 0.1), 2.0, 0.75)
    network = plain_network(jax.random.key(0))
    bilinear, slow = auxiliary.init(jax.random.key(1), network)
    batch = transitions(1, 64, 8)[0]
    loss = partial(auxiliary.loss, jax.random.key(2))
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(network, bilinear, slow, batch)
    slopes = jax.tree.map(np.asarray, slopes)
    assert slopes[0].hidden[0].weight.any()
    assert not slopes[0].head.weight.any()
    assert slopes[1].any()
    assert not any(leaf.any() for leaf in jax.tree.leaves(slopes[2]))
    moved = jax.tree.map(lambda leaf: leaf + 1.0, network)
    followed = auxiliary.follow(slow, moved)
    np.testing.assert_allclose(followed.head.bias, slow.head.bias + 0.25, rtol=1e-5)


@pytest.mark.slow
def test_curl_learns_the_same_values_as_dqn_and_separates_observations():
    options = {"augment": "shift", "curl_weight": 0.01, "learning_rate": 1e-3}
    agent, state, _ = trained("curl", probes.make(probes.DELAYED), 12_000, **options)
    check_delayed(state.learner.network)
    # Chance is log 32. Telling all five observations apart is about log 7.
    assert 0.01 * np.log(4) < agent.train(state)[1]["auxiliary_loss"] < 0.01 * np.log(16)
