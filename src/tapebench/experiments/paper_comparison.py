"""Every number that the paper prints, with the one measured here.

Ours come from finished runs of the other
experiments at the same scale, or are computed here where that needs no training; what is neither
is a dash. No number of ours is written down in this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base.files import read_json
from tapebench.exam import baselines, metrics
from tapebench.exam.exam import SUBSETS
from tapebench.exam.intervals import over_seeds
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, untrained
from tapebench.experiments.filters import (
    CANDIDATE_SETS,
    DRAWS,
    over_draws,
    over_rules,
    play_filter,
)
from tapebench.experiments.main import (
    RULES,
    SEEDS,
    TRAIN_ON_TEST,
    examined_file,
    fixed_settings,
    longer_exam,
    main_settings,
    only_side,
    small_settings,
)
from tapebench.experiments.paper_checks import check_tables
from tapebench.experiments.paper_tables import Published, published_tables, span, statements
from tapebench.experiments.planning import SMALL, planners
from tapebench.experiments.unseen import PARTITIONS
from tapebench.experiments.world_models import (
    credibility_settings,
    foreseen,
    imagined,
    usual_imagination,
)
from tapebench.physics import exact, features
from tapebench.planning.belief import BETA
from tapebench.planning.mpc import CANDIDATES, PLAN
from tapebench.report.tables import Cell, Column, Row, Table
from tapebench.runs import tracks
from tapebench.stats import Interval
from tapebench.tasks import splits
from tapebench.tasks.universe import ELEMENTARY

PAPER, OURS = "paper", "ours"

HORIZONS = ("32", "64")
"""The paper's two horizons; ours are the two of the track."""

DIGITS = {"fixed-rules": 2, "small-scale": 2, "bayes-filter": 4}
"""As the paper prints them; three in its other tables."""

SHORT = {
    "success": "success",
    "final_distance": "final D",
    "auc_distance": "AUC",
    "soft_0_1": "soft@0.1",
    "return": "return",
}

Measured = Mapping[str, Mapping[str, Mapping[str, Cell]]]
"""Row of the paper -> source of our value, such as `ours, mpc-min` -> column -> value."""


# What we have of each table


