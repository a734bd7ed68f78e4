"""Every number that the paper prints beside the one measured here, and what its own numbers say of
each other.

The paper's numbers come from `data/paper.json`. Ours come from finished runs of the other
experiments at the same scale, or are computed here where that needs no training; what is neither
is a dash. No number of ours is written down in this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from scipy.stats import binomtest

from tapebench import dynamics, exact, protocol, rules, score, seeding, splits, stats, store
from tapebench.exam import SUBSETS, Exam
from tapebench.experiments import Exhibit, Experiment, Results, untrained
from tapebench.experiments.paper import (
    PARTITIONS,
    RULES,
    SEEDS,
    examined_file,
    longer_exam,
    only_side,
)
from tapebench.experiments.references import (
    CANDIDATE_SETS,
    LENGTHS,
    drop,
    planned,
    watch,
)
from tapebench.experiments.worlds import foreseen, imagined, usual_imagination
from tapebench.references.belief import BETA
from tapebench.references.mpc import CANDIDATES, OBJECTIVES, PLAN
from tapebench.report.results import known_lines
from tapebench.report.tables import Cell, Column, Row, Table
from tapebench.stats import Interval

PAPER, OURS = "paper", "ours"

SMALL = LENGTHS[0]
"""Cells, and as many steps, of the paper's smaller regime."""

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
"""Row of the paper -> who measured it here, such as `ours, mpc-min` -> column -> value."""


