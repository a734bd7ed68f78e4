"""The world model that knows no rule: what it learns, how sure it is, and what it plans."""

from functools import cache

import jax
import numpy as np
import pytest

from draws import streams
from learners import small_agent
from tapebench import agents
from tapebench import env as envs
from tapebench.agents import automata
from tapebench.base import seeding
from tapebench.exam.rollout import rollout
from tapebench.physics import space
from tapebench.physics.families import FAMILIES, elementary
from tapebench.physics.space import Space
from tapebench.planning import ball as balls
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

HELD_OUT = splits.load("fps30").test
RING = Space((16,))


@cache
def learned(**options):
    """An agent after 3,000 steps on training rules with 16 cells, and its state."""
    task = make_task(length=16, horizon=16)
    agent = agents.make("automata", *envs.make(task=task), **options)
    state = agent.init(seeding.key(0, "automata"))
    losses = []
    for _ in range(3):
        state, metrics = agent.train(state)
        losses.append(float(metrics["loss"]))
    return agent, state, losses


def table(rule):
    """What an elementary rule makes of the 32 neighbourhoods of five cells."""
    return np.array([rule >> (code >> 1 & 7) & 1 for code in range(32)])


def law(rule):
    return sum(int(bit) << code for code, bit in enumerate(table(rule)))


def memory_after(policy, rules, steps, length=16, seed=0):
    """The memory of a policy after so many random flips under each rule, and the next of them."""
    rng = np.random.default_rng(seed)
    num = len(rules)
    cells = rng.integers(2, size=(num, length)).astype(np.uint8)
    memory = policy.init(None, num)._replace(cells=0 * cells, foreseen=0 * cells)
    for t in range(steps + 1):
        obs = np.concatenate([cells, np.full((num, 1), t / 64)], axis=1).astype(np.float32)
        memory = automata.remember(memory, obs, Space((length,)))
        memory = memory._replace(cell=rng.integers(length, size=num))
        flipped = space.flip(space.pack(cells), memory.cell)
        cells = space.unpack(elementary.evolve(flipped, np.array(rules), length), length)
    return memory, cells


# The physics that the planner may think of.


def test_a_law_of_five_cells_updates_like_a_loop():
    rng = np.random.default_rng(0)
    for length in (3, 4, 5, 8, 31, 32):
        rule, ring = int(rng.integers(2**32)), Space((length,))
        cells = rng.integers(2, size=(6, length))
        tapes = space.pack(cells)[:, 0]
        wanted = [
            [
                rule >> int("".join(str(row[(i + o) % length]) for o in range(-2, 3)), 2) & 1
                for i in range(length)
            ]
            for row in cells
        ]
        after = balls.evolve_ring(tapes, rule, length, radius=2)
        np.testing.assert_array_equal(space.unpack(after[:, None], length), wanted)
        ones = np.tile(rule >> np.arange(32) & 1, (6, 1)).astype(bool)
        np.testing.assert_array_equal(automata.follow(ones, cells.astype(np.uint8), ring), wanted)


def test_predecessors_under_a_law_of_five_cells_are_all_of_them():
    rng = np.random.default_rng(0)
    for length in (4, 9):
        every = np.arange(2**length, dtype=np.uint32)
        rule = int(rng.integers(2**32))
        after = balls.evolve_ring(every, rule, length, radius=2)
        targets = np.unique(after)[:20]
        predecessors, are_all = balls.predecessors(targets, rule, length, 10**6, rng, radius=2)
        assert are_all
        assert sorted(predecessors) == every[np.isin(after, targets)].tolist()


def test_a_law_is_narrow_exactly_if_the_outer_cells_do_not_matter():
    for rule in range(256):
        assert automata.narrow(law(rule)) == (rule, 1)
        assert automata.narrow(law(rule) ^ 1 << 17) == (law(rule) ^ 1 << 17, 2)


