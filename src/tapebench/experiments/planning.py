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
from tapebench.planning.belief import BETA, bayes_filter, identify
from tapebench.planning.mpc import CANDIDATES, OBJECTIVES, PLAN, mpc
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
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
        rows.append(Row((setting, *cells, None, None)))
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


# The filter


@dataclass(frozen=True)
class Watched:
    """A Bayesian filter on an exam: what it did, and what it believed meanwhile."""

    exam: Exam
    success: np.ndarray
    """`[R, E]`."""
    mass: np.ndarray
    """`[R, H + 1]`: probability of the true rule, mean over start tapes."""
    steps: np.ndarray
    """`[R, E]`: steps until that was `SURE`, -1 if it never was."""
    entropy: np.ndarray
    """`[R]`: of the belief at the end, in nats."""
    bits: np.ndarray
    """`[R]`: expected share of the rule's eight bits that the belief has right at the end."""

    def identified(self, rows: np.ndarray) -> float:
        """Share of episodes in which the true rule was identified."""
        return float((self.steps[rows] >= 0).mean())

    def wait(self, rows: np.ndarray) -> float | None:
        """Mean steps until it was identified, where it was."""
        steps = self.steps[rows]
        return float(steps[steps >= 0].mean()) if (steps >= 0).any() else None


CANDIDATE_SETS = ("all", "train")
"""Candidates of a filter: all 256 rules, or those of the training side."""


def watch_filter(results: ExperimentResults, exam: Exam, candidates: str, beta: float) -> Watched:
    """The filter with a candidate set and a weight of information gain."""

    def compute() -> dict[str, Any]:
        policy = bayes_filter(exam.task, candidates, split=exam.origin, beta=beta)
        identified = identify(policy, exam.task, None, exam.episodes, salt=exam.salt)
        return {
            "success": identified.episodes.success.tolist(),
            "mass": identified.mass.mean(axis=1, dtype=float).tolist(),
            "steps": identified.steps_to(SURE).tolist(),
            "entropy": identified.entropy[..., -1].mean(axis=1, dtype=float).tolist(),
            "bits": identified.bits[..., -1].mean(axis=1, dtype=float).tolist(),
        }

    stored = results.cached(exam, f"bayes-{candidates}-{beta:g}", compute)
    return Watched(exam, **{name: np.array(values) for name, values in stored.items()})


def drop(exam: Exam, success: np.ndarray) -> Interval | None:
    """ID − OOD success of `[R, E]`, where both sides were asked about."""
    seen, held_out = (success[exam.rows(side)].astype(float) for side in SUBSETS)
    if not len(seen) or not len(held_out):
        return None
    return stats.drop_bootstrap(seen, held_out, seeding.generator(0, "references", "drop"))


def show_filter(results: ExperimentResults) -> Exhibit:
    """Both candidate sets, with and without pay for information, on both splits."""
    scale = results.scale
    splits = (scale.split,) if scale.split else (scale.track.split, "matched30")
    rows = []
    for split in splits:
        exam = scale.exam(split=split)
        for candidates in CANDIDATE_SETS:
            for beta in (BETA, 0.0):
                watched = watch_filter(results, exam, candidates, beta)
                cells: list[Cell] = [exam.split, candidates, beta]
                for side in SUBSETS:
                    of_side = exam.rows(side)
                    rng = seeding.generator(0, "references", side)
                    has_rules = len(of_side) > 0
                    cells += [
                        stats.rule_tape_bootstrap(watched.success[of_side].astype(float), rng)
                        if has_rules
                        else None,
                        watched.identified(of_side) if has_rules else None,
                        float(watched.entropy[of_side].mean()) if has_rules else None,
                    ]
                rows.append(Row((*cells, drop(exam, watched.success)), REFERENCE))
    columns = [Column("split"), Column("candidates"), Column("β", digits=2)]
    for side in SUBSETS:
        name = side.upper()
        columns += [Column(f"{name} success"), Column(f"{name} identified")]
        columns.append(Column(f"{name} entropy", digits=2))
    return Exhibit(
        tables=(
            Table(
                name="bayes-filter",
                title="The Bayesian filter with both candidate sets",
                caption="Flips the cell with the best −E[distance] + β · information gain (in "
                f"nats). Identified: episodes in which the true rule had probability {SURE}; "
                "entropy: of the belief at the end. Where the training rules are the only "
                "candidates, a held-out rule contradicts them all and the belief stays uncertain, "
                "so the expected information gain never shrinks; the filter with β above 0 keeps "
                f"seeking it, away from the goal. {OVER_RULES}",
                columns=(*columns, Column("drop", signed=True)),
                rows=tuple(rows),
            ),
        )
    )


def _share_over_rules(shares: np.ndarray) -> Interval:
    """Mean of shares with its t interval over rules, which ends at 0 and 1."""
    return stats.within_0_and_1(stats.t_interval(shares))


def show_posterior(results: ExperimentResults) -> Exhibit:
    """The probability of the true rule step by step, at the track's length and on short tapes."""
    scale = results.scale
    exams = [scale.exam()]
    if scale.track.length > SHORT:
        exams.append(scale.exam(length=SHORT, horizon=SHORT, mask=None))
    panels, rows = [], []
    for exam in exams:
        where = f"L = H = {exam.task.length}"
        watched_by_name = {name: watch_filter(results, exam, name, BETA) for name in CANDIDATE_SETS}
        for side in SUBSETS:
            of_side = exam.rows(side)
            if not len(of_side):
                continue
            series = tuple(
                Series(
                    f"candidates: {name}",
                    tuple(map(float, range(watched.mass.shape[1]))),
                    tuple(_share_over_rules(by_rule) for by_rule in watched.mass[of_side].T),
                )
                for name, watched in watched_by_name.items()
            )
            panels.append(Panel(f"{where}, {SIDE_NAMES[side]}", series))
            for name, watched in watched_by_name.items():
                cells = (
                    watched.identified(of_side),
                    watched.wait(of_side),
                    _share_over_rules(watched.mass[of_side, -1]),
                    _share_over_rules(watched.bits[of_side]),
                    stats.t_interval(watched.entropy[of_side]),
                )
                rows.append(Row((where, side.upper(), name, *cells), REFERENCE))
    title = "The probability of the true rule"
    return Exhibit(
        tables=(
            Table(
                name="posterior",
                title="How well the Bayesian filter knows the rule",
                caption=f"β = {BETA}. Identified: episodes in which the true rule had probability "
                f"{SURE}, and after how many steps in those; probability, expected share of the "
                "rule's eight bits that are right, and entropy in nats, all at the end; 95% "
                "t-intervals over rules.",
                columns=(
                    Column(""),
                    Column("side"),
                    Column("candidates"),
                    Column("identified"),
                    Column("after", digits=2),
                    Column("probability"),
                    Column("bits right"),
                    Column("entropy", digits=2),
                ),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="posterior",
                title=title,
                caption=f"Belief of the Bayesian filter with β = {BETA}, mean over rules and start "
                "tapes; bands are 95% t-intervals over rules. An episode that is over keeps its "
                "last belief. A rule that is no candidate has probability zero for ever.",
                drawing=lines(panels, x="steps", y="probability", bottom=-0.03, top=1.03),
            ),
        ),
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
        name="bayes-filter",
        about="What does inferring the rule achieve, and where does its drop come from?",
        settings=untrained,
        show=show_filter,
        seconds=10.0,
        paper="sec:results, inference-aware baseline",
    ),
    Experiment(
        name="posterior",
        about="How soon is the rule identified, and what if it is not a candidate?",
        settings=untrained,
        show=show_posterior,
        seconds=10.0,
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
