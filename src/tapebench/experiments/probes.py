"""Does what an agent remembers tell the law, and if so, also of laws that it has never met?

An agent that fails may not know the law, or know it and not know what to do. A probe tells the two
apart: from what a memory holds (`Policy.recall`) it has to tell the eight entries of the rule's
table. It is fitted to some episodes under training rules and asked about others, and about held-out
rules. In these episodes cells are flipped at random, so that no agent sees more of the law than
another.
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
from tapebench.experiments.api import Exhibit, Experiment, Results, Scale
from tapebench.experiments.variants import share
from tapebench.planning.belief import bayes_filter
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import REFERENCE, Column, Row, Table
from tapebench.runs import training
from tapebench.runs.training import RunSpec
from tapebench.tasks.universe import ELEMENTARY

FLIPS = (1, 2, 4, 8, 16)
"""After how many flips the probe is asked."""

EPISODES = 10
"""For every rule; the probe is fitted to the first half of those under training rules."""

RIDGE = 0.01
"""How much the probe is held back, in terms of the variance of what it is fitted to."""

SEEDS = 3

TABLES = ELEMENTARY.family.table(np.array(ELEMENTARY.rules)).astype(int)
"""`[rules, entries]`: what every rule makes of the neighbourhoods."""

TRAINED, UNTRAINED = "trained", "before training"

Told = dict[str, list[float]]
"""By subset, the share of the entries of tables that are told, after each of `FLIPS`."""


def law_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Those of `networks` that remember anything."""
    names = ("pearl, mlp", "pearl, conv", "rppo, gru", "rppo, cells")
    return of_networks(scale, SEEDS, *names)


def probed(results: Results, spec: RunSpec) -> dict[str, Told]:
    """What the memory of a run tells, and what it did before training. Measured once, then kept."""

    def compute() -> dict[str, Told]:
        exam = results.exam
        agent = spec.make_agent()
        first = agent.policy(agent.init(seeding.key(spec.seed, "train", spec.agent)))
        last = training.load_run(results.path(spec), exam.task).policy
        return {TRAINED: tell(last, exam), UNTRAINED: tell(first, exam)}

    found: dict[str, Told] = results.kept(results.exam, f"law-{results.mark(spec)}", compute)
    return found


def tell(policy: Policy, exam: Exam) -> Told:
    """What a probe tells from the memory of a policy."""
    if policy.recall is None:
        raise ValueError(f"{policy.name} remembers nothing")
    seen, is_fresh = remembered(policy, _looker(policy.recall), exam)
    rules = exam.rules.repeat(EPISODES)
    is_fitted = np.isin(rules, exam.train) & (np.arange(len(rules)) % EPISODES < EPISODES // 2)
    found: Told = {side: [] for side in SUBSETS if len(exam.rows(side))}
    for flips in flips_of(exam):
        fresh = is_fresh[:, flips]
        fitted = fresh & is_fitted
        guess = probe(seen[fitted, flips], TABLES[rules[fitted]], seen[:, flips])
        right = (guess > 0.5) == TABLES[rules]
        for side, by_flips in found.items():
            asked = fresh & ~is_fitted & np.isin(rules, exam.rules[exam.rows(side)])
            by_flips.append(float(right[asked].mean()))
    return found


def probe(seen: np.ndarray, tables: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Entries of tables `[N, 8]` from what memories hold `[N, F]`, for others `[M, F]`.

    Kernel ridge regression, since a memory need not hold the law on straight lines. The kernel is
    Gaussian, and as wide as memories are apart in the median.
    """
    centre, spread = seen.mean(axis=0), seen.std(axis=0) + 1e-6
    known, new = (seen - centre) / spread, (asked - centre) / spread
    apart = _squared(known, known)
    width = np.median(apart) + 1e-6
    base = tables.mean(axis=0)
    kernel = np.exp(-apart / width) + RIDGE * np.eye(len(known))
    weights = scipy.linalg.solve(kernel, tables - base, assume_a="pos")
    guess: np.ndarray = base + np.exp(-_squared(new, known) / width) @ weights
    return guess


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances `[N, M]`."""
    found = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return np.maximum(found, 0.0)


def told_by_evidence(results: Results) -> Told:
    """What the exact filter tells, to which all 256 rules are as likely at first."""
    exam = results.exam

    def compute() -> Told:
        filtering = bayes_filter(exam.task, "all")
        assert filtering.belief is not None
        belief, is_fresh = remembered(filtering, _looker(filtering.belief), exam)
        rules = exam.rules.repeat(EPISODES)
        found: Told = {}
        for side in SUBSETS:
            if len(exam.rows(side)):
                asked = np.isin(rules, exam.rules[exam.rows(side)])
                found[side] = [
                    float(_right(belief[at, flips], TABLES[rules[at]]).mean())
                    for flips in flips_of(exam)
                    for at in [asked & is_fresh[:, flips]]
                ]
        return found

    found: Told = results.kept(exam, "law-filter", compute)
    return found


def _right(belief: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Whether the likelier value of every entry is true; by half where both are as likely."""
    likely = belief @ TABLES
    even = np.isclose(likely, 0.5, atol=1e-3)
    return np.where(even, 0.5, (likely > 0.5) == tables)


def remembered(
    policy: Policy, look: Callable[[Any, Any], dict[str, Any]], exam: Exam
) -> tuple[np.ndarray, np.ndarray]:
    """What is seen of a memory that others make all flips for, `[B, H + 1, F]`; which is real."""
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


def show_law(results: Results) -> Exhibit:
    """How much of the law memories tell, after more and more flips."""
    exam = results.exam
    flips = flips_of(exam)
    runs = {name: [probed(results, s) for s in specs] for name, specs in results.finished.items()}
    evidence = told_by_evidence(results)
    rows, panels = [], []
    for side, known in evidence.items():
        series = []
        for when in (TRAINED, UNTRAINED):
            for name, found in runs.items():
                told = [share([run[when][side][at] for run in found]) for at in range(len(flips))]
                rows.append(Row((side.upper(), name, when, *told, len(found))))
                if when == TRAINED:
                    series.append(Series(name, tuple(map(float, flips)), tuple(told)))
        rows.append(Row((side.upper(), "exact filter", None, *known, None), REFERENCE))
        series.append(Series("exact filter", tuple(map(float, flips)), tuple(known)))
        panels.append(Panel(SIDE_NAMES[side], tuple(series), {"guess": 0.5}))
    title = "How much of the law is in the memory"
    about = (
        "Share of the eight entries of the rule's table that a probe tells from what is "
        "remembered after so many flips at random; 0.5 is a guess. The probe is fitted to other "
        "episodes under training rules."
    )
    return Exhibit(
        tables=(
            Table(
                name="law-in-memory",
                title=title,
                caption=f"{about} 95% t-intervals over seeds. The exact filter takes all 256 rules "
                "to be as likely at first; a probe may gain by knowing the training rules.",
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
                caption=f"{about} Bands are 95% t-intervals over seeds.",
                drawing=lines(panels, x="flips", y="entries told (share)", bottom=0.4, top=1.02),
            ),
        ),
    )


def _flips(count: int) -> str:
    return f"{count} flip" if count == 1 else f"{count} flips"


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="law-in-memory",
        about="Does what an agent remembers tell the law, or does it know and not use it?",
        settings=law_settings,
        show=show_law,
    ),
)
