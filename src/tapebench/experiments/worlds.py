"""World models: whether they can be believed, and what knowing that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import credibility, store
from tapebench.exam import SUBSETS, Exam
from tapebench.training import RunSpec

EPISODES = 4
"""Start tapes for every rule that models are asked about."""

HORIZONS = (5, 10, 15, 20)
"""Steps of imagination that `dreamer` is trained with."""

FILTERS = {"filter, all rules": "all", "filter, training rules": "train"}
"""The exact filter with all 256 rules as candidates, and with those trained on."""


def assess(runs: dict[str, Sequence[Path]], exam: Exam) -> dict[str, Any]:
    """What the models of some runs foresee, by name, and the filters beside them.

    For each a list over seeds (the filters have one), by subset, of error by depth, bits, share of
    whole tapes, how well errors are warned of, and calibration.
    """
    seen = credibility.record(replace(exam, episodes=EPISODES))
    sides = {subset: exam.rows(subset) for subset in SUBSETS if len(exam.rows(subset))}
    candidates = {"all": tuple(range(256)), "train": exam.train}
    found: dict[str, Any] = {}
    for name, paths in runs.items():
        models = [credibility.load_model(path) for path in paths]
        found[name] = [_about(model(seen, credibility.DEPTH), seen, sides) for model in models]
    for name, which in FILTERS.items():
        if candidates[which]:
            forecast = credibility.forecast_filter(candidates[which], seen, credibility.DEPTH)
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
            "error": np.nanmean(found.error[:, rules], axis=1),
            "bits": np.nanmean(found.bits[rules]),
            "whole": np.nanmean(found.whole[rules]),
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


def successes(specs: Sequence[RunSpec], root: Path, subset: str) -> np.ndarray:
    """Success of each run that is done, `[S]`."""
    documents = [store.read_json(root / str(spec.id) / "summary.json") for spec in specs]
    return np.array([found[subset]["success"] for found in documents if subset in found])
