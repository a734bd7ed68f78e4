"""The paper's experiments: the main table, longer episodes, bounds, one rule at a time. Beside them
a check of the main table on a fresh exam."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import files
from tapebench.exam import baselines
from tapebench.exam.exam import SUBSETS, Exam, make_exam
from tapebench.exam.policy import Policy
from tapebench.exam.policy import make as policy_by_name
from tapebench.exam.rollout import rollout
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale, untrained
from tapebench.experiments.variants import (
    MARKS,
    Variant,
    compare_variants,
    over_seeds,
    share_over_seeds,
    slug,
)
from tapebench.report import findings, illustrations
from tapebench.report.contests import IDENTIFICATION, read
from tapebench.report.tables import AGENT, REFERENCE, Column, Row, Table
from tapebench.runs import training
from tapebench.runs.training import RunSpec

RULES = (0, 4, 108, 204, 30, 110)
"""Those that it trains on one at a time."""

SEEDS = 5

BLIND = ("flip-ones", "random")
"""Baselines that are shown on both exams."""

FRESH = "results"
"""Salt of the exam that results are checked on, and nothing else."""


# The main table


def main_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Every agent of the track: the runs of `tape bench`."""
    return {agent: scale.runs(agent, scale.track.seeds) for agent in scale.track.agents}


def show_main(results: ExperimentResults) -> Exhibit:
    """The report's tables and figures of these runs."""
    run_ids = {str(spec.id) for spec in results.specs}
    stored = read(results.root)
    contests = [
        contest
        for contest in stored.contests
        if run_ids & {spec["id"] for entry in contest.entries for spec in entry.specs}
    ]
    return Exhibit(
        tuple(table for contest in contests for table in findings.tables(contest)),
        tuple(picture for contest in contests for picture in findings.pictures(contest)),
    )


# Longer episodes


def longer_exam(results: ExperimentResults) -> Exam:
    """The exam of all runs with the track's other horizon."""
    track, short = results.scale.track, results.exam
    return make_exam(
        length=track.length,
        horizon=track.holdout_horizon,
        rules=short.rules.tolist(),
        split=short.origin,
        episodes=short.episodes,
    )


def show_horizons(results: ExperimentResults) -> Exhibit:
    """Success of the same policies at both horizons, also as a share of what the planner reaches.

    What the planner reaches is measured anew for each horizon.
    """
    track = results.scale.track
    short, long = results.exam, longer_exam(results)
    sides = [side for side in SUBSETS if len(short.rows(side))]
    exams = {f"H = {exam.task.horizon}": exam for exam in (short, long)}
    planned = {
        name: baselines.load_or_run(exam, results.root)[baselines.PLANNER]["success"]
        for name, exam in exams.items()
    }
    rows = []
    scores: dict[str, dict[str, np.ndarray]] = {}
    for agent, specs in results.finished.items():
        longer = [examined(results, spec, long) for spec in specs]
        reached = dict(zip(exams, (results.summaries(agent), longer), strict=True))
        cells: list[Any] = [results.label(agent)]
        for name, runs in reached.items():
            for side in sides:
                values = np.array([run[side]["success"] for run in runs])
                by_planner = planned[name][short.rows(side)].mean()
                if specs[0].agent not in IDENTIFICATION:
                    of_column = f"{side.upper()} success, {name}"
                    scores.setdefault(of_column, {})[results.label(agent)] = values
                cells += [
                    share_over_seeds(values),
                    over_seeds(100 * values / max(by_planner, 1e-9)),
                ]
        kind = REFERENCE if specs[0].agent in IDENTIFICATION else AGENT
        rows.append(Row((*cells, len(specs)), kind, results.network_kind(agent)))
    kinds = {results.label(agent): results.network_kind(agent) for agent in results.finished}
    columns = []
    for name in exams:
        for side in sides:
            title = f"{side.upper()} success, {name}"
            columns.append(findings.column_by_seeds(title, scores.get(title, {}), kinds))
            columns.append(Column(f"{side.upper()} ON, {name}", digits=0))
    return Exhibit(
        tables=(
            Table(
                name="holdout-length",
                title=f"Episodes of {track.horizon} and of {track.holdout_horizon} steps",
                caption=f"Strict success of policies trained with {track.horizon} steps; ON is "
                f"100 times success over that of {baselines.PLANNER} with the same horizon. 95% "
                "intervals over seeds. At the longer horizon the last state of a run counts, at "
                f"the shorter its last evaluations. {MARKS}",
                columns=(Column("agent"), *columns, Column("seeds")),
                rows=tuple(rows),
            ),
        )
    )