def test_search_with_a_wide_law_finds_real_ways():
    rng = np.random.default_rng(1)
    rule = law(204) ^ 1 << 31
    tapes = rng.integers(2**10, size=8).astype(np.uint32)
    ways = automata.search.find_ways(tapes, [20] * 8, rule, 10, 0, streams(8), radius=2)
    for tape, way in zip(tapes, ways, strict=True):
        for cell in way:
            tape = balls.successors(np.array([tape]), rule, 10, 2)[0, cell]
        assert tape == 0


@pytest.mark.parametrize("length", [10, 40])
def test_a_beam_without_a_ball_finds_real_ways_on_tapes_of_any_length(length):
    rng = np.random.default_rng(0)
    cells = rng.integers(2, size=(3, length))
    goal = space.to_words(0, length)
    for rule in (0, 4, 204):
        tapes = space.pack(cells)
        ways = automata.search.find_far_ways(
            tapes, [length] * 3, rule, length, goal, streams(3), 16
        )
        for tape, way in zip(tapes, ways, strict=True):
            for cell in way:
                tape = elementary.step(tape[None], np.array([cell]), np.array([rule]), length)[0]
            assert not tape.any()
    assert [len(way) for way in ways] == cells.sum(axis=1).tolist()


@pytest.mark.parametrize(("length", "rule"), [(32, 204), (40, 204)])
def test_what_is_found_for_a_tape_does_not_depend_on_what_was_asked_before(
    monkeypatch, length, rule
):
    monkeypatch.setattr(automata, "_WAYS", {})
    monkeypatch.setattr(automata.search, "PASSES", automata.search.PASSES[:2])
    batches = []
    choose = automata.search._choose
    monkeypatch.setattr(
        automata.search,
        "_choose",
        lambda tapes, *rest: batches.append(tapes) or choose(tapes, *rest),
    )
    config, ring = automata.Config(beam=16), Space((length,))
    num = automata.search.ROWS + 4
    cells = np.random.default_rng(0).integers(2, size=(num, length))
    tapes, goal = space.pack(cells), space.to_words(0, length).tolist()
    budget = [length - number % 3 for number in range(num)]
    together = automata.plan_ways(config, tapes, budget, law(rule), ring, goal)
    assert any(together)
    assert len(batches) > 2
    assert automata.plan_ways(config, tapes, budget, law(rule), ring, goal) == together
    monkeypatch.setattr(automata, "_MAX_WAYS", 3)
    for number in (num - 1, *range(0, num, 5)):
        (alone,) = automata.plan_ways(
            config, tapes[[number]], [budget[number]], law(rule), ring, goal
        )
        assert alone == together[number]


@pytest.mark.parametrize(("family", "shape"), [("ring2", (12,)), ("life", (4, 5))])
def test_a_table_of_neighbourhoods_is_any_rule_of_the_widest_family_of_the_space(family, shape):
    laws, where = FAMILIES[family], Space(shape)
    assert automata.assumed_family(where) == laws
    assert len(np.unique(automata.describe(where), axis=0)) == laws.entries
    rng = np.random.default_rng(0)
    rules = rng.integers(laws.num_rules, size=30, dtype=np.uint32)
    cells = rng.integers(2, size=(30, where.size), dtype=np.uint8)
    after = space.unpack(laws.evolve(space.pack(cells), rules, where), where.size)
    ones = laws.table(rules) == 1
    np.testing.assert_array_equal(automata.follow(ones, cells, where), after)
    counts = automata.count_cases(cells, after, np.arange(30) > 0, where)
    assert counts[1:].sum() == 29 * where.size
    assert not counts[0].any()
    np.testing.assert_array_equal(counts[1:, :, 1] > 0, (ones & (counts.sum(-1) > 0))[1:])
    np.testing.assert_array_equal(automata.presence(cells, where)[1:], counts[1:].sum(-1) > 0)


