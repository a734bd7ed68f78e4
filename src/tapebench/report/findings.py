"""What a contest says, as tables and figures that can be pasted into a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.exam import baselines, bounds, seating
from tapebench.exam.baselines import PLANNER, Baseline
from tapebench.exam.intervals import over_seeds, resampling, share_over_seeds
from tapebench.exam.metrics import SOFT
from tapebench.report import figures, style
from tapebench.report.contests import (
    EQUIVARIANT,
    FULLY_CONNECTED,
    RELATIONS,
    Contest,
    Entry,
    knows_relatives,
    relation,
)
from tapebench.report.figures import Panel, Picture, RulePoint, Series
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import AGENT, CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.stats import Interval, Profile
from tapebench.tasks.universe import ELEMENTARY

OVER_SEEDS = (
    "Means over seeds of the evaluations that count, with 95% intervals over training seeds: "
    "Student's t below 20 seeds, a bootstrap of whole seeds from 20 on."
)
MARKS = (
    "Rows name their network. Best (bold) and second best are marked within a kind of network, "
    "ring-equivariant (conv, cells) or fully connected (mlp, gru): agents are taken from the best "
    "mean down, and those that follow it share its mark up to the first that Welch's test tells "
    "from it, corrected by Holm for all pairs of the kind."
)
BESIDE = "References are not ranked: random and flip-ones are blind, greedy and mpc know the rule."
ABOUT_BLIND_PLANNER = " belief-planner is blind and finds the rule out: it thinks any possible."
ABOUT_IDENTIFICATION = (
    " automata stands with them: system identification and search, no reinforcement learning. Its "
    "search was developed on all 256 rules, held-out ones among them."
)
ABOUT_TOLD = (
    " What ends with +rule is trained and examined with the true rule given: it shows what control "
    "is worth, and is no agent that could be asked about unseen rules."
)
EXACT = "The exact ceiling is the share of start tapes from which any policy can succeed in time."
SEES_ALL = (
    " It is that of a player who knows the rule and sees every cell: what can be reached with "
    "cells hidden is not known, and may be less."
)

KIND_ORDER = (EQUIVARIANT, FULLY_CONNECTED, "")
"""Kinds of networks in the order of tables."""

THRESHOLDS = np.linspace(0, 1, 21)

FAILING = "failing"
"""In place of a metric: the final distance of the episodes that fail."""


def tables(contest: Contest) -> list[Table]:
    """Every table that these runs suffice for."""
    made = [
        main_table(contest),
        continuous_table(contest),
        normalised_table(contest),
        type_table(contest),
    ]
    if len(contest.subsets()) == 2:
        if contest.trained_alike and knows_relatives(contest.exam):
            made.append(relation_table(contest))
        if not np.isnan(contest.ceilings).any():
            made.append(drop_table(contest))
    if sum(len(entry.seeds) > 1 for entry in contest.entries) > 1:
        made.append(pairwise_table(contest))
    made.append(every_rule_table(contest))
    return made


def pictures(contest: Contest) -> list[Picture]:
    """Every figure that these runs suffice for."""
    made = [success_picture(contest), curve_picture(contest)]
    if len(contest.exam.rules) > 1:
        made.append(rule_picture(contest))
        made.append(profile_picture(contest))
    if any(entry.by_steps for entry in contest.entries):
        made.append(hardness_picture(contest))
    return made


# Tables


def main_table(contest: Contest) -> Table:
    """Success on both sides, the drop between them, and return."""
    sides = contest.subsets()
    columns = [Column("agent")]
    columns += [
        ranked_column(contest, f"{side.upper()} success", _side_values(contest, "success", side))
        for side in sides
    ]
    if len(sides) == 2:
        columns.append(Column("drop", signed=True))
    columns += [
        ranked_column(
            contest, f"{side.upper()} return", _side_values(contest, "return", side), digits=2
        )
        for side in sides
    ]
    columns += [Column("seeds"), Column("seating"), Column("s per run", digits=0)]
    rows = []
    for entry in ranked(contest):
        cells: list[Cell] = [success(contest, entry, side) for side in sides]
        if len(sides) == 2:
            indices = [contest.exam.rows(side) for side in ("id", "ood")]
            scores = entry.scores["success"]
            means = [scores[:, rows_of_side].mean(axis=1) for rows_of_side in indices]
            cells.append(over_seeds(means[0] - means[1]))
        cells += [_interval(_of_side(contest, entry, "return", side)) for side in sides]
        cells += [len(entry.seeds), _versions(entry.seatings), entry.seconds]
        rows.append(row_of(entry, cells))

    def fixed(name: str, kind: str, by_rule: Mapping[str, np.ndarray]) -> Row:
        means = [_mean(by_rule["success"][contest.exam.rows(side)]) for side in sides]
        cells: list[Cell] = [name, *means]
        if len(sides) == 2:
            cells.append(None if None in means else means[0] - means[1])  # type: ignore[operator]
        for side in sides:
            known = by_rule.get("return")
            cells.append(None if known is None else _mean(known[contest.exam.rows(side)]))
        sat = str(seating.VERSION) if kind == REFERENCE else None
        return Row((*cells, None, sat, None), kind)

    rows += [fixed(name, REFERENCE, line) for name, line in contest.baselines.items()]
    rows.append(fixed("exact ceiling", CEILING, {"success": contest.ceilings}))
    counts = ", ".join(f"{len(contest.exam.rows(side))} {side.upper()}" for side in sides)
    return Table(
        f"{contest.slug}-main",
        "Strict success",
        f"Success is the share of episodes that reach the goal exactly, on {counts} rules with "
        f"{contest.exam.num_columns} start tapes each; the drop is ID − OOD, paired by seed; "
        f"return is undiscounted. {OVER_SEEDS} {MARKS} {beside(contest)} {EXACT}"
        f"{SEES_ALL if contest.exam.task.hidden else ''}{about_blind(contest)}"
        f"{about_seatings(contest)}",
        tuple(columns),
        tuple(rows),
    )


def _versions(seatings: Sequence[int]) -> str:
    return ", ".join(map(str, seatings))


def grouped_by(contest: Contest) -> str:
    """What rules are grouped by where results are broken down, see `Universe.types`."""
    return "type" if contest.exam.universe.family == ELEMENTARY.family else "density"


def about_groups(contest: Contest) -> str:
    """What a table by these groups shows."""
    if grouped_by(contest) == "type":
        return (
            "Strict success by operational type; the number of rules is in brackets. Types differ "
            "in what is possible: compare with the ceiling below."
        )
    return (
        "Strict success by density, the share of ones in a rule's table, in quarters; the number "
        "of rules is in brackets."
    )


def about_blind(contest: Contest) -> str:
    """What is known of the best that is possible without knowing the rule, where it is not
    computed for any rules of the family."""
    return f" {bounds.BRACKETED}" if bounds.is_bracketed(contest.exam) else ""


def about_seatings(contest: Contest, with_baselines: bool = True) -> str:
    """What to add to a table whose rows were not all sat alike; else nothing.

    With `with_baselines`, what needs no training is in the table too.
    """
    versions = {version for entry in contest.entries for version in entry.seatings}
    if with_baselines and contest.baselines:
        versions.add(seating.VERSION)
    if len(versions) == 1:
        return ""
    return (
        " Seating 1 played rows in the order of the rules, seating 2 plays them permuted: a policy "
        "that draws nothing plays the same episodes under both, one that draws plays others."
    )


def continuous_table(contest: Contest) -> Table:
    """Distances and soft success, with the distance of failures apart."""
    sides = contest.subsets()
    measures: dict[str, tuple[str, str]] = {
        "final D": ("final_distance", "low"),
        "E[D | D > 0]": (FAILING, ""),
        "AUC": ("auc_distance", "low"),
    }
    measures |= {f"soft@{float(size):.2g}": (name, "high") for name, size in SOFT.items()}
    wanted = [(label, side, *measures[label]) for label in measures for side in sides]
    columns = [Column("agent")] + [
        ranked_column(
            contest, f"{side.upper()} {label}", _side_values(contest, metric, side), better
        )
        for label, side, metric, better in wanted
    ]
    rows = []
    for entry in ranked(contest):
        cells = [_interval(_of_side(contest, entry, metric, side)) for _, side, metric, _ in wanted]
        rows.append(row_of(entry, cells))
    for name, line in contest.baselines.items():
        values = [_mean(_of_side(contest, line, metric, side)) for _, side, metric, _ in wanted]
        rows.append(Row((name, *values), REFERENCE))
    return Table(
        f"{contest.slug}-continuous",
        "Continuous metrics",
        "D is the share of cells that are wrong when an episode ends, and 0 exactly on success, so "
        "E[D] = (1 − success) · E[D | D > 0]: an agent can lower D by succeeding more often, or by "
        "failing closer to the goal. AUC is the mean distance over all H steps, with 0 after "
        f"success; soft@ε counts D ≤ ε. {OVER_SEEDS} {MARKS} {beside(contest)}"
        f"{about_seatings(contest)}",
        tuple(columns),
        tuple(rows),
    )


def normalised_table(contest: Contest) -> Table:
    """Success against what is possible and what the planner reaches."""
    sides = [side for side in contest.subsets() if _ceiling(contest, side)]
    labels = ("of ceiling", "on solvable", "macro", f"% of {PLANNER}")
    columns = [Column("agent")]
    columns += [
        ranked_column(
            contest,
            f"{side.upper()} {label}",
            partial(_normalised_of, contest, label, side),
            digits=1 if label[0] == "%" else 3,
        )
        for label in labels
        for side in sides
    ]
    rows = []
    for entry in ranked(contest):
        cells = [
            _interval(_normalised_of(contest, label, side, entry))
            for label in labels
            for side in sides
        ]
        rows.append(row_of(entry, cells))
    for name, line in contest.baselines.items():
        values = [
            _mean(_normalised(contest, line["success"][None], label, side))
            for label in labels
            for side in sides
        ]
        rows.append(Row((name, *values), REFERENCE))
    return Table(
        f"{contest.slug}-normalised",
        "Success against what is possible",
        "Of ceiling: mean success over mean exact ceiling. On solvable: success on the rules whose "
        f"ceiling is not negligible. Macro: each {grouped_by(contest)} of rule weighs the same. "
        f"% of {PLANNER}: relative to random shooting with the true rule, which can be beaten. "
        f"{OVER_SEEDS} {MARKS}{about_seatings(contest)}",
        tuple(columns),
        tuple(rows),
    )


def type_table(contest: Contest) -> Table:
    """Success by operational type and side."""
    exam = contest.exam
    groups = [
        (kind, side, np.flatnonzero((exam.types == kind) & (exam.subsets == side)))
        for kind in exam.universe.type_names
        for side in contest.subsets()
    ]
    groups = [(kind, side, indices) for kind, side, indices in groups if len(indices)]
    columns = [Column("agent")] + [
        ranked_column(
            contest, f"{kind} {side.upper()} ({len(indices)})", partial(success_on, indices)
        )
        for kind, side, indices in groups
    ]
    rows = []
    for entry in ranked(contest):
        cells = [_interval(success_on(indices, entry)) for _, _, indices in groups]
        rows.append(row_of(entry, cells))
    others = [(name, REFERENCE, line["success"]) for name, line in contest.baselines.items()]
    others.append(("exact ceiling", CEILING, contest.ceilings))
    for name, kind_of_row, by_rule in others:
        rows.append(
            Row((name, *(_mean(by_rule[indices]) for _, _, indices in groups)), kind_of_row)
        )
    return Table(
        f"{contest.slug}-types",
        f"Success by {grouped_by(contest)} of rule",
        f"{about_groups(contest)} {OVER_SEEDS} {MARKS}",
        tuple(columns),
        tuple(rows),
    )


def relation_table(contest: Contest) -> Table:
    """Success by the nearest relative among the rules trained on."""
    exam = contest.exam
    entries = ranked(contest)
    trained_on = entries[0].trained_on
    kin = np.array([relation(int(rule), trained_on, exam.universe.features) for rule in exam.rules])
    present = [name for name in RELATIONS if (kin == name).any()]
    columns = [Column("nearest relative trained on"), Column("rules"), Column("ceiling")]
    columns += [Column(entry.label) for entry in entries]
    columns += [Column(name) for name in contest.baselines]
    rows = []
    for name in present:
        indices = np.flatnonzero(kin == name)
        cells: list[Cell] = [name, len(indices), _mean(contest.ceilings[indices])]
        cells += [_interval(success_on(indices, entry)) for entry in entries]
        cells += [_mean(line["success"][indices]) for line in contest.baselines.values()]
        rows.append(Row(tuple(cells)))
    return Table(
        f"{contest.slug}-relatives",
        "Success by distance from the rules trained on",
        "A mirror image is the same task from the other side; a complement exchanges zeros and "
        "ones and does not keep the goal. If success falls down the column by more than the "
        f"ceiling does, part of the ID–OOD drop is distance. {OVER_SEEDS}",
        tuple(columns),
        tuple(rows),
    )


def drop_table(contest: Contest) -> Table:
    """The drop, the part of it that the rule sets explain, and the rest."""
    exam, kind = contest.exam, grouped_by(contest)
    kinds = {"type": "types", "density": "densities"}[kind]
    rows = []
    for entry in ranked(contest):
        seen, held_out = (
            stats.Side(
                entry.scores["success"][:, indices],
                contest.ceilings[indices].clip(0, 1),
                exam.types[indices],
            )
            for indices in (exam.rows("id"), exam.rows("ood"))
        )
        parts = stats.decompose_drop(seen, held_out, resampling())
        rows.append(row_of(entry, (parts.total, parts.composition, parts.rest)))
    return Table(
        f"{contest.slug}-drop",
        "The drop taken apart",
        "ID − OOD success is the sum of two parts. Composition: what an equally skilled agent "
        f"would drop because the held-out rules are of other {kinds} and have other ceilings. "
        f"Rest: less success on held-out rules than on seen rules of the same {kind} and ceiling "
        "level, "
        f"which includes the luck of which rules were held out. {OVER_SEEDS}",
        (
            Column("agent"),
            Column("drop", signed=True),
            Column("composition", signed=True),
            Column("rest", signed=True),
        ),
        tuple(rows),
    )


def pairwise_table(contest: Contest) -> Table:
    """Every two agents of a kind of network: difference, probability of improvement, Welch's test
    with Holm."""
    entries = [entry for entry in learners(contest) if len(entry.seeds) > 1]
    sides = contest.subsets()
    tests = []
    for a, b in combinations(entries, 2):
        for side in sides if a.network_kind == b.network_kind else ():
            ours, theirs = (e.scores["success"][:, contest.exam.rows(side)] for e in (a, b))
            better = stats.probability_of_improvement(ours, theirs, rng(contest, a, b.agent, side))
            tests.append((a.label, b.label, side, stats.welch(ours, theirs), better))
    corrected = stats.holm(np.array([test.p for *_, test, _ in tests])) if tests else np.array([])
    rows = [
        Row((a, b, side.upper(), test.difference, better, test.p, float(p)))
        for (a, b, side, test, better), p in zip(tests, corrected, strict=True)
    ]
    return Table(
        f"{contest.slug}-pairwise",
        "Every two agents",
        "Of agents with networks of one kind. A − B is the difference in mean success with its 95% "
        "interval by Welch's test; P(A > B) the chance that a run of A beats one of B on a rule; p "
        "(Holm) is corrected for all tests of this table together: compare it with 0.05 as it is."
        + about_seatings(contest, with_baselines=False),
        (
            Column("A"),
            Column("B"),
            Column("side"),
            Column("A − B", signed=True),
            Column("P(A > B)", digits=2),
            Column("p", digits=4, never_zero=True),
            Column("p (Holm)", digits=4, never_zero=True),
        ),
        tuple(rows),
    )


def every_rule_table(contest: Contest) -> Table:
    """Every rule: what is possible, and what each agent and line reaches."""
    exam, entries, by = contest.exam, ranked(contest), grouped_by(contest)
    columns = [Column("rule"), Column(by), Column("side"), Column("ceiling")]
    columns += [Column("optimal steps", digits=1)]
    name = int if by == "type" else exam.universe.family.label
    columns += [Column(entry.label) for entry in entries]
    columns += [Column(name) for name in contest.baselines]
    rows = []
    for row, rule in enumerate(exam.rules.tolist()):
        ways = contest.optimal_steps[row]
        cells: list[Cell] = [name(rule), str(exam.types[row]), str(exam.subsets[row]).upper()]
        cells.append(_mean(contest.ceilings[row : row + 1]))
        cells.append(float(ways[ways >= 0].mean()) if (ways >= 0).any() else None)
        cells += [float(entry.scores["success"][:, row].mean()) for entry in entries]
        cells += [float(line["success"][row]) for line in contest.baselines.values()]
        rows.append(Row(tuple(cells)))
    return Table(
        f"{contest.slug}-rules",
        "Every rule",
        "Mean strict success over seeds and start tapes. Optimal steps: the mean of the fewest "
        "steps over the exam's tapes that can reach the goal at all.",
        tuple(columns),
        tuple(rows),
    )


# Figures


def success_picture(contest: Contest) -> Picture:
    """Success on both sides as dots with intervals."""
    sides = contest.subsets()
    drawn: dict[str, dict[str, Interval | float]] = {}
    for entry in ranked(contest):
        drawn[entry.label] = {side.upper(): success(contest, entry, side) for side in sides}
    for name, line in contest.baselines.items():
        drawn[name] = {
            side.upper(): float(line["success"][contest.exam.rows(side)].mean()) for side in sides
        }
    known = {side.upper(): _ceiling(contest, side) for side in sides}
    if all(value is not None for value in known.values()):
        drawn["exact ceiling"] = {side: float(value or 0.0) for side, value in known.items()}
    colours = {side.upper(): style.SIDE_COLOURS[side] for side in sides}
    return Picture(
        f"{contest.slug}-success",
        "Strict success",
        "Strict success of every agent and reference, ID and OOD, with 95% intervals over seeds.",
        figures.dots(drawn, x="strict success", colours=colours),
    )


def curve_picture(contest: Contest) -> Picture:
    """Success in the course of training, beside what needs none."""
    panels = []
    for side in contest.subsets():
        series = []
        for entry in sorted(contest.entries, key=lambda entry: entry.label):
            if side in entry.curve.success:
                seeds = entry.curve.success[side]
                series.append(Series(entry.label, entry.curve.steps, tuple(_band(seeds))))
        levels = {
            name: float(line["success"][contest.exam.rows(side)].mean())
            for name, line in contest.baselines.items()
        }
        possible = _ceiling(contest, side)
        if possible is not None:
            levels["ceiling"] = possible
        panels.append(Panel(SIDE_NAMES[side], tuple(series), levels))
    return Picture(
        f"{contest.slug}-curves",
        "Learning curves",
        "Strict success at every evaluation: mean over seeds, with a band of the 95% interval "
        "from three seeds on. Dotted: what needs no training, and the exact ceiling.",
        figures.lines(panels, x="environment steps", y="strict success"),
    )


def rule_picture(contest: Contest) -> Picture:
    """Every rule's success below its ceiling, for each agent."""
    panels = {}
    for entry in ranked(contest):
        means = entry.scores["success"].mean(axis=0)
        panels[entry.label] = [
            RulePoint(
                int(rule),
                str(contest.exam.types[row]),
                float(means[row]),
                _mean(contest.ceilings[row : row + 1]),
                contest.exam.subsets[row] == "ood",
            )
            for row, rule in enumerate(contest.exam.rules)
        ]
    return Picture(
        f"{contest.slug}-per-rule",
        "Performance per rule",
        f"Each point is a rule, coloured by its {grouped_by(contest)}, hollow if it was seen in "
        "training and filled if held out; ticks mark its exact ceiling. All panels have the rules "
        "in the same order.",
        figures.rule_points(panels, y="success", by=grouped_by(contest)),
    )


