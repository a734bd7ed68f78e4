"""Can the rule be decoded from an agent's memory, and also an unseen rule?

An agent that fails may not know the rule, or know it and not know what to do. A probe tells the two
apart: it predicts the eight entries of the rule's table from the memory (`Policy.recall`). It is
fitted to some episodes under training rules and tested on others, and on held-out rules. In these
episodes cells are flipped at random, so that all agents see the same evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg

from tapebench.base import seeding
from tapebench.exam import policy as policies
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import watch
from tapebench.experiments.ablations import of_networks
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.variants import share_over_seeds
from tapebench.planning.belief import bayes_filter
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import REFERENCE, Column, Row, Table
from tapebench.runs import training
from tapebench.runs.training import RunSpec
from tapebench.tasks.universe import ELEMENTARY

FLIPS = (1, 2, 4, 8, 16)
"""Numbers of flips after which the probe is tested."""

EPISODES = 10
"""For every rule; the probe is fitted to the first half of those under training rules."""

RIDGE = 0.01
"""Ridge penalty, relative to the variance of the memory's features."""

SEEDS = 3

TABLES = ELEMENTARY.family.table(np.array(ELEMENTARY.rules)).astype(int)
"""`[rules, entries]`: what every rule makes of the neighbourhoods."""

TRAINED, UNTRAINED = "trained", "before training"

Accuracy = dict[str, list[float]]
"""By subset, the share of table entries predicted correctly after each of `FLIPS`."""


def law_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Those of `networks` that have a memory."""
    names = ("pearl, mlp", "pearl, conv", "rppo, gru", "rppo, cells")
    return of_networks(scale, SEEDS, *names)


def probed(results: ExperimentResults, spec: RunSpec) -> dict[str, Accuracy]:
    """Probe accuracy of a run after and before training. Measured once, then cached."""

    def compute() -> dict[str, Accuracy]:
        exam = results.exam
        agent = spec.make_agent()
        first = agent.policy(agent.init(seeding.key(spec.seed, "train", spec.agent)))
        last = training.load_run(results.path(spec), exam.task).policy
        return {TRAINED: probe_accuracy(last, exam), UNTRAINED: probe_accuracy(first, exam)}

    accuracy: dict[str, Accuracy] = results.cached(
        results.exam, f"law-{results.mark(spec)}", compute
    )
    return accuracy


def probe_accuracy(policy: Policy, exam: Exam) -> Accuracy:
    """Accuracy of a probe of the memory of a policy."""
    if policy.recall is None:
        raise ValueError(f"{policy.name} remembers nothing")
    seen, is_fresh = remembered(policy, _looker(policy.recall), exam)
    rules = exam.rules.repeat(EPISODES)
    is_fitted = np.isin(rules, exam.train) & (np.arange(len(rules)) % EPISODES < EPISODES // 2)
    accuracy: Accuracy = {side: [] for side in SUBSETS if len(exam.rows(side))}
    for flips in flips_of(exam):
        fresh = is_fresh[:, flips]
        fitted = fresh & is_fitted
        guess = probe(seen[fitted, flips], TABLES[rules[fitted]], seen[:, flips])
        right = (guess > 0.5) == TABLES[rules]
        for side, by_flips in accuracy.items():
            is_tested = fresh & ~is_fitted & np.isin(rules, exam.rules[exam.rows(side)])
            by_flips.append(float(right[is_tested].mean()))
    return accuracy


def probe(memories: np.ndarray, tables: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Predict table entries for `queries[M, F]`, fitted to `memories[N, F]` and `tables[N, 8]`.

    Kernel ridge regression, since a memory need not hold the rule linearly. The kernel is Gaussian
    with the median distance between memories as its width.
    """
    centre, spread = memories.mean(axis=0), memories.std(axis=0) + 1e-6
    centred, centred_queries = (memories - centre) / spread, (queries - centre) / spread
    apart = _squared(centred, centred)
    width = np.median(apart) + 1e-6
    base = tables.mean(axis=0)
    kernel = np.exp(-apart / width) + RIDGE * np.eye(len(centred))
    weights = scipy.linalg.solve(kernel, tables - base, assume_a="pos")
    guess: np.ndarray = base + np.exp(-_squared(centred_queries, centred) / width) @ weights
    return guess


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances `[N, M]`."""
    distances = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return np.maximum(distances, 0.0)


def filter_accuracy(results: ExperimentResults) -> Accuracy:
    """Accuracy of the exact filter with a uniform prior over all 256 rules."""
    exam = results.exam

    def compute() -> Accuracy:
        filtering = bayes_filter(exam.task, "all")
        assert filtering.belief is not None
        belief, is_fresh = remembered(filtering, _looker(filtering.belief), exam)
        rules = exam.rules.repeat(EPISODES)
        accuracy: Accuracy = {}
        for side in SUBSETS:
            if len(exam.rows(side)):
                in_subset = np.isin(rules, exam.rules[exam.rows(side)])
                accuracy[side] = [
                    float(_right(belief[rows, flips], TABLES[rules[rows]]).mean())
                    for flips in flips_of(exam)
                    for rows in [in_subset & is_fresh[:, flips]]
                ]
        return accuracy

    shares: Accuracy = results.cached(exam, "law-filter", compute)
    return shares


def _right(belief: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Whether the likelier value of every entry is right; one half where both are as likely."""
    likely = belief @ TABLES
    even = np.isclose(likely, 0.5, atol=1e-3)
    return np.where(even, 0.5, (likely > 0.5) == tables)


