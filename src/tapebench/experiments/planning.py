"""What needs no training: planning with the true rule, inferring it, and what is possible at all.

These experiments have no runs. What they compute is cached in the results directory. There are no
training seeds either: intervals are over rules and start tapes, unless a caption says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.exam import baselines, metrics
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.rollout import rollout
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, untrained
from tapebench.experiments.main import TRAIN_ON_TEST
from tapebench.experiments.variants import share_over_seeds
from tapebench.physics import exact, features
from tapebench.planning import mpc as mpcs
from tapebench.planning.mpc import CANDIDATES, OBJECTIVES, PLAN, mpc
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.tables import CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.stats import Interval

LENGTHS = (16, 20, 24, 32)
"""Cells, and as many steps, for which the exact search of all tapes is shipped."""

SURE = 0.99
"""Probability of the true rule from which it counts as identified."""

SHORT = 8
"""Cells on which identifying the rule takes several steps; at 32 one step is usually enough."""

SMALL = LENGTHS[0]
"""Cells, and as many steps, of the paper's smaller regime."""

OVER_RULES = "95% intervals are over rules and start tapes."


@dataclass(frozen=True)
class Played:
    """What a planner did on an exam."""

    exam: Exam
    means: Mapping[str, np.ndarray]
    """Metric -> its mean over start tapes and the policy's own draws, `[R]`."""
    success: np.ndarray
    """`[R, E]`: the share of its draws that succeed."""

    def rows(self, side: str) -> np.ndarray:
        """Rules of a side of the split, or of `all`."""
        return np.arange(len(self.exam.rules)) if side == "all" else self.exam.rows(side)

    def mean(self, metric: str, rows: np.ndarray) -> float | None:
        """Of some rules, if there are any."""
        return float(self.means[metric][rows].mean()) if len(rows) else None

    def reached(self, rows: np.ndarray) -> Interval | None:
        """Mean success on `rows` with its interval; None if there are none."""
        if not len(rows):
            return None
        success = self.success[rows]
        if np.ptp(success) == 0:
            return Interval(*[float(success.flat[0])] * 3)
        return stats.rule_tape_bootstrap(success, seeding.generator(0, "played"))


def planned(results: ExperimentResults, exam: Exam, objective: str) -> Played:
    """Random shooting with the true rule and the paper's budget; as many draws as a baseline."""

    def compute() -> dict[str, Any]:
        policy = mpc(exam.task, objective)
        runs = [
            rollout(policy, exam.task, None, exam.episodes, seed=seed, salt=exam.salt)
            for seed in range(baselines.SEEDS)
        ]
        means = {
            metric: np.mean([of(run).mean(axis=1) for run in runs], axis=0).tolist()
            for metric, of in metrics.METRICS.items()
        }
        return {"means": means, "success": np.mean([run.success for run in runs], axis=0).tolist()}

    stored = results.cached(exam, f"mpc-{objective}", compute)
    means = {metric: np.array(values) for metric, values in stored["means"].items()}
    return Played(exam, means, np.array(stored["success"]))


def planners(results: ExperimentResults, exam: Exam) -> dict[str, Played]:
    """The same under each objective, by the names that the tables have for them."""
    return {f"mpc-{objective}": planned(results, exam, objective) for objective in OBJECTIVES}


# Bounds


def show_bounds(results: ExperimentResults) -> Exhibit:
    """The planner under each objective, the ceiling, and how many rules can be solved."""
    exam = results.scale.exam()
    sides = (*(side for side in SUBSETS if len(exam.rows(side))), "all")
    rows = _trained_on_test(results, sides)
    trained = (
        " Agents trained on the held-out rules themselves have intervals over seeds; ID rules "
        "they have not seen."
        if rows
        else ""
    )
    for name, planner in planners(results, exam).items():
        everything = planner.rows("all")
        cells: list[Cell] = [planner.reached(planner.rows(side)) for side in sides]
        cells += [planner.mean(key, everything) for key in ("final_distance", "auc_distance")]
        rows.append(Row((name, *cells), REFERENCE))
    possible = exam.ceilings(exam.optimal_steps())
    ceilings = [possible if side == "all" else possible[exam.rows(side)] for side in sides]
    means = [float(of_side.mean()) for of_side in ceilings]
    rows.append(Row(("exact ceiling", *means, None, None), CEILING))
    named = {"all": "success", "id": "ID success", "ood": "OOD success"}
    bounds = Table(
        name="bounds",
        title="What planning reaches with the true rule, and what is possible",
        caption=f"Strict success on {exam.split} at L = {exam.task.length}, "
        f"H = {exam.task.horizon}. mpc is random shooting with {CANDIDATES} sequences of {PLAN} "
        "flips, by what makes a sequence best: the distance at its end, summed over it, or the "
        f"least on it. {OVER_RULES}{trained}",
        columns=(
            Column("bound"),
            *(Column(named[side]) for side in sides),
            Column("final D"),
            Column("AUC"),
        ),
        rows=tuple(rows),
    )
    return Exhibit((bounds, feasibility(exam)))


def _trained_on_test(results: ExperimentResults, sides: tuple[str, ...]) -> list[Row]:
    """Agents that were trained on the held-out rules, as far as their runs are finished."""
    other = results.of(TRAIN_ON_TEST.settings)
    rows = []
    for setting in other.finished:
        if not setting.endswith("on test"):
            continue
        runs = other.summaries(setting)
        cells: list[Cell] = [
            share_over_seeds([run[side]["success"] for run in runs])
            if all(side in run for run in runs)
            else None
            for side in sides
        ]
        rows.append(Row((other.label(setting), *cells, None, None)))
    return rows


