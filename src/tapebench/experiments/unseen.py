"""Which rules are held out: does it matter, and what does it cost a rule to be among them?

The drop from seen to held-out rules compares different rules. Where several partitions hold out
different ones, each rule can be held against itself instead, see `stats.cost_of_unseen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tapebench import stats
from tapebench.exam import baselines, by_stratum, intervals
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.rollout import rollout
from tapebench.experiments.ablations import of_networks
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.main import BLIND, FRESH, SEEDS
from tapebench.experiments.variants import MARKS, over_seeds, share_over_seeds
from tapebench.report import findings
from tapebench.report.contests import IDENTIFICATION, label_of
from tapebench.report.figures import Picture, boxes, dots
from tapebench.report.tables import AGENT, CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.runs import store, tracks, training
from tapebench.runs.folds import rule_success
from tapebench.runs.training import RunSpec
from tapebench.stats import Interval, Training

PARTITIONS = ("random-0", "random-1", "random-2", "fps-0", "fps-1")
"""Three at random, two by farthest points, like the paper's."""

UNSEEN = "unseen-law"
"""The experiment that holds every rule against itself."""

BEYOND_REFLEX = "beyond-reflex"

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
    "trained on."
)
SKILL = (
    "An agent has skill beyond reflex if the interval of its success on seen beyond-reflex rules, "
    "over seeds, is above what the better of flip-ones and random reaches on them, with every "
    "split. If it is below, there is nothing to lose, and a cost near zero says nothing about "
    "unseen rules; else skill is undecided."
)
SKILLED, NOTHING_TO_LOSE, UNDECIDED = "has skill", "nothing to lose", "skill undecided"
READINGS = (SKILLED, UNDECIDED, NOTHING_TO_LOSE)
"""How a cost is to be read, see `SKILL`, in the order of tables."""


