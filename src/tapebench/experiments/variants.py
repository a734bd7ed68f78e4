"""Experiments that are a list of variants: the same table and figure for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.exam import baselines, intervals
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.report import findings
from tapebench.report.figures import Panel, Picture, Series, dots
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import CEILING, REFERENCE, Column, Row, Table
from tapebench.runs.training import RunSpec
from tapebench.stats import Interval

MARKS = "Marks: within a kind of network, by Welch's test with Holm's correction."
"""How the best rows of tables of experiments are marked."""


@dataclass(frozen=True)
class Variant:
    """An agent, and what is unusual about it."""

    agent: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the agent that differ from its defaults."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of `RunSpec`."""

    def runs(self, scale: Scale, name: str, seeds: int) -> list[RunSpec]:
        """Its runs; they are labelled by their name only if there is anything unusual."""
        unusual = {**self.options, **self.changes}
        label = slug(name) if unusual else ""
        return scale.runs(self.agent, seeds, label, options=dict(self.options), **self.changes)


def slug(name: str) -> str:
    """A name as a part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def compare_variants(
    name: str,
    title: str,
    about: str,
    variants: Mapping[str, Variant] | Callable[[Scale], Mapping[str, Variant]],
    *,
    seeds: int = 3,
    paper: str = "",
) -> Experiment:
    """An experiment that compares the success of variants."""

    def settings(scale: Scale) -> dict[str, list[RunSpec]]:
        by_label = variants(scale) if callable(variants) else variants
        return {
            label: variant.runs(scale, f"{name} {label}", seeds)
            for label, variant in by_label.items()
        }

    return Experiment(name, about, settings, partial(success_exhibit, name, title), paper)


def success_exhibit(name: str, title: str, results: ExperimentResults) -> Exhibit:
    """Success of every setting, with the baselines and the ceiling."""
    return Exhibit((success_table(name, title, results),), (variant_picture(name, title, results),))


def over_seeds(values: Any) -> Interval | float:
    """Mean and interval over seeds; nan if a value is."""
    array = np.asarray(values, float)
    return float("nan") if np.isnan(array).any() else intervals.over_seeds(array)


def share_over_seeds(values: Any) -> Interval | float:
    """`over_seeds` of shares, whose intervals end at 0 and 1."""
    interval = over_seeds(values)
    return stats.within_0_and_1(interval) if isinstance(interval, Interval) else interval


@cache
def levels(exam: Exam, root: Path) -> dict[str, dict[str, float]]:
    """Success of the references and the exact ceiling by side.

    References that are not shipped are run once, then kept beside the runs.
    """
    known = baselines.load_or_run(exam, root)
    success = {name: scores["success"] for name, scores in known.items()}
    success["exact ceiling"] = exam.ceilings(exam.optimal_steps())
    return {
        side: {name: float(by_rule[rows].mean()) for name, by_rule in success.items()}
        for side in SUBSETS
        if len(rows := exam.rows(side))
    }


def curve_panels(
    exam: Exam, root: Path, curves: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Panel]:
    """Learning curves by name and seed, as summaries hold them: a panel for each side."""
    return [
        Panel(
            SIDE_NAMES[side],
            tuple(
                Series(
                    name,
                    tuple(map(float, runs[0]["step"])),
                    tuple(map(share_over_seeds, zip(*(run[side] for run in runs), strict=True))),
                )
                for name, runs in curves.items()
            ),
            levels_of_side,
        )
        for side, levels_of_side in levels(exam, root).items()
    ]


def success_table(name: str, title: str, results: ExperimentResults) -> Table:
    """ID and OOD success, the drop, and the share of the ceiling."""
    by_side = levels(results.exam, results.root)
    rows = []
    scores: dict[str, dict[str, np.ndarray]] = {side: {} for side in by_side}
    kinds = {results.label(label): results.network_kind(label) for label in results.finished}
    for label in results.finished:
        runs = results.summaries(label)
        cells: list[Any] = [results.label(label)]
        for side in by_side:
            success = np.array([run[side]["success"] for run in runs])
            scores[side][results.label(label)] = success
            cells += [
                share_over_seeds(success),
                share_over_seeds(success / by_side[side]["exact ceiling"]),
            ]
        if len(by_side) == len(SUBSETS):
            cells.append(over_seeds([run["drop"] for run in runs]))
        rows.append(Row((*cells, len(runs)), group=results.network_kind(label)))
    for baseline in next(iter(by_side.values())):
        cells = [baseline]
        for levels_of_side in by_side.values():
            cells += [
                levels_of_side[baseline],
                levels_of_side[baseline] / levels_of_side["exact ceiling"],
            ]
        if len(by_side) == len(SUBSETS):
            cells.append(by_side["id"][baseline] - by_side["ood"][baseline])
        kind = CEILING if baseline == "exact ceiling" else REFERENCE
        rows.append(Row((*cells, None), kind))
    columns = [Column("")]
    for side in by_side:
        columns.append(findings.column_by_seeds(f"{side.upper()} success", scores[side], kinds))
        columns.append(Column(f"{side.upper()} of ceiling", digits=2))
    if len(by_side) == len(SUBSETS):
        columns.append(Column("drop", signed=True))
    return Table(
        name=name,
        title=title,
        caption=f"Strict success on {results.exam.split}, mean over rules, and its share of what "
        "is possible; 95% intervals over seeds. The drop is ID − OOD, paired by seed. "
        f"{MARKS}",
        columns=(*columns, Column("seeds")),
        rows=tuple(rows),
    )


def variant_picture(name: str, title: str, results: ExperimentResults) -> Picture:
    """The same as dots."""
    rows = {
        results.label(label): {
            side.upper(): share_over_seeds([run[side]["success"] for run in runs])
            for side in SUBSETS
            if all(side in run for run in runs)
        }
        for label in results.finished
        if (runs := results.summaries(label))
    }
    for side, levels_of_side in levels(results.exam, results.root).items():
        for baseline, value in levels_of_side.items():
            rows.setdefault(baseline, {})[side.upper()] = value
    return Picture(
        name=name,
        title=title,
        caption="Strict success; bars are 95% intervals over seeds.",
        drawing=dots(rows, x="strict success"),
    )