def feasibility(exam: Exam) -> Table:
    """Of all tapes, from how many the goal can be reached: exact, for the lengths shipped."""
    rows = []
    for length in LENGTHS:
        answers = exact.shipped_ceilings(length, length)
        shares = np.array([answers[int(rule)].solvable_excluding_goal for rule in exam.rules])
        sides = [shares, *(shares[exam.rows(side)] for side in SUBSETS)]
        means = [float(of_side.mean()) if len(of_side) else None for of_side in sides]
        counts = (
            int((shares == 1).sum()),
            int((shares <= stats.NEGLIGIBLE).sum()),
            int(sum(answers[int(rule)].max_steps == 0 for rule in exam.rules)),
        )
        rows.append(Row((f"L = H = {length}", len(exam.rules), *means, *counts), CEILING))
    return Table(
        name="feasibility",
        title="From how many of all tapes the goal can be reached",
        caption="By exhaustive backward search from the goal. Ceiling: mean over rules of the "
        "share of start tapes from which any policy can succeed within H steps. A rule is solvable "
        "from nearly no tape if that share is negligible "
        f"(at most {stats.NEGLIGIBLE:g}), and from none if no other tape leads to the goal at all.",
        columns=tuple(
            Column(name, digits=4)
            for name in (
                "",
                "rules",
                "ceiling",
                "ID ceiling",
                "OOD ceiling",
                "solvable from every tape",
                "from nearly none",
                "from none",
            )
        ),
        rows=tuple(rows),
    )


# The planner by type of rule


def show_types(results: ExperimentResults) -> Exhibit:
    """Success and return of the planner by operational type, for each objective."""
    exam = results.scale.exam()
    possible = exam.ceilings(exam.optimal_steps())
    sides = [side for side in SUBSETS if len(exam.rows(side))]
    rows = []
    for name, planner in planners(results, exam).items():
        for kind in (*features.TYPES, "all"):
            cells: list[Cell] = [name, kind]
            for side in sides:
                of_type = exam.rows(side)
                of_type = of_type if kind == "all" else of_type[exam.types[of_type] == kind]
                ceiling = float(possible[of_type].mean()) if len(of_type) else None
                cells += [
                    planner.reached(of_type),
                    ceiling,
                    planner.mean("return", of_type),
                    len(of_type),
                ]
            rows.append(Row(tuple(cells), REFERENCE))
    columns = [Column(""), Column("type")]
    for side in sides:
        name = side.upper()
        columns += [Column(f"{name} success"), Column(f"{name} ceiling")]
        columns += [Column(f"{name} return", digits=2), Column(f"{name} rules")]
    return Exhibit(
        tables=(
            Table(
                name="mpc-by-type",
                title="Random shooting with the true rule, by type of rule",
                caption=f"{CANDIDATES} sequences of {PLAN} flips, by objective; {exam.episodes} "
                f"start tapes a rule, {baselines.SEEDS} draws each. Return is undiscounted: minus "
                f"the distance at every step, and 1 on success. {OVER_RULES}",
                columns=tuple(columns),
                rows=tuple(rows),
            ),
        )
    )


# How much hangs on the planner's budget


def show_sweep(results: ExperimentResults) -> Exhibit:
    """Success of the planner over planned flips, candidates and objective."""
    exam = results.scale.exam()

    def compute() -> list[dict[str, Any]]:
        return list(mpcs.sweep(exam.task, exam.episodes))

    success = {
        (entry["objective"], entry["plan"], entry["candidates"]): entry["success"]
        for entry in results.cached(exam, "mpc-sweep", compute)
    }
    counts = mpcs.SWEEP_CANDIDATES
    rows = [
        Row(
            (f"mpc-{objective}", plan, *(success[objective, plan, count] for count in counts)),
            REFERENCE,
        )
        for objective in OBJECTIVES
        for plan in mpcs.SWEEP_PLANS
    ]
    ceiling = float(exam.ceilings(exam.optimal_steps()).mean())
    panels = [
        Panel(
            f"objective: {objective}",
            tuple(
                Series(
                    f"{count:,} candidates",
                    tuple(map(float, mpcs.SWEEP_PLANS)),
                    tuple(success[objective, plan, count] for plan in mpcs.SWEEP_PLANS),
                )
                for count in counts
            ),
            {"exact ceiling": ceiling},
        )
        for objective in OBJECTIVES
    ]
    scope = f"{len(exam.rules)} rules of {exam.split}, {exam.episodes} start tapes each"
    return Exhibit(
        tables=(
            Table(
                name="oracle-sweep",
                title="The planner's budget and objective",
                caption=f"Strict success of random shooting with the true rule over {scope}, by "
                f"the number of sequences tried in each step. The paper's budget is {PLAN} flips "
                f"and {CANDIDATES} candidates; it does not name its objective.",
                columns=(
                    Column("objective"),
                    Column("flips planned"),
                    *(Column(f"{count:,} candidates") for count in counts),
                ),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="oracle-sweep",
                title="The planner's budget and objective",
                caption=f"Strict success over {scope}.",
                drawing=lines(panels, x="flips planned", y="strict success"),
            ),
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="bounds",
        about="What does planning with the true rule achieve, and what is possible?",
        settings=untrained,
        show=show_bounds,
        seconds=15.0,
        paper="tab:oracle_bounds",
    ),
    Experiment(
        name="mpc-by-type",
        about="On which types of rule does the planner fail?",
        settings=untrained,
        show=show_types,
        seconds=15.0,
        paper="tab:mpc_by_type",
    ),
    Experiment(
        name="oracle-sweep",
        about="How much depends on the planner's budget and objective?",
        settings=untrained,
        show=show_sweep,
        paper="a sweep that it leaves open",
        seconds=180.0,
    ),
)
