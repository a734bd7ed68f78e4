"""Experiments by name: groups of runs, and what they show. `tape reproduce` makes them."""

from __future__ import annotations

from importlib import import_module

from tapebench.experiments.api import Experiment

MODULES = (
    "main",
    "planning",
    "filters",
    "ablations",
    "unseen",
    "contexts",
    "probes",
    "world_models",
    "paper_comparison",
)
"""Where experiments are defined, in the order in which they are listed."""


def every() -> dict[str, Experiment]:
    """All experiments by name."""
    parts = [import_module(f"tapebench.experiments.{name}").EXPERIMENTS for name in MODULES]
    return {experiment.name: experiment for part in parts for experiment in part}