@dataclass(frozen=True)
class Published:
    """A table of the paper."""

    where: str
    title: str
    rows: Mapping[str, Mapping[str, Any]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that a row has, in the order of their first appearance."""
        return tuple(dict.fromkeys(key for row in self.rows.values() for key in row))

    def mean(self, row: str, column: str) -> float:
        """A printed number, without its interval."""
        value = self.rows[row][column]
        return float(value[0] if isinstance(value, list) else value)


@cache
def published() -> dict[str, Published]:
    """The paper's tables by name."""
    return {name: Published(**table) for name, table in _document()["tables"].items()}


@cache
def statements() -> dict[str, dict[str, Any]]:
    """Numbers in its running text by name: where they stand, what they say, and their value."""
    return dict(_document()["text"])


def _document() -> Any:
    return json.loads(resources.files("tapebench").joinpath("data/paper.json").read_text())


# What we have of each table


def measured_main(results: Results, keys: Sequence[str]) -> Measured:
    """Every agent's finished runs."""
    main = results.of("main")
    return {
        agent: {OURS: {key: _of_runs(runs, key) for key in keys}}
        for agent in protocol.AGENTS
        if (runs := main.summaries(agent))
    }


def measured_horizons(results: Results, keys: Sequence[str]) -> Measured:
    """The same at the track's two horizons, the longer as far as `holdout-length` has measured."""
    main = results.of("main")
    found: dict[str, Any] = {}
    for agent in protocol.AGENTS:
        specs = main.finished.get(agent, [])
        if not specs:
            continue
        files = [examined_file(main, spec, longer_exam(main)) for spec in specs]
        longer = [store.read_json(file) for file in files if file.is_file()]
        runs = dict(zip(HORIZONS, (main.summaries(agent), longer), strict=True))
        split = [(key, *key.split(".", 1)) for key in keys]
        found[agent] = {OURS: {key: _of_runs(runs[at], rest) for key, at, rest in split}}
    return found


def _of_runs(runs: Sequence[Mapping[str, Any]], key: str) -> Cell:
    """`id.success`, `drop` or `seeds` of some runs with an interval over seeds; None if unknown."""
    if key == "seeds":
        return len(runs)
    side, _, metric = key.partition(".")
    found = [run.get(side) for run in runs]
    values = [value.get(metric) if metric and value else value for value in found]
    return _over_seeds(values)


def _over_seeds(values: Iterable[Any]) -> Cell:
    """As in the main table of the report; None where a value is missing."""
    found = [*values]
    if not found or any(value is None for value in found):
        return None
    rng = seeding.generator(0, "paper beside ours")
    return stats.seed_interval(np.array(found, float)[:, None], rng)


def measured_bounds(results: Results, keys: Sequence[str]) -> Measured:
    """Agents trained on held-out rules, the planner under each objective, and exact feasibility."""
    trained = results.of("train-on-test")
    on_test = {
        f"{OURS}, {setting.split(',')[0]}": {
            key: _of_runs(trained.summaries(setting), f"ood.{key}") for key in keys
        }
        for setting in trained.finished
        if setting.endswith("on test")
    }
    return {
        "train-on-test oracle": on_test,
        "true-dynamics MPC": {
            name: {"success": found.reached(every := found.rows("all"))}
            | {key: found.mean(key, every) for key in keys if key != "success"}
            for name, found in _planners(results, results.scale.exam()).items()
        },
        "feasibility at L = H = 16": {
            name: {"success": share} for name, share in _feasible().items()
        },
    }


def _planners(results: Results, exam: Exam) -> dict[str, Any]:
    return {f"{OURS}, mpc-{name}": planned(results, exam, name) for name in OBJECTIVES}


def _feasible() -> dict[str, float]:
    """What rule-wise solvable may mean, each over all rules on the smaller tapes."""
    shares = np.array([found.solvable_excluding_goal for found in _small_reach().values()])
    has_way = [found.max_steps > 0 for found in _small_reach().values()]
    return {
        f"{OURS}, rules solvable from every tape": float((shares == 1).mean()),
        f"{OURS}, rules with any way to the goal": float(np.mean(has_way)),
        f"{OURS}, share of tapes, mean over rules": float(shares.mean()),
    }


def _small_reach() -> dict[int, exact.Reach]:
    return exact.shipped_ceilings(SMALL, SMALL)


def measured_types(results: Results, keys: Sequence[str]) -> Measured:
    """The planner on held-out rules of each type."""
    exam = results.scale.exam()
    found: dict[str, dict[str, Any]] = {}
    for name, one in _planners(results, exam).items():
        for kind in (*rules.TYPES, "all"):
            at = exam.rows("ood")
            at = at if kind == "all" else at[exam.types[at] == kind]
            found.setdefault(kind, {})[name] = {
                "success": one.reached(at),
                "return": one.mean("return", at),
                "episodes": len(at) * exam.episodes * score.LINE_SEEDS,
            }
    return found


def measured_fixed(results: Results, keys: Sequence[str]) -> Measured:
    """Runs on a single rule."""
    found = {}
    other = results.of("fixed-rules")
    for setting in other.finished:
        runs = [only_side(run) for run in other.summaries(setting)]
        kind = rules.table()[int(setting.rsplit(" ", 1)[1])].type
        values: dict[str, Cell] = {"type": kind}
        values |= {key: _over_seeds(run[key] for run in runs) for key in keys if key != "type"}
        found[setting] = {OURS: values}
    return found


def measured_small(results: Results, keys: Sequence[str]) -> Measured:
    """The planner on smaller tapes and the exact ceiling, and the runs of `small-scale`."""
    found: dict[str, dict[str, Any]] = {}
    length = min(SMALL, results.scale.track.length)
    world = {"length": length, "horizon": length, "mask": None}
    whole = results.scale.exam(**world)
    few = results.scale.exam(rules=list(RULES), **world)
    asked = {"all rules": (whole, np.arange(len(whole.rules)))}
    asked |= {f"rule {rule}": (few, np.flatnonzero(few.rules == rule)) for rule in RULES}
    for which, (exam, at) in asked.items():
        row = found.setdefault(f"oracle, {which}", {})
        for name, one in _planners(results, exam).items():
            episodes = len(at) * exam.episodes * score.LINE_SEEDS
            row[name] = {"success": one.reached(at), "episodes": episodes}
        ceilings = exam.ceilings(exam.optimal_steps())[at]
        row[f"{OURS}, exact ceiling"] = {"success": float(ceilings.mean())}
    other = results.of("small-scale")
    for setting in other.finished:
        runs = other.summaries(setting)
        sides = [side for side in SUBSETS if all(side in run for run in runs)]
        found[setting] = {
            f"{OURS}, {side.upper()}": {"success": _of_runs(runs, f"{side}.success")}
            for side in sides
        }
    return found


def measured_filter(results: Results, keys: Sequence[str]) -> Measured:
    """The filter with either candidate set."""
    exam = results.scale.exam()
    found = {}
    for candidates in CANDIDATE_SETS:
        success = watch(results, exam, candidates, BETA).success.astype(float)
        values: dict[str, Cell] = {"drop": drop(exam, success)}
        for side in SUBSETS:
            if len(at := exam.rows(side)):
                rng = seeding.generator(0, "references", side)
                values[f"{side}.success"] = stats.rule_tape_bootstrap(success[at], rng)
        found[f"{OURS}, candidates: {candidates}"] = values
    return {"bayes": found}


def measured_credibility(results: Results, keys: Sequence[str]) -> Measured:
    """One-step error of `dreamer`, and its success beside the planner's on held-out rules."""
    ahead = _foreseen(results)
    error = {side: _over_seeds(run[0] for run in runs) for side, runs in ahead.items()}
    ours = _of_runs(results.of("main").summaries("dreamer"), "ood.success")
    exam = results.scale.exam()
    gap = {
        name: {"dreamer": ours, "mpc": one.reached(exam.rows("ood"))}
        for name, one in _planners(results, exam).items()
    }
    return {"one-step error": {OURS: error} if error else {}, "strict success": gap}


def _foreseen(results: Results) -> dict[str, list[list[float | None]]]:
    """By side, what the usual `dreamer` foresees wrongly by steps ahead, of each finished run."""
    other = results.of("dreamer-credibility")
    runs = [
        foreseen(other, spec, other.exam)
        for spec in other.finished.get(imagined(usual_imagination()), [])
    ]
    return {side: [run[side] for run in runs] for side in SUBSETS if runs and side in runs[0]}


def measured_split(results: Results, keys: Sequence[str]) -> Measured:
    """The types of the held-out rules of the two splits."""
    held_out = {name: splits.load(name).test for name in ("fps30", "matched30")}
    return {
        "held-out rules": {
            f"{OURS}, {name}": {**rules.count_types(members), "all": len(members)}
            for name, members in held_out.items()
        }
    }


def measured_protocol(results: Results, keys: Sequence[str]) -> Measured:
    """The settings of the track `full` and of the references."""
    full = protocol.get_track("full")
    first, second, third = score.TOLERANCES
    values: dict[str, float] = {
        "elementary rules": dynamics.NUM_RULES,
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
        "stable: activity below": rules.STABLE_BELOW["activity"],
        "stable: entropy below": rules.STABLE_BELOW["entropy"],
        "chaotic: activity above": rules.CHAOTIC_ABOVE["activity"],
        "chaotic: entropy above": rules.CHAOTIC_ABOVE["entropy"],
        "cells of the feasibility regime": SMALL,
        "seeds of Experiments 1 and 2": SEEDS,
    }
    return {name: {f"{OURS}, full": {"value": _short(value)}} for name, value in values.items()}


MEASURED: dict[str, Callable[[Results, Sequence[str]], Measured]] = {
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
"""How ours is had for each of the paper's tables."""


# Tables


def show_beside(results: Results) -> Exhibit:
    """A table for each of the paper's, its statements, and the checks."""
    made = [
        beside(name, table, MEASURED[name](results, table.columns), results)
        for name, table in published().items()
    ]
    return Exhibit((*made, statement_table(results), check_table(results)))


def beside(name: str, table: Published, ours: Measured, results: Results) -> Table:
    """One of the paper's tables with our lines below its own."""
    keys = table.columns
    rows = []
    for label, row in table.rows.items():
        printed = tuple(_printed(row.get(key), name) for key in keys)
        rows.append(Row((label, PAPER, *printed)))
        for who, values in (ours.get(label) or {OURS: {}}).items():
            rows.append(Row((label, who, *(values.get(key) for key in keys))))
    digits = DIGITS.get(name, 3)
    return Table(
        name=f"beside-{name}",
        title=table.title,
        caption=f"The paper: {table.where}. {_scale(results)} Intervals of ours are 95%: over "
        "seeds for agents, over rules and start tapes for references. A dash is what is not "
        "printed there, or not measured here.",
        columns=(
            Column(""),
            Column("source"),
            *(Column(_label(key), digits=2 if "return" in key else digits) for key in keys),
        ),
        rows=tuple(rows),
    )


def _scale(results: Results) -> str:
    track, exam = results.scale.track, results.scale.exam()
    return (
        f"Ours: track {track.name}, {exam.split}, L = {track.length}, H = {track.horizon}, "
        f"{len(exam.rules)} rules with {exam.episodes} start tapes each."
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


def statement_table(results: Results) -> Table:
    """What the paper's running text says in numbers."""
    ours = _measured_statements(results)
    rows = []
    for name, one in statements().items():
        value = one["value"]
        printed = _range(value) if isinstance(value, list) else _short(value)
        for who, found in (ours.get(name) or {OURS: None}).items():
            rows.append(Row((one["says"], one["where"], printed, who, found)))
    return Table(
        name="beside-text",
        title="Numbers in the running text",
        caption=f"{_scale(results)} Ranges of ours are over agents.",
        columns=tuple(map(Column, ("the paper says", "where", "paper", "source", "ours"))),
        rows=tuple(rows),
    )


def _measured_statements(results: Results) -> dict[str, dict[str, Cell]]:
    exam = results.scale.exam()
    found: dict[str, dict[str, Cell]] = {
        "planner reference": {
            name: str(one.reached(one.rows("all")))
            for name, one in _planners(results, exam).items()
        },
        "feasibility": {name: f"{share:.3f}" for name, share in _feasible().items()},
    }
    keys = published()["holdout-length"].columns
    agents = [row[OURS] for row in measured_horizons(results, keys).values()]
    for side in SUBSETS:
        pairs = [[_mean(one[f"{at}.{side}.success"]) for at in HORIZONS] for one in agents]
        losses = [1 - b / a for a, b in pairs if a and b is not None]
        if losses:
            name = f"{OURS}, {side.upper()}"
            found.setdefault("loss at H = 64", {})[name] = _range((min(losses), max(losses)))
    drops = [
        a - b
        for one in agents
        for at in HORIZONS
        if (a := _mean(one[f"{at}.id.success"])) is not None
        and (b := _mean(one[f"{at}.ood.success"])) is not None
    ]
    if drops:
        found["drop over methods and horizons"] = {OURS: _range((min(drops), max(drops)))}
    depth = int(statements()["depth of that growth"]["value"])
    for side, runs in _foreseen(results).items():
        growth = [
            run[depth - 1] / run[0]  # type: ignore[operator]
            for run in runs
            if len(run) >= depth and run[0] and run[depth - 1] is not None
        ]
        if growth:
            name = f"{OURS}, {side.upper()}"
            found.setdefault("rollout error growth", {})[name] = f"{np.mean(growth):.2f}"
    return found


def _mean(cell: Cell) -> float | None:
    return cell.mean if isinstance(cell, Interval) else None


def _range(values: Iterable[float], digits: int = 3) -> str:
    """The least and the greatest of some values."""
    found = [*values]
    low, high = (f"{end:.{digits}f}" for end in (min(found), max(found)))
    return low if low == high else f"{low} to {high}"


# Checks

YES, NO, OPEN = "yes", "no", "–"

HALF = 0.0005 + 1e-9
"""How far a number of three printed digits may be from the one that was rounded."""


@dataclass(frozen=True)
class Check:
    """What is claimed, what follows from printed numbers or is measured, and whether they agree."""

    claim: str
    where: str
    found: str
    agree: str
    """`yes`, `no`, a dash where nothing is claimed that could be wrong, or in which part."""


def check_table(results: Results) -> Table:
    """The paper's statements against its own numbers, exact results and measurements."""
    made = [*printed_checks(), *measured_checks(results)]
    return Table(
        name="beside-checks",
        title="What the printed numbers say of each other, and what is measured",
        caption="Arithmetic on printed numbers allows for their rounding. Nothing is said about "
        f"causes. {_scale(results)}",
        columns=tuple(map(Column, ("claimed or printed", "where", "follows or measured", "agree"))),
        rows=tuple(Row((one.claim, one.where, one.found, one.agree)) for one in made),
    )


def entries() -> list[dict[str, Any]]:
    """Each of the paper's agents on each side: what it prints of it, by short names."""
    main, continuous, longer = (
        published()[name] for name in ("main", "continuous", "holdout-length")
    )
    return [
        {
            "agent": agent,
            "side": side,
            "success": main.mean(agent, f"{side}.success"),
            "distance": continuous.mean(agent, f"{side}.final_distance"),
            "auc": continuous.mean(agent, f"{side}.auc_distance"),
            "soft": continuous.mean(agent, f"{side}.soft_0_1"),
            "longer": longer.mean(agent, f"64.{side}.success"),
            "raw": longer.mean(agent, f"32.{side}.final_distance"),
        }
        for agent in main.rows
        for side in SUBSETS
    ]


def greatest_distance(
    success: float, soft: float, tolerance: float = score.TOLERANCES[-1]
) -> float:
    """The greatest mean final distance that success and soft success leave room for."""
    return tolerance * (soft - success) + (1 - soft)


def is_multiple(value: float, factor: float, of: float, offset: float = 0.0) -> bool:
    """Whether a number of three printed digits may be `offset + factor · of`, `of` printed too."""
    return abs(value - offset - factor * of) <= HALF * (1 + abs(factor))


def _count(found: Iterable[bool]) -> str:
    found = [*found]
    return f"{sum(found)} of {len(found)}"


def printed_checks() -> list[Check]:
    """What follows from the paper's numbers alone."""
    every = entries()
    seen, held_out = ([one for one in every if one["side"] == side] for side in SUBSETS)
    tables = published()
    failing = [one["distance"] / (1 - one["success"]) for one in every]
    room = [
        (one["distance"] - greatest_distance(one["success"], one["soft"]), one) for one in every
    ]
    _, most = max(room, key=lambda pair: pair[0])
    fixed = tables["fixed-rules"]
    unsolved = [
        fixed.mean(row, "final_distance") for row in fixed.rows if fixed.mean(row, "success") == 0
    ]
    losses = {
        name: [1 - one["longer"] / one["success"] for one in side]
        for name, side in (("ID", seen), ("OOD", held_out))
    }
    told_loss = statements()["loss at H = 64"]["value"]
    within = {
        name: told_loss[0] <= np.mean(values) <= told_loss[1] for name, values in losses.items()
    }
    drops = [round(a["success"] - b["success"], 3) for a, b in zip(seen, held_out, strict=True)] + [
        round(a["longer"] - b["longer"], 3) for a, b in zip(seen, held_out, strict=True)
    ]
    told_drop = statements()["drop over methods and horizons"]["value"]
    is_drop = [
        abs(tables["main"].mean(a["agent"], "drop") - a["success"] + b["success"]) <= 3 * HALF
        for a, b in zip(seen, held_out, strict=True)
    ]
    returns = [tables["main"].mean(one["agent"], "ood.return") for one in held_out]
    equal = [abs(r - one["success"]) <= 0.0055 for r, one in zip(returns, held_out, strict=True)]
    types = tables["mpc-by-type"]
    counts = {kind: types.mean(kind, "episodes") for kind in rules.TYPES}
    pooled = {
        key: sum(types.mean(kind, key) * n for kind, n in counts.items()) / sum(counts.values())
        for key in ("success", "return")
    }
    episodes = int(types.mean("all", "episodes"))
    solved = round(types.mean("all", "success") * episodes)
    likely = binomtest(solved, episodes).proportion_ci(stats.CONFIDENCE)
    planner = tables["bounds"].mean("true-dynamics MPC", "success")
    small, cells = (
        statements()[name]["value"] for name in ("small distances", "small distances in cells")
    )
    length = tables["protocol"].mean("cells", "value")
    return [
        Check(
            "Final distance is near 1 − success, since failures end near the greatest distance",
            "app:clarifications",
            f"Printed final distance is 1 − success in "
            f"{_count(is_multiple(one['distance'], -1, one['success'], 1) for one in every)} "
            f"entries: failing episodes end at a mean distance of {_range(failing)}. Printed "
            "success and soft success leave room for at most "
            f"{greatest_distance(most['success'], most['soft']):.3f} where {most['distance']:.3f} "
            f"is printed ({most['agent']}, {most['side'].upper()}); more than there is room for is "
            f"printed in {_count(over > 2 * HALF for over, _ in room)} entries",
            NO if any(over > 2 * HALF for over, _ in room) else YES,
        ),
        Check(
            f"Agents that never solve a fixed rule end at {_range(unsolved, 2)} from the goal",
            "tab:rebuttal_exp1",
            f"In tab:continuous_metrics failing episodes end at {_range(failing)}",
            YES if max(unsolved) >= min(failing) else NO,
        ),
        Check(
            "AUC distance is the average over the trajectory",
            "app:repro, tab:continuous_metrics",
            "It is 1 − 0.9 · success in "
            f"{_count(is_multiple(one['auc'], -0.9, one['success'], 1) for one in every)} entries",
            OPEN,
        ),
        Check(
            "Soft success@0.1 counts final distances up to 0.1",
            "app:repro, tab:continuous_metrics",
            "It is 1.8 · success in "
            f"{_count(is_multiple(one['soft'], 1.8, one['success']) for one in seen)} ID entries "
            "and 1.5 · success in "
            f"{_count(is_multiple(one['soft'], 1.5, one['success']) for one in held_out)} OOD ones",
            OPEN,
        ),
        Check(
            statements()["loss at H = 64"]["says"],
            "sec:holdout_length, tab:holdout_length",
            "Loss in the table: "
            + ", ".join(f"{name} {_range(values, 2)}" for name, values in losses.items())
            + "; success at H = 64 is 0.95 times that at 32 in "
            f"{_count(is_multiple(one['longer'], 0.95, one['success']) for one in seen)} ID "
            "entries and 0.85 times in "
            f"{_count(is_multiple(one['longer'], 0.85, one['success']) for one in held_out)} OOD "
            "ones",
            _partly(within),
        ),
        Check(
            "Distances of the holdout-length table are raw Hamming distances",
            "tab:holdout_length",
            "At H = 32 they are the normalised ones of tab:continuous_metrics in "
            f"{_count(one['raw'] == one['distance'] for one in every)} entries",
            NO if any(one["raw"] == one["distance"] for one in every) else YES,
        ),
        Check(
            statements()["drop over methods and horizons"]["says"],
            "sec:discussion",
            f"ID − OOD in tab:holdout_length: {_range(drops)}",
            YES
            if told_drop[0] - 2 * HALF <= min(drops) <= max(drops) <= told_drop[1] + 2 * HALF
            else NO,
        ),
        Check(
            "The drop is ID − OOD success",
            "tab:extended_main",
            f"It is, to the printed digits, for {_count(is_drop)} agents",
            YES if all(is_drop) else NO,
        ),
        Check(
            f"Mean OOD return of agents is {_range(returns, 2)}; return is the undiscounted sum of "
            "a shaped negative distance and an optional bonus",
            "tab:extended_main, app:repro",
            f"Return equals success to the printed digits for {_count(equal)} agents; in "
            f"tab:mpc_by_type a planner with success {types.mean('all', 'success')} has a mean "
            f"return of {types.mean('all', 'return')}",
            NO if all(equal) and types.mean("all", "return") < 0 else YES,
        ),
        Check(
            f"The planner by type: {types.mean('all', 'success')} and "
            f"{types.mean('all', 'return')} over all rules",
            "tab:mpc_by_type",
            f"Its rows pool to {pooled['success']:.3f} and {pooled['return']:.2f}",
            YES
            if abs(pooled["success"] - types.mean("all", "success")) < 0.002
            and abs(pooled["return"] - types.mean("all", "return")) < 0.01
            else NO,
        ),
        Check(
            f"The planner solves {types.mean('all', 'success')} by type and {planner} overall",
            "tab:mpc_by_type, tab:oracle_bounds",
            f"{solved} of {episodes} episodes: an exact 95% interval of "
            f"[{likely.low:.3f}, {likely.high:.3f}]",
            YES if likely.low <= planner <= likely.high else NO,
        ),
        Check(
            f"Normalised distances of {_range(small, 2)} are {_range(cells, 2)} cells",
            "app:clarifications",
            f"Times {length:g} cells: {_range((length * d for d in small), 2)}",
            YES
            if all(abs(length * d - c) < 0.005 for d, c in zip(small, cells, strict=True))
            else NO,
        ),
    ]


def _partly(parts: Mapping[str, Any]) -> str:
    """Yes, no, or where."""
    if all(parts.values()):
        return YES
    agreeing = [name for name, agrees in parts.items() if agrees]
    return f"{', '.join(agreeing)} only" if agreeing else NO


def _is_of_their_size(exam: Exam) -> bool:
    """Whether tapes and episodes are as long as the paper's."""
    settings = published()["protocol"]
    theirs = (settings.mean(name, "value") for name in ("cells", "training horizon"))
    return (exam.task.length, exam.task.horizon) == tuple(theirs)


def measured_checks(results: Results) -> list[Check]:
    """What is claimed against what is proved or measured here."""
    exam, main = results.scale.exam(), published()["main"]
    reach = _small_reach()
    every_tape = [rule for rule, found in reach.items() if found.solvable == 1]
    no_tape = sum(found.max_steps == 0 for found in reach.values())
    share = float(np.mean([found.solvable_excluding_goal for found in reach.values()]))
    fixed = published()["fixed-rules"]
    types = {int(row.rsplit(" ", 1)[1]): kind["type"] for row, kind in fixed.rows.items()}
    same = [rules.table()[rule].type == kind for rule, kind in types.items()]
    oracle = published()["small-scale"]
    chaotic = [rule for rule in RULES if types[rule] == "chaotic"]
    planners = _planners(results, exam)
    told = published()["bounds"].mean("true-dynamics MPC", "success")
    reached = {name: one.reached(one.rows("all")) for name, one in planners.items()}
    near = {
        name.removeprefix(f"{OURS}, "): one.low <= told <= one.high for name, one in reached.items()
    }
    mix = {kind: int(published()["split"].mean("held-out rules", kind)) for kind in rules.TYPES}
    ours = rules.count_types(splits.load("fps30").test)
    lines = known_lines(exam, results.root) or score.lines(exam)
    sides = [side for side in SUBSETS if len(exam.rows(side))]
    trivial = "; ".join(
        f"{name} "
        + ", ".join(
            f"{side.upper()} {lines[name]['success'][exam.rows(side)].mean():.3f}" for side in sides
        )
        for name in ("random", "flip-ones")
        if name in lines
    )
    learned = ", ".join(
        f"{side.upper()} {_range(main.mean(agent, f'{side}.success') for agent in main.rows)}"
        for side in SUBSETS
    )
    checks = [
        Check(
            statements()["feasibility"]["says"],
            statements()["feasibility"]["where"],
            f"Exhaustive search: {len(every_tape)} of {len(reach)} rules are solvable from every "
            f"tape, {no_tape} from none but the goal; mean share of tapes {share:.4f}",
            YES if len(every_tape) == len(reach) else NO,
        ),
        Check(
            f"The rules {', '.join(map(str, RULES))} are feasible at L = H = {SMALL}",
            "app:fixed_z_details",
            f"{_count(rule in every_tape for rule in RULES)} are solvable from every tape",
            YES if set(RULES) <= set(every_tape) else NO,
        ),
        Check(
            "Chaotic rules: the planner reaches "
            + ", ".join(f"{oracle.mean(f'oracle, rule {r}', 'success')} ({r})" for r in chaotic)
            + f" at L = H = {SMALL}",
            "tab:rebuttal_exp2",
            "Exhaustive search: "
            + ", ".join(
                f"rule {rule} from {reach[rule].solvable:.0%} of tapes in at most "
                f"{reach[rule].max_steps} steps"
                for rule in chaotic
            ),
            OPEN,
        ),
        Check(
            f"A planner with {PLAN} flips and {CANDIDATES} candidates reaches {told}; its "
            "objective is not named",
            "sec:upper_bounds",
            ", ".join(f"{name.removeprefix(f'{OURS}, ')} {one}" for name, one in reached.items()),
            _partly(near) if _is_of_their_size(exam) else OPEN,
        ),
        Check(
            "Held-out rules by farthest points: "
            + ", ".join(f"{count} {kind}" for kind, count in mix.items()),
            "sec:setup, tab:mpc_by_type",
            "fps30, by the recipe as read here: "
            + ", ".join(f"{count} {kind}" for kind, count in ours.items()),
            YES if mix == ours else NO,
        ),
        Check(
            "Types of the six rules: " + ", ".join(f"{r} {kind}" for r, kind in types.items()),
            "tab:rebuttal_exp1",
            f"{_count(same)} are of that type here",
            YES if all(same) else NO,
        ),
        Check(
            f"Learned agents reach {learned}",
            "tab:extended_main",
            f"Policies that learn nothing: {trivial}",
            OPEN,
        ),
    ]
    return [*checks, _filter_check(results)]


def _filter_check(results: Results) -> Check:
    """The drop of the filter with either candidate set, with and without pay for information."""
    exam = results.scale.exam()
    drops = []
    for candidates in CANDIDATE_SETS:
        for beta in (BETA, 0.0):
            found = drop(exam, watch(results, exam, candidates, beta).success)
            drops.append(f"candidates {candidates}, β = {beta:g}: {found or OPEN}")
    return Check(
        "Inferring the rule improves control and does not remove the drop from ID to OOD, "
        f"{published()['bayes-filter'].mean('bayes', 'drop')}",
        published()["bayes-filter"].where.split(",")[0],
        f"Drop with {'; '.join(drops)}",
        OPEN,
    )


EXPERIMENTS = (
    Experiment(
        name="paper-beside-ours",
        about="Every number that the paper prints beside ours, and whether its numbers agree.",
        settings=untrained,
        show=show_beside,
        paper="all of its tables",
    ),
)