# Other start tapes


def show_fresh(results: ExperimentResults) -> Exhibit:
    """Success of the same policies from start tapes that no run and no search has seen."""
    fresh = replace(results.exam, salt=FRESH)
    sides = [side for side in SUBSETS if len(fresh.rows(side))]
    rows = []
    scores: dict[str, dict[str, np.ndarray]] = {}
    for agent, specs in results.finished.items():
        cells: list[Any] = [results.label(agent)]
        runs = [examined(results, spec, fresh) for spec in specs]
        for side in sides:
            usual = np.array([run["curve"][side][-1] for run in results.summaries(agent)])
            other = np.array([run[side]["success"] for run in runs])
            if specs[0].agent not in IDENTIFICATION:
                for exam_name, values in (("standard", usual), ("fresh", other)):
                    of_column = f"{side.upper()}, {exam_name}"
                    scores.setdefault(of_column, {})[results.label(agent)] = values
            cells += [share_over_seeds(usual), share_over_seeds(other), over_seeds(other - usual)]
        kind = REFERENCE if specs[0].agent in IDENTIFICATION else AGENT
        rows.append(Row((*cells, len(specs)), kind, results.network_kind(agent)))
    rows += [_fresh_reference(name, results.exam, fresh, sides) for name in BLIND]
    kinds = {results.label(agent): results.network_kind(agent) for agent in results.finished}
    columns = [
        column
        for side in (side.upper() for side in sides)
        for column in (
            *(
                findings.column_by_seeds(title, scores.get(title, {}), kinds)
                for title in (f"{side}, standard", f"{side}, fresh")
            ),
            Column(f"{side}, difference", signed=True),
        )
    ]
    return Exhibit(
        tables=(
            Table(
                name="fresh-exam",
                title="The standard exam and a fresh one",
                caption="Strict success of the last state of every run, on the start tapes that "
                f"all evaluations use and on {fresh.episodes} others for each rule, drawn with "
                f"the salt {FRESH!r}. 95% intervals over seeds; differences are paired. "
                "All seeds of all agents have these tapes in common, so what a difference owes to "
                "them is not in its interval: those of references are over start tapes, and as "
                f"wide as that. {MARKS}",
                columns=(Column("agent"), *columns, Column("seeds")),
                rows=tuple(rows),
            ),
        )
    )


def _fresh_reference(name: str, usual: Exam, fresh: Exam, sides: Sequence[str]) -> Row:
    """A blind baseline on both exams, with intervals over start tapes."""
    by_tape = [
        np.mean(
            [
                rollout(
                    policy_by_name(name, exam.task),
                    exam.task,
                    None,
                    exam.episodes,
                    seed=seed,
                    salt=exam.salt,
                ).success
                for seed in range(baselines.SEEDS)
            ],
            axis=0,
        )
        for exam in (usual, fresh)
    ]
    cells: list[Any] = [name]
    for side in sides:
        here, there = (success[usual.rows(side)].mean(axis=0) for success in by_tape)
        cells += [*map(share_over_seeds, (here, there)), stats.welch(there, here).difference]
    return Row((*cells, None), REFERENCE)


