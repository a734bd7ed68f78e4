"""World models: whether they can be believed, and what knowing that is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import credibility, score, splits, stats
from tapebench.exam import SUBSETS, Exam
from tapebench.experiments import Exhibit, Experiment, Results, Scale
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.tables import CEILING, REFERENCE, Column, Row, Table
from tapebench.stats import Interval
from tapebench.training import RunSpec

EPISODES = 4
"""Start tapes for every rule that models are asked about."""

IMAGINED = (5, 10, 15, 20)
"""Steps of imagination that `dreamer` is trained with."""

SEEDS = 3

SIDES = {"id": "ID: rules seen in training", "ood": "OOD: held-out rules"}

FILTERS = {"filter, all rules": "all", "filter, training rules": "train"}
"""The exact filter with all 256 rules as candidates, and with those of the training side."""

ONE_STEP = {
    "error": Column("wrong cells", 4, "low"),
    "whole": Column("whole tapes right", 3, "high"),
    "bits": Column("bits per cell", 3, "low"),
    "calibration_error": Column("calibration error", 3, "low"),
    "warned": Column("doubt and error", 2, "high"),
}
"""What is said of forecasts of one step."""

SHARES = ("error", "whole")


# Credibility


def credibility_runs(scale: Scale) -> list[RunSpec]:
    """`dreamer` with every length of imagination, the usual one among them, and `automata`."""
    return [
        *(
            spec
            for steps in IMAGINED
            for spec in scale.specs(
                f"imagination-{steps}", "dreamer", SEEDS, options={"imagination": steps}
            )
        ),
        *scale.specs("models", "automata", SEEDS),
    ]


def show_credibility(results: Results) -> Exhibit:
    """Forecasts of the models, and success against how far ahead `dreamer` imagines."""
    usual = _usual_imagination()
    models = {
        "dreamer": results.named(f"imagination-{usual}"),
        "automata": results.named("models"),
    }
    missing = tuple(f"{name}: no finished run" for name, specs in models.items() if not specs)
    paths = {name: [*map(results.path, specs)] for name, specs in models.items() if specs}
    exam = results.exam
    found = forecasts(paths, exam)
    return Exhibit(
        tables=(*_one_step_tables(found), *_imagination_tables(results)),
        pictures=(_depth_picture(found), _calibration_picture(found), *_imagined(results)),
        missing=missing,
    )


def _usual_imagination() -> int:
    from tapebench import agents

    usual = int(agents.configure("dreamer").imagination)
    assert usual in IMAGINED
    return usual


def forecasts(paths: Mapping[str, Sequence[Path]], exam: Exam) -> dict[str, Any]:
    """What models foresee, by name, and the filters beside them.

    For each a list over seeds (a filter has one), by subset, of what `ONE_STEP` names, with error
    by depth, and of calibration by bin.
    """
    seen = credibility.record(replace(exam, episodes=EPISODES))
    depth = min(credibility.DEPTH, exam.task.horizon)
    sides = {subset: rows for subset in SUBSETS if len(rows := exam.rows(subset))}
    found: dict[str, Any] = {}
    for name, runs in paths.items():
        models = map(credibility.load_model, runs)
        found[name] = [_about(model(seen, depth), seen, sides) for model in models]
    for name, which in FILTERS.items():
        candidates = splits.select(exam.origin, which)
        forecast = credibility.forecast_filter(candidates, seen, depth)
        found[name] = [_about(forecast, seen, sides)]
    return found


def _about(
    forecast: credibility.Forecast, seen: credibility.Record, sides: dict[str, np.ndarray]
) -> dict[str, Any]:
    """One forecast in numbers, by subset."""
    found = credibility.assess(forecast, seen)
    document = {}
    for subset, rules in sides.items():
        share, confidence, right = found.calibration(rules)
        document[subset] = {
            "depth": [_mean(error) for error in found.error[:, rules]],
            "error": _mean(found.error[0, rules]),
            "bits": _mean(found.bits[rules]),
            "whole": _mean(found.whole[rules]),
            "warned": _mean(found.warned[rules]),
            "calibration_error": found.calibration_error(rules),
            "share": share,
            "confidence": confidence,
            "right": right,
        }
    return document


def _mean(values: np.ndarray) -> float:
    """Of those that are numbers; not a number if none is."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")


def _over_seeds(values: Sequence[float]) -> Interval | float:
    """Mean and t-interval; of one alone the value itself."""
    return stats.t_interval(np.array(values)) if len(values) > 1 else float(values[0])


