import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import SMALL
from tapebench.agents import rounds


@pytest.mark.parametrize("num", [1, 8, 40])
def test_every_order_is_as_likely_as_another(num):
    orders = np.asarray(rounds.shuffle(jax.random.key(num), 4_000, num))
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(num), (4_000, 1)))
    for place in {0, num // 2, num - 1}:
        counts = np.bincount(orders[:, place], minlength=num)
        assert abs(counts * num / 4_000 - 1).max() < 5 * np.sqrt(num / 4_000)


def test_minibatches_of_an_epoch_are_every_step_once():
    config = rounds.Options(**SMALL["ppo"] | {"epochs": 1, "minibatches": 4})
    steps = jnp.arange(40.0).reshape(5, 8)
    segment = rounds.Segment(steps[..., None], jnp.zeros((5, 8), int), steps)
    met = []

    def unroll(model, memory, obs, action):
        jax.debug.callback(lambda rows: met.append(np.asarray(rows).ravel().tolist()), obs)
        return jnp.zeros((*action.shape, 3)) + model

    def loss(says, batch):
        return jnp.square(says).mean(), {}

    for is_recurrent, pieces in ((False, 40), (True, 8)):
        unused = dict.fromkeys(("init", "begin", "see", "note", "choose", "aim", "act"))
        algorithm = rounds.Algorithm(
            name="", **unused, unroll=unroll, loss=loss, is_recurrent=is_recurrent
        )
        model = jnp.float32(0)
        learner = rounds.Learner(model, rounds.optimiser(config, 0.0).init(model), jnp.int32(0))
        learner, _ = rounds.learn(
            jax.random.key(0), config, algorithm, jnp.float32(0), learner, (), segment
        )
        jax.effects_barrier()
        assert int(learner.updates) == len(met) == 4
        order = list(itertools.chain(*met))
        assert sorted(order) == list(range(40)) != order
        if is_recurrent:
            columns = [np.array(rows).reshape(5, -1) for rows in met]
            assert all((np.diff(rows, axis=0) == pieces).all() for rows in columns)
        met.clear()
