"""Settings of one agent that differ in what they are given about the law, on one exam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents, stats
from tapebench.base import files
from tapebench.exam.evaluate import Outcome
from tapebench.exam.exam import SUBSETS
from tapebench.runs.results import load_results

OPTION = "context"
"""The option of an agent that says what it is given, one of `stats.CONTEXTS`."""


def context_of(path: Path) -> tuple[str, dict[str, Any]]:
    """What the runs in a directory were given, and all else that describes them.

    Seeds do not count, nor the experiment that they were made for.
    """
    here = (path / "spec.json").is_file()
    paths: Sequence[Path] = [path] if here else load_results(path).paths
    if not paths:
        raise ValueError(f"there are no finished runs in {path}")
    spec = files.read_object(paths[0] / "spec.json")
    config = spec.get("config")
    if isinstance(config, dict) and isinstance(spec.get("agent"), str):
        config = agents.read_config(spec["agent"], config)
    if not isinstance(config, dict) or config.get(OPTION) not in stats.CONTEXTS:
        raise ValueError(
            f"{path} does not say what its agent was given: of several results each must be of an "
            f"agent with the option {OPTION}, {', '.join(stats.CONTEXTS)}"
        )
    rest = {name: value for name, value in config.items() if name != OPTION}
    return str(config[OPTION]), {"agent": spec.get("agent"), "config": rest}


def sort_by_context(paths: Sequence[Path]) -> dict[str, Path]:
    """Directories of runs by context, if they are of one agent that differs in nothing else."""
    by_context: dict[str, Path] = {}
    described = []
    for path in paths:
        context, rest = context_of(path)
        if context in by_context:
            raise ValueError(f"{by_context[context]} and {path} were both given {context}")
        by_context[context] = path
        described.append(rest)
    if any(rest != described[0] for rest in described):
        raise ValueError(f"these agents differ in more than {OPTION}: name settings of one agent")
    return {name: by_context[name] for name in stats.CONTEXTS if name in by_context}


def gaps(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Success by context and what lies between, by side of the split."""
    first = next(iter(outcomes.values()))
    exam = first.exam
    ceiling = first.ceilings
    success = {
        name: np.mean([run.success.mean(axis=1) for run in outcome.runs], axis=0)
        for name, outcome in outcomes.items()
    }
    document: dict[str, Any] = {"policy": first.policy, "split": exam.split}
    for side in SUBSETS:
        rows = exam.rows(side)
        if not len(rows):
            continue
        by_context = {name: values[rows] for name, values in success.items()}
        document[side] = {
            "rules": len(rows),
            "ceiling": float(ceiling[rows].mean()),
            **{name: float(values.mean()) for name, values in by_context.items()},
            "gaps": {
                name: {"mean": gap.mean, "interval": [gap.low, gap.high]}
                for name, gap in stats.context_gaps(ceiling[rows], by_context).items()
            },
        }
    return document
