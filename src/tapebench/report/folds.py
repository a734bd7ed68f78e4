"""Contests over folds, read as one set: every rule is unseen by some runs and seen by others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tapebench import stats
from tapebench.exam.bounds import Bounds, bounds, bounds_by_stratum
from tapebench.exam.by_stratum import strata_by_rule
from tapebench.exam.exam import SUBSETS
from tapebench.report import figures, findings, strata
from tapebench.report.contests import Contest, Entry
from tapebench.report.figures import Panel, Picture, Series
from tapebench.report.tables import CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.runs.folds import ALL, FoldRuns
from tapebench.stats import Interval
from tapebench.tasks import folds, splits


@dataclass(frozen=True)
class FoldSet:
    """The contests of one experiment that differ in the fold held out and in nothing else."""

    contests: tuple[Contest, ...]
    """In the order of the folds; two or more."""

    @property
    def first(self) -> Contest:
        return self.contests[0]

    @property
    def title(self) -> str:
        numbers = ", ".join(contest.exam.split.rpartition("-")[2] for contest in self.contests)
        name = f"{self.first.experiment} over folds {numbers}"
        return self.first.title.replace(f"{self.first.experiment} on {self.first.exam.split}", name)

    @property
    def slug(self) -> str:
        return self.first.slug.replace(self.first.exam.split, "folds")

    @cached_property
    def runs(self) -> dict[str, FoldRuns]:
        """The runs of each agent; the best on unseen rules first."""
        agents = dict.fromkeys(
            entry.label for contest in self.contests for entry in contest.entries
        )
        by_agent = {
            agent: FoldRuns(
                agent,
                self.first.experiment,
                self.first.exam,
                {
                    contest.exam.split: stats.Training(
                        entry.scores["success"], contest.exam.rules, contest.exam.subsets == "ood"
                    )
                    for contest, entry in self.entries(agent)
                },
            )
            for agent in agents
        }

        def unseen(agent: str) -> float:
            return self.means(by_agent[agent], self.groups[ALL])["unseen"] or 0.0

        return {agent: by_agent[agent] for agent in sorted(by_agent, key=unseen, reverse=True)}

    def entries(self, agent: str) -> list[tuple[Contest, Entry]]:
        """What an agent, by its label, did in each fold."""
        return [
            (contest, entry)
            for contest in self.contests
            for entry in contest.entries
            if entry.label == agent
        ]

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """Rules that some fold holds out, by stratum, the headline first; then all of them."""
        held_out = sorted({rule for contest in self.contests for rule in contest.exam.test})
        kinds = strata_by_rule(self.first.exam)
        by_stratum = {
            name: [rule for rule in held_out if kinds.get(rule) == name]
            for name in (strata.HEADLINE, "reflex")
        }
        return {name: rules for name, rules in by_stratum.items() if rules} | {ALL: held_out}

    @staticmethod
    def means(runs: FoldRuns, rules: Sequence[int]) -> dict[str, float | None]:
        """Mean success of runs on those of some rules that they saw, and that they did not."""
        sides: dict[str, list[np.ndarray]] = {"seen": [], "unseen": []}
        for training in runs.trainings.values():
            is_asked = np.isin(training.rules, rules)
            sides["seen"].append(training.scores[:, is_asked & ~training.held_out].ravel())
            sides["unseen"].append(training.scores[:, is_asked & training.held_out].ravel())
        joined = {side: np.concatenate(parts) for side, parts in sides.items()}
        return {
            side: float(scores.mean()) if len(scores) else None for side, scores in joined.items()
        }

    @staticmethod
    def by_seed(runs: FoldRuns, rules: Sequence[int]) -> dict[str, np.ndarray]:
        """The same for each seed that was trained with every fold, `[S]`."""
        seeds = min(len(training.scores) for training in runs.trainings.values())
        sides: dict[str, list[np.ndarray]] = {"seen": [], "unseen": []}
        for training in runs.trainings.values():
            is_asked = np.isin(training.rules, rules)
            sides["seen"].append(training.scores[:seeds, is_asked & ~training.held_out])
            sides["unseen"].append(training.scores[:seeds, is_asked & training.held_out])
        joined = {side: np.concatenate(parts, axis=1) for side, parts in sides.items()}
        return {
            side: scores.mean(axis=1) if scores.size else np.empty(0)
            for side, scores in joined.items()
        }

    def mean(self, by_rule: np.ndarray, rules: Sequence[int]) -> float | None:
        """The mean over some rules of what is the same in every fold, given by rule."""
        value = float(by_rule[np.isin(self.first.exam.rules, rules)].mean())
        return None if np.isnan(value) else value

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """What bounds a player that plays for the rules of a group and is not told which it is."""
        exam = self.first.exam
        by_stratum = bounds_by_stratum(exam)
        return {name: bounds(exam) if name == ALL else by_stratum for name in self.groups}


def group(contests: Iterable[Contest]) -> tuple[list[FoldSet], list[Contest]]:
    """The sets among some contests, and the contests that are in none."""
    sets: dict[tuple[str, str], list[Contest]] = {}
    others = []
    for contest in contests:
        if contest.exam.split in folds.NAMES and _is_trained_apart(contest):
            alike = {
                key: value
                for key, value in contest.exam.identity.items()
                if key not in ("split", "train", "test")
            }
            rules = contest.exam.rules.tolist()
            sets.setdefault((contest.experiment, f"{alike} {rules}"), []).append(contest)
        else:
            others.append(contest)
    fold_sets = []
    for members in sets.values():
        if len(members) > 1 and len({member.exam.split for member in members}) == len(members):
            fold_sets.append(FoldSet(tuple(sorted(members, key=lambda member: member.exam.split))))
        else:
            others += members
    return fold_sets, others


def tables(fold_set: FoldSet) -> list[Table]:
    """Every table of a set."""
    return [fold_table(fold_set), cost_table(fold_set), fold_rule_table(fold_set)]


def pictures(fold_set: FoldSet) -> list[Picture]:
    """Every figure of a set."""
    return [fold_success_picture(fold_set), fold_curve_picture(fold_set)]


def fold_table(fold_set: FoldSet) -> Table:
    """Success on rules seen and unseen, beyond reflex first, and what being unseen costs."""
    columns = [Column("agent")]
    shown = {
        name: fold_set.groups[name] for name in (strata.HEADLINE, ALL) if name in fold_set.groups
    }
    kinds = {agent: fold_set.entries(agent)[0][1].network_kind for agent in fold_set.runs}
    for name, rules in shown.items():
        before = "" if name == ALL else f"{name} "
        by_seed = {agent: fold_set.by_seed(runs, rules) for agent, runs in fold_set.runs.items()}
        for side in ("seen", "unseen"):
            scores = {agent: sides[side] for agent, sides in by_seed.items()}
            columns.append(findings.column_by_seeds(f"{before}{side}", scores, kinds))
        columns.append(Column(f"{before}cost", signed=True))
    columns += [Column("runs"), Column("s per run", digits=0)]
    rows = []
    for agent, runs in fold_set.runs.items():
        costs = runs.costs()
        cells: list[Cell] = [agent]
        for name, rules in shown.items():
            if name in costs:
                cells += [costs[name].seen, costs[name].unseen, costs[name].cost]
            else:
                cells += [*fold_set.means(runs, rules).values(), None]
        count = sum(len(training.scores) for training in runs.trainings.values())
        rows.append(Row((*cells, count, _seconds(fold_set, agent)), group=kinds[agent]))
    lines = [references(fold_set, name) for name in shown]
    for reference in zip(*lines, strict=True):
        label, kind, _ = reference[0]
        cells = [label]
        for (_, _, by_rule), rules in zip(reference, shown.values(), strict=True):
            cells += [fold_set.mean(by_rule, rules), fold_set.mean(by_rule, rules), None]
        rows.append(Row((*cells, None, None), kind))
    exam = fold_set.first.exam
    counts = ", ".join(f"{len(rules)} {name}" for name, rules in fold_set.groups.items())
    return Table(
        f"{fold_set.slug}-main",
        "Strict success on rules seen and unseen",
        f"Each rule is held out by the runs of one fold and trained on by the others; {counts} "
        f"rules with {exam.num_columns} start tapes each. Seen and unseen have 95% t intervals "
        "over runs, about training again with these folds; cost is seen − unseen paired by rule, "
        "with a 95% interval over runs and rules. What needs no training is the same on both "
        f"sides. {strata.about_bounds(fold_set.bounds[ALL])} The exact ceiling is of a player that "
        "knows the rule. Marks: within a kind of network, by Welch's test of seeds with Holm's "
        "correction.",
        tuple(columns),
        tuple(rows),
    )


def cost_table(fold_set: FoldSet) -> Table:
    """What being unseen costs, by stratum, and the smallest cost that could have been told."""
    rows: list[Row] = []
    absent = []
    for agent, runs in fold_set.runs.items():
        for name, cost in runs.costs().items():
            cells = (agent, name, cost.rules, cost.seen.mean, cost.unseen.mean, cost.cost)
            rows.append(Row((*cells, cost.smallest, cost.runs)))
        if runs.missing or runs.single:
            absent.append(f"{agent}: {', '.join((*runs.missing, *runs.single))}")
    missing = (
        f" Folds with fewer than two runs are left out ({'; '.join(absent)})." if absent else ""
    )
    return Table(
        f"{fold_set.slug}-cost",
        "The cost of unseen",
        "The mean over rules of the success of runs trained on a rule less that of runs that held "
        "it out, with a 95% interval over runs and rules; mirror images count once. Smallest: the "
        f"true cost that such runs would tell from none in four cases of five.{missing}",
        (
            *(Column("agent"), Column("rules"), Column("number"), Column("seen")),
            *(Column("unseen"), Column("cost", signed=True), Column("smallest"), Column("runs")),
        ),
        tuple(rows),
    )


def fold_rule_table(fold_set: FoldSet) -> Table:
    """Every rule: what is possible, and what each agent reaches having seen it and not."""
    exam, kinds = fold_set.first.exam, strata_by_rule(fold_set.first.exam)
    own = {rule: contest.exam.split for contest in fold_set.contests for rule in contest.exam.test}
    columns = [Column("rule"), Column("type"), Column("stratum"), Column("held out by")]
    columns.append(Column("ceiling"))
    columns += [
        Column(f"{agent}, {side}") for agent in fold_set.runs for side in ("seen", "unseen")
    ]
    rows = []
    for place, rule in enumerate(exam.rules.tolist()):
        if rule not in own:
            continue
        cells: list[Cell] = [rule, str(exam.types[place]), kinds.get(rule), own[rule]]
        cells.append(fold_set.mean(fold_set.first.ceilings, [rule]))
        for runs in fold_set.runs.values():
            cells += fold_set.means(runs, [rule]).values()
        rows.append(Row(tuple(cells)))
    return Table(
        f"{fold_set.slug}-rules",
        "Every rule, seen and unseen",
        "Mean success of the runs trained on a rule and of those that held it out.",
        tuple(columns),
        tuple(rows),
    )


def fold_success_picture(fold_set: FoldSet) -> Picture:
    """Seen and unseen success on the rules that matter, beside what needs no training."""
    name, rules = next(iter(fold_set.groups.items()))
    drawn: dict[str, Mapping[str, Interval | float]] = {}
    for agent, runs in fold_set.runs.items():
        cost = runs.costs().get(name)
        means = fold_set.means(runs, rules)
        bars = {"seen": cost.seen, "unseen": cost.unseen} if cost else means
        drawn[agent] = {side: bar for side, bar in bars.items() if bar is not None}
    for label, _, by_rule in references(fold_set, name):
        level = fold_set.mean(by_rule, rules)
        if level is not None:
            drawn[label] = {"seen": level, "unseen": level}
    return Picture(
        f"{fold_set.slug}-success",
        f"Strict success, {name} rules",
        "On rules trained on and on rules held out, with 95% t intervals over runs.",
        figures.dots(drawn, x="strict success"),
    )


def fold_curve_picture(fold_set: FoldSet) -> Picture:
    """Success in the course of training, mean over the runs of all folds."""
    panels = []
    for side, title in zip(SUBSETS, ("Rules trained on", "Rules held out"), strict=True):
        series = []
        for agent in sorted(fold_set.runs):
            curves = [entry.curve for _, entry in fold_set.entries(agent)]
            alike = [
                curve.success[side]
                for curve in curves
                if curve.steps == curves[0].steps and side in curve.success
            ]
            if alike:
                means = np.concatenate(alike).mean(axis=0)
                series.append(Series(agent, curves[0].steps, tuple(float(mean) for mean in means)))
        levels = {
            label: level
            for label, _, by_rule in references(fold_set, ALL)
            if (level := fold_set.mean(by_rule, fold_set.groups[ALL])) is not None
        }
        panels.append(Panel(title, tuple(series), levels))
    return Picture(
        f"{fold_set.slug}-curves",
        "Learning curves",
        "Strict success at every evaluation: mean over the runs of all folds. Dotted: what needs "
        "no training, and the ceilings.",
        figures.lines(panels, x="environment steps", y="strict success"),
    )


def references(fold_set: FoldSet, group: str) -> list[tuple[str, str, np.ndarray]]:
    """Name, kind and success by rule of what needs no training, and of what is possible for a
    player that plays for a group of rules."""
    rows = [(name, REFERENCE, line["success"]) for name, line in fold_set.first.baselines.items()]
    bound = fold_set.bounds[group]
    rows += [(strata.MEMORYLESS, CEILING, bound.memoryless)]
    rows += [(strata.BLIND, CEILING, bound.blind_ceiling)]
    return [*rows, ("exact ceiling", CEILING, fold_set.first.ceilings)]


# Pieces


def _is_trained_apart(contest: Contest) -> bool:
    """Whether every agent was trained on what its fold does not hold out, and on all of it."""
    wanted = frozenset(splits.load(contest.exam.split).train)
    return all(entry.trained_on == wanted for entry in contest.entries)


def _seconds(fold_set: FoldSet, agent: str) -> float | None:
    known = [entry.seconds for _, entry in fold_set.entries(agent) if entry.seconds is not None]
    return float(np.mean(known)) if known else None
