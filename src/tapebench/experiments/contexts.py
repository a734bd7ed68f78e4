"""What an agent lacks: the same agent given the rule, what its episode has shown of it, or nothing.

Over folds where the track has them, so each rule is seen by some runs and unseen by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.exam import bounds, by_stratum
from tapebench.exam.exam import Exam
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.variants import Variant
from tapebench.report.figures import Picture, dots
from tapebench.report.tables import CEILING, Cell, Column, Row, Table
from tapebench.runs.folds import ALL, FoldRuns, rule_success
from tapebench.runs.training import RunSpec
from tapebench.stats import CONTEXTS, Interval, Training

HEADLINE = "beyond-reflex"

LONGER = 5
"""Times the track's budget: what a rule is worth is learned long after flipping ones is."""

SIDES = ("seen", "unseen")

AGENTS: dict[str, dict[str, Any]] = {
    "pqn": {"network": "conv", "channels": 64, "depth": 3},
    "dqn": {"network": "conv", "channels": 32, "layer_norm": True},
    "ppo": {"network": "conv", "channels": 32},
}
"""Agents that can be given a context, with networks that can use it."""


def context_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Every agent with every context, in each fold."""
    track = scale.track
    splits = (scale.split,) if scale.split else track.splits
    return {
        _name(agent, context, split): Variant(
            agent,
            {**options, "context": context},
            {"split": split, "steps": LONGER * track.steps},
        ).runs(scale, f"context {context}", 2)
        for agent, options in AGENTS.items()
        for context in CONTEXTS
        for split in splits
    }


def _name(agent: str, context: str, split: str) -> str:
    return f"{agent}, {AGENTS[agent]['network']}, {context} on {split}"


def trainings(results: ExperimentResults) -> dict[tuple[str, str], dict[str, Training]]:
    """By agent and context, then by split: the success of each seed under each rule."""
    groups: dict[tuple[str, str], dict[str, Training]] = {}
    for runs in results.finished.values():
        first = runs[0]
        exam = first.exam
        scores = np.stack([rule_success(results.path(run), exam, run.last) for run in runs])
        whose = first.agent, str(first.config["context"])
        groups.setdefault(whose, {})[first.split] = Training(
            scores, exam.rules, exam.subsets == "ood"
        )
    return groups


def by_rule(of: Mapping[str, Training], rules: Sequence[int], side: str) -> np.ndarray:
    """Mean success under each rule of the runs that saw it, or that did not; nan if none did."""
    sums, counts = np.zeros(len(rules)), np.zeros(len(rules))
    for training in of.values():
        place = {int(rule): number for number, rule in enumerate(training.rules)}
        for number, rule in enumerate(rules):
            column = place.get(rule)
            if column is not None and training.held_out[column] == (side == "unseen"):
                sums[number] += training.scores[:, column].mean()
                counts[number] += 1
    return np.divide(sums, counts, out=np.full(len(rules), np.nan), where=counts > 0)


def show_contexts(results: ExperimentResults) -> Exhibit:
    """Success by context, and the gaps between: control, partial knowledge, evidence."""
    every = trainings(results)
    exam = next(iter(results.finished.values()))[0].exam
    groups = _groups(exam, every.values())
    tables = [success_table(results, every, exam, groups)]
    gaps = gap_table(every, exam, groups)
    if gaps.rows:
        tables.append(gaps)
    name, rules = next(iter(groups.items()))
    drawn: dict[str, Mapping[str, Interval | float]] = {
        f"{agent}, {context}": {
            side: float(np.nanmean(values))
            for side in SIDES
            if np.isfinite(values := by_rule(of, rules, side)).any()
        }
        for (agent, context), of in every.items()
    }
    for label, level in _levels(exam, name).items():
        mean = float(level[np.isin(exam.rules, rules)].mean())
        if np.isfinite(mean):
            drawn[label] = dict.fromkeys(SIDES, mean)
    picture = Picture(
        "contexts",
        f"Strict success by what is given about the rule, {name} rules",
        "Means over rules of the runs that were trained on a rule, and of those that were not.",
        dots(drawn, x="strict success"),
    )
    return Exhibit(tuple(tables), (picture,))


def success_table(
    results: ExperimentResults,
    every: Mapping[tuple[str, str], Mapping[str, Training]],
    exam: Exam,
    groups: Mapping[str, list[int]],
) -> Table:
    """Seen, unseen and the cost of unseen for every agent and context."""
    columns = [Column("agent"), Column("given")]
    for name in groups:
        before = "" if name == ALL else f"{name} "
        columns += [Column(f"{before}{side}") for side in SIDES]
        columns.append(Column(f"{before}cost", signed=True))
    rows = []
    for (agent, context), of in every.items():
        runs = FoldRuns(agent, "contexts", exam, of)
        costs = runs.costs()
        cells: list[Cell] = [f"{agent}-{AGENTS[agent]['network']}", context]
        for name, rules in groups.items():
            cost = costs.get(name)
            if cost is not None:
                cells += [cost.seen, cost.unseen, cost.cost]
            else:
                means = [by_rule(of, rules, side) for side in SIDES]
                cells += [float(np.nanmean(m)) if np.isfinite(m).any() else None for m in means]
                cells.append(None)
        rows.append(Row(tuple(cells), group=agent))
    levels = [_levels(exam, name) for name in groups]
    for label in levels[0]:
        cells = [label, None]
        for level, rules in zip(levels, groups.values(), strict=True):
            mean = float(level[label][np.isin(exam.rules, rules)].mean())
            cells += [mean if np.isfinite(mean) else None] * 2 + [None]
        rows.append(Row(tuple(cells), CEILING))
    steps = next(iter(results.finished.values()))[0].steps
    return Table(
        "contexts",
        "What is given about the rule",
        f"Strict success after {steps:,} steps. `rule` is privileged: the true table. `evidence` "
        "is what the episode has shown of it, exact and blind. Over folds, seen and unseen have "
        "95% t intervals over runs, the cost of unseen over runs and rules. The exact ceiling "
        "knows the rule, the blind ceiling and `memoryless` do not.",
        tuple(columns),
        tuple(rows),
    )


def gap_table(
    every: Mapping[tuple[str, str], Mapping[str, Training]],
    exam: Exam,
    groups: Mapping[str, list[int]],
) -> Table:
    """What lies between ceiling, `rule`, `evidence` and `none`."""
    ceilings = dict(zip(exam.rules.tolist(), exam.ceilings(exam.optimal_steps()), strict=True))
    told: list[dict[str, Cell]] = []
    names: list[str] = []
    for agent in AGENTS:
        given = {context: of for (whose, context), of in every.items() if whose == agent}
        for name, rules in groups.items():
            for side in SIDES:
                values = {context: by_rule(of, rules, side) for context, of in given.items()}
                if not values:
                    continue
                is_known = np.isfinite(list(values.values())).all(axis=0)
                if is_known.sum() < 2:
                    continue
                ceiling = np.array([ceilings[rule] for rule in rules])[is_known]
                gaps = stats.context_gaps(
                    ceiling, {context: mean[is_known] for context, mean in values.items()}
                )
                names += [gap for gap in gaps if gap not in names]
                told.append({"agent": agent, "rules": name, "side": side, **gaps})
    columns = ["agent", "rules", "side", *names]
    return Table(
        "contexts-gaps",
        "What lies between",
        "Differences paired by rule, with 95% intervals over rules. Control: the ceiling less "
        "success with the rule given. The price of partial knowledge: `rule` less `evidence`. The "
        "value of evidence, and of a network that looks it up: `evidence` less `none`.",
        tuple(Column(column, signed=column in names) for column in columns),
        tuple(Row(tuple(row.get(column) for column in columns)) for row in told),
    )


def _groups(exam: Exam, every: Iterable[Mapping[str, Training]]) -> dict[str, list[int]]:
    """Rules that somebody held out, by stratum, the headline first."""
    held_out = sorted(
        {
            int(rule)
            for of in every
            for training in of.values()
            for rule in training.rules[training.held_out]
        }
    )
    rules = held_out or exam.rules.tolist()
    kinds = by_stratum.strata_by_rule(exam)
    beyond = [rule for rule in rules if kinds.get(rule) == HEADLINE]
    return ({HEADLINE: beyond} if beyond else {}) | {ALL: rules}


def _levels(exam: Exam, group: str) -> dict[str, np.ndarray]:
    """Bounds by rule, for a player that plays for the rules of a group."""
    bound = bounds.bounds(exam) if group == ALL else bounds.bounds_by_stratum(exam)
    return {
        "memoryless": bound.memoryless,
        "blind ceiling": bound.blind_ceiling,
        "exact ceiling": exam.ceilings(exam.optimal_steps()),
    }


EXPERIMENTS = (
    Experiment(
        name="contexts",
        about="What does an agent lack: control, or knowledge of the rule?",
        settings=context_settings,
        show=show_contexts,
        over_folds=True,
    ),
)
