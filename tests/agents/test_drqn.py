import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from learners import play, probed, small_agent, train_until
from tapebench import env as envs
from tapebench.agents import drqn, memory, replay


def recursive_target(config, reward, ended, is_known, ahead, t):
    """The same by the book: forwards, from step t."""
    total = 0.0
    for n in range(config.n_step):
        if t + n == len(reward) or not is_known[t + n]:
            return total + config.discount**n * ahead[t + n]
        total += config.discount**n * reward[t + n]
        if ended[t + n]:
            return total
    return total + config.discount**config.n_step * ahead[t + config.n_step]


@pytest.mark.parametrize("n_step", [1, 2, 3, 9])
def test_targets_add_up_rewards_to_the_end_or_to_what_is_not_known_yet(n_step):
    config = drqn.Config(discount=0.5, n_step=n_step)
    rng = np.random.default_rng(n_step)
    reward, ahead = rng.normal(size=(6, 4)), rng.normal(size=(7, 4))
    ended = np.zeros((6, 4), bool)
    ended[1, 1] = ended[3, 1] = ended[5, 2] = True
    is_known = np.ones((6, 4), bool)
    is_known[4:, 3] = False
    arrays = (jnp.float32(reward), ended, is_known, jnp.float32(ahead))
    targets = np.asarray(drqn.targets(config, *map(jnp.asarray, arrays)))
    for b in range(4):
        columns = reward[:, b], ended[:, b], is_known[:, b], ahead[:, b]
        for t in np.flatnonzero(is_known[:, b]):
            wanted = recursive_target(config, *columns, t)
            np.testing.assert_allclose(targets[t, b], wanted, rtol=1e-5)


@pytest.mark.parametrize("steps", [3, 9, 33])
def test_pieces_begin_with_their_episode_and_are_what_happened(steps):
    env, params = envs.make(length=8, horizon=5, rules=[0, 30])
    stored, deques = play(env, params, steps, num_envs=3, capacity=60)
    draw = jax.jit(replay.draw_episodes, static_argnums=(2, 3))
    drawn = jax.tree.map(np.asarray, draw(jax.random.key(2), stored, 500, 7))
    assert drawn.obs.shape == (8, 500, 9)
    kept = [row for rows in deques for row in rows]
    happened = {(row[0].tobytes(), int(row[1])) for row in kept}
    # Tapes repeat: so that a step is known again, all of its piece is compared.
    pieces = set()
    for rows in map(list, deques):
        first = next(n for n, row in enumerate(rows) if row[0][8] == 0)
        for start in range(first, len(rows)):
            if rows[start][0][8] == 0:
                pieces.add(_content(rows[start : start + 7]))
    for number in range(500):
        is_known = drawn.is_known[:, number]
        rows = [
            (drawn.obs[t, number], drawn.action[t, number], drawn.reward[t, number])
            for t in np.flatnonzero(is_known)
        ]
        assert all((row[0].tobytes(), int(row[1])) in happened for row in rows)
        if is_known[0]:
            assert _content(rows) in pieces
            assert drawn.obs[0, number, 8] == 0
        else:
            # The beginning is no longer kept: what is left of that episode is not learned from.
            unknown = int(is_known.argmax()) if is_known.any() else 7
            assert (drawn.obs[1:unknown, number, 8] != 0).all()
            assert not is_known.any() or drawn.obs[unknown, number, 8] == 0
        for t in np.flatnonzero(is_known):
            assert drawn.ended[t, number] == (drawn.obs[t + 1, number, 8] == 0)
    assert drawn.is_known[0].mean() > 0.8
    assert steps > 3 or not drawn.is_known[3:].any()


def _content(rows):
    parts = (np.float32(row[0]).tobytes() + np.int32(row[1]).tobytes() for row in rows)
    return b"".join(parts), tuple(float(row[2]) for row in rows)


def test_play_remembers_what_learning_works_out_again():
    agent, _ = small_agent("drqn")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    pieces = replay.draw_episodes(jax.random.key(1), state.replay, 50, 8)
    model, start = state.learner.network, memory.begin(50, 9, 8)
    values, _ = model.run(start, pieces.obs, pieces.action)
    before = start
    for t in range(8):
        before, says = memory.see(model, before, pieces.obs[t])
        np.testing.assert_allclose(says, values[t], atol=1e-5)
        before = memory.note(before, pieces.action[t])
    assert np.ptp(np.asarray(state.memory.hidden)) > 0


def test_what_is_not_known_does_not_count():
    agent, _ = small_agent("drqn")
    state, _ = agent.train(agent.init(jax.random.key(0)))
    pieces = replay.draw_episodes(jax.random.key(1), state.replay, 20, 8)
    is_known = pieces.is_known.at[5:].set(False)
    config = drqn.Config(**drqn.Config.SMALL)
    learner, start = state.learner, memory.begin(20, 9, 8)

    def loss(reward):
        batch = pieces._replace(reward=reward, is_known=is_known)
        return drqn.td_loss(config, learner.network, learner.target, start, batch)

    other = jax.random.normal(jax.random.key(2), pieces.reward.shape)
    as_it_is = loss(pieces.reward)
    assert loss(jnp.where(is_known, pieces.reward, other)) == as_it_is
    assert loss(jnp.where(is_known, other, pieces.reward)) != as_it_is


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "probe"), [("gru", "recall"), ("cells", "marked"), ("entries", "marked")]
)
def test_drqn_solves_what_needs_memory(network, probe):
    made = {"recall": probes.make_recall, "marked": probes.make_marked}[probe]()
    options = {"network": network, "memory_size": 16, "encoder_width": 16}
    agent = probed("drqn", made, epsilon_end=0.1, epsilon_steps=4_000, **options)
    horizon = int(made[1].horizon)

    def check(state, metrics):
        assert horizon * metrics["reward"] > 0.75

    train_until(check, agent, 40_000)
