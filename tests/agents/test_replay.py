import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shape_checks
from learners import play
from tapebench import env as envs
from tapebench.agents import replay


def everywhere(stored):
    """All places that hold a complete transition, the oldest first."""
    envs_, filled = stored.t.shape[1], int(stored.filled)
    ago, env = np.meshgrid(np.arange(filled, 0, -1), np.arange(envs_), indexing="ij")
    return replay.Places(jnp.asarray(ago.ravel()), jnp.asarray(env.ravel()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"length": 8, "horizon": 5, "rules": [0, 30], "mask": [0, 5]}, 47),
        ({"length": 40, "horizon": 7, "goal": "random", "observe_goal": True}, 18),
        ({"length": 8, "horizon": 1}, 21),
        (
            {"family": "life", "shape": (5, 5), "horizon": 5, "rules": ["B3/S23", "B36/S23"]}
            | {"goal": "random", "observe_goal": True},
            24,
        ),
    ],
)
def test_replay_equals_a_deque(options, steps):
    env, params = envs.make(**options)
    stored, deques = play(env, params, steps, num_envs=3, capacity=60)
    assert int(stored.filled) == min(steps, 20)
    batch = jax.tree.map(np.asarray, jax.jit(replay.take)(stored, everywhere(stored)))
    wanted = [row for rows in zip(*deques, strict=True) for row in rows]
    assert len(batch.obs) == len(wanted)
    for transition, row in zip(zip(*batch, strict=True), wanted, strict=True):
        obs, action, reward, next_obs, ended, count = transition
        assert count == 1
        np.testing.assert_array_equal(obs, row[0])
        assert action == row[1]
        assert reward == row[2]
        assert ended == row[4]
        if not ended:
            np.testing.assert_array_equal(next_obs, row[3])


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_steps_in_a_row_are_summed_up_to_the_end_or_the_present(discount):
    env, params = envs.make(length=8, horizon=5, rules=[0, 30], mask=[0, 5])
    stored, deques = play(env, params, steps=33, num_envs=3, capacity=60)
    places = everywhere(stored)
    take = jax.jit(replay.take, static_argnums=(2, 3))
    batch, places = jax.tree.map(np.asarray, (take(stored, places, 3, discount), places))
    counts = set()
    for place, (ago, index) in enumerate(zip(*places, strict=True)):
        rows = list(deques[int(index)])[-int(ago) :][:3]
        rows = rows[: 1 + next((n for n, row in enumerate(rows) if row[4]), 2)]
        counts.add((len(rows), bool(rows[-1][4])))
        np.testing.assert_array_equal(batch.obs[place], rows[0][0])
        assert batch.action[place] == rows[0][1]
        wanted = sum(discount**n * row[2] for n, row in enumerate(rows))
        np.testing.assert_allclose(batch.reward[place], wanted, rtol=1e-6)
        assert batch.steps[place] == len(rows)
        assert batch.ended[place] == rows[-1][4]
        if not rows[-1][4]:
            np.testing.assert_array_equal(batch.next_obs[place], rows[-1][3])
    assert counts == {(1, True), (2, True), (3, True), (1, False), (2, False), (3, False)}


def test_the_past_of_a_place_is_its_own_episode_and_nothing_else():
    env, params = envs.make(length=8, horizon=5, rules=[0, 30])
    stored, deques = play(env, params, steps=33, num_envs=3, capacity=60)
    places = everywhere(stored)
    past = jax.jit(replay.past, static_argnums=2)(stored, places, 3)
    past, places = jax.tree.map(np.asarray, (past, places))
    for place, (ago, index) in enumerate(zip(*places, strict=True)):
        rows = list(deques[int(index)])
        here = len(rows) - int(ago)
        wanted = []
        for row in reversed(rows[max(0, here - 3) : here]):
            if row[4]:
                break
            wanted.append(row)
        assert past.is_real[place].sum() == len(wanted)
        assert past.is_real[place][: len(wanted)].all()
        for back, (obs, action, _, after, _) in enumerate(wanted):
            np.testing.assert_array_equal(past.before[place, back], obs[:8])
            np.testing.assert_array_equal(past.after[place, back], after[:8])
            assert past.action[place, back] == action