def profile_picture(contest: Contest) -> Picture:
    """How success is distributed over runs and rules."""
    panels = {
        SIDE_NAMES[side]: {
            entry.label: _profile(contest, entry, side)
            for entry in sorted(contest.entries, key=lambda entry: entry.label)
        }
        for side in contest.subsets()
    }
    return Picture(
        f"{contest.slug}-profiles",
        "Performance profiles",
        "The share of runs × rules whose success is above each threshold, with pointwise 95% bands "
        "from three seeds on. At 0 it is the share of rules solved at all.",
        figures.profiles(panels),
    )


def hardness_picture(contest: Contest) -> Picture:
    """Success against the fewest steps that the tape allows."""
    panels = []
    for side in contest.subsets():
        series = [
            Series(
                entry.label,
                tuple(map(float, entry.by_steps[side])),
                tuple(band for values in entry.by_steps[side].values() for band in _band(values)),
            )
            for entry in sorted(contest.entries, key=lambda entry: entry.label)
            if side in entry.by_steps
        ]
        panels.append(Panel(SIDE_NAMES[side], tuple(series)))
    return Picture(
        f"{contest.slug}-hardness",
        "How hard was the tape?",
        "Strict success against the fewest steps in which the goal can be reached from the start "
        "tape under the episode's rule; tapes without a way are left out. Mean over seeds and a "
        "band of the 95% interval.",
        figures.lines(panels, x="optimal steps", y="strict success"),
    )


