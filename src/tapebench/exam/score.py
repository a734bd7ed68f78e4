"""Scores: what one or several runs of a policy reached, beside baselines and exact ceilings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.base.shapes import Float64
from tapebench.exam import bounds, by_stratum
from tapebench.exam.baselines import PLANNER, Baseline
from tapebench.exam.exam import SUBSETS, Exam
from tapebench.exam.intervals import over_seeds, resampling
from tapebench.exam.metrics import METRICS, SOFT
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import Episodes, rollout
from tapebench.tasks.task import Task


def score(
    runs: Sequence[Episodes],
    exam: Exam,
    ceilings: Float64[np.ndarray, " R"],
    baselines: Mapping[str, Baseline],
    *,
    policy: str,
    sees_rule: bool,
) -> dict[str, Any]:
    """The whole result as one document. `runs` are one or several training seeds.

    With one run the interval is about which rules and tapes were asked; with several it is about
    the seeds. `interval_over` says which.
    """
    document: dict[str, Any] = {
        "policy": policy,
        "sees_rule": sees_rule,
        "split": exam.split,
        "exam": exam.name,
        "exam_hash": exam.hash,
        **describe_laws(exam),
        "length": exam.task.length,
        "horizon": exam.task.horizon,
        **({"switch": list(switches)} if (switches := exam.task.schedule.switches) else {}),
        "episodes_per_rule": exam.episodes,
        "trials": exam.trials,
        "runs": len(runs),
        "interval_over": "seeds" if len(runs) > 1 else "rules and tapes",
    }
    for subset in SUBSETS:
        document[subset] = _score_subset(runs, exam, ceilings, baselines, subset)
    if np.isnan(ceilings).any():
        document["no_ceiling"] = exam.no_ceilings
    document["by_stratum"] = _by_stratum(runs, exam, ceilings, baselines)
    document["no_strata"] = by_stratum.why_unknown(exam) or None
    document |= _drop(runs, exam, ceilings)
    document["by_type"] = _by_type(runs, exam, ceilings)
    if exam.trials > 1:
        document["by_trial"] = _by_trial(runs, exam)
    document["lines"] = {
        name: {
            subset: _mean(baseline["success"][exam.rows(subset)])
            for subset in SUBSETS
            if len(exam.rows(subset))
        }
        for name, baseline in baselines.items()
    }
    return document


def describe_laws(exam: Exam) -> dict[str, Any]:
    """Family and shape where they are not those of elementary rules."""
    named = ("family", "shape")
    return {name: exam.identity[name] for name in named if name in exam.identity}


def _score_subset(
    runs: Sequence[Episodes],
    exam: Exam,
    ceilings: np.ndarray,
    baselines: Mapping[str, Baseline],
    subset: str,
) -> dict[str, Any] | None:
    rows = exam.rows(subset)
    if not len(rows):
        return None
    means = {
        name: float(np.mean([metric(run)[rows].mean() for run in runs]))
        for name, metric in METRICS.items()
    }
    success = np.array([run.success[rows] for run in runs], float)
    interval = _interval(success, subset)
    ceiling = float(ceilings[rows].mean())
    per_rule = success.mean(axis=(0, 2))
    document: dict[str, Any] = {name: value for name, value in means.items() if name not in SOFT}
    document["soft_success"] = {label: means[name] for name, label in SOFT.items()}
    document["interval"] = [interval.low, interval.high]
    document["macro_success"] = float(stats.macro_average(per_rule, exam.types[rows]))
    document["on"] = _normalised_by_planner(means["success"], exam, baselines, rows)
    document["ceiling"] = None if np.isnan(ceiling) else ceiling
    document["normalised"] = (
        None if np.isnan(ceiling) or not ceiling else means["success"] / ceiling
    )
    is_solvable = ceilings[rows] > stats.NEGLIGIBLE
    is_known = not np.isnan(ceiling) and is_solvable.any()
    document["success_on_solvable"] = float(per_rule[is_solvable].mean()) if is_known else None
    document["rules"] = len(rows)
    document["episodes"] = int(success.size)
    return document


def _normalised_by_planner(
    success: float, exam: Exam, baselines: Mapping[str, Baseline], rows: np.ndarray
) -> float | None:
    if PLANNER not in baselines:
        return None
    reached = float(baselines[PLANNER]["success"][rows].mean())
    if not reached:
        return None
    reference = stats.Reference(reached, exam.identity, PLANNER)
    return float(stats.oracle_normalised(success, exam.identity, reference))


def _interval(success: np.ndarray, *names: str) -> stats.Interval:
    """Of `success[S, R, E]`: over seeds if there are several, else over rules and tapes."""
    if len(success) > 1:
        return over_seeds(success.mean(axis=2))
    return stats.rule_tape_bootstrap(success[0], seeding.generator(0, "score", *names))


def _drop(runs: Sequence[Episodes], exam: Exam, ceilings: np.ndarray) -> dict[str, Any]:
    """The ID-OOD difference in success, its interval, and the part the rules themselves make."""
    inside, outside = exam.rows("id"), exam.rows("ood")
    if not len(inside) or not len(outside):
        return {"drop": None, "drop_interval": None, "drop_composition": None, "drop_rest": None}
    success = np.array([run.success for run in runs], float)
    if len(runs) > 1:
        seeds = success.mean(axis=2)
        drop = over_seeds(seeds[:, inside].mean(axis=1) - seeds[:, outside].mean(axis=1))
    else:
        rng = seeding.generator(0, "score", "drop")
        drop = stats.drop_bootstrap(success[0, inside], success[0, outside], rng)
    document: dict[str, Any] = {"drop": drop.mean, "drop_interval": [drop.low, drop.high]}
    if np.isnan(ceilings).any():
        return document | {"drop_composition": None, "drop_rest": None}
    seen, held_out = (
        stats.Side(success[:, rows].mean(axis=2), ceilings[rows], exam.types[rows])
        for rows in (inside, outside)
    )
    parts = stats.decompose_drop(seen, held_out, resampling())
    return document | {"drop_composition": parts.composition.mean, "drop_rest": parts.rest.mean}


def _by_stratum(
    runs: Sequence[Episodes],
    exam: Exam,
    ceilings: np.ndarray,
    baselines: Mapping[str, Baseline],
) -> dict[str, dict[str, Any]]:
    """Success by stratum and side, next to that of baselines and to what bounds it."""
    success = np.array([run.success for run in runs], float)
    scores = by_stratum.success_by_stratum(
        success, exam, lambda part, group: _interval(part, group.stratum, group.side)
    )
    bound = bounds.bounds_by_stratum(exam)
    figures = {name: baseline["success"] for name, baseline in baselines.items()}
    figures |= {"memoryless": bound.memoryless, "blind_ceiling": bound.blind_ceiling}
    return by_stratum.as_dict(scores, exam, figures | {"ceiling": ceilings})


def _by_type(
    runs: Sequence[Episodes], exam: Exam, ceilings: np.ndarray
) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for kind in exam.universe.type_names:
        for subset in SUBSETS:
            rows = np.flatnonzero((exam.types == kind) & (exam.subsets == subset))
            if not len(rows):
                continue
            success = np.array([run.success[rows] for run in runs], float)
            interval = _interval(success, kind, subset)
            table.setdefault(kind, {})[subset] = {
                "success": float(success.mean()),
                "interval": [interval.low, interval.high],
                "return": float(np.mean([run.returns[rows].mean() for run in runs])),
                "ceiling": _mean(ceilings[rows]),
                "rules": len(rows),
                "episodes": int(success.size),
            }
    return table


def _by_trial(runs: Sequence[Episodes], exam: Exam) -> list[dict[str, float]]:
    success = np.array([run.by_trial(run.success) for run in runs], float)
    return [
        {
            subset: float(success[:, trial, exam.rows(subset)].mean())
            for subset in SUBSETS
            if len(exam.rows(subset))
        }
        for trial in range(exam.trials)
    ]


def _mean(values: np.ndarray) -> float | None:
    mean = float(values.mean())
    return None if np.isnan(mean) else mean


_SUMMARISED = {
    name: METRICS[name] for name in ("success", "final_distance", "auc_distance", "return")
}


def run_seeds(
    policy: Policy,
    task: Task,
    episodes: int,
    seeds: int,
    progress: Callable[[int], Any] = lambda seed: None,
) -> list[Episodes]:
    """The exam once per seed of the policy's own draws."""
    runs = []
    for seed in range(seeds):
        runs.append(rollout(policy, task, episodes=episodes, seed=seed))
        progress(seed)
    return runs


