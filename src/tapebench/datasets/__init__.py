"""Offline data under training rules, with exact labels: `load` opens a dataset that was made.

data = datasets.load("runs/data/tape/core-folds-0/optimal-v0")
data.observations(rows), data.action[rows], data.optimal(rows)
"""

from tapebench.datasets.read import Dataset, load, make_in_memory
from tapebench.datasets.spec import Spec

__all__ = ["Dataset", "Spec", "load", "make_in_memory"]
