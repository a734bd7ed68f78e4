"""References that need no training, on rules of every family."""

import jax.numpy as jnp
import numpy as np
import pytest

from tapebench.exam import policy, rollout
from tapebench.exam.exam import IMPOSSIBLE, make_exam
from tapebench.physics import space
from tapebench.physics.families import FAMILIES
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.space import Space
from tapebench.planning import beam, belief, belief_planner
from tapebench.planning.entries import Entries
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

SIZES = {"elementary": Space((9,)), "ring2": Space((9,)), "life": Space((3, 4))}
FAMILY = pytest.mark.parametrize("name", SIZES)
REFERENCES = ("greedy", "beam", "optimal", "bayes", "belief-planner")


def small_task(name, rules=6, **options):
    """A task on some rules of a family, of which some are sparse."""
    family, size = FAMILIES[name], SIZES[name]
    rng = np.random.default_rng(3)
    drawn = rng.integers(family.num_rules, size=(2, rules))
    members = np.unique([*drawn[0], *(drawn[0] & drawn[1])]).tolist()
    options = {"horizon": 6, "rules": members} | options
    return make_task(family=name, shape=size.shape, **options)


def transitions(task, rule, num, seed=0):
    """Tapes, cells flipped in them, and what a rule made of that, with the task's noise."""
    rng = np.random.default_rng(seed)
    tapes = rng.integers(2**task.length, size=(num, 1), dtype=np.uint32)
    cells = rng.integers(task.length, size=num)
    after = task.family.step(tapes, cells, np.full(num, rule), task.space)
    flips = (rng.random((num, task.length)) < task.noise).astype(np.uint8)
    return tapes, cells, after ^ space.pack(flips)


def learn_all(model, prior, task, seen, hazard=None, possible=None):
    """The belief of one row after all of these transitions."""
    now, every_cell = belief.tile(prior, 1), space.full(task.length)
    for tape, cell, after in zip(*seen, strict=True):
        flipped = space.flip(tape[None], np.array([cell]))
        places = belief.neighbourhoods(flipped, task.space, task.family)
        now = model.learn(now, places, after[None], every_cell, task.noise, 1e-9)
        if hazard:
            now = model.shift(now, possible, hazard)
    return now


def places_of_flips(task, tape):
    """The cells that read each entry after each flip of a tape, `[1, A, N, W]`."""
    every_cell = np.arange(task.length, dtype=np.uint32)[None]
    flipped = space.flip(tape[None, None], every_cell)
    return belief.neighbourhoods(flipped, task.space, task.family)


@FAMILY
def test_nobody_is_better_than_optimal_and_planners_that_are_exhaustive_are_as_good(name):
    task = small_task(name)
    split = splits.Split("mine", task.rules[:3], task.rules[3:], universe=task.universe)
    exam = make_exam(split=split, family=name, shape=task.space.shape, horizon=6)
    steps = exam.optimal_steps()
    assert (steps == IMPOSSIBLE).any()
    for reference in REFERENCES:
        made = policy.make(reference, exam.task)
        played = rollout.rollout(made, exam.task)
        assert not played.success[steps == IMPOSSIBLE].any()
        assert (played.steps >= steps)[played.success].all()
        if reference in ("beam", "optimal"):
            np.testing.assert_array_equal(played.success, steps >= 0)
        if reference == "optimal" or (reference == "beam" and beam.is_exhaustive(task)):
            np.testing.assert_array_equal(played.steps[steps >= 0], steps[steps >= 0])


@pytest.mark.parametrize(("name", "shape"), [("ring2", (27,)), ("life", (4, 7))])
def test_search_finds_ways_on_more_cells_than_are_searched_exhaustively(name, shape):
    family = FAMILIES[name]
    rules = [family.parse("23/3") if name == "life" else 0b1010, 8 if name == "life" else 16]
    task = make_task(family=name, shape=shape, rules=rules, horizon=12)
    assert not beam.is_exhaustive(task)
    played = rollout.rollout(beam.beam(task), task, episodes=4)
    assert played.success.mean() >= 0.5


@FAMILY
def test_optimal_serves_other_goals(name):
    goal = "1" + "0" * (SIZES[name].size - 1)
    task = small_task(name, goal=goal)
    split = splits.Split("mine", task.rules[:3], task.rules[3:], universe=task.universe)
    exam = make_exam(split=split, family=name, shape=task.space.shape, horizon=6, goal=goal)
    played = rollout.rollout(policy.make("optimal", exam.task), exam.task)
    np.testing.assert_array_equal(played.success, exam.optimal_steps() >= 0)
    assert 0 < played.success.mean() < 1


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("hazard", [None, 0.2])
def test_a_belief_by_entries_is_that_over_all_rules(noise, hazard):
    """Elementary rules are few enough to list all of them."""
    task = make_task(length=8, horizon=8, rules=[30], noise=noise)
    seen = transitions(task, 30, 3)
    if hazard:
        if not noise:
            return  # what contradicts a rule is weighed by entry here, and by transition there
        later = transitions(task, 110, 4, seed=1)
        seen = tuple(np.concatenate(pair) for pair in zip(seen, later, strict=True))
    listed, prior, possible = belief.believe(task, None, hazard or 0.0)
    # A rule drawn anew is the same again once in 256 times.
    over_all = learn_all(listed, prior, task, seen, hazard and hazard * 255 / 256, possible)
    entries = Entries(ELEMENTARY, 9 if hazard else 1)
    by_entry = learn_all(entries, entries.prior(), task, seen, hazard)
    np.testing.assert_allclose(entries.ones(by_entry), listed.ones(over_all), atol=2e-4)
    assert (np.abs(entries.ones(by_entry) - 0.5) > 0.35).any()
    if not hazard:
        rule, log_prob = entries.likeliest(by_entry)
        assert rule == listed.likeliest(over_all)[0]
        np.testing.assert_allclose(log_prob, listed.likeliest(over_all)[1], atol=1e-3)
        places = places_of_flips(task, seen[0][0])
        every_cell = space.full(8)
        np.testing.assert_allclose(
            entries.gains(by_entry, places, every_cell),
            listed.gains(over_all, places, every_cell),
            atol=1e-3,
        )