# Pieces


def _profile(contest: Contest, entry: Entry, side: str) -> Profile:
    """How an agent's success is distributed; without a band below three seeds, see `_band`."""
    scores = entry.scores["success"][:, contest.exam.rows(side)]
    profile = stats.performance_profile(scores, THRESHOLDS, rng(contest, entry, "profile", side))
    return profile if len(scores) > 2 else replace(profile, low=profile.share, high=profile.share)


def ranked(contest: Contest) -> list[Entry]:
    """Agents by kind of network, ring-equivariant ones first, and within a kind by their success on
    held-out rules, or on the only side there is; last those that stand with the references."""
    indices = contest.exam.rows(contest.subsets()[-1])

    def place(entry: Entry) -> tuple[bool, int, float]:
        kind = KIND_ORDER.index(entry.network_kind)
        return entry.is_reference, kind, -float(success_on(indices, entry).mean())

    return sorted(contest.entries, key=place)


def learners(contest: Contest) -> list[Entry]:
    """The same without those that stand with the references."""
    return [entry for entry in ranked(contest) if not entry.is_reference]


def row_of(entry: Entry, cells: Iterable[Cell]) -> Row:
    """A row of a table by agent, named with its network."""
    kind = REFERENCE if entry.is_reference else AGENT
    return Row((entry.label, *cells), kind, entry.network_kind)