def test_plans_on_a_torus_lead_to_the_goal_under_the_rule():
    life, where = FAMILIES["life"], Space((4, 4))
    rule = life.parse("B3/S")
    tapes = space.pack(np.random.default_rng(0).integers(2, size=(6, 16)))
    ways = automata.plan_ways(automata.Config(beam=64), tapes, [8] * 6, rule, where, [0])
    assert all(ways)
    for tape, way in zip(tapes, ways, strict=True):
        for cell in way:
            tape = life.step(tape, cell, rule, where)
        assert not tape.any()


# The model.


@pytest.mark.slow
def test_the_loss_falls_and_the_outer_cells_turn_out_not_to_matter():
    _, state, losses = learned()
    assert losses[-1] < 0.75 * losses[0]
    likeness, _ = map(np.asarray, state.learner.model.likeness())
    inner = np.arange(32) >> 1 & 7
    alike = inner[:, None] == inner
    assert likeness[alike].min() > 20 * likeness[~alike].max()


@pytest.mark.slow
def test_the_model_finds_the_table_of_held_out_rules_and_an_untrained_copy_does_not():
    agent, state, _ = learned()
    memory, _ = memory_after(agent.policy(state), HELD_OUT, 4)
    belief = automata.believe(memory, 8.0)
    seen = memory.counts.any(axis=-1)
    inner = np.arange(32) >> 1 & 7
    # What is seen of three cells is known of all neighbourhoods that share them.
    known = np.stack([seen[:, inner == inner[code]].any(axis=1) for code in range(32)], axis=1)
    wanted = np.stack([table(rule) for rule in HELD_OUT])
    assert (known & ~seen).sum() > 50
    assert (belief.ones == wanted)[known].all()
    assert belief.prob[known].min() > 0.9
    untrained, start, _ = learned(learn=False)
    memory, _ = memory_after(untrained.policy(start), HELD_OUT, 4)
    guess = automata.believe(memory, 8.0)
    assert (guess.ones == wanted)[known].mean() < 0.9
    assert guess.prob[known].mean() < 0.8


@pytest.mark.slow
def test_without_evidence_nothing_is_sure():
    agent, state, _ = learned()
    belief = automata.believe(agent.policy(state).init(None, 1), 8.0)
    assert 0.4 < belief.prob.min() <= belief.prob.max() < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 1])
def test_confidence_is_how_often_the_model_is_right(steps):
    agent, state, _ = learned()
    rules = splits.load("fps30").train * 4
    memory, _ = memory_after(agent.policy(state), rules, steps, length=8)
    belief = automata.believe(memory, 8.0)
    present = automata.presence(automata.flip_cells(memory.cells, memory.cell), Space((8,)))
    right = belief.ones == np.stack([table(rule) for rule in rules])
    for low, high in ((0.0, 0.7), (0.7, 0.95), (0.95, 1.0)):
        there = present & (belief.prob >= low) & (belief.prob <= high)
        if there.sum() > 300:
            assert abs(right[there].mean() - belief.prob[there].mean()) < 0.06


@pytest.mark.slow
def test_the_policy_counts_what_training_counts():
    agent, state, _ = learned()
    rng = np.random.default_rng(0)
    before, after = rng.integers(2, size=(2, 3, 1, 16)).astype(np.float32)
    cell = rng.integers(16, size=(3, 1))
    wanted = automata.tally(before, cell, after, np.ones(before.shape, np.float32), RING)
    memory = agent.policy(state).init(None, 3)
    for time, cells in ((0.0, before), (0.25, after)):
        obs = np.concatenate([cells[:, 0], np.full((3, 1), time, np.float32)], axis=1)
        memory = automata.remember(memory, obs, RING)._replace(cell=cell[:, 0])
    np.testing.assert_array_equal(memory.counts, wanted)
    np.testing.assert_array_equal(memory.horizon, [4, 4, 4])
    # An episode that stands still tells nothing, and neither does the start of the next one.
    for time in (0.25, 0.0):
        obs[:, -1] = time
        memory = automata.remember(memory, obs, RING)
        np.testing.assert_array_equal(memory.counts, wanted)


