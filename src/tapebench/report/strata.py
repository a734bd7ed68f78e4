"""The headline of a contest: success by stratum, beyond-reflex seen and unseen first."""

from __future__ import annotations

from functools import partial

import numpy as np

from tapebench.exam import bounds, by_stratum
from tapebench.exam.by_stratum import Group, GroupScore
from tapebench.exam.intervals import share_over_seeds
from tapebench.report import findings
from tapebench.report.contests import Contest, Entry
from tapebench.report.tables import CEILING, REFERENCE, Column, Row, Table
from tapebench.stats import Interval

NAME = "strata"
"""End of the table's name."""

HEADLINE = "beyond-reflex"
"""The stratum that comes first."""


MEMORYLESS, BLIND = "memoryless", "blind ceiling"
"""Rows of the two bounds, which are dashes where they are not computed."""


def tables(contest: Contest) -> list[Table]:
    """Every table that these runs suffice for, success by stratum first where that is known."""
    table = strata_table(contest)
    return [*([table] if table else []), *findings.tables(contest)]


def strata_table(contest: Contest) -> Table | None:
    """Success by stratum and side of agents, baselines and bounds; None where strata are unknown.

    A dash is a stratum with too few rules, or a bound that is not computed for tasks of this size.
    """
    exam = contest.exam
    groups = by_stratum.groups(exam)
    if not groups:
        return None
    rows = [
        findings.row_of(entry, (score.success for score in stratum_scores(contest, entry)))
        for entry in findings.ranked(contest)
    ]
    bound = bounds.bounds_by_stratum(exam)
    others = {name: (REFERENCE, line["success"]) for name, line in contest.baselines.items()}
    others |= {
        MEMORYLESS: (CEILING, bound.memoryless),
        BLIND: (CEILING, bound.blind_ceiling),
        "exact ceiling": (CEILING, contest.ceilings),
    }
    rows += [
        Row((name, *by_stratum.mean_by_stratum(by_rule, exam)), kind)
        for name, (kind, by_rule) in others.items()
    ]
    return Table(
        f"{contest.slug}-{NAME}",
        "Success by stratum",
        f"{by_stratum.about(exam)} Strict success, with the number of rules in brackets; fewer "
        f"than {by_stratum.FEWEST} get a dash. {findings.OVER_SEEDS} {findings.MARKS} "
        f"{findings.beside(contest)} {about_bounds(bound)} {findings.EXACT}"
        f"{findings.about_seatings(contest)}",
        (Column("agent"), *(_column(contest, group) for group in groups)),
        tuple(rows),
    )


def about_bounds(bound: bounds.Bounds) -> str:
    """What the two bounds are, and why there is none where there is none."""
    is_whole = np.isfinite([bound.blind_ceiling, bound.memoryless]).all()
    return bounds.ABOUT if is_whole else f"{bounds.ABOUT} {bounds.NOT_COMPUTED}"


def lacks_bounds(table: Table) -> bool:
    """Whether a bound of `strata_table` was not computed."""
    rows = [row.cells[1:] for row in table.rows if row.cells[0] in (MEMORYLESS, BLIND)]
    return any(all(cell is None for cell in cells) for cells in rows)


def stratum_scores(contest: Contest, entry: Entry) -> list[GroupScore]:
    """An agent's success by stratum and side, with the interval of its success on a side."""

    def interval(part: np.ndarray, group: Group) -> Interval:
        return share_over_seeds(part)

    return by_stratum.success_by_stratum(entry.scores["success"], contest.exam, interval)


def beyond_reflex(table: Table) -> Table:
    """The agents and the columns of `strata_table` that are the headline."""
    places = [0] + [
        place for place, column in enumerate(table.columns) if column.name.startswith(HEADLINE)
    ]
    return table.select(places)


def _column(contest: Contest, group: Group) -> Column:
    """Ranked, but for rules on which nobody can succeed."""
    if group.stratum == "impossible":
        return Column(group.label)
    return findings.ranked_column(contest, group.label, partial(findings.success_on, group.rows))