def remembered(
    policy: Policy, look: Callable[[Any, Any], dict[str, Any]], exam: Exam
) -> tuple[np.ndarray, np.ndarray]:
    """Features of a memory under random flips, `[B, H + 1, F]`, and which of them are real."""
    task = exam.task
    shown = policies.guided(policy, policies.random(task), task.horizon, task)
    _, looks, is_fresh = watch(shown, task, look, None, EPISODES, salt=exam.salt)
    return looks["memory"], is_fresh


@cache
def _looker(recall: Callable[[Any], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """The one `look` for the memory of a policy that is led, so that it compiles once."""
    return lambda memory, rule: {"memory": recall(memory[0])}


def flips_of(exam: Exam) -> list[int]:
    """Those of `FLIPS` that an episode has."""
    return [flips for flips in FLIPS if flips <= exam.task.horizon]


def show_law(results: ExperimentResults) -> Exhibit:
    """Probe accuracy against the number of flips."""
    exam = results.exam
    flips = flips_of(exam)
    runs = {name: [probed(results, s) for s in specs] for name, specs in results.finished.items()}
    evidence = filter_accuracy(results)
    rows, panels = [], []
    for side, filter_shares in evidence.items():
        series = []
        for when in (TRAINED, UNTRAINED):
            for name, measured in runs.items():
                shares = [
                    share_over_seeds([run[when][side][flip] for run in measured])
                    for flip in range(len(flips))
                ]
                rows.append(Row((side.upper(), results.label(name), when, *shares, len(measured))))
                if when == TRAINED:
                    series.append(Series(name, tuple(map(float, flips)), tuple(shares)))
        rows.append(Row((side.upper(), "exact filter", None, *filter_shares, None), REFERENCE))
        series.append(Series("exact filter", tuple(map(float, flips)), tuple(filter_shares)))
        panels.append(Panel(SIDE_NAMES[side], tuple(series), {"guess": 0.5}))
    title = "How much of the rule is in the memory"
    about = (
        "Share of the eight entries of the rule's table that a probe decodes from the memory "
        "after a number of random flips; 0.5 is chance level. The probe is fitted to other "
        "episodes under training rules."
    )
    return Exhibit(
        tables=(
            Table(
                name="law-in-memory",
                title=title,
                caption=f"{about} 95% intervals over seeds. The exact filter has a uniform prior "
                "over all 256 rules; a probe may gain by knowing the training rules.",
                columns=(
                    Column("side"),
                    Column("agent"),
                    Column("when"),
                    *(Column(_flips(count)) for count in flips),
                    Column("seeds"),
                ),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="law-in-memory",
                title=title,
                caption=f"{about} Bands are 95% intervals over seeds.",
                drawing=lines(panels, x="flips", y="entries told (share)", bottom=0.4, top=1.02),
            ),
        ),
    )


def _flips(count: int) -> str:
    return f"{count} flip" if count == 1 else f"{count} flips"


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="law-in-memory",
        about="Does an agent's memory hold the rule, or does it know the rule and not use it?",
        settings=law_settings,
        show=show_law,
    ),
)