def beside(contest: Contest) -> str:
    """What the references of a table are."""
    text = BESIDE
    if baselines.BLIND_PLANNER in contest.baselines:
        text += ABOUT_BLIND_PLANNER
    if any(entry.is_identification for entry in contest.entries):
        text += ABOUT_IDENTIFICATION
    if any(entry.is_told for entry in contest.entries):
        text += ABOUT_TOLD
    return text


def success_on(indices: np.ndarray, entry: Entry) -> np.ndarray:
    """The mean success of each seed on some rules, `[S]`."""
    return np.asarray(entry.scores["success"][:, indices].mean(axis=1))


def success(contest: Contest, entry: Entry, side: str) -> Interval:
    """An agent's success on a side."""
    return share_over_seeds(_of_side(contest, entry, "success", side))


def rng(contest: Contest, entry: Entry, *names: str) -> np.random.Generator:
    """Draws of its own for every number, so that none moves when another is added."""
    return seeding.generator(
        0, "report", contest.experiment, contest.exam.hash, entry.agent, *names
    )


def _interval(values: np.ndarray) -> Cell:
    """An interval over seeds; None where a value does not exist for every seed."""
    if not len(values) or not np.isfinite(values).all():
        return None
    return over_seeds(values)


def _of_side(contest: Contest, entry: Entry | Baseline, metric: str, side: str) -> np.ndarray:
    """The mean of a metric over the rules of a side: `[S]` of an agent, `[1]` of a line.

    `FAILING` is the final distance of the episodes that fail; nan where none does.
    """
    if metric == FAILING:
        failing = 1 - _of_side(contest, entry, "success", side)
        distance = _of_side(contest, entry, "final_distance", side)
        return np.divide(distance, failing, out=np.full(len(failing), np.nan), where=failing > 0)
    scores = entry.scores[metric] if isinstance(entry, Entry) else entry[metric][None]
    return np.asarray(scores[:, contest.exam.rows(side)].mean(axis=1))


