"""Rule inference: a Bayesian filter over rules, information gain, and a policy that uses both.

A rule acts through the entries of its table, so what one transition says about it is a pair of
counts for each entry: how often a cell that read it became 0, and how often 1. Rule z mismatches in
the cells that became anything but bit k of z, where k is the entry that they read. Everything here
rests on that:

- the posterior needs one mismatch count per rule (`mismatches`, `update`);
- the expected distance after a flip needs the marginals of the rule's bits and how many cells read
  each entry after the flip (`expected_distances`);
- without noise two rules predict different tapes exactly if they differ in an entry that is read.
  A flip shows the bits of a set m of entries, so its information gain is the entropy of `z & m`:
  of elementary rules one of 256 numbers per belief, whatever the length (`information_gains`).

A belief is a probability for each rule of a `Support`. For elementary rules that is always all 256,
of which those that are no candidates have none; of larger families it is the candidates. Where all
rules of a larger family are, there is a probability for each entry instead, see
`tapebench.planning.entries`.

`information_gain` is the definition itself, slow and in NumPy: what the fast form is tested
against. All entropies are in nats. What they do and do not imply is in `docs/theory.md`.

Where the rule switches, the belief is a mixture over how long the present rule has acted already:
Bayesian online changepoint detection (Adams and MacKay, 2007). Every run of one rule has a
posterior of its own, but what is believed of the rule is their mean, and that obeys a recursion of
its own (`shift`), so that runs need not be held apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, logsumexp

from tapebench.base import seeding
from tapebench.exam import rollout
from tapebench.exam.policy import Policy, blind
from tapebench.physics import space
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.family import Family
from tapebench.physics.space import Size, Space, as_space
from tapebench.planning.entries import Entries
from tapebench.tasks import splits
from tapebench.tasks.layout import Layout
from tapebench.tasks.task import Task, parse_rules
from tapebench.tasks.universe import read_rules

BETA = 0.25
"""The paper's weight of information gain. It does not say in which unit; here it is nats."""

FLOOR = 1e-6
"""Likelihood of a transition that a rule contradicts, where the dynamics have no noise."""

CALIBRATION_BINS = 10

_MARGINALS = reduce(np.kron, [np.array([[1, 0], [0, 1], [1, 1]], np.float32)] * 4)
"""`[81, 16]`: each of four bits is zero, one, or either, from the probabilities of their values."""

_OF_SET = reduce(np.kron, [np.array([[0, 0, 1], [1, 1, 0]], np.float32)] * 4)
"""`[16, 81]`: which marginals a set of bits has: either for a bit outside, zero and one inside."""

_BLOCK = 32
"""Beliefs whose marginals are held at a time, 3^8 numbers each."""

_CERTAIN = 1e-6
"""A belief whose entropy is below this (as is rounding) has nothing more to gain."""

_TIE = 1e-5
"""Scores this close are equal but for rounding."""


@dataclass(frozen=True)
class Support:
    """Rules of one family, each with a place in a belief. A value, static under `jit`."""

    family: Family
    rules: tuple[int, ...]

    @cached_property
    def numbers(self) -> np.ndarray:
        """uint32 `[R]`."""
        return np.array(self.rules, np.uint32)

    @cached_property
    def tables(self) -> np.ndarray:
        """float32 `[R, N]`: what each rule makes of each entry."""
        return np.asarray(self.family.table(self.numbers)).astype(np.float32)

    def learn(
        self, log_belief: Any, places: Any, after: Any, readable: Any, noise: Any, floor: Any
    ) -> Array:
        """`update` for one transition, given the cells that read each entry."""
        return update(log_belief, _mismatches(places, after, self, readable), noise, floor)

    def shift(self, log_belief: Any, candidates: Any, hazard: Any) -> Array:
        """`shift` of the module."""
        return shift(log_belief, candidates, hazard)

    def ones(self, log_belief: Any) -> Array:
        """The probability of a one in each entry, `[B, N]`."""
        return jnp.dot(jnp.exp(log_belief), self.tables, precision="highest")

    def gains(self, log_belief: Any, places: Any, readable: Any) -> Array:
        """`information_gains` of a belief given as its logarithms."""
        return information_gains(jnp.exp(log_belief), places, readable, self)

    def likeliest(self, log_belief: Any) -> tuple[Any, Any]:
        """The most probable rule `[B]`, and the logarithm of its probability."""
        xp = log_belief.__array_namespace__()
        return xp.asarray(self.numbers)[log_belief.argmax(axis=1)], log_belief.max(axis=1)