def summarise_rules(runs: Sequence[Episodes], members: Sequence[int]) -> dict[str, Any]:
    """Every metric over the rules in `members`, with two intervals.

    `seeds` is about the policy's own draws alone; `rules_tapes` is about which rules and start
    tapes were asked, and is the one to read for a claim about rules in general.
    """
    rows = np.flatnonzero(np.isin(runs[0].rules, members))
    summary: dict[str, Any] = {"rules": len(rows), "episodes": int(runs[0].success[rows].size)}
    for name, metric in _SUMMARISED.items():
        scores = np.array([metric(run)[rows] for run in runs])
        rng = seeding.generator(0, "oracle", name)
        summary[name] = {
            "mean": float(scores.mean()),
            "seeds": _ends(over_seeds(scores)),
            "rules_tapes": _ends(stats.rule_tape_bootstrap(scores.mean(axis=0), rng)),
        }
    return summary


def by_type(runs: Sequence[Episodes]) -> dict[str, dict[str, Any]]:
    """Success, mean return and number of episodes per type of rule, and over all."""
    universe = runs[0].task.universe
    kinds = np.array([universe.types[rule] for rule in runs[0].rules.tolist()])
    table = {}
    for kind in (*universe.type_names, "all"):
        rows = np.flatnonzero((kinds == kind) | (kind == "all"))
        if len(rows):
            table[kind] = {
                "success": float(np.mean([run.success[rows].mean() for run in runs])),
                "mean_return": float(np.mean([run.returns[rows].mean() for run in runs])),
                "episodes": int(sum(run.success[rows].size for run in runs)),
            }
    return table


def _ends(interval: stats.Interval) -> list[float]:
    return [interval.low, interval.high]