@pytest.mark.slow
def test_the_past_of_a_later_place_holds_what_led_there():
    env, params = envs.make(length=8, horizon=5, rules=[0, 30])
    stored, deques = play(env, params, steps=33, num_envs=3, capacity=60)
    places = everywhere(stored)
    batch = replay.take(stored, places, 3)
    then = replay.past(stored, places._replace(ago=places.ago - batch.steps), 4)
    batch, then, places = jax.tree.map(np.asarray, (batch, then, places))
    goes_on = np.flatnonzero(~batch.ended)
    assert (batch.steps[goes_on] == 3).any()
    for place in goes_on:
        rows = list(deques[int(places.env[place])])[-int(places.ago[place]) :]
        rows = rows[: batch.steps[place]][::-1]
        assert then.is_real[place, : len(rows)].all()
        for back, (obs, action, _, after, _) in enumerate(rows):
            np.testing.assert_array_equal(then.before[place, back], obs[:8])
            np.testing.assert_array_equal(then.after[place, back], after[:8])
            assert then.action[place, back] == action


def test_a_transition_takes_twelve_bytes():
    stored = replay.empty(jnp.zeros((8, 33)), 100_000, 32, jnp.int32(32))
    arrays = (stored.bits, stored.t, stored.action, stored.reward)
    assert sum(array.nbytes for array in arrays) == 12 * (100_000 + 8)


def test_every_complete_transition_is_drawn_equally_often_and_no_other():
    env, params = envs.make(length=8, horizon=5)
    stored, _ = play(env, params, steps=23, num_envs=3, capacity=30)
    ago, index = map(np.asarray, replay.sample_transitions(jax.random.key(1), stored, 30_000))
    counts = np.zeros((12, 3), int)
    np.add.at(counts, (ago, index), 1)
    assert not counts[0].any()
    assert not counts[11].any()
    assert abs(counts[1:11] / 1000 - 1).max() < 4 / np.sqrt(1000)


@pytest.mark.parametrize("steps", [9, 33])
def test_sequences_are_what_happened_and_say_where_episodes_start(steps):
    env, params = envs.make(length=8, horizon=5, rules=[0, 30])
    stored, deques = play(env, params, steps, num_envs=3, capacity=60)
    draw = jax.jit(replay.draw_sequences, static_argnums=(2, 3))
    drawn = jax.tree.map(np.asarray, draw(jax.random.key(2), stored, 3_000, 7))
    assert drawn.obs.shape == (7, 3_000, 9)
    # Tapes are few enough to repeat, but not a piece of seven steps with its actions.
    pieces = {}
    for index, rows in enumerate(deques):
        rows = list(rows)
        for start in range(len(rows) - 6):
            piece = rows[start : start + 7]
            pieces[_content(*map(np.array, list(zip(*piece, strict=True))[:2]))] = index, piece
    assert len(pieces) == 3 * (min(steps, 20) - 6)
    counts = dict.fromkeys(pieces, 0)
    for number in range(3_000):
        content = _content(drawn.obs[:, number], drawn.action[:, number])
        counts[content] += 1
        _, piece = pieces[content]
        for t, (obs, _, reward, _, ended) in enumerate(piece):
            assert drawn.reward[t, number] == reward
            assert drawn.ended[t, number] == ended
            assert drawn.is_first[t, number] == (obs[8] == 0)
            assert t == 0 or drawn.is_first[t, number] == drawn.ended[t - 1, number]
    mean = 3_000 / len(pieces)
    assert abs(np.array([*counts.values()]) / mean - 1).max() < 5 / np.sqrt(mean)
    assert drawn.is_first[1:].any()


def _content(obs, action):
    return obs.astype(np.float32).tobytes() + action.astype(np.int32).tobytes()


def test_replay_and_what_is_taken_from_it_hold_what_their_fields_say():
    env, params = envs.make(length=8, horizon=3)
    stored, _ = play(env, params, 6, num_envs=2, capacity=20)
    places = replay.sample_transitions(jax.random.key(0), stored, 5)
    taken = (replay.take(stored, places, 2), replay.past(stored, places, 3))
    sequences = replay.draw_sequences(jax.random.key(1), stored, 4, 3)
    for held in (stored, places, *taken, sequences):
        shape_checks.check_fields(held)
