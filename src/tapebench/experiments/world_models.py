"""World models: how accurate and calibrated they are, and what uncertainty gating is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapebench import agents
from tapebench.exam import baselines
from tapebench.exam.exam import SUBSETS
from tapebench.experiments import forecasts
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.variants import (
    Variant,
    compare_variants,
    levels,
    over_seeds,
    share_over_seeds,
)
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import CEILING, REFERENCE, Column, Row, Table
from tapebench.runs.training import RunSpec
from tapebench.tasks import splits

EPISODES = 4
"""Start tapes for every rule of the forecasts."""

IMAGINED = (5, 10, 15, 20)
"""Steps of imagination that `dreamer` is trained with."""

SEEDS = 3

FILTERS = {"filter, all rules": "all", "filter, training rules": "train"}
"""The exact filter with all 256 rules as candidates, and with those of the training side."""

ONE_STEP = {
    "error": Column("wrong cells", 4, "low"),
    "whole": Column("whole tapes right", 3, "high"),
    "bits": Column("bits per cell", 3, "low"),
    "calibration_error": Column("calibration error", 3, "low"),
    "warned": Column("doubt and error", 2, "high"),
}
"""Columns of the one-step tables."""

SHARES = ("error", "whole")

RARE = 0.001
"""Share of all forecasts below which a bin is left out of the calibration curve."""

Foreseen = dict[str, dict[str, Any]]
"""By subset: what `ONE_STEP` names, wrong cells by depth, and calibration by bin. None where there
is nothing to go by, as where all episodes are over by then."""


# Credibility


def imagined(steps: int) -> str:
    """The setting with so many steps of imagination."""
    return f"dreamer, {steps} steps"


def usual_imagination() -> int:
    """Steps of imagination that `dreamer` has by default; a test holds it to `IMAGINED`."""
    return int(agents.configure("dreamer").imagination)


def credibility_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """`dreamer` with every length of imagination, the usual one among them, and `automata`."""
    settings = {}
    for steps in IMAGINED:
        options = {} if steps == usual_imagination() else {"imagination": steps}
        variant = Variant("dreamer", options)
        settings[imagined(steps)] = variant.runs(scale, f"imagination {steps}", SEEDS)
    return settings | {"automata": Variant("automata").runs(scale, "", SEEDS)}


def show_credibility(results: ExperimentResults) -> Exhibit:
    """Forecasts of the models, and success against how far ahead `dreamer` imagines."""
    foreseen_by_model = gather_forecasts(results)
    return Exhibit(
        tables=(*_one_step_tables(foreseen_by_model), *_imagination_tables(results)),
        pictures=(
            _depth_picture(foreseen_by_model),
            _calibration_picture(foreseen_by_model),
            *_imagined(results),
        ),
    )


def gather_forecasts(results: ExperimentResults) -> dict[str, list[Foreseen]]:
    """Forecast accuracy of models by name and seed, and of the filters (one entry each)."""
    exam = results.exam
    models = {"dreamer": imagined(usual_imagination()), "automata": "automata"}
    foreseen_by_model = {
        name: [foreseen(results, spec) for spec in results.finished[setting]]
        for name, setting in models.items()
        if setting in results.finished
    }
    for name, which in FILTERS.items():
        candidates = splits.select(exam.origin, which)
        model = partial(forecasts.forecast_filter, candidates)
        foreseen_by_model[name] = [_cached(results, f"filter-{which}", model)]
    return foreseen_by_model


def foreseen(results: ExperimentResults, spec: RunSpec) -> Foreseen:
    """Forecast accuracy of the model of a run. Measured once, then cached."""

    def model(seen: forecasts.Record, depth: int) -> forecasts.Forecast:
        return forecasts.load_model(results.path(spec))(seen, depth)

    return _cached(results, results.mark(spec), model)


def _cached(results: ExperimentResults, name: str, model: forecasts.Forecaster) -> Foreseen:
    def compute() -> Foreseen:
        exam = results.exam
        seen = forecasts.record(replace(exam, episodes=EPISODES))
        depth = min(forecasts.DEPTH, exam.task.horizon)
        sides = {subset: rows for subset in SUBSETS if len(rows := exam.rows(subset))}
        return _about(model(seen, depth), seen, sides)

    foreseen: Foreseen = results.cached(results.exam, f"forecasts-{name}", compute)
    return foreseen


def _about(
    forecast: forecasts.Forecast, record: forecasts.Record, sides: dict[str, np.ndarray]
) -> dict[str, Any]:
    """One forecast in numbers, by subset."""
    assessment = forecasts.assess(forecast, record)
    document = {}
    for subset, rules in sides.items():
        share, confidence, right = assessment.calibration(rules)
        document[subset] = {
            "depth": [_mean(error) for error in assessment.error[:, rules]],
            "error": _mean(assessment.error[0, rules]),
            "bits": _mean(assessment.bits[rules]),
            "whole": _mean(assessment.whole[rules]),
            "warned": _mean(assessment.warned[rules]),
            "calibration_error": assessment.calibration_error(rules),
            "share": share.tolist(),
            "confidence": [_mean(value) for value in confidence],
            "right": [_mean(value) for value in right],
        }
    return document


def _mean(values: np.ndarray) -> float | None:
    """Mean of the values that are not nan, None without any: JSON has no nan."""
    finite = values[~np.isnan(values)]
    return float(finite.mean()) if finite.size else None


def _one_step_tables(foreseen_by_model: Mapping[str, Any]) -> list[Table]:
    """One step ahead, a table for each subset."""
    tables = []
    for subset, title in SIDE_NAMES.items():
        rows = []
        for name, seeds in foreseen_by_model.items():
            if all(subset in seed for seed in seeds):
                cells = [
                    (share_over_seeds if key in SHARES else over_seeds)(
                        [seed[subset][key] for seed in seeds]
                    )
                    for key in ONE_STEP
                ]
                rows.append(Row((name, *cells), REFERENCE if name in FILTERS else "agent"))
        if rows:
            tables.append(
                Table(
                    name=f"credibility-{subset}",
                    title=f"Forecasts of one step, {title}",
                    caption="Mean over rules, and 95% intervals over seeds, on the same episodes "
                    "of random flips. Doubt and error: rank correlation of expected and actual "
                    "wrong cells within a rule. The filter knows the 256 rules and is exact: "
                    "no model without their list can be expected to do better.",
                    columns=(Column("model"), *ONE_STEP.values()),
                    rows=tuple(rows),
                )
            )
    return tables


def _panels(
    foreseen_by_model: Mapping[str, Any], draw: Callable[[str, str, Sequence[Any]], Series]
) -> list[Panel]:
    """A panel for each subset that all seeds of a model have."""
    panels = []
    for subset, title in SIDE_NAMES.items():
        series = [
            draw(name, subset, seeds)
            for name, seeds in foreseen_by_model.items()
            if all(subset in seed for seed in seeds)
        ]
        if series:
            panels.append(Panel(title, tuple(series)))
    return panels


def _depth_picture(foreseen_by_model: Mapping[str, Any]) -> Picture:
    def draw(name: str, subset: str, seeds: Sequence[Any]) -> Series:
        by_depth = zip(*(seed[subset]["depth"] for seed in seeds), strict=True)
        values = [share_over_seeds(errors) for errors in by_depth]
        points = [(depth, value) for depth, value in enumerate(values, 1) if value == value]
        return Series(name, tuple(float(depth) for depth, _ in points), tuple(v for _, v in points))

    return Picture(
        name="credibility-depth",
        title="Open-loop error of world models",
        caption="Share of cells foreseen wrongly against how many steps ahead, given the flips. "
        "Bands are 95% intervals over seeds.",
        drawing=lines(_panels(foreseen_by_model, draw), x="steps ahead", y="wrong cells (share)"),
    )


def _calibration_picture(foreseen_by_model: Mapping[str, Any]) -> Picture:
    def draw(name: str, subset: str, seeds: Sequence[Any]) -> Series:
        confidence, right, often = (
            np.array([seed[subset][key] for seed in seeds], float)
            for key in ("confidence", "right", "share")
        )
        points = []
        for bin_index in range(confidence.shape[1]):
            is_common = often[:, bin_index] >= RARE
            if is_common.any():
                x = float(confidence[is_common, bin_index].mean())
                points.append((x, share_over_seeds(right[is_common, bin_index].tolist())))
        return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))

    panels = _panels(foreseen_by_model, draw)
    even = Series("as often as said", (0.5, 1.0), (0.5, 1.0))
    return Picture(
        name="credibility-calibration",
        title="Calibration one step ahead",
        caption="How often the likelier value of a cell came true, against the probability that "
        "the model gave it, where it gave such a probability to at least one cell in a thousand. "
        "Bands are 95% intervals over seeds.",
        drawing=lines(
            [replace(panel, series=(*panel.series, even)) for panel in panels],
            x="probability given",
            y="came true (share)",
            bottom=0.0,
            top=1.0,
        ),
    )


def _by_imagination(results: ExperimentResults) -> dict[int, list[dict[str, Any]]]:
    """Summaries of `dreamer` by steps of imagination."""
    return {n: runs for n in IMAGINED if (runs := results.summaries(imagined(n)))}


def _imagination_tables(results: ExperimentResults) -> list[Table]:
    """Success against the length of imagination, with the planner and the ceiling."""
    runs_by_steps, by_side = _by_imagination(results), levels(results.exam, results.root)
    if not runs_by_steps:
        return []
    rows = []
    for steps, runs in runs_by_steps.items():
        reached = [np.array([run[side]["success"] for run in runs]) for side in by_side]
        gaps = [
            over_seeds(by_side[side][baselines.PLANNER] - values)
            for side, values in zip(by_side, reached, strict=True)
        ]
        rows.append(Row((f"{steps} steps", *map(share_over_seeds, reached), *gaps, len(runs))))
    for baseline, kind in ((baselines.PLANNER, REFERENCE), ("exact ceiling", CEILING)):
        means = [of_side[baseline] for of_side in by_side.values()]
        gaps = [of_side[baselines.PLANNER] - of_side[baseline] for of_side in by_side.values()]
        rows.append(Row((baseline, *means, *gaps, None), kind))
    return [
        Table(
            name="credibility-imagination",
            title="Success of dreamer against the length of imagination",
            caption="Strict success, mean over rules; 95% intervals over seeds. The gap is what "
            f"{baselines.PLANNER}, which knows the rule, has more.",
            columns=(
                Column("imagination"),
                *(Column(f"{side.upper()} success", 3, "high") for side in by_side),
                *(Column(f"{side.upper()} gap", 3, "low", signed=True) for side in by_side),
                Column("seeds"),
            ),
            rows=tuple(rows),
        )
    ]


def _imagined(results: ExperimentResults) -> list[Picture]:
    runs_by_steps = _by_imagination(results)
    if not runs_by_steps:
        return []
    panels = []
    for side, levels_of_side in levels(results.exam, results.root).items():
        y = tuple(
            share_over_seeds([run[side]["success"] for run in runs])
            for runs in runs_by_steps.values()
        )
        series = Series("dreamer", tuple(map(float, runs_by_steps)), y)
        panels.append(Panel(SIDE_NAMES[side], (series,), levels_of_side))
    return [
        Picture(
            name="credibility-imagination",
            title="Success of dreamer against the length of imagination",
            caption="Strict success; bands are 95% intervals over seeds.",
            drawing=lines(panels, x="imagined steps", y="strict success"),
        )
    ]


# What control is worth

CONTROLS = {
    "whole": Variant("automata"),
    "no flips to learn": Variant("automata", {"trust": 0.0}),
    "minds no doubts": Variant("automata", {"trust": 0.0, "fit": 0.0}),
    "untrained": Variant("automata", {"learn": False}),
    "untrained, minds no doubts": Variant("automata", {"learn": False, "trust": 0.0, "fit": 0.0}),
    "table, nothing to learn": Variant("automata", {"network": "table"}),
}
"""`automata`, and what is left of it without some of its parts."""

EXPERIMENTS = (
    Experiment(
        name="dreamer-credibility",
        about="How accurate and calibrated are world models, on seen and unseen rules?",
        settings=credibility_settings,
        show=show_credibility,
        paper="app:dreamer_credibility",
    ),
    compare_variants(
        "automata-control",
        "What doubts and learning are worth to automata",
        "What calibrated confidence and learning are worth to automata.",
        CONTROLS,
        seeds=SEEDS,
    ),
)
