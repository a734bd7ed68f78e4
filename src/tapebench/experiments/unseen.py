"""Which rules are held out: does it matter, and what does it cost a rule to be among them?

The drop from seen to held-out rules compares different rules. Where several partitions hold out
different ones, each rule can be held against itself instead, see `stats.cost_of_unseen`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tapebench import stats
from tapebench.exam import baselines
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.rollout import rollout
from tapebench.experiments.ablations import of_networks
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.main import FRESH, SEEDS
from tapebench.experiments.variants import over_seeds, share_over_seeds
from tapebench.report.figures import Picture, boxes, dots
from tapebench.report.tables import CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.runs import store, tracks, training
from tapebench.runs.folds import rule_success
from tapebench.runs.training import RunSpec
from tapebench.stats import Interval, Training

PARTITIONS = ("random-0", "random-1", "random-2", "fps-0", "fps-1")
"""Three at random, two by farthest points, like the paper's."""

UNSEEN = "unseen-law"
"""The experiment that holds every rule against itself."""

CROSSED = "matched30"
"""The split that the track's own is crossed with."""

STRONGER = ("dqn, conv", "ppo, conv", "rppo, cells")
"""Settings of `networks` that are crossed beside the agents of the track."""

OVER_RULES = (
    "95% intervals over seeds and rules alike: about training again with other rules like these "
    "held out."
)
COST = (
    "Cost: by how much success on a rule is greater where it was trained on than where it was held "
    "out, less by how much the one training is better than the other on rules that both were "
    "trained on. Who has learned little has little to lose: read it beside success."
)


# Five partitions


def partition_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """The paper's agents but `dreamer` on each of five partitions."""
    agents = [name for name in tracks.AGENTS if name != "dreamer"]
    splits = (scale.split,) if scale.split else PARTITIONS
    return {
        f"{agent} on {split}": replace(scale, split=split).runs(agent, SEEDS)
        for agent in agents
        for split in splits
    }


def show_partitions(results: ExperimentResults) -> Exhibit:
    """OOD success of every agent on every partition, and what it costs a rule to be held out."""
    success: dict[str, dict[str, list[float]]] = {}
    references: dict[str, list[float]] = {}
    for name in results.finished:
        agent, split = name.split(" on ")
        runs = [run for run in results.summaries(name) if "ood" in run]
        if runs:
            if split not in references:
                references[split] = _ood_references(results, results.finished[name][0].exam)
            success.setdefault(agent, {})[split] = [run["ood"]["success"] for run in runs]
    rows = [
        Row(
            (
                agent,
                *(share_over_seeds(by_split[s]) if s in by_split else None for s in references),
                over_seeds([np.mean(values) for values in by_split.values()]),
            )
        )
        for agent, by_split in success.items()
    ]
    for place, line in enumerate((*baselines.NAMES, "exact ceiling")):
        values = [known[place] for known in references.values()]
        kind = CEILING if line == "exact ceiling" else REFERENCE
        rows.append(Row((line, *values, over_seeds(values)), kind))
    table = Table(
        name="split-robustness",
        title="OOD success on five partitions",
        caption="Strict success on held-out rules; 95% intervals over seeds, in the last "
        "column over partitions.",
        columns=(
            Column(""),
            *(Column(split, better="high") for split in references),
            Column("all", better="high"),
        ),
        rows=tuple(rows),
    )
    costs = [
        Row((agent, *map(stats.drop_over_rules, of.values()), stats.cost_of_unseen([*of.values()])))
        for agent, of in crossings(results).items()
        if len(of) == len(references)
    ]
    cost_table = Table(
        name="split-robustness-cost",
        title="The drop on five partitions, and what it costs a rule to be held out",
        caption=f"Drop: ID − OOD success. {COST} Mean over all pairs of partitions. {OVER_RULES}",
        columns=(
            Column(""),
            *(Column(f"drop, {split}", signed=True) for split in references),
            Column("cost", signed=True),
        ),
        rows=tuple(costs),
    )
    return Exhibit(
        tables=(table, cost_table) if costs and len(references) > 1 else (table,),
        pictures=(
            Picture(
                name="split-robustness",
                title="OOD success on five partitions",
                caption="Each dot is a seed on a partition.",
                drawing=boxes(success, y="OOD strict success"),
            ),
        ),
    )


def _ood_references(results: ExperimentResults, exam: Exam) -> list[float]:
    rows = exam.rows("ood")
    by_name, possible = (
        baselines.load_or_run(exam, results.root),
        exam.ceilings(exam.optimal_steps()),
    )
    reached = [float(by_name[name]["success"][rows].mean()) for name in baselines.NAMES]
    return [*reached, float(possible[rows].mean())]


# Each rule against itself