def measured_main(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """Every agent's finished runs."""
    main = results.of(main_settings)
    return {
        agent: {_source(main, agent): {key: _of_runs(runs, key) for key in keys}}
        for agent in tracks.AGENTS
        if (runs := main.summaries(agent))
    }


def measured_horizons(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The same at the track's two horizons, the longer as far as `holdout-length` has measured."""
    main = results.of(main_settings)
    rows: dict[str, Any] = {}
    for agent in tracks.AGENTS:
        specs = main.finished.get(agent, [])
        if not specs:
            continue
        files = [examined_file(main, spec, longer_exam(main)) for spec in specs]
        longer = [read_json(file) for file in files if file.is_file()]
        runs = dict(zip(HORIZONS, (main.summaries(agent), longer), strict=True))
        split = [(key, *key.split(".", 1)) for key in keys]
        values = {key: _of_runs(runs[horizon], rest) for key, horizon, rest in split}
        rows[agent] = {_source(main, agent): values}
    return rows


def _source(results: ExperimentResults, setting: str, theirs: int | None = None) -> str:
    """Where our value is from: the agent with its network, and its seeds where they are fewer than
    `theirs`, by default those of the paper's main tables."""
    theirs = theirs or int(published_tables()["protocol"].mean("seeds", "value"))
    seeds = len(results.finished[setting])
    source = f"{OURS}, {results.label(setting).split(', ')[0]}"
    return source if seeds >= theirs else f"{source}, {seeds} of {theirs} seeds"


def _of_runs(runs: Sequence[Mapping[str, Any]], key: str) -> Cell:
    """`id.success`, `drop` or `seeds` of some runs with an interval over seeds; None if unknown."""
    if key == "seeds":
        return len(runs)
    side, _, metric = key.partition(".")
    entries = [run.get(side) for run in runs]
    values = [value.get(metric) if metric and value else value for value in entries]
    interval = _over_seeds(values)
    if metric == "success" and isinstance(interval, Interval):
        return stats.within_0_and_1(interval)
    return interval


def _over_seeds(values: Iterable[Any]) -> Cell:
    """As in the main table of the report; None where a value is missing."""
    numbers = [*values]
    if not numbers or any(value is None for value in numbers):
        return None
    return over_seeds(numbers)


def measured_bounds(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """Agents trained on held-out rules, the planner under each objective, and exact feasibility."""
    trained = results.of(TRAIN_ON_TEST.settings)
    on_test = {
        _source(trained, setting): {key: _of_runs(runs, f"ood.{key}") for key in keys}
        for setting in trained.finished
        for runs in [trained.summaries(setting)]
        if setting.endswith("on test")
    }
    return {
        "train-on-test oracle": on_test,
        "true-dynamics MPC": {
            f"{OURS}, {name}": {"success": planner.reached(every := planner.rows("all"))}
            | {key: planner.mean(key, every) for key in keys if key != "success"}
            for name, planner in planners(results, results.scale.exam()).items()
        },
        "feasibility at L = H = 16": {
            name: {"success": share} for name, share in _feasible().items()
        },
    }


def _feasible() -> dict[str, float]:
    """What rule-wise solvable may mean, each over all rules on the smaller tapes."""
    reach = exact.shipped_ceilings(SMALL, SMALL).values()
    shares = np.array([answer.solvable_excluding_goal for answer in reach])
    has_way = [answer.max_steps > 0 for answer in reach]
    return {
        f"{OURS}, rules solvable from every tape": float((shares == 1).mean()),
        f"{OURS}, rules with any way to the goal": float(np.mean(has_way)),
        f"{OURS}, share of tapes, mean over rules": float(shares.mean()),
    }


def measured_types(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The planner on held-out rules of each type."""
    exam = results.scale.exam()
    rows: dict[str, dict[str, Any]] = {}
    for name, planner in planners(results, exam).items():
        for kind in (*features.TYPES, "all"):
            of_type = exam.rows("ood")
            of_type = of_type if kind == "all" else of_type[exam.types[of_type] == kind]
            rows.setdefault(kind, {})[f"{OURS}, {name}"] = {
                "success": planner.reached(of_type),
                "return": planner.mean("return", of_type),
                "episodes": len(of_type) * exam.episodes * baselines.SEEDS,
            }
    return rows


def measured_fixed(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """Runs on a single rule."""
    rows = {}
    other = results.of(fixed_settings)
    for setting in other.finished:
        runs = [only_side(run) for run in other.summaries(setting)]
        kind = ELEMENTARY.features[int(setting.rsplit(" ", 1)[1])].type
        values: dict[str, Cell] = {"type": kind}
        values |= {key: _over_seeds(run[key] for run in runs) for key in keys if key != "type"}
        rows[setting] = {_source(other, setting, SEEDS): values}
    return rows


def small_world(results: ExperimentResults) -> dict[str, Any]:
    """What the exam of the smaller regime has in place of the track's."""
    length = min(SMALL, results.scale.track.length)
    return {"length": length, "horizon": length, "mask": None}


def measured_small(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The planner on smaller tapes and the exact ceiling, and the runs of `small-scale`."""
    rows: dict[str, dict[str, Any]] = {}
    world = small_world(results)
    whole = results.scale.exam(**world)
    few = results.scale.exam(rules=list(RULES), **world)
    exams = {"all rules": (whole, np.arange(len(whole.rules)))}
    exams |= {f"rule {rule}": (few, np.flatnonzero(few.rules == rule)) for rule in RULES}
    for which, (exam, of_rules) in exams.items():
        row = rows.setdefault(f"oracle, {which}", {})
        for name, planner in planners(results, exam).items():
            episodes = len(of_rules) * exam.episodes * baselines.SEEDS
            row[f"{OURS}, {name}"] = {"success": planner.reached(of_rules), "episodes": episodes}
        ceilings = exam.ceilings(exam.optimal_steps())[of_rules]
        row[f"{OURS}, exact ceiling"] = {"success": float(ceilings.mean())}
    other = results.of(small_settings)
    for setting in other.finished:
        runs = other.summaries(setting)
        sides = [side for side in SUBSETS if all(side in run for run in runs)]
        source = _source(other, setting, SEEDS)
        rows[setting] = {
            f"{source}, {side.upper()}": {"success": _of_runs(runs, f"{side}.success")}
            for side in sides
        }
    return rows


def measured_filter(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The filter with either candidate set, with intervals over its draws and over rules."""
    exam = results.scale.exam()
    rows: dict[str, dict[str, Cell]] = {}
    for candidates in CANDIDATE_SETS:
        success = play_filter(results, exam, candidates, BETA)
        for over, of in {
            f"{DRAWS} draws": over_draws(exam, success),
            "over rules and tapes": over_rules(exam, success),
        }.items():
            rows[f"{OURS}, candidates: {candidates}, {over}"] = {
                key if key == "drop" else f"{key}.success": value for key, value in of.items()
            }
    return {"bayes": rows}


def measured_credibility(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """One-step error of `dreamer`, and its success next to the planner's on held-out rules."""
    ahead, main = _foreseen(results), results.of(main_settings)
    error = {side: _over_seeds(run[0] for run in runs) for side, runs in ahead.items()}
    ours = _of_runs(main.summaries("dreamer"), "ood.success")
    source = _source(main, "dreamer") if "dreamer" in main.finished else OURS
    exam = results.scale.exam()
    gap = {
        f"{source}, {name}": {"dreamer": ours, "mpc": planner.reached(exam.rows("ood"))}
        for name, planner in planners(results, exam).items()
    }
    credibility = results.of(credibility_settings)
    usual = imagined(usual_imagination())
    foreseen_by = _source(credibility, usual) if usual in credibility.finished else OURS
    return {"one-step error": {foreseen_by: error} if error else {}, "strict success": gap}


def _foreseen(results: ExperimentResults) -> dict[str, list[list[float | None]]]:
    """By side, what the usual `dreamer` foresees wrongly by steps ahead, of each finished run."""
    other = results.of(credibility_settings)
    runs = [foreseen(other, spec) for spec in other.finished.get(imagined(usual_imagination()), [])]
    return {
        side: [run[side]["depth"] for run in runs] for side in SUBSETS if runs and side in runs[0]
    }


def measured_split(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The types of the held-out rules of the two splits."""
    held_out = {name: splits.load(name).test for name in ("fps30", "matched30")}
    return {
        "held-out rules": {
            f"{OURS}, {name}": {**ELEMENTARY.count_types(members), "all": len(members)}
            for name, members in held_out.items()
        }
    }


def measured_protocol(results: ExperimentResults, keys: Sequence[str]) -> Measured:
    """The settings of the track `full` and of the references."""
    full = tracks.get_track("full")
    first, second, third = metrics.TOLERANCES
    values: dict[str, float] = {
        "elementary rules": len(ELEMENTARY.rules),
        "cells": full.length,
        "training horizon": full.horizon,
        "holdout horizon": full.holdout_horizon,
        "training steps": full.steps,
        "steps between evaluations": full.evaluate_every,
        "episodes a rule": full.episodes,
        "evaluations averaged": full.last,
        "seeds": full.seeds,
        "bootstrap resamples": stats.RESAMPLES,
        "confidence": stats.CONFIDENCE,
        "partitions": len(PARTITIONS),
        "partitions at random": sum(name.startswith("random") for name in PARTITIONS),
        "partitions by farthest points": sum(name.startswith("fps") for name in PARTITIONS),
        "planned flips": PLAN,
        "planned candidates": CANDIDATES,
        "weight of information gain": BETA,
        "soft success, first tolerance": first,
        "soft success, second tolerance": second,
        "soft success, third tolerance": third,
        "stable: activity below": features.STABLE_BELOW["activity"],
        "stable: entropy below": features.STABLE_BELOW["entropy"],
        "chaotic: activity above": features.CHAOTIC_ABOVE["activity"],
        "chaotic: entropy above": features.CHAOTIC_ABOVE["entropy"],
        "cells of the feasibility regime": SMALL,
        "seeds of Experiments 1 and 2": SEEDS,
    }
    return {name: {f"{OURS}, full": {"value": _short(value)}} for name, value in values.items()}


MEASURED: dict[str, Callable[[ExperimentResults, Sequence[str]], Measured]] = {
    "main": measured_main,
    "continuous": measured_main,
    "holdout-length": measured_horizons,
    "bounds": measured_bounds,
    "mpc-by-type": measured_types,
    "fixed-rules": measured_fixed,
    "small-scale": measured_small,
    "bayes-filter": measured_filter,
    "credibility": measured_credibility,
    "split": measured_split,
    "protocol": measured_protocol,
}
"""What measures our values for each of the paper's tables."""


# Tables


def show_comparison(results: ExperimentResults) -> Exhibit:
    """The checks first, then a table for each of the paper's, and its statements."""
    tables = [
        compare_with_paper(name, table, MEASURED[name](results, table.columns), results)
        for name, table in published_tables().items()
    ]
    return Exhibit((*check_tables(results), *tables, statement_table(results)))


def compare_with_paper(
    name: str, table: Published, ours: Measured, results: ExperimentResults
) -> Table:
    """One of the paper's tables with our rows below its own."""
    keys = table.columns
    rows = []
    for label, row in table.rows.items():
        printed = tuple(_printed(row.get(key), name) for key in keys)
        rows.append(Row((label, PAPER, *printed)))
        for source, values in (ours.get(label) or {OURS: {}}).items():
            rows.append(Row((label, source, *(values.get(key) for key in keys))))
    digits = DIGITS.get(name, 3)
    about = results.scale.about(**small_world(results) if name == "small-scale" else {})
    return Table(
        name=f"beside-{name}",
        title=table.title,
        caption=f"The paper: {table.where}. {about} Intervals of ours are 95%: over "
        "seeds for agents, over rules and start tapes for references. A dash is what is not "
        "printed there, or not measured here.",
        columns=(
            Column(""),
            Column("source"),
            *(Column(_label(key), digits=2 if "return" in key else digits) for key in keys),
        ),
        rows=tuple(rows),
    )


def _label(key: str) -> str:
    """`64.ood.success` as `OOD success, H = 64`."""
    *before, metric = key.split(".")
    horizon = f", H = {before.pop(0)}" if before and before[0] in HORIZONS else ""
    side = f"{before[0].upper()} " if before else ""
    return f"{side}{SHORT.get(metric, metric)}{horizon}"


def _printed(value: Any, name: str) -> Cell:
    """A value of the paper as a cell."""
    if isinstance(value, list):
        return Interval(*value)
    return _short(value) if name == "protocol" else value


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def statement_table(results: ExperimentResults) -> Table:
    """What the paper's running text says in numbers."""
    ours = _measured_statements(results)
    rows = []
    for name, statement in statements().items():
        value = statement["value"]
        printed = span(value) if isinstance(value, list) else _short(value)
        for source, measured in (ours.get(name) or {OURS: None}).items():
            rows.append(Row((statement["says"], statement["where"], printed, source, measured)))
    return Table(
        name="beside-text",
        title="Numbers in the running text",
        caption=f"{results.scale.about()} Ranges of ours are over agents.",
        columns=tuple(map(Column, ("the paper says", "where", "paper", "source", "ours"))),
        rows=tuple(rows),
    )


def _measured_statements(results: ExperimentResults) -> dict[str, dict[str, Cell]]:
    exam = results.scale.exam()
    measured: dict[str, dict[str, Cell]] = {
        "planner reference": {
            f"{OURS}, {name}": str(agent.reached(agent.rows("all")))
            for name, agent in planners(results, exam).items()
        },
        "feasibility": {name: f"{share:.3f}" for name, share in _feasible().items()},
    }
    keys = published_tables()["holdout-length"].columns
    agents = [row for of in measured_horizons(results, keys).values() for row in of.values()]
    for side in SUBSETS:
        pairs = [
            [_mean(agent[f"{horizon}.{side}.success"]) for horizon in HORIZONS] for agent in agents
        ]
        losses = [1 - b / a for a, b in pairs if a and b is not None]
        if losses:
            name = f"{OURS}, {side.upper()}"
            measured.setdefault("loss at H = 64", {})[name] = span((min(losses), max(losses)))
    drops = [
        a - b
        for agent in agents
        for horizon in HORIZONS
        if (a := _mean(agent[f"{horizon}.id.success"])) is not None
        and (b := _mean(agent[f"{horizon}.ood.success"])) is not None
    ]
    if drops:
        measured["drop over methods and horizons"] = {OURS: span((min(drops), max(drops)))}
    depth = int(statements()["depth of that growth"]["value"])
    for side, runs in _foreseen(results).items():
        growth = [
            run[depth - 1] / run[0]  # type: ignore[operator]
            for run in runs
            if len(run) >= depth and run[0] and run[depth - 1] is not None
        ]
        if growth:
            name = f"{OURS}, {side.upper()}"
            measured.setdefault("rollout error growth", {})[name] = f"{np.mean(growth):.2f}"
    return measured


def _mean(cell: Cell) -> float | None:
    return cell.mean if isinstance(cell, Interval) else None


EXPERIMENTS = (
    Experiment(
        name="paper-beside-ours",
        about="Every number that the paper prints, with ours, and whether its numbers agree.",
        settings=untrained,
        show=show_comparison,
        paper="every table",
        seconds=240.0,
    ),
)