@dataclass(frozen=True)
class UnseenCost:
    """What it costs an agent that rules are unseen, and whether it had anything to lose."""

    cost: Interval
    """Over all rules."""
    beyond_reflex: Interval | None
    """On beyond-reflex rules alone."""
    success: Interval | None
    """On seen beyond-reflex rules of the first split, over seeds."""
    reading: str
    """One of `READINGS`."""


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
            by_split = success.setdefault(label_in(results, agent), {})
            by_split[split] = [run["ood"]["success"] for run in runs]
    kinds = {label_in(results, _agent(s)): results.network_kind(s) for s in results.finished}
    rows = [
        Row(
            (
                agent,
                *(share_over_seeds(by_split[s]) if s in by_split else None for s in references),
                over_seeds([np.mean(values) for values in by_split.values()]),
            ),
            group=kinds[agent],
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
        f"column over partitions. {MARKS}",
        columns=(
            Column(""),
            *(
                findings.column_by_seeds(
                    split,
                    {label: np.array(of[split]) for label, of in success.items() if split in of},
                    kinds,
                )
                for split in references
            ),
            Column("all"),
        ),
        rows=tuple(rows),
    )
    costs = [
        Row(
            (
                label_in(results, agent),
                *map(stats.drop_over_rules, of.values()),
                stats.cost_of_unseen([*of.values()]),
            )
        )
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
    skilled = skilled_costs(results)
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
        label = label_in(results, agent)
        skill = skilled.get(label)
        cells: list[Cell] = [label, None, None, None]
        if skill is not None:
            cells = [label, skill.reading, skill.success, skill.beyond_reflex]
        cells += [*map(drops.get, splits), *(costs or [None] * (len(splits) + 1))]
        seeds = [len(results.finished.get(f"{agent} on {split}", ())) for split in splits]
        seeds_anew = [len(of_split.scores) for of_split in on_fresh_exam] if checked else ()
        kind = REFERENCE if agent in IDENTIFICATION else AGENT
        counts = _counts_text(seeds), _counts_text(seeds_anew) or None
        rows.append(Row((*cells, checked, *counts), kind))
        if costs and costs[-1]:
            shown[label] = {f"drop on {split}": drop for split, drop in drops.items()}
            shown[label]["cost of being held out"] = costs[-1]
    rows.sort(key=lambda row: (row.kind != AGENT, _place(row.cells[1])))
    title = "What it costs a rule to be held out"
    columns = [Column(""), Column("reading"), Column("success, seen beyond-reflex")]
    columns += [Column("cost, beyond-reflex", signed=True)]
    columns += [Column(f"drop, {split}", signed=True) for split in splits]
    columns += [Column(f"cost, held out by {split}", signed=True) for split in splits]
    columns += [Column(name, signed=True) for name in ("cost, both", "cost, fresh exam")]
    return Exhibit(
        tables=(
            Table(
                name=UNSEEN,
                title=title,
                caption=f"{SKILL} Drop: ID − OOD success, of different rules. {COST} Everybody "
                "starts from the same tapes under every rule. On a fresh exam: other start tapes, "
                f"drawn with the salt {FRESH!r}, for the last state of every "
                f"run of which it was kept. {OVER_RULES}",
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


def _place(reading: Cell) -> int:
    """The place of a reading among rows."""
    return READINGS.index(str(reading)) if reading in READINGS else len(READINGS)


def _counts_text(counts: Iterable[int]) -> str:
    return " / ".join(map(str, counts))


def costs(scale: Scale, root: Path) -> dict[str, UnseenCost]:
    """What it costs a rule to be held out, by agent and network, of those that were crossed."""
    return skilled_costs(ExperimentResults(scale, root, crossed_settings(scale)))


def skilled_costs(results: ExperimentResults) -> dict[str, UnseenCost]:
    """The same of an experiment; agents with skill come first, references are left out."""
    by_label: dict[str, UnseenCost] = {}
    for agent, of in crossings(results).items():
        cost = stats.cost_of_unseen([*of.values()])
        if cost is None or agent in IDENTIFICATION:
            continue
        exams = {split: results.finished[f"{agent} on {split}"][0].exam for split in of}
        parts = [beyond_reflex(training, exams[split]) for split, training in of.items()]
        within = [part for part in parts if part is not None]
        seen = [intervals.share_over_seeds(part.scores[:, ~part.held_out]) for part in within]
        levels = [_blind_level(results, exams[split]) for split in of]
        by_label[label_in(results, agent)] = UnseenCost(
            cost,
            stats.cost_of_unseen(within) if len(within) == len(of) else None,
            seen[0] if seen else None,
            skill_reading(seen, levels) if len(seen) == len(of) else UNDECIDED,
        )
    return dict(sorted(by_label.items(), key=lambda item: _place(item[1].reading)))


def skill_reading(success: Sequence[Interval], levels: Sequence[float]) -> str:
    """How to read a cost, by success on seen beyond-reflex rules and that of blind play there."""
    pairs = list(zip(success, levels, strict=True))
    if all(interval.low > level for interval, level in pairs):
        return SKILLED
    return NOTHING_TO_LOSE if all(own.high < level for own, level in pairs) else UNDECIDED


def beyond_reflex(training: Training, exam: Exam) -> Training | None:
    """A training on beyond-reflex rules alone; None where strata are unknown or too small."""
    rows = [group.rows for group in by_stratum.groups(exam) if group.stratum == BEYOND_REFLEX]
    if len(rows) < len(SUBSETS) or min(map(len, rows)) < 2:
        return None
    places = np.sort(np.concatenate(rows))
    return Training(training.scores[:, places], training.rules[places], training.held_out[places])


def _blind_level(results: ExperimentResults, exam: Exam) -> float:
    """What the better of flip-ones and random reaches on seen beyond-reflex rules."""
    rows = [
        group.rows
        for group in by_stratum.groups(exam)
        if (group.stratum, group.side) == (BEYOND_REFLEX, "id")
    ]
    known = baselines.load_or_run(exam, results.root)
    return max(float(known[name]["success"][rows[0]].mean()) for name in BLIND) if rows else 1.0


def label_in(results: ExperimentResults, agent: str) -> str:
    """What tables call the agent of settings `agent on split`: with its network."""
    spec = next(group[0] for name, group in results.finished.items() if _agent(name) == agent)
    return label_of(spec.agent, spec.config)


def _agent(setting: str) -> str:
    """The agent of a setting `agent on split`."""
    return setting.split(" on ")[0]


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