def _side_values(contest: Contest, metric: str, side: str) -> Callable[[Entry], np.ndarray]:
    """What gives the mean of a metric over the rules of a side for each seed of an agent."""
    return lambda entry: _of_side(contest, entry, metric, side)


def _normalised_of(contest: Contest, label: str, side: str, entry: Entry) -> np.ndarray:
    """`_normalised` of an agent's success."""
    return _normalised(contest, entry.scores["success"], label, side)


def _normalised(contest: Contest, scores: np.ndarray, label: str, side: str) -> np.ndarray:
    """`[S]` of `scores[S, R]`; empty where it cannot be said."""
    indices = contest.exam.rows(side)
    ceilings, own = contest.ceilings[indices], scores[:, indices]
    if label == "of ceiling":
        return stats.ceiling_normalised(own, ceilings)
    if label == "on solvable":
        is_any = (ceilings > stats.NEGLIGIBLE).any()
        return stats.solvable_only(own, ceilings) if is_any else np.empty(0)
    if label == "macro":
        return stats.macro_average(own, contest.exam.types[indices])
    if PLANNER not in contest.baselines:
        return np.empty(0)
    reached = float(contest.baselines[PLANNER]["success"][indices].mean())
    return 100 * own.mean(axis=1) / reached if reached else np.empty(0)