EVERY = Support(ELEMENTARY, tuple(range(ELEMENTARY.num_rules)))
"""All elementary rules."""


Model = Support | Entries
"""How a belief is held, learned and read. It is an array, or a tuple of arrays, by rows."""


class Beginning(NamedTuple):
    """What is believed of a row before anything was seen, and by which model."""

    model: Model
    prior: Any
    possible: Array | None
    """bool `[R]`: the listed rules that are candidates, if rules are listed."""


def believe(task: Task, rules: tuple[int, ...] | None, hazard: float) -> Beginning:
    """The uniform belief over these candidates, or over all rules of the task's family."""
    if task.family != ELEMENTARY and rules is None:
        entries = Entries(task.family, task.horizon + 1 if hazard else 1)
        return Beginning(entries, entries.prior(), None)
    support, candidates = EVERY, rules or EVERY.rules
    if task.family != ELEMENTARY:
        support = Support(task.family, tuple(sorted(candidates)))
    prior = log_prior(candidates, support)
    return Beginning(support, prior, prior > -jnp.inf)


def tile(prior: Any, num: int) -> Any:
    """The prior of one row for so many."""
    return jax.tree.map(lambda part: jnp.tile(part, (num, *[1] * part.ndim)), prior)


def choose(which: Any, new: Any, old: Any) -> Any:
    """A belief that is new in some rows and old in the others."""

    def leaf(new: Any, old: Any) -> Any:
        xp = old.__array_namespace__()
        return xp.where(which.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(leaf, new, old)


def neighbourhoods(tape: Any, size: Size, family: Family = ELEMENTARY) -> Any:
    """Where each neighbourhood is: a tape `[..., W]` as one for each entry, `[..., N, W]`.

    Cell i of tape k is one if cell i reads entry k: what the rule whose only bit is bit k makes of
    the tape.
    """
    one_bit_rules = np.uint32(1) << np.arange(family.entries, dtype=np.uint32)
    return family.evolve(tape[..., None, :], one_bit_rules, as_space(size))


def mismatches(
    before: Any, cell: Any, after: Any, size: Size, readable: Any = None, support: Support = EVERY
) -> Array:
    """In how many cells each rule contradicts a transition: float32 `[..., R]`.

    `before` and `after` are tapes `[..., W]`, `cell[...]` was flipped between them. Where some
    cells are hidden, only the `readable` ones are compared, see `readable_cells`.
    """
    places = neighbourhoods(space.flip(before, cell), size, support.family)
    return _mismatches(places, after, support, readable)


def _mismatches(places: Any, after: Any, support: Support, readable: Any) -> Array:
    if readable is not None:
        places = places & readable
    became_one = places & after[..., None, :]
    ones = space.hamming(became_one, np.uint32(0)).astype(np.float32)
    zeros = space.hamming(places, became_one).astype(np.float32)
    # A rule with a one at k is wrong where k became zero, any other where it became one.
    bits = support.tables.T
    return jnp.dot(zeros - ones, bits, precision="highest") + ones.sum(axis=-1, keepdims=True)


def readable_cells(hidden: int, size: Size, family: Family = ELEMENTARY) -> np.ndarray:
    """The cells `[W]` whose next value can be held against a rule: no hidden one in sight."""
    where = as_space(size)
    visible = space.to_words(~hidden, where.size) & space.full(where.size)
    all_ones_rule = np.array(1 << (family.entries - 1))
    return np.asarray(family.evolve(visible, all_ones_rule, where))


def log_prior(candidates: tuple[int, ...], support: Support = EVERY) -> Array:
    """The uniform belief over the candidates, as logarithms: `[R]`, minus infinity elsewhere."""
    prior = np.full(len(support.rules), -np.inf, np.float32)
    prior[np.searchsorted(support.numbers, candidates)] = -math.log(len(candidates))
    return jnp.asarray(prior)


def update(log_belief: Array, mismatch: Array, noise: Any = 0.0, floor: Any = FLOOR) -> Array:
    """Bayes' rule for one transition: logarithms of the belief `[..., R]` before and after.

    With `noise`, the probability that a cell is inverted after the update, the likelihood is
    that of every cell. Without, it is 1 for a rule that fits and `floor` for one that does not,
    in however many cells. A transition that every candidate contradicts multiplies all of them
    by the floor and so changes nothing: a belief whose support lacks the true rule does not
    notice. A rule that is no candidate has probability zero and keeps it.
    """
    noise = jnp.asarray(noise)
    # The factor (1 - noise)^cells is the same for every rule, so the odds are all that is left.
    penalty = jnp.log(jnp.where(noise > 0, noise / (1 - noise), floor))
    weighed = log_belief + penalty * jnp.where(noise > 0, mismatch, mismatch > 0)
    return weighed - logsumexp(weighed, axis=-1, keepdims=True)


def expected_hazard(task: Task) -> float:
    """How likely a rule changes after a step, for who knows how often it does but not when."""
    return len(task.schedule.switches) / max(task.horizon - 1, 1)


def shift(log_belief: Any, candidates: Any, hazard: Any) -> Array:
    """The belief `[..., R]` about the next step's rule, from that about the last step's.

    With probability `hazard` the rule has changed to another one of the candidates, any of them
    alike; `candidates[R]` is True for these. This is the mixture over all run lengths in which a
    rule is drawn anew, the same one again included, with hazard n / (n - 1) times as high.
    """
    now = jnp.exp(log_belief)
    num = jnp.asarray(candidates).sum()
    moved = (1 - now) / jnp.maximum(num - 1, 1)
    rate = jnp.where(num > 1, hazard, 0.0)
    return jnp.where(candidates, jnp.log((1 - rate) * now + rate * moved), -jnp.inf)


def expected_distances(belief: Array, places: Array, goal: Any, length: int) -> Array:
    """E_b[dist] after each flip `[..., A]`, for a belief `[..., 256]` and a goal `[..., W]`.

    `places[..., A, 8, W]` are the `neighbourhoods` of the flipped tapes.
    """
    is_one = jnp.dot(belief, EVERY.tables, precision="highest")
    return expected_share(is_one, places, goal, length)


def expected_share(is_one: Array, places: Array, goal: Any, length: int) -> Array:
    """The same, from the probability of a one in each entry, `[..., N]`."""
    as_goal = places & goal[..., None, None, :]
    want_one = space.hamming(as_goal, np.uint32(0))
    want_zero = space.hamming(places, as_goal)
    is_one = is_one[..., None, :]
    return (want_zero * is_one + want_one * (1 - is_one)).sum(axis=-1) / length


def information_gains(
    belief: Array, places: Array, readable: Any = None, support: Support = EVERY
) -> Array:
    """The information gain of each flip `[..., A]`, for a belief `[..., R]`.

    `places` is as for `expected_distances`; with hidden cells only the `readable` ones tell. The
    model is the rule itself, without the floor. Under noise this is an upper bound: the noisy
    tape says no more than the tape before the noise.
    """
    seen = places if readable is None else places & readable
    one_bit_rules = np.uint32(1) << np.arange(support.family.entries, dtype=np.uint32)
    shown = ((seen != 0).any(axis=-1) * one_bit_rules).sum(axis=-1)
    if support != EVERY:
        return _outcome_entropies(belief, shown.astype(np.uint32), support)
    table = shown_entropies(belief.reshape(-1, len(support.rules))).reshape(belief.shape)
    return jnp.take_along_axis(table, shown.astype(np.int32), axis=-1)


def _outcome_entropies(belief: Array, shown: Array, support: Support) -> Array:
    """Entropy of `z & m` over listed rules z, for beliefs `[B, R]` and sets of entries m `[B, A]`.

    Rows that are alike come one after the other and are computed once: in an exam all begin with
    the same belief and few tapes. A rule that is certain but for the floor has nothing to show.
    """
    num_rules = belief.shape[1]
    weights = seeding.generator(0, "belief", "alike").random(num_rules, np.float32)
    order = jnp.lexsort((seeding.hash32(*shown.T), belief @ weights))
    certain = 1 - 2 * FLOOR * num_rules

    def row(carry: tuple[Array, Array, Array], now: tuple[Array, Array]) -> Any:
        is_same = (carry[0] == now[0]).all() & (carry[1] == now[1]).all()
        is_open = now[0].max() < certain
        which = jnp.where(is_same, 0, 1 + is_open)
        nothing = jnp.zeros_like(carry[2])
        entropies = jax.lax.switch(
            which, (lambda: carry[2], lambda: nothing, lambda: _sort_outcomes(*now, support))
        )
        return (*now, entropies), entropies

    begin = jnp.zeros(num_rules), jnp.zeros_like(shown[0]), jnp.zeros(shown.shape[1])
    _, entropies = jax.lax.scan(row, begin, (belief[order], shown[order]))
    return jnp.asarray(entropies[jnp.argsort(order)])


def _sort_outcomes(belief: Array, shown: Array, support: Support) -> Array:
    """The same for one row: rules sorted by what they predict; those that agree are one outcome."""
    outcome = jnp.asarray(support.numbers) & shown[:, None]
    chance = jnp.broadcast_to(belief, outcome.shape)
    outcome, chance = jax.lax.sort((outcome, chance), num_keys=1)
    is_first = jnp.diff(outcome, axis=-1, prepend=~outcome[:, :1]) != 0
    member = jnp.cumsum(is_first, axis=-1) - 1
    flip = np.arange(len(shown))[:, None]
    return entr(jnp.zeros_like(chance).at[flip, member].add(chance)).sum(axis=-1)


def shown_entropies(belief: Array) -> Array:
    """Entropy of `z & m` for every set m of neighbourhoods: beliefs `[B, 256]` -> `[B, 256]`.

    The marginals of all 2^8 sets are 3^8 numbers, since every bit is zero, one or either.
    """
    # Open beliefs go first, so that a few of them do not keep every block busy.
    order = jnp.argsort(-entr(belief).sum(axis=-1))
    num = belief.shape[0]
    padded = jnp.pad(belief[order], ((0, -num % _BLOCK), (0, 0)))
    blocks = padded.reshape(-1, _BLOCK, len(EVERY.rules))

    def block(belief: Array) -> Array:
        is_open = entr(belief[0]).sum() > _CERTAIN
        return jax.lax.cond(is_open, _sum_marginals, jnp.zeros_like, belief)

    entropies = jax.lax.map(block, blocks).reshape(padded.shape)[:num]
    return entropies[jnp.argsort(order)]


def _sum_marginals(belief: Array) -> Array:
    """`shown_entropies` where there is something to show, four of the eight bits at a time."""
    halves = belief.reshape(-1, 16, 16)
    marginals = jnp.einsum("ih,nhl,jl->nij", _MARGINALS, halves, _MARGINALS, precision="highest")
    terms = entr(marginals)
    sums = jnp.einsum("hi,nij,lj->nhl", _OF_SET, terms, _OF_SET, precision="highest")
    return sums.reshape(-1, len(EVERY.rules))


def outcomes(tape: int, cell: int, length: int, noise: float = 0.0) -> np.ndarray:
    """The model: p(s' | s, a, z) for every rule and every next tape that matters, `[256, S]`.

    Without noise these are the tapes that some rule predicts; with noise all 2^L of them, so
    this is for short tapes.
    """
    start = space.to_words(tape, length)
    before, ring = np.tile(start, (len(EVERY.rules), 1)), Space((length,))
    predicted = ELEMENTARY.step(before, np.array(cell), EVERY.numbers, ring)
    if not noise:
        tapes = np.unique(predicted, axis=0)
        return (predicted[:, None] == tapes).all(axis=-1).astype(float)
    tapes = np.arange(1 << length, dtype=np.uint32)[:, None]
    wrong = space.hamming(predicted[:, None], tapes)
    return noise**wrong * (1 - noise) ** (length - wrong)


def information_gain(belief: np.ndarray, likelihood: np.ndarray) -> float:
    """By definition: the entropy of the belief less the expected entropy of the posterior.

    `belief[256]` is p(z), `likelihood[256, S]` is p(s' | s, a, z), see `outcomes`.
    """
    joint = belief[:, None] * likelihood
    evidence = joint.sum(axis=0)
    possible = evidence > 0
    posteriors = joint[:, possible] / evidence[possible]
    return float(entropy(belief) - evidence[possible] @ entropy(posteriors))


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy along the first axis, in nats; 0 log 0 is 0."""
    positive = np.where(probabilities > 0, probabilities, 1.0)
    return -(probabilities * np.log(positive)).sum(axis=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """What the filter keeps of B episodes, and its parameters: new ones compile nothing."""

    belief: Any
    """Of B rows, as the filter's `Model` holds it."""
    tape: Array
    """uint32 `[B, W]`: what was last observed."""
    cell: Array
    """int32 `[B]`: what was flipped then."""
    time: Array
    """`[B]`: t/H then; infinite before the first observation. Where it does not grow no step was
    taken, as in an episode that is over, and there is nothing to learn."""
    beta: Array
    goal_weight: Array
    noise: Array
    floor: Array
    hazard: Array | None = None
    """Nothing for a filter that takes it for granted that the rule stays."""
    candidates: Array | None = None
    """bool `[R]`: the listed rules that it believes possible, where they may change."""


def posterior(memory: Memory) -> Array:
    """The filter's belief, `[B, R]`: probabilities of the rules given all it has observed."""
    return jnp.exp(memory.belief)


def bayes_filter(
    task: Task,
    candidates: Any = "all",
    *,
    split: str | Path | splits.Split = "fps30",
    beta: float = BETA,
    goal_weight: float = 1.0,
    noise: float | None = None,
    floor: float = FLOOR,
    hazard: float | None = None,
    name: str = "bayes",
) -> Policy:
    """Filter the rule, then flip the cell with the best `-goal_weight E_b[dist] + beta IG`.

    `candidates` are the rules it believes possible, alike at first: `"all"` of the family, the
    `"train"` rules of `split`, or a list. `goal_weight=0` is information gain alone; with `beta=0`
    as well the flips are random, and the filter only watches. Ties are broken at random.

    `noise` is what the likelihood assumes, by default that of the task; above zero it makes every
    cell count where the deterministic likelihood asks only whether a rule is contradicted at all.
    Of hidden cells and of those beside them it learns nothing, and like `policy.greedy` it plans
    as if they were zeros.

    `hazard` is the probability it gives to a change of the rule after each step, by default as
    often as the task has it. What it believes is then about the rule that acts next.
    """
    if np.size(candidates) == 0:
        raise ValueError("the candidate set is empty: give at least one rule to believe in")
    rules = candidate_rules(task, candidates, split)
    if task.goal is None and not task.observe_goal:
        raise ValueError(f"{name} needs to know a random goal: set observe_goal=True")
    for what, weight in (("beta", beta), ("goal_weight", goal_weight)):
        if not 0 <= weight < math.inf:
            raise ValueError(f"{what} must be finite and not negative, not {weight}")
    assumed = task.noise if noise is None else noise
    if not 0 <= assumed < 1:
        raise ValueError(f"noise must be at least 0 and below 1, not {assumed}")
    if not 0 < floor < 1:
        raise ValueError(f"floor must be above 0 and below 1, not {floor}")
    rate = expected_hazard(task) if hazard is None else hazard
    if not 0 <= rate <= 1:
        raise ValueError(f"hazard must be from 0 to 1, not {rate}")

    model, prior, possible = believe(task, rules, rate)

    def init(rule: Any, num: int) -> Memory:
        return Memory(
            belief=tile(prior, num),
            tape=jnp.zeros((num, space.num_words(task.length)), jnp.uint32),
            cell=jnp.zeros(num, jnp.int32),
            time=jnp.full(num, jnp.inf),
            beta=jnp.float32(beta),
            goal_weight=jnp.float32(goal_weight),
            noise=jnp.float32(assumed),
            floor=jnp.float32(floor),
            hazard=jnp.float32(rate) if rate else None,
            candidates=possible if rate else None,
        )

    act = _actor(model, task.space, task.goal, task.hidden)
    is_watched = task.family == ELEMENTARY
    return blind(Policy(name, init, act, belief=posterior if is_watched else None, note=_note))


def candidate_rules(
    task: Task, candidates: Any, split: str | Path | splits.Split
) -> tuple[int, ...] | None:
    """The rules meant by `"all"`, a side of a split, or a list; None for all of a larger family."""
    if task.family == ELEMENTARY:
        return splits.select(split, candidates)
    if isinstance(candidates, str) and candidates == "all":
        return None
    if isinstance(candidates, str) and candidates in ("train", "test"):
        return parse_rules(task.family, split, candidates)[1]
    return read_rules(task.family, candidates)


def _note(memory: Memory, cell: Array) -> Memory:
    """The memory, had it flipped these cells."""
    return replace(memory, cell=cell.astype(jnp.int32))


def bayes_filter_of_split(task: Task, split: str | Path | splits.Split) -> Policy:
    """`bayes_filter` that thinks only the training rules of a split possible."""
    return bayes_filter(task, "train", split=split, name="bayes-train")


@cache
def _actor(model: Model, size: Space, goal: int | None, hidden: int) -> Callable[..., Any]:
    """The one `act` of all filters on such tapes, so that the evaluator compiles it once."""
    return partial(_act, model, size, goal, hidden)


def _act(
    model: Model,
    size: Space,
    goal: int | None,
    hidden: int,
    memory: Memory,
    obs: Array,
    stream: Any,
) -> tuple[Memory, Array]:
    length, family = size.size, model.family
    layout = Layout(length)
    tape, time = space.pack(layout.cells(obs)), layout.time(obs)
    goal_cells = layout.goal(obs)
    target = space.pack(goal_cells) if goal is None else space.to_words(goal, length)
    readable = readable_cells(hidden, size, family)

    places = neighbourhoods(space.flip(memory.tape, memory.cell), size, family)
    learned: Any = model.learn(memory.belief, places, tape, readable, memory.noise, memory.floor)
    if memory.hazard is not None:
        learned = model.shift(learned, memory.candidates, memory.hazard)
    belief = choose(time > memory.time, learned, memory.belief)

    every_cell = np.arange(length, dtype=np.uint32)[None]
    places = neighbourhoods(space.flip(tape[:, None], every_cell), size, family)
    far = expected_share(model.ones(belief), places, target, length)
    far = far * (1 - memory.noise) + (1 - far) * memory.noise  # noise inverts right and wrong cells
    score = memory.beta * model.gains(belief, places, readable) - memory.goal_weight * far
    is_best = score >= score.max(axis=-1, keepdims=True) - _TIE
    cell = jnp.where(is_best, seeding.uniform(stream, length), 2.0).argmin(axis=-1)
    cell = cell.astype(jnp.int32)
    return replace(memory, belief=belief, tape=tape, cell=cell, time=time), cell


@dataclass(frozen=True)
class Calibration:
    """Every probability that a belief gave to any rule, binned, against how often it was right.

    An episode's belief counts 256 times at each of its steps, once for each rule.
    """

    count: np.ndarray
    """`[bins]`: how many probabilities fell between bin / bins and (bin + 1) / bins."""
    predicted: np.ndarray
    """`[bins]`: their mean; not a number in an empty bin."""
    frequency: np.ndarray
    """`[bins]`: the share that was given to the true rule; not a number in an empty bin."""


@dataclass(frozen=True)
class Identification:
    """How well a policy knew the rule: R rules × E episodes, before the first step and after each.

    From the end of an episode on its belief is the last one it had.
    """

    episodes: rollout.Episodes
    """What happened meanwhile: the same episodes as `rollout.rollout` gives."""
    mass: np.ndarray
    """float32 `[R, E, H + 1]`: probability of the true rule."""
    entropy: np.ndarray
    """float32 `[R, E, H + 1]`: of the belief, in nats. Small where `mass` is: sure and wrong."""
    bits: np.ndarray
    """float32 `[R, E, H + 1]`: expected share of the rule's eight bits that the belief has right,
    which says something even where the true rule is no candidate."""
    calibration: Calibration

    @cached_property
    def steps(self) -> np.ndarray:
        """`steps_to` at a probability of 0.99."""
        return self.steps_to(0.99)

    def steps_to(self, mass: float) -> np.ndarray:
        """Steps until the true rule first had that probability, `[R, E]`; -1 if it never had."""
        known = self.mass >= mass
        return np.where(known.any(axis=-1), known.argmax(axis=-1), -1)


def identify(
    policy: Policy,
    task: Task,
    rules: Any = None,
    episodes: int = rollout.STANDARD_EPISODES,
    *,
    belief: Callable[[Any], Any] | None = None,
    seed: int = 0,
    salt: str = "",
) -> Identification:
    """Watch the belief of `policy` on the exam. Arguments as for `rollout.rollout`, and `belief`.

    `belief(memory)`, by default the policy's own, is its posterior over the rules, `[B, 256]`,
    once it has seen what `act` was just given; like `act` it must stay the same function.
    """
    belief = belief or policy.belief
    if belief is None:
        raise ValueError(f"{policy.name} exposes no belief to watch")
    played, seen, is_fresh = rollout.watch(
        policy, task, _assessor(belief), rules, episodes, seed=seed, salt=salt
    )
    count, total, hits = seen["tally"][is_fresh].sum(axis=0, dtype=float).T
    filled = np.where(count > 0, count, np.nan)
    steps = np.arange(is_fresh.shape[1])
    last = np.minimum(steps, is_fresh.sum(axis=1, keepdims=True) - 1)
    shape = (*played.success.shape, -1)

    def last_seen(name: str) -> np.ndarray:
        return np.take_along_axis(seen[name], last, axis=1).reshape(shape)

    return Identification(
        episodes=played,
        mass=last_seen("mass"),
        entropy=last_seen("entropy"),
        bits=last_seen("bits"),
        calibration=Calibration(count.astype(int), total / filled, hits / filled),
    )


@cache
def _assessor(belief: Callable[[Any], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """What to look at: one function for each `belief`, so that the evaluator compiles it once."""

    def look(memory: Any, rule: Any) -> dict[str, Any]:
        now = jnp.asarray(belief(memory))
        return _assess(now, jnp.asarray(rule))

    return look


def _assess(belief: Array, rule: Array) -> dict[str, Array]:
    """What a belief `[B, 256]` is worth if the rules are `rule[B]`.

    `tally[B, bins, 3]` says per bin of probability how many there are, their sum, and how many
    belong to the true rule.
    """
    is_one = jnp.dot(belief, EVERY.tables, precision="highest")
    truth = jnp.asarray(EVERY.tables)[rule]
    bins = (belief * CALIBRATION_BINS).astype(jnp.int32).clip(0, CALIBRATION_BINS - 1)
    parts = jnp.stack([jnp.ones_like(belief), belief, rule[:, None] == EVERY.numbers], axis=-1)
    episode = np.arange(len(belief))[:, None]
    return {
        "mass": jnp.take_along_axis(belief, rule[:, None].astype(jnp.int32), axis=-1)[:, 0],
        "entropy": entr(belief).sum(axis=-1),
        "bits": (is_one * truth + (1 - is_one) * (1 - truth)).mean(axis=-1),
        "tally": jnp.zeros((len(belief), CALIBRATION_BINS, 3)).at[episode, bins].add(parts),
    }
