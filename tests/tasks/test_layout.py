import jax.numpy as jnp
import numpy as np
import pytest

from tapebench import env as envs
from tapebench.physics import space
from tapebench.tasks.layout import Layout


@pytest.mark.parametrize("observe_goal", [False, True])
@pytest.mark.parametrize("xp", [np, jnp])
def test_the_parts_of_an_observation_are_what_the_environment_put_there(observe_goal, xp):
    import jax

    env, params = envs.make(
        length=9, horizon=4, goal="random" if observe_goal else "zeros", observe_goal=observe_goal
    )
    obs, state = env.reset(jax.random.key(3), params)
    obs, state, *_ = env.step_env(None, state, jnp.int32(2), params)
    layout, obs = Layout(9), xp.asarray(obs)
    assert obs.shape == (layout.width(observe_goal),)
    assert layout.has_goal(obs) == observe_goal
    np.testing.assert_array_equal(layout.cells(obs), space.unpack(np.asarray(state.tape), 9))
    assert layout.time(obs) == 0.25
    np.testing.assert_array_equal(layout.time_column(obs), [0.25])
    goal = space.unpack(np.asarray(state.goal), 9) if observe_goal else []
    np.testing.assert_array_equal(layout.goal(obs), goal)


def test_leading_axes_are_kept():
    obs = np.arange(2 * 3 * 7).reshape(2, 3, 7)
    layout = Layout(3)
    parts = layout.cells(obs), layout.time_column(obs), layout.goal(obs)
    np.testing.assert_array_equal(np.concatenate(parts, axis=-1), obs)
    assert layout.time(obs).shape == (2, 3)