# The policy.


@pytest.mark.slow
def test_it_solves_fixed_rules():
    task = make_task(length=8, horizon=8, rules=[0, 4, 204])
    agent = agents.make("automata", *envs.make(length=8, horizon=8))
    state = agent.init(seeding.key(0, "automata"))
    for _ in range(3):
        state, _ = agent.train(state)
    episodes = rollout(agent.policy(state), task, episodes=20)
    assert episodes.success[0].all()
    assert episodes.success.mean() > 0.9


@pytest.mark.slow
def test_held_out_rules_are_solved_as_well_as_those_trained_on():
    agent, state, _ = learned()
    split = splits.load("fps30")
    task = make_task(length=16, horizon=16, rules="all")
    episodes = rollout(agent.policy(state), task, HELD_OUT, episodes=4)
    assert episodes.success.mean() > 0.9 * 0.434
    some = rollout(agent.policy(state), task, split.train[::8], episodes=4)
    assert some.success.mean() > 0.45


@pytest.mark.slow
def test_a_model_that_does_not_explain_what_it_saw_is_not_planned_with():
    agent, state, _ = learned(learn=False)
    policy = agent.policy(state)
    memory, cells = memory_after(policy, HELD_OUT, 3)
    fits = automata.explained(memory, automata.believe(memory, 8.0))
    assert (fits < 0.8).mean() > 0.5
    obs = np.concatenate([cells, np.full((len(cells), 1), 4 / 64)], axis=1).astype(np.float32)
    memory, action = policy.act(memory, obs, streams(len(obs)))
    fits = automata.explained(memory, automata.believe(memory, 8.0))
    fallen_back = (fits < 0.8) & cells.any(axis=1)
    assert fallen_back.sum() > 10
    assert (memory.plan[fallen_back] == -1).all()
    assert (cells[np.arange(len(cells)), action] == 1)[fallen_back].all()


@pytest.mark.slow
def test_plans_are_no_deeper_than_allowed_and_are_dropped_on_a_surprise():
    agent, state, _ = learned()
    task = make_task(length=16, horizon=16, rules=[204])
    shallow = agents.make("automata", *envs.make(length=16, horizon=16), plan_depth=2)
    deep = rollout(agent.policy(state), task, episodes=20)
    short = rollout(shallow.policy(state), task, episodes=20)
    assert deep.success.mean() > 0.9
    assert shallow.policy(state).init(None, 1).plan.shape == (1, 2)
    assert short.success.mean() <= deep.success.mean()
    memory = agent.policy(state).init(None, 1)
    memory = memory._replace(time=np.zeros(1, np.float32), plan=memory.plan * 0 + 3)
    obs = np.zeros((1, 17), np.float32)
    obs[0, 16] = 0.25
    assert (automata.remember(memory, obs, RING).plan == 3).all()
    obs[0, 5] = 1.0
    assert (automata.remember(memory, obs, RING).plan == -1).all()


@pytest.mark.slow
def test_a_flip_to_learn_shows_neighbourhoods_that_the_model_thinks_new():
    agent, state, _ = learned()
    memory = agent.policy(state).init(None, 1)
    cells = np.zeros((1, 16), np.uint8)
    cells[0, 0] = 1
    memory = memory._replace(cells=cells)
    gains = automata.information(memory, automata.believe(memory, 8.0), np.array([0]), 8.0, RING)
    # Of the eight kinds of three cells these flips show five, four and one.
    assert gains[0, 2] > gains[0, 5] + 2 > gains[0, 0] + 10
    assert 0 < gains.min() <= gains.max() < 32


@pytest.mark.slow
def test_an_untrained_copy_never_changes():
    agent, _ = small_agent("automata", learn=False)
    state = agent.init(jax.random.key(0))
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(state.learner.model)]
    state, _ = agent.train(state)
    for old, new in zip(before, jax.tree.leaves(state.learner.model), strict=True):
        np.testing.assert_array_equal(old, new)
