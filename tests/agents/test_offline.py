"""Agents that learn from data: what the data is, what a query and its context are, what they
remember, and how a run stores which data it was."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learners import FROM_DATA, SMALL, fingerprint, small_agent, turn
from tapebench import agents, datasets
from tapebench import env as envs
from tapebench.agents import api, dpt, offline
from tapebench.base import seeding
from tapebench.datasets import store
from tapebench.exam import policy as policies
from tapebench.exam.rollout import rollout
from tapebench.physics import space
from tapebench.physics.families.elementary import ELEMENTARY, step, table
from tapebench.physics.space import Space
from tapebench.runs import training
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

LENGTH, HORIZON = 7, 4
SIZES = {"length": LENGTH, "horizon": HORIZON}
KINDS = pytest.mark.parametrize(
    ("data", "labels", "context", "earlier"),
    [
        ("random", "optimal", 6, 0.5),
        ("bayes-optimal", "played", 6, 0.0),
        ("mixed", "played", 9, 1.0),
    ],
)


def config_of(**options):
    return dpt.Config(**SMALL["dpt"] | {"episodes": 640} | options)


@cache
def lessons_of(config):
    """The spec that a config stands for, its dataset, and what is learned from it."""
    spec = offline.training_spec(config, *envs.make(task=make_task(**SIZES)))
    return spec, offline.make_data(spec)[0], offline.make_lessons(spec, config.labels)


def table_of(seen):
    """What counts say of a table: 1 where ones were seen, 0 where zeros were, else -1."""
    counts = np.asarray(seen).reshape(*seen.shape[:-1], -1, 2)
    assert not (counts > 0).all(axis=-1).any()
    return np.where(counts[..., 1] > 0, 1, np.where(counts[..., 0] > 0, 0, -1))


# The data.


@pytest.mark.parametrize("data", ["random", "bayes-optimal"])
def test_the_data_is_that_of_the_command_and_its_hash_too(tmp_path, data):
    config = config_of(data=data, episodes=300, data_seed=3)
    own = offline.training_spec(config, *envs.make(task=make_task(**SIZES)))
    split = splits.load("fps30")
    spec = replace(own, split=split, track="core")
    path, manifest = store.make(spec, tmp_path)
    made, content = offline.make_data(own)
    assert content == manifest.content
    stored = datasets.load(path)
    for name in ("rule", "num_steps", "success", "action", "tape", "reward", "optimal_cells"):
        np.testing.assert_array_equal(getattr(made, name), getattr(stored, name))
    agent = agents.make("dpt", *envs.make(task=make_task(**SIZES)), **vars(config))
    assert agent.data() == content


@KINDS
def test_only_training_rules_occur(data, labels, context, earlier):
    _, made, _ = lessons_of(config_of(data=data, labels=labels))
    split = splits.load("fps30")
    assert set(made.rule.tolist()) <= set(split.train)
    assert not set(made.rule.tolist()) & set(split.test)


@KINDS
def test_a_query_is_a_step_of_the_dataset_and_its_label_is_that_of_the_step(
    data, labels, context, earlier
):
    _, made, lessons = lessons_of(config_of(data=data, labels=labels))
    steps = {
        (row, t): made.optimal_cells[row, t] if labels == "optimal" else 1 << made.action[row, t]
        for row in range(len(made))
        for t in range(made.num_steps[row])
        if labels == "played" or 0 < made.optimal_steps[row, t] <= HORIZON - t
    }
    expected = sorted((made.tape[row, t], t, label) for (row, t), label in steps.items())
    queries = np.asarray(lessons.queries)[: int(lessons.num_queries)]
    parts = (lessons.tape, lessons.step, lessons.label)
    got = sorted(zip(*(np.asarray(part)[queries].tolist() for part in parts), strict=True))
    assert got == expected
    assert len(got) > 500
    if labels == "optimal":
        every = made.is_taken & (made.optimal_cells > 0)
        assert len(got) < every.sum()  # some ways are too long


@KINDS
def test_a_context_is_what_came_right_before_under_the_same_rule(data, labels, context, earlier):
    config = config_of(data=data, labels=labels, context=context, earlier=earlier)
    _, made, lessons = lessons_of(config)
    algorithm = dpt.algorithm("dpt", config, ELEMENTARY, Space((LENGTH,)))
    sizes = {"batch": 400, "length": LENGTH, "horizon": jnp.int32(HORIZON)}
    batch = offline.draw_batch(jax.random.key(1), lessons, algorithm, **sizes)
    # The same in loops: the flat steps, and for a query those that may be its context.
    block = made.rule if made.history == 1 else np.arange(len(made)) // made.history
    order = sorted(range(len(made)), key=lambda row: block[row])
    flat = [(row, t) for row in order for t in range(made.num_steps[row])]
    shown = np.zeros((len(flat), 16), int)
    for number, (row, t) in enumerate(flat):
        before, after = (space.unpack(made.tape[row, [u]], LENGTH) for u in (t, t + 1))
        before[made.action[row, t]] ^= 1
        for cell in range(LENGTH):
            code = 4 * before[cell - 1] + 2 * before[cell] + before[(cell + 1) % LENGTH]
            shown[number, 2 * code + after[cell]] += 1
    possible = {}
    for number, (row, t) in enumerate(flat):
        obs = *space.unpack(made.tape[row, [t]], LENGTH).tolist(), np.float32(t / HORIZON)
        starts = [number - t]
        if earlier:
            starts = range(max(number - t - context, 0), number - t + 1)
        for start in starts:
            if block[flat[start][0]] == block[row]:
                counts = tuple(shown[start:number].sum(axis=0).tolist())
                possible.setdefault(obs, set()).add(counts)
    sizes = []
    for obs, seen in zip(np.asarray(batch.obs), np.asarray(batch.seen).tolist(), strict=True):
        key = *obs[:-1].astype(int).tolist(), obs[-1]
        assert tuple(seen) in possible[key]
        sizes.append(sum(seen) // LENGTH - round(float(obs[-1]) * HORIZON))
    assert min(sizes) == 0
    assert max(sizes) == (context if earlier else 0)
    # Few where there are only few episodes under a rule.
    assert 0.4 * earlier <= np.mean(np.array(sizes) > 0) <= 1.2 * earlier


def test_a_context_says_nothing_but_what_the_rule_does():
    config = config_of(data="random", labels="optimal", context=30, earlier=1.0)
    _, made, lessons = lessons_of(config)
    ends = np.flatnonzero(np.diff(np.asarray(lessons.first))) + 1
    begins = np.asarray(lessons.first)[ends - 1]
    seen = np.asarray(lessons.seen)
    rules = sorted(set(made.rule.tolist()))
    for rule, begin, end in zip(rules, begins, ends, strict=False):
        known = table_of(seen[end] - seen[begin])
        np.testing.assert_array_equal(known[known >= 0], table(rule)[known >= 0])


def test_the_loss_is_the_cross_entropy_with_the_cells_that_are_right():
    logits = jnp.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    label = jnp.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    log_prob = np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    expected = -np.mean([(log_prob[0, 1] + log_prob[0, 2]) / 2, log_prob[1, 0]])
    assert float(offline.imitation_loss(logits, label)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("world", "options", "message"),
    [
        ({"length": 32, "horizon": 32}, {"data": "random", "labels": "optimal"}, "not known on 32"),
        ({"length": 32, "horizon": 32}, {"data": "optimal"}, "optimal is played up to 16 cells"),
        ({**SIZES, "mask": [0]}, {}, "leave out mask"),
        ({**SIZES, "noise": 0.1}, {}, "leave out mask"),
        ({**SIZES, "goal": [1, 0, 0, 0, 0, 0, 0]}, {}, "leave out mask"),
        ({**SIZES, "rules": "all"}, {}, "train on fewer rules"),
    ],
)
def test_a_task_that_datasets_are_not_of_is_refused(world, options, message):
    agent = agents.make("dpt", *envs.make(**world), **options)
    with pytest.raises(ValueError, match=message):
        agent.data()
    with pytest.raises(ValueError, match=message):
        agent.train(agent.init(jax.random.key(0)))


def test_a_policy_acts_where_there_are_no_datasets():
    agent, _ = small_agent("dpt")
    arrays = api.learned(api.to_arrays(agent.init(jax.random.key(0))))
    task = make_task(length=20, horizon=5, rules="all", noise=0.1)
    other = agents.make("dpt", *envs.make(task=task), **SMALL["dpt"])
    like = jax.eval_shape(other.init, jax.random.key(0))
    policy = other.policy(api.from_learned(like, arrays))
    assert rollout(policy, task, rules=[4, 110], episodes=3).success.shape == (2, 3)


# Learning and acting.


@pytest.mark.parametrize("name", FROM_DATA)
def test_an_agent_learns_from_its_data(name):
    agent, task = small_agent(name)
    state = agent.init(jax.random.key(0))
    before = api.learned(api.to_arrays(state))
    state, metrics = agent.train(state)
    after = api.learned(api.to_arrays(state))
    assert all((before[part] != after[part]).any() for part in before if "norms" not in part)
    assert all(np.isfinite(metric) for metric in metrics.values())
    assert int(state.steps) == agent.chunk
    policy = agent.policy(state)
    assert not policy.sees_rule
    assert rollout(policy, task, rules=[4, 110], episodes=3).success.shape == (2, 3)


def test_data_of_other_rules_is_learned_with_the_same_program():
    states = [small_agent("dpt", rules=rules)[0] for rules in ("train", [30, 110])]
    first = states[0].train(states[0].init(jax.random.key(0)))[0]
    programs = offline._learn._cache_size()
    second = states[1].train(states[1].init(jax.random.key(0)))[0]
    assert offline._learn._cache_size() == programs > 0
    assert fingerprint(first) != fingerprint(second)
    assert states[0].policy(first).act is states[1].policy(second).act


def test_traced_training_leaves_nothing_behind():
    agent, _ = small_agent("dpt", data_seed=9)
    state = agent.init(jax.random.key(0))
    jax.eval_shape(agent.train, state)
    assert np.isfinite(agent.train(state)[1]["loss"])


@pytest.mark.parametrize("earlier", [0.0, 0.5])
def test_the_policy_remembers_what_its_episodes_have_shown(earlier):
    agent, _ = small_agent("dpt", earlier=earlier)
    policy = agent.policy(agent.init(jax.random.key(0)))
    rng = np.random.default_rng(0)
    rules = np.array([30, 110, 4, 90, 184])
    stream = seeding.Stream(*np.zeros((2, len(rules)), np.uint32))
    memory, counts = policy.init(None, len(rules)), np.zeros((len(rules), 16), int)
    for _episode in range(2):
        cells = rng.integers(2, size=(len(rules), 8))
        counts = counts if earlier else np.zeros_like(counts)
        for t in range(4):
            time = np.full((len(rules), 1), t / 8)
            obs = np.concatenate([cells, time], axis=1).astype(np.float32)
            memory, _ = policy.act(memory, jnp.asarray(obs), stream)
            np.testing.assert_array_equal(policy.recall(memory), counts)
            flip = rng.integers(8, size=len(rules))
            memory = policy.note(memory, jnp.asarray(flip))
            flipped = cells ^ (np.arange(8) == flip[:, None])
            code = 4 * np.roll(flipped, 1, 1) + 2 * flipped + np.roll(flipped, -1, 1)
            cells = space.unpack(step(space.pack(cells), flip, rules, 8), 8)
            for row in range(len(rules)):
                np.add.at(counts[row], 2 * code[row] + cells[row], 1)
        # An episode that is over stands still, and shows nothing more.
        memory, _ = policy.act(memory, jnp.asarray(obs), stream)
        np.testing.assert_array_equal(policy.recall(memory) <= counts, True)
        counts = np.asarray(policy.recall(memory)).astype(int)


def test_the_control_remembers_nothing():
    agent, _ = small_agent("bc")
    policy = agent.policy(agent.init(jax.random.key(0)))
    assert policy.recall is None
    assert policy.init(None, 3)[1] == ()


# The transformer.


@cache
def transformer(**options):
    config = config_of(layers=2, tokens=16, heads=2, **options)
    return dpt.make_transformer(jax.random.key(2), config, ELEMENTARY, Space((LENGTH,)))


def test_attention_over_cases_is_attention_over_all_tokens():
    network = transformer()
    seen = np.random.default_rng(0).integers(4, size=(5, 16)) * (np.arange(16) % 3 > 0)
    # One token for every cell of every transition, and the one that is always there.
    for row, counts in enumerate(seen):
        every = np.append(np.repeat(np.arange(16), counts), 16)
        tokens = network.cases[every][None]
        alone = jnp.zeros((1, len(every)))
        for block in network.blocks[:-1]:
            tokens = block(tokens, tokens, alone)
        asked = network.blocks[-1](network.entries[None], tokens, alone)
        expected = (asked @ network.answer.weight.T + network.answer.bias).swapaxes(1, 2)
        got = network.answers(jnp.asarray(seen[[row]], jnp.int32))
        np.testing.assert_allclose(got, expected.reshape(1, -1), rtol=1e-4, atol=1e-5)


def test_the_policy_commutes_with_shifts_of_the_query():
    network, rng = transformer(), np.random.default_rng(0)
    cells = rng.integers(2, size=(6, LENGTH))
    obs = np.concatenate([cells, np.full((6, 1), 0.25)], axis=1).astype(np.float32)
    seen = jnp.asarray(rng.integers(3, size=(6, 16)), jnp.int32)
    logits = network(jnp.asarray(obs), seen)
    for by in (1, 3):
        shifted = network(jnp.asarray(turn(obs, by)), seen)
        np.testing.assert_allclose(shifted, np.roll(logits, by, axis=1), rtol=1e-4, atol=1e-5)
    other = network(jnp.asarray(obs), seen[::-1])
    assert not np.allclose(other, logits, atol=1e-4)


def test_a_shifted_transition_says_the_same():
    rng = np.random.default_rng(0)
    before, after = rng.integers(2, size=(2, 6, LENGTH))
    first = offline.cases(before, after, ELEMENTARY, Space((LENGTH,)))
    turned = (np.roll(each, 2, axis=1) for each in (before, after))
    np.testing.assert_array_equal(first, offline.cases(*turned, ELEMENTARY, Space((LENGTH,))))
    assert (first.sum(axis=1) == LENGTH).all()


# Runs.


def spec_of_run(**changes):
    options = SMALL["dpt"] | {"chunk": 40, "episodes": 400}
    fields = {"steps": 240, "evaluate_every": 80, "episodes": 2, "rules": (4, 30)} | SIZES
    return training.RunSpec(agent="dpt", seed=0, options=options, **fields | changes)


@pytest.mark.slow
def test_a_run_resumes_to_the_bit_and_not_with_another_dataset(tmp_path, monkeypatch):
    spec = spec_of_run()
    whole = training.run(spec, tmp_path / "whole")
    calls = iter([False, False, False, True])
    with pytest.raises(training.Stopped):
        training.run(spec, tmp_path / "halves", stop=lambda: next(calls))
    with monkeypatch.context() as patch:
        made = offline.make_data(offline.training_spec(*of_run(spec)))
        patch.setattr(offline, "make_data", lambda spec: (made[0], "another"))
        with pytest.raises(ValueError, match="made with another data"):
            training.run(spec, tmp_path / "halves")
    halves = training.run(spec, tmp_path / "halves")
    finals = [training.load_run(path, spec.task) for path in (whole, halves)]
    memories = [stored.policy.init(None, 1) for stored in finals]
    assert fingerprint(memories[0]) == fingerprint(memories[1])


def of_run(spec):
    return agents.configure("dpt", **spec.config), *envs.make(task=spec.task)


@pytest.mark.slow
def test_the_context_is_worth_something():
    """From the same data `dpt` learns to be above its control, and the control above chance."""
    options = {"episodes": 4_000, "batch": 50, "chunk": 1_000, "total_steps": 20_000}
    options |= {"channels": 16, "depth": 2, "learning_rate": 3e-3}
    task = make_task(length=7, horizon=4, split=splits.load("fps30"))
    success = {}
    for name in ("bc", "dpt"):
        agent = agents.make(name, *envs.make(task=task), **SMALL[name] | options)
        state = agent.init(seeding.key(0, name))
        for _ in range(20):
            state, _ = agent.train(state)
        success[name] = float(rollout(agent.policy(state), task, episodes=10).success.mean())
    random = float(rollout(policies.random(task), task, episodes=10).success.mean())
    assert success["dpt"] > success["bc"] > random
