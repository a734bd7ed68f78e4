"""Statements of the paper against its own numbers, against exact results, and against measurements.

Worded neutrally: what is claimed, what follows from it or is found here, and whether the two agree.
Nothing is said about causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from tapebench import stats
from tapebench.exam import baselines, metrics
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.experiments.api import ExperimentResults
from tapebench.experiments.filters import BETAS, CANDIDATE_SETS, drop, play_filter
from tapebench.experiments.main import RULES
from tapebench.experiments.paper_tables import published_tables, span, statements
from tapebench.experiments.planning import SMALL, planners
from tapebench.physics import exact, features
from tapebench.planning.mpc import CANDIDATES, PLAN
from tapebench.report.tables import Column, Row, Table
from tapebench.tasks import splits
from tapebench.tasks.universe import ELEMENTARY

YES, NO, OPEN = "yes", "no", "–"

HALF = 0.0005 + 1e-9
"""How far a number of three printed digits may be from the one that was rounded."""


@dataclass(frozen=True)
class Check:
    """What is claimed, what follows from printed numbers or is measured, and whether they agree."""

    claim: str
    where: str
    finding: str
    agree: str
    """`yes`, `no`, a dash where nothing is claimed that could be wrong, or in which part."""


def check_tables(results: ExperimentResults) -> tuple[Table, Table]:
    """The paper's statements against its own numbers, then against exact results and
    measurements."""
    return (
        _check_table(
            "beside-arithmetic",
            "What the printed numbers say of each other",
            "claimed or printed",
            "follows",
            "Arithmetic on the paper's printed numbers alone, which depends on no implementation "
            "and allows for rounding. Nothing is said about causes.",
            printed_checks(),
        ),
        _check_table(
            "beside-checks",
            "What is proved or measured here",
            "claimed",
            "proved or measured",
            "Exhaustive search proves what can be reached; what is measured is of this "
            f"implementation. Nothing is said about causes. {results.scale.about()}",
            measured_checks(results),
        ),
    )


def _check_table(
    name: str, title: str, claim: str, finding: str, caption: str, checks: Iterable[Check]
) -> Table:
    """Checks as a table."""
    return Table(
        name=name,
        title=title,
        caption=caption,
        columns=tuple(map(Column, (claim, "where", finding, "agree"))),
        rows=tuple(Row((check.claim, check.where, check.finding, check.agree)) for check in checks),
    )


def entries() -> list[dict[str, Any]]:
    """Each of the paper's agents on each side: what it prints of it, by short names."""
    main, continuous, longer = (
        published_tables()[name] for name in ("main", "continuous", "holdout-length")
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
    success: float, soft: float, tolerance: float = metrics.TOLERANCES[-1]
) -> float:
    """The greatest mean final distance that success and soft success leave room for."""
    return tolerance * (soft - success) + (1 - soft)


def is_multiple(value: float, factor: float, of: float, offset: float = 0.0) -> bool:
    """Whether a number of three printed digits may be `offset + factor · of`, `of` printed too."""
    return abs(value - offset - factor * of) <= HALF * (1 + abs(factor))


def _count(outcomes: Iterable[bool]) -> str:
    outcomes = [*outcomes]
    return f"{sum(outcomes)} of {len(outcomes)}"