def _share(values: Sequence[float]) -> Interval | float:
    """The same for shares, whose intervals end at 0 and 1."""
    found = _over_seeds(values)
    return stats.within_0_and_1(found) if isinstance(found, Interval) else found


def _one_step_tables(found: Mapping[str, Any]) -> list[Table]:
    """One step ahead, a table for each subset."""
    tables = []
    for subset, title in SIDES.items():
        rows = []
        for name, seeds in found.items():
            if all(subset in one for one in seeds):
                cells = [
                    (_share if key in SHARES else _over_seeds)([one[subset][key] for one in seeds])
                    for key in ONE_STEP
                ]
                rows.append(Row((name, *cells), REFERENCE if name in FILTERS else "agent"))
        if rows:
            tables.append(
                Table(
                    name=f"credibility-{subset}",
                    title=f"Forecasts of one step, {title}",
                    caption="Mean over rules, and 95% t-intervals over seeds. All are asked about "
                    "the same episodes of random flips. Doubt and error: rank correlation of the "
                    "wrong cells that a model expects and those that there are, within a rule. "
                    "The filter knows the 256 rules and is exact: without their table no model "
                    "can be expected to do better.",
                    columns=(Column("model"), *ONE_STEP.values()),
                    rows=tuple(rows),
                )
            )
    return tables


def _panels(
    found: Mapping[str, Any], draw: Callable[[str, str, Sequence[Any]], Series]
) -> list[Panel]:
    """A panel for each subset that all seeds of a model know about."""
    panels = []
    for subset, title in SIDES.items():
        series = [
            draw(name, subset, seeds)
            for name, seeds in found.items()
            if all(subset in one for one in seeds)
        ]
        if series:
            panels.append(Panel(title, tuple(series)))
    return panels


def _depth_picture(found: Mapping[str, Any]) -> Picture:
    def draw(name: str, subset: str, seeds: Sequence[Any]) -> Series:
        by_depth = zip(*(one[subset]["depth"] for one in seeds), strict=True)
        values = [_share(errors) for errors in by_depth]
        kept = [(depth, value) for depth, value in enumerate(values, 1) if value == value]
        return Series(name, tuple(float(depth) for depth, _ in kept), tuple(v for _, v in kept))

    return Picture(
        name="credibility-depth",
        title="Open-loop error of world models",
        caption="Share of cells foreseen wrongly against how many steps ahead, given the flips. "
        "Bands are 95% t-intervals over seeds.",
        figure=lines(_panels(found, draw), x="steps ahead", y="wrong cells (share)"),
    )


def _calibration_picture(found: Mapping[str, Any]) -> Picture:
    def draw(name: str, subset: str, seeds: Sequence[Any]) -> Series:
        confidence = np.array([one[subset]["confidence"] for one in seeds])
        right = np.array([one[subset]["right"] for one in seeds])
        points = []
        for place in range(confidence.shape[1]):
            known = ~np.isnan(right[:, place])
            if known.any():
                x = float(confidence[known, place].mean())
                points.append((x, _share(right[known, place].tolist())))
        return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))

    panels = _panels(found, draw)
    even = Series("as often as said", (0.5, 1.0), (0.5, 1.0))
    return Picture(
        name="credibility-calibration",
        title="Calibration one step ahead",
        caption="How often the likelier value of a cell came true, against the probability that "
        "the model gave it. Bands are 95% t-intervals over seeds.",
        figure=lines(
            [replace(panel, series=(*panel.series, even)) for panel in panels],
            x="probability given",
            y="came true (share)",
            bottom=0.0,
            top=1.0,
        ),
    )


def _by_imagination(results: Results) -> dict[int, list[dict[str, Any]]]:
    found = {n: results.named(f"imagination-{n}") for n in IMAGINED}
    return {n: [*map(results.summary, specs)] for n, specs in found.items() if specs}