def _ceiling(contest: Contest, side: str) -> float | None:
    """The mean ceiling of a side, if that of every rule is known."""
    return _mean(contest.ceilings[contest.exam.rows(side)])


def _mean(values: np.ndarray) -> float | None:
    if not len(values):
        return None
    mean = float(values.mean())
    return None if np.isnan(mean) else mean


def _band(seeds: np.ndarray) -> list[Interval | float]:
    """Mean and interval of each column of `seeds[S, K]` (or of `[S]`), from three seeds on.

    Intervals of two are so wide that they would hide the lines.
    """
    table = seeds.reshape(len(seeds), -1)
    if len(table) < 3:
        return [float(value) for value in table.mean(axis=0)]
    return [share_over_seeds(column) for column in table.T]


def ranked_column(
    contest: Contest,
    name: str,
    values: Callable[[Entry], np.ndarray],
    better: str = "high",
    digits: int = 3,
) -> Column:
    """A column that the agents of a contest are ranked by; not where one has a single seed.

    `values` gives what is ranked for each seed of an agent, `[S]`.
    """
    if not better or any(len(entry.seeds) < 2 for entry in contest.entries):
        return Column(name, digits=digits)
    scores = {entry.label: values(entry) for entry in learners(contest)}
    kinds = {entry.label: entry.network_kind for entry in contest.entries}
    return column_by_seeds(name, scores, kinds, better, digits)


def column_by_seeds(
    name: str,
    scores: Mapping[str, np.ndarray],
    kinds: Mapping[str, str],
    better: str = "high",
    digits: int = 3,
) -> Column:
    """A column that rows are ranked by; not where a single seed leaves nothing to rank with.

    `scores` are what is ranked for each seed, `[S]`, by the first cell of a row. Rows are told
    apart within a kind of network, by Welch's test with Holm's correction for all pairs of it.
    """
    known = {label: own for label, own in scores.items() if len(own) and np.isfinite(own).all()}
    if any(len(own) < 2 for own in known.values()):
        return Column(name, digits=digits)
    by_kind: dict[str, dict[str, np.ndarray]] = {}
    for label, own in known.items():
        by_kind.setdefault(kinds[label], {})[label] = own
    apart = frozenset(pair for of_kind in by_kind.values() for pair in stats.told_apart(of_kind))
    return Column(name, digits=digits, better=better, apart=apart)