def crossed_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Every agent of the track, and stronger ones, with its split and with another."""
    own = scale.track.split
    other = scale.split if scale.split not in (None, own) else CROSSED
    settings: dict[str, list[RunSpec]] = {}
    for split in (own, other):
        here = replace(scale, split=None if split == own else split)
        groups = {agent: here.runs(agent, scale.track.seeds) for agent in scale.track.agents}
        groups |= of_networks(here, SEEDS, *STRONGER)
        settings |= {f"{name} on {split}": runs for name, runs in groups.items()}
    return settings


def show_crossed(results: ExperimentResults) -> Exhibit:
    """The drop on both splits, and what it costs a rule to be held out."""
    agents, splits = (
        list(dict.fromkeys(name.split(" on ")[part] for name in settings))
        for part, settings in enumerate((results.finished, results.settings))
    )
    known = crossings(results)
    rows: list[Row] = []
    shown: dict[str, dict[str, Interval]] = {}
    for agent in agents:
        of = known.get(agent, {})
        drops = {split: stats.drop_over_rules(of_split) for split, of_split in of.items()}
        costs = checked = None
        on_fresh_exam: list[Training] = []
        if len(of) == len(splits):
            both = [of[split] for split in splits]
            costs = [stats.cost_of_unseen(both, place) for place in (*range(len(splits)), None)]
            on_fresh_exam = fresh_trainings(results, agent, splits)
            checked = stats.cost_of_unseen(on_fresh_exam)
        cells: list[Cell] = [agent, *map(drops.get, splits)]
        cells += costs or [None] * (len(splits) + 1)
        seeds = [len(results.finished.get(f"{agent} on {split}", ())) for split in splits]
        seeds_anew = [len(of_split.scores) for of_split in on_fresh_exam] if checked else ()
        rows.append(Row((*cells, checked, _counts_text(seeds), _counts_text(seeds_anew) or None)))
        if costs and costs[-1]:
            shown[agent] = {f"drop on {split}": drop for split, drop in drops.items()}
            shown[agent]["cost of being held out"] = costs[-1]
    title = "What it costs a rule to be held out"
    columns = [Column("")]
    columns += [Column(f"drop, {split}", signed=True) for split in splits]
    columns += [Column(f"cost, held out by {split}", signed=True) for split in splits]
    columns += [Column(name, signed=True) for name in ("cost, both", "cost, fresh exam")]
    return Exhibit(
        tables=(
            Table(
                name=UNSEEN,
                title=title,
                caption=f"Drop: ID − OOD success, of different rules. {COST} Everybody starts from "
                "the same tapes under every rule. On a fresh exam: other start tapes, drawn with "
                f"the salt {FRESH!r}, for the last state of every run of which it was kept. "
                f"{OVER_RULES}",
                columns=(*columns, Column("seeds"), Column("seeds, fresh exam")),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name=UNSEEN,
                title=title,
                caption="The drop compares the rules of two sides, the cost every rule with "
                f"itself. {OVER_RULES}",
                drawing=dots(shown, x="strict success lost", references={"nothing lost": 0.0}),
            ),
        )
        if shown
        else (),
    )


def _counts_text(counts: Iterable[int]) -> str:
    return " / ".join(map(str, counts))


def costs(scale: Scale, root: Path) -> dict[str, Interval]:
    """What it costs a rule to be held out, by agent, of those that were crossed."""
    known = crossings(ExperimentResults(scale, root, crossed_settings(scale)))
    intervals = {agent: stats.cost_of_unseen([*of.values()]) for agent, of in known.items()}
    return {agent: cost for agent, cost in intervals.items() if cost}


def crossings(results: ExperimentResults) -> dict[str, dict[str, Training]]:
    """By agent and split what its finished runs came to, of those that tell of their spread: with
    two seeds and with two rules on each side.

    Settings are called `agent on split`.
    """
    trainings: dict[str, dict[str, Training]] = {}
    for name, specs in results.finished.items():
        agent, split = name.split(" on ")
        exam = specs[0].exam
        if len(specs) > 1 and min(len(exam.rows(side)) for side in SUBSETS) > 1:
            scores = np.array(
                [rule_success(results.path(spec), spec.exam, spec.last) for spec in specs]
            )
            trainings.setdefault(agent, {})[split] = _training(scores, exam)
    return trainings


def _training(scores: np.ndarray, exam: Exam) -> Training:
    return Training(scores, exam.rules, exam.subsets == "ood")


def fresh_trainings(
    results: ExperimentResults, agent: str, splits: Iterable[str]
) -> list[Training]:
    """The same from other start tapes, for the last state of every run; without those where it was
    neither kept nor measured in time."""
    trainings = []
    for split in splits:
        specs = results.finished[f"{agent} on {split}"]
        exam = replace(specs[0].exam, salt=FRESH)
        counts = [_fresh_successes(results, spec, exam) for spec in specs]
        known = [count for count in counts if count is not None]
        if len(known) > 1:
            trainings.append(_training(np.array(known) / exam.episodes, exam))
    return trainings


def _fresh_successes(results: ExperimentResults, spec: RunSpec, exam: Exam) -> list[int] | None:
    """In how many episodes under each rule a run's last policy succeeds; measured once."""
    path, name = results.path(spec), f"successes-{results.mark(spec)}"
    if not results.kept_file(exam, name).is_file() and store.load_checkpoint(path) is None:
        return None

    def measure() -> list[int]:
        policy = training.load_run(path, exam.task).policy
        episodes = rollout(policy, exam.task, None, exam.episodes, salt=exam.salt)
        return [int(count) for count in episodes.success.sum(axis=1)]

    return list(results.cached(exam, name, measure))


EXPERIMENTS = (
    Experiment(
        name="split-robustness",
        about="Does it matter which rules are held out?",
        settings=partition_settings,
        show=show_partitions,
        paper="fig:split_robustness",
    ),
    Experiment(
        name=UNSEEN,
        about="Each rule against itself: what does it cost that it was not trained on?",
        settings=crossed_settings,
        show=show_crossed,
    ),
)