def printed_checks() -> list[Check]:
    """What follows from the paper's numbers alone."""
    every = entries()
    seen, held_out = ([entry for entry in every if entry["side"] == side] for side in SUBSETS)
    tables = published_tables()
    failing = [entry["distance"] / (1 - entry["success"]) for entry in every]
    room = [
        (entry["distance"] - greatest_distance(entry["success"], entry["soft"]), entry)
        for entry in every
    ]
    _, most = max(room, key=lambda pair: pair[0])
    fixed = tables["fixed-rules"]
    unsolved = [
        fixed.mean(row, "final_distance") for row in fixed.rows if fixed.mean(row, "success") == 0
    ]
    losses = {
        name: [1 - entry["longer"] / entry["success"] for entry in side]
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
    returns = [tables["main"].mean(entry["agent"], "ood.return") for entry in held_out]
    equal = [
        abs(r - entry["success"]) <= 0.0055 for r, entry in zip(returns, held_out, strict=True)
    ]
    types = tables["mpc-by-type"]
    counts = {kind: types.mean(kind, "episodes") for kind in features.TYPES}
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
            f"{_count(is_multiple(entry['distance'], -1, entry['success'], 1) for entry in every)} "
            f"entries: failing episodes end at a mean distance of {span(failing)}. Printed "
            "success and soft success leave room for at most "
            f"{greatest_distance(most['success'], most['soft']):.3f} where {most['distance']:.3f} "
            f"is printed ({most['agent']}, {most['side'].upper()}); more than there is room for is "
            f"printed in {_count(over > 2 * HALF for over, _ in room)} entries",
            NO if any(over > 2 * HALF for over, _ in room) else YES,
        ),
        Check(
            f"Agents that never solve a fixed rule end at {span(unsolved, 2)} from the goal",
            "tab:rebuttal_exp1",
            f"In tab:continuous_metrics failing episodes end at {span(failing)}",
            YES if max(unsolved) >= min(failing) else NO,
        ),
        Check(
            "AUC distance is the average over the trajectory",
            "app:repro, tab:continuous_metrics",
            "It is 1 − 0.9 · success in "
            f"{_count(is_multiple(entry['auc'], -0.9, entry['success'], 1) for entry in every)} "
            "entries",
            OPEN,
        ),
        Check(
            "Soft success@0.1 counts final distances up to 0.1",
            "app:repro, tab:continuous_metrics",
            "It is 1.8 · success in "
            f"{_count(is_multiple(entry['soft'], 1.8, entry['success']) for entry in seen)} ID "
            "entries and 1.5 · success in "
            f"{_count(is_multiple(entry['soft'], 1.5, entry['success']) for entry in held_out)} "
            "OOD ones",
            OPEN,
        ),
        Check(
            statements()["loss at H = 64"]["says"],
            "sec:holdout_length, tab:holdout_length",
            "Loss in the table: "
            + ", ".join(f"{name} {span(values, 2)}" for name, values in losses.items())
            + "; success at H = 64 is 0.95 times that at 32 in "
            f"{_count(is_multiple(entry['longer'], 0.95, entry['success']) for entry in seen)} ID "
            "entries and 0.85 times in "
            f"{_count(is_multiple(entry['longer'], 0.85, entry['success']) for entry in held_out)} "
            "OOD ones",
            _partly(within),
        ),
        Check(
            "Distances of the holdout-length table are raw Hamming distances",
            "tab:holdout_length",
            "At H = 32 they are the normalised ones of tab:continuous_metrics in "
            f"{_count(entry['raw'] == entry['distance'] for entry in every)} "
            "entries",
            NO if any(entry["raw"] == entry["distance"] for entry in every) else YES,
        ),
        Check(
            statements()["drop over methods and horizons"]["says"],
            "sec:discussion",
            f"ID − OOD in tab:holdout_length: {span(drops)}",
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
            f"Mean OOD return of agents is {span(returns, 2)}; return is the undiscounted sum of "
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
            f"Normalised distances of {span(small, 2)} are {span(cells, 2)} cells",
            "app:clarifications",
            f"Times {length:g} cells: {span((length * d for d in small), 2)}",
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
    settings = published_tables()["protocol"]
    theirs = (settings.mean(name, "value") for name in ("cells", "training horizon"))
    return (exam.task.length, exam.task.horizon) == tuple(theirs)


def measured_checks(results: ExperimentResults) -> list[Check]:
    """What is claimed against what is proved or measured here."""
    exam, main = results.scale.exam(), published_tables()["main"]
    reach = exact.shipped_ceilings(SMALL, SMALL)
    every_tape = [rule for rule, answer in reach.items() if answer.solvable == 1]
    no_tape = sum(answer.max_steps == 0 for answer in reach.values())
    share = float(np.mean([answer.solvable_excluding_goal for answer in reach.values()]))
    fixed = published_tables()["fixed-rules"]
    types = {int(row.rsplit(" ", 1)[1]): kind["type"] for row, kind in fixed.rows.items()}
    same = [ELEMENTARY.features[rule].type == kind for rule, kind in types.items()]
    oracle = published_tables()["small-scale"]
    chaotic = [rule for rule in RULES if types[rule] == "chaotic"]
    played = planners(results, exam)
    printed = published_tables()["bounds"].mean("true-dynamics MPC", "success")
    reached = {name: planner.reached(planner.rows("all")) for name, planner in played.items()}
    near = {
        name: interval is not None and interval.low <= printed <= interval.high
        for name, interval in reached.items()
    }
    mix = {
        kind: int(published_tables()["split"].mean("held-out rules", kind))
        for kind in features.TYPES
    }
    ours = ELEMENTARY.count_types(splits.load("fps30").test)
    baseline_scores = baselines.load_or_run(exam, results.root)
    sides = [side for side in SUBSETS if len(exam.rows(side))]
    trivial = "; ".join(
        f"{name} "
        + ", ".join(
            f"{side.upper()} {baseline_scores[name]['success'][exam.rows(side)].mean():.3f}"
            for side in sides
        )
        for name in ("random", "flip-ones")
        if name in baseline_scores
    )
    learned = ", ".join(
        f"{side.upper()} {span(main.mean(agent, f'{side}.success') for agent in main.rows)}"
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
            f"A planner with {PLAN} flips and {CANDIDATES} candidates reaches {printed}; its "
            "objective is not named",
            "sec:upper_bounds",
            ", ".join(f"{name} {planner}" for name, planner in reached.items()),
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


def _filter_check(results: ExperimentResults) -> Check:
    """The drop of the filter with either candidate set, with and without pay for information."""
    exam = results.scale.exam()
    drops = []
    for candidates in CANDIDATE_SETS:
        for beta in BETAS:
            success = play_filter(results, exam, candidates, beta)
            drop_interval = drop(exam, success.mean(axis=0))
            drops.append(f"candidates {candidates}, β = {beta:g}: {drop_interval or OPEN}")
    return Check(
        "Inferring the rule improves control and does not remove the drop from ID to OOD, "
        f"{published_tables()['bayes-filter'].mean('bayes', 'drop')}",
        published_tables()["bayes-filter"].where.split(",")[0],
        f"Drop with {'; '.join(drops)}",
        OPEN,
    )