def _imagination_tables(results: Results) -> list[Table]:
    """Success against the length of imagination, beside the planner and the ceiling."""
    found = _by_imagination(results)
    if not found:
        return []
    exam = results.exam
    sides = [subset for subset in SUBSETS if len(exam.rows(subset))]
    planned = score.lines(exam)[score.PLANNER]["success"]
    possible = exam.ceilings(exam.optimal_steps())
    rows = [
        Row(
            (
                f"{steps} steps",
                *(_share([run[side]["success"] for run in runs]) for side in sides),
                *(
                    _over_seeds([planned[exam.rows(s)].mean() - run[s]["success"] for run in runs])
                    for s in sides
                ),
                len(runs),
            )
        )
        for steps, runs in found.items()
    ]
    for name, line, kind in (
        ("planner, knows the rule", planned, REFERENCE),
        ("exact ceiling", possible, CEILING),
    ):
        means = [float(np.mean(line[exam.rows(side)])) for side in sides]
        gaps = [
            float(np.mean(planned[exam.rows(side)])) - mean
            for side, mean in zip(sides, means, strict=True)
        ]
        rows.append(Row((name, *means, *gaps, None), kind))
    return [
        Table(
            name="credibility-imagination",
            title="Success of dreamer against the length of imagination",
            caption="Strict success, mean over rules; 95% t-intervals over seeds. The gap is what "
            "the planner that knows the rule has more.",
            columns=(
                Column("imagination"),
                *(Column(f"{side.upper()} success", 3, "high") for side in sides),
                *(Column(f"{side.upper()} gap", 3, "low", signed=True) for side in sides),
                Column("seeds"),
            ),
            rows=tuple(rows),
        )
    ]


def _imagined(results: Results) -> list[Picture]:
    found = _by_imagination(results)
    if not found:
        return []
    exam = results.exam
    possible = exam.ceilings(exam.optimal_steps())
    beside = score.lines(exam)
    panels = []
    for subset, title in SIDES.items():
        rows = exam.rows(subset)
        if len(rows):
            y = [_share([run[subset]["success"] for run in runs]) for runs in found.values()]
            levels = {name: float(beside[name]["success"][rows].mean()) for name in score.LINES}
            levels["exact ceiling"] = float(possible[rows].mean())
            series = Series("dreamer", tuple(map(float, found)), tuple(y))
            panels.append(Panel(title, (series,), levels))
    return [
        Picture(
            name="credibility-imagination",
            title="Success of dreamer against the length of imagination",
            caption="Strict success; bars are 95% t-intervals over seeds.",
            figure=lines(panels, x="imagined steps", y="strict success"),
        )
    ]


# What control is worth

CONTROLS: dict[str, dict[str, Any]] = {
    "controlled": {},
    "no flips to learn": {"trust": 0.0},
    "plans whatever it believes": {"trust": 0.0, "fit": 0.0},
    "untrained": {"learn": False},
    "untrained, without control": {"learn": False, "trust": 0.0, "fit": 0.0},
    "table: nothing to learn": {"network": "table"},
}
"""What is left out of `automata`."""


def control_runs(scale: Scale) -> list[RunSpec]:
    """`automata` whole, and with parts left out."""
    return [
        spec
        for name, options in CONTROLS.items()
        for spec in scale.specs(_slug(name), "automata", SEEDS, options=options)
    ]


def _slug(name: str) -> str:
    return "control-" + name.replace(":", "").replace(",", "").replace(" ", "-")


def show_control(results: Results) -> Exhibit:
    """Success with and without each part."""
    exam = results.exam
    sides = [subset for subset in SUBSETS if len(exam.rows(subset))]
    possible = exam.ceilings(exam.optimal_steps())
    ceiling = {side: float(possible[exam.rows(side)].mean()) for side in sides}
    rows, missing = [], []
    for name in CONTROLS:
        runs = [*map(results.summary, results.named(_slug(name)))]
        if not runs:
            missing.append(f"{name}: no finished run")
            continue
        cells = [_share([run[side]["success"] for run in runs]) for side in sides]
        shares = [
            _over_seeds([run[side]["success"] / ceiling[side] for run in runs]) for side in sides
        ]
        rows.append(Row((name, *cells, *shares, len(runs))))
    rows.append(
        Row(("exact ceiling", *ceiling.values(), *[1.0] * len(sides), None), CEILING),
    )
    return Exhibit(
        tables=(
            Table(
                name="automata-control",
                title="What confidence and learning are worth to automata",
                caption="Strict success and its share of what is possible, means over rules; 95% "
                "t-intervals over seeds.",
                columns=(
                    Column("variant"),
                    *(Column(f"{side.upper()} success", 3, "high") for side in sides),
                    *(Column(f"{side.upper()} of ceiling", 3, "high") for side in sides),
                    Column("seeds"),
                ),
                rows=tuple(rows),
            ),
        ),
        missing=tuple(missing),
    )


EXPERIMENTS = (
    Experiment(
        name="dreamer-credibility",
        about="Can world models be believed, on rules they have seen and on others?",
        runs=credibility_runs,
        show=show_credibility,
        paper="the diagnostics it asks for of its DreamerV3-style baseline",
    ),
    Experiment(
        name="automata-control",
        about="What calibrated confidence and learning are worth to automata.",
        runs=control_runs,
        show=show_control,
    ),
)