@pytest.mark.parametrize("name", ["ring2", "life"])
def test_a_belief_over_listed_rules_is_bayes_rule_and_its_gain_is_by_definition(name):
    task = small_task(name, 20)
    model, prior, _ = belief.believe(task, task.rules, 0.0)
    tape, cell, after = (part[0] for part in transitions(task, task.rules[7], 1))
    now = learn_all(model, prior, task, transitions(task, task.rules[7], 1))
    fits = [
        task.family.step(int(tape[0]), int(cell), rule, task.space) == int(after[0])
        for rule in task.rules
    ]
    expected = np.array(fits) / sum(fits)
    np.testing.assert_allclose(np.exp(now[0]), expected, atol=1e-6)
    assert model.likeliest(now)[0] in np.array(task.rules)[fits]
    uneven = np.random.default_rng(0).dirichlet(np.ones(len(task.rules)))
    gains = model.gains(
        jnp.log(uneven)[None], places_of_flips(task, tape), space.full(task.length)
    )[0]
    for flip, gain in enumerate(gains):
        outcomes = np.array(
            [task.family.step(int(tape[0]), flip, rule, task.space) for rule in task.rules]
        )
        likelihood = (outcomes[:, None] == np.unique(outcomes)).astype(float)
        assert gain == pytest.approx(belief.information_gain(uneven, likelihood), abs=1e-4)
    assert gains.std() > 0


def test_listing_a_part_of_the_rules_is_to_give_none_to_the_others():
    part = belief.Support(ELEMENTARY, (3, 30, 45, 110, 200))
    task = make_task(length=8, horizon=8, rules=[45])
    seen = transitions(task, 45, 1)
    few = learn_all(part, belief.log_prior(part.rules, part), task, seen)
    many = learn_all(belief.EVERY, belief.log_prior(part.rules), task, seen)
    np.testing.assert_allclose(np.exp(few), np.exp(many)[:, list(part.rules)], atol=1e-6)
    places, every_cell = places_of_flips(task, seen[0][0]), space.full(8)
    for now in (belief.log_prior(part.rules, part)[None], few):
        wide = jnp.full((1, 256), -jnp.inf).at[:, np.array(part.rules)].set(now)
        np.testing.assert_allclose(
            part.gains(now, places, every_cell),
            belief.EVERY.gains(wide, places, every_cell),
            atol=1e-4,
        )


@pytest.mark.parametrize("name", ["ring2", "life"])
@pytest.mark.parametrize("changes", [{}, {"switch": 3}])
def test_who_finds_the_rule_out_solves_more_than_who_does_not(name, changes):
    split = splits.load(f"{name}-H8-matched-16")
    rules = [*split.train[::2], *split.test[::8]]
    exam = make_exam(
        split=split, family=name, shape=SIZES[name].shape, horizon=8, rules=rules, **changes
    )

    def success(reference):
        made = policy.make(reference, exam.task, exam.origin)
        assert not made.sees_rule
        return rollout.rollout(made, exam.task, episodes=10).success

    ones, planner = success("flip-ones"), success("belief-planner")
    assert planner.mean() > ones.mean() + 0.1
    if not changes:  # it sees one step ahead, and under rules that switch it is seldom sure
        assert success("bayes").mean() > ones.mean()
    told = success("belief-planner-train")
    seen = exam.rows("id")
    assert told[seen].mean() > planner[seen].mean()
    unseen = exam.rows("ood")
    assert told[unseen].mean() < told[seen].mean()


@pytest.mark.parametrize("name", ["ring2", "life"])
def test_the_filter_copes_with_noise_hidden_cells_and_goals_that_are_shown(name):
    task = small_task(name, noise=0.05, mask=[1], goal="random", observe_goal=True)
    far = {
        reference: rollout.rollout(policy.make(reference, task), task).final_distance.mean()
        for reference in ("random", "bayes")
    }
    assert far["bayes"] < far["random"]


@pytest.mark.parametrize("name", ["ring2", "life"])
def test_what_is_not_had_for_a_family_is_refused_in_one_line(name):
    task = small_task(name)
    for reference in policy.OF_ELEMENTARY:
        with pytest.raises(ValueError, match="lies between belief-planner and the exact ceiling"):
            policy.make(reference, task)
    for reference in ("bayes-train", "belief-planner-train"):
        with pytest.raises(ValueError, match="the split fps30 is of elementary rules"):
            policy.make(reference, task)
    with pytest.raises(ValueError, match="noise=0"):
        policy.make("belief-planner", small_task(name, noise=0.1))
    with pytest.raises(ValueError, match="the rule switches"):
        policy.make("optimal", small_task(name, switch=2))
    with pytest.raises(ValueError, match="exposes no belief to watch"):
        belief.identify(policy.make("bayes", task), task)
    with pytest.raises(ValueError, match="candidate set is empty"):
        belief_planner.belief_planner(task, ())


def test_the_planner_takes_the_lowest_of_rules_that_are_as_probable():
    entries = Entries(FAMILIES["ring2"])
    rule, log_prob = entries.likeliest(belief.tile(entries.prior(), 3))
    assert rule.tolist() == [0, 0, 0]
    np.testing.assert_allclose(log_prob, 32 * np.log(0.5), rtol=1e-5)
