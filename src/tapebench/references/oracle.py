"""What a planner that knows the rule reaches, measured as every agent is: `tape oracle`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.physics import features
from tapebench.policy import Policy
from tapebench.references.mpc import OBJECTIVES, mpc
from tapebench.rollout import Episodes, rollout
from tapebench.tasks import splits
from tapebench.tasks.task import Task

SWEEP_PLANS = (1, 2, 4, 8, 16)
SWEEP_CANDIDATES = (32, 128, 512, 2048)

METRICS: dict[str, Callable[[Episodes], np.ndarray]] = {
    "success": lambda episodes: episodes.success.astype(float),
    "final_distance": lambda episodes: episodes.final_distance,
    "auc_distance": lambda episodes: episodes.auc_distance,
    "return": lambda episodes: episodes.returns,
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


def summarise(runs: Sequence[Episodes], members: Sequence[int]) -> dict[str, Any]:
    """Every metric over the rules in `members`, with two intervals.

    `seeds` is about the policy's own draws alone; `rules_tapes` is about which rules and start
    tapes were asked, and is the one to read for a claim about rules in general.
    """
    rows = np.flatnonzero(np.isin(runs[0].rules, members))
    summary: dict[str, Any] = {"rules": len(rows), "episodes": int(runs[0].success[rows].size)}
    for name, metric in METRICS.items():
        scores = np.array([metric(run)[rows] for run in runs])
        rng = seeding.generator(0, "oracle", name)
        summary[name] = {
            "mean": float(scores.mean()),
            "seeds": _ends(stats.t_interval(scores.mean(axis=(1, 2)))),
            "rules_tapes": _ends(stats.rule_tape_bootstrap(scores.mean(axis=0), rng)),
        }
    return summary


def sides(split: splits.Split, side: str) -> dict[str, tuple[int, ...]]:
    """The rule sets to report: of `id`, `ood`, or `all` (which reports the three)."""
    known = {"id": split.train, "ood": split.test, "all": tuple(range(256))}
    if side not in known:
        raise ValueError(f"unknown side {side!r}: use id, ood or all")
    return known if side == "all" else {side: known[side]}


def by_type(runs: Sequence[Episodes]) -> dict[str, dict[str, Any]]:
    """Success, mean return and number of episodes per operational type, and over all."""
    table = features.table()
    kinds = np.array([table[rule].type for rule in runs[0].rules])
    found = {}
    for kind in (*features.TYPES, "all"):
        rows = np.flatnonzero((kinds == kind) | (kind == "all"))
        if len(rows):
            found[kind] = {
                "success": float(np.mean([run.success[rows].mean() for run in runs])),
                "mean_return": float(np.mean([run.returns[rows].mean() for run in runs])),
                "episodes": int(sum(run.success[rows].size for run in runs)),
            }
    return found


def sweep(task: Task, episodes: int) -> Iterator[dict[str, Any]]:
    """Success over planning horizon × candidates × objective: how much hangs on the budget."""
    for objective, plan, candidates in product(OBJECTIVES, SWEEP_PLANS, SWEEP_CANDIDATES):
        run = rollout(mpc(task, objective, plan, candidates), task, episodes=episodes)
        yield {
            "objective": objective,
            "plan": plan,
            "candidates": candidates,
            "success": float(run.success.mean()),
            "final_distance": float(run.final_distance.mean()),
        }


def _ends(interval: stats.Interval) -> list[float]:
    return [interval.low, interval.high]