def examined_file(results: ExperimentResults, spec: RunSpec, exam: Exam, how: str = "") -> Path:
    """The file of `examined`, named by the run's result hash: a remade run is measured again."""
    name = "-".join(filter(None, (results.mark(spec), slug(how))))
    return results.root / "examined" / exam.hash / f"{name}.json"


def examined(
    results: ExperimentResults,
    spec: RunSpec,
    exam: Exam,
    how: str = "",
    change: Callable[[Policy], Policy] = lambda policy: policy,
) -> dict[str, Any]:
    """Success of a run's last policy on another exam; measured once, then cached.

    `change` may make another policy of it; `how` says in which way.
    """
    file = examined_file(results, spec, exam, how)
    if not file.is_file():
        policy = change(training.load_run(results.path(spec), exam.task).policy)
        episodes = rollout(
            policy, exam.task, None, exam.episodes, salt=exam.salt, trials=exam.trials
        )
        document = {
            side: {
                "success": float(episodes.success[rows].mean()),
                "final_distance": float(episodes.final_distance[rows].mean()),
                "by_trial": episodes.by_trial(episodes.success)[:, rows].mean(axis=(1, 2)).tolist(),
            }
            for side in SUBSETS
            if len(rows := exam.rows(side))
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(file, document)
    return files.read_json(file)


# Trained on the held-out rules themselves

ON_TEST = {
    f"{agent}, trained on {side}": Variant(
        agent, changes={} if side == "train" else {"train_on": "test"}
    )
    for agent in ("dqn", "ppo")
    for side in ("train", "test")
}


# One rule at a time


def fixed(agent: str, rule: int, length: int) -> Variant:
    """An agent trained and evaluated on a single rule."""
    world = {"length": length, "horizon": length, "train_on": (rule,), "rules": (rule,)}
    return Variant(agent, changes=world)


def fixed_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """RAD and CURL on each of some rules."""
    rules = scale.rules or RULES
    plain = Scale(scale.track, scale.seeds, scale.split)
    return {
        f"{agent}, rule {rule}": fixed(agent, rule, scale.track.length).runs(
            plain, f"fixed {rule}", SEEDS
        )
        for agent in ("rad", "curl")
        for rule in rules
    }


def show_fixed(results: ExperimentResults) -> Exhibit:
    """A row for each rule; columns for agents, baselines and the ceiling."""
    agents = {name.split(", ")[0]: name for name in results.settings}
    agents |= {name.split(", ")[0]: results.label(name) for name in results.finished}
    exams = {spec.task.rules[0]: spec.exam for spec in results.specs}
    rows = []
    for rule, exam in exams.items():
        cells: list[Any] = [f"rule {rule}", str(exam.types[0])]
        for agent in agents:
            runs = results.summaries(f"{agent}, rule {rule}")
            cells.append(
                share_over_seeds([only_side(run)["success"] for run in runs]) if runs else None
            )
        rows.append(Row((*cells, *_baseline_levels(results, exam))))
    return Exhibit(
        tables=(
            Table(
                name="fixed-rules",
                title="Trained and examined on a single rule",
                caption="Strict success, mean over start tapes; 95% intervals over seeds. "
                "References need no training; mpc knows the rule.",
                columns=(
                    Column(""),
                    Column("type"),
                    *(Column(label.split(", ")[0]) for label in agents.values()),
                    *(Column(name) for name in (*baselines.NAMES, "exact ceiling")),
                ),
                rows=tuple(rows),
            ),
        )
    )


def only_side(run: Mapping[str, Any]) -> Any:
    """The summary of the one side that a run was evaluated on."""
    return next(run[side] for side in SUBSETS if side in run)


def _baseline_levels(results: ExperimentResults, exam: Exam) -> list[float]:
    """Success of the references on an exam, and the ceiling."""
    scores = baselines.load_or_run(exam, results.root)
    possible = exam.ceilings(exam.optimal_steps())
    return [
        *(float(scores[n]["success"].mean()) for n in baselines.NAMES),
        float(possible.mean()),
    ]


# Smaller tapes


def small_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """RAD and PEARL on tapes of 16 cells, or of the track's if shorter: all training rules, one."""
    plain = Scale(scale.track, scale.seeds, scale.split)
    length = min(16, scale.track.length)
    world = {"length": length, "horizon": length}
    settings = {
        f"{agent}, all rules": Variant(agent, changes=world).runs(scale, "small", SEEDS)
        for agent in ("rad", "pearl")
    }
    for agent in ("rad", "pearl"):
        for rule in scale.rules or RULES:
            runs = fixed(agent, rule, length).runs(plain, f"small fixed {rule}", SEEDS)
            settings[f"{agent}, rule {rule}"] = runs
    return settings


def show_small(results: ExperimentResults) -> Exhibit:
    """Every setting, with the planner and the ceiling on its own exam."""
    rows, length = [], 0
    for name in results.finished:
        exam = results.finished[name][0].exam
        length = exam.task.length
        runs = results.summaries(name)
        planned = baselines.load_or_run(exam, results.root)[baselines.PLANNER]["success"]
        possible = exam.ceilings(exam.optimal_steps())
        for side in SUBSETS:
            rows_of_side = exam.rows(side)
            if len(rows_of_side):
                reached = share_over_seeds([run[side]["success"] for run in runs])
                references = (
                    float(planned[rows_of_side].mean()),
                    float(possible[rows_of_side].mean()),
                )
                cells = (results.label(name), side.upper(), reached, *references, len(runs))
                rows.append(Row(cells))
    return Exhibit(
        tables=(
            Table(
                name="small-scale",
                title=f"Tapes of {length} cells, many rules and one",
                caption="Strict success, mean over rules; 95% intervals over seeds. mpc knows "
                "the rule; the ceiling is exact.",
                columns=tuple(
                    map(
                        Column, ("", "side", "success", baselines.PLANNER, "exact ceiling", "seeds")
                    )
                ),
                rows=tuple(rows),
            ),
        )
    )


def show_illustrations(results: ExperimentResults) -> Exhibit:
    """What the benchmark is, in pictures."""
    return Exhibit(tables=(), pictures=tuple(illustrations.all_pictures()))


TRAIN_ON_TEST = compare_variants(
    "train-on-test",
    "Trained on the held-out rules themselves",
    "What could be had on the held-out rules by training on them?",
    ON_TEST,
    seeds=SEEDS,
    paper="tab:oracle_bounds, the row that it leaves empty",
)

EXPERIMENTS = (
    Experiment(
        name="illustrations",
        about="What a step is, how the benchmark works, and the same flips under different rules.",
        settings=untrained,
        show=show_illustrations,
        paper="fig:tape, fig:mechanism, fig:tape_evolution",
        seconds=5.0,
    ),
    Experiment(
        name="main",
        about="Every agent of the track on both sides of the split: all tables and figures.",
        settings=main_settings,
        show=show_main,
        paper="tab:extended_main, tab:continuous_metrics, fig:per_rule",
    ),
    Experiment(
        name="holdout-length",
        about="Do policies keep up in longer episodes than in training?",
        settings=main_settings,
        show=show_horizons,
        paper="tab:holdout_length",
    ),
    Experiment(
        name="fresh-exam",
        about="Do results hold from start tapes never used before?",
        settings=main_settings,
        show=show_fresh,
    ),
    TRAIN_ON_TEST,
    Experiment(
        name="fixed-rules",
        about="One rule at a time: can it be learned at all?",
        settings=fixed_settings,
        show=show_fixed,
        paper="tab:rebuttal_exp1",
    ),
    Experiment(
        name="small-scale",
        about="Shorter tapes, many rules and one, with the planner.",
        settings=small_settings,
        show=show_small,
        paper="tab:rebuttal_exp2",
    ),
)
