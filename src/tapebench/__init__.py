"""TAPE: does an agent generalise to laws it has never seen, and if not, why?

`import tapebench` registers `Tape-v0` and `Tape-v1` with Gymnasium and imports no JAX.
`tapebench.evaluate` has an agent sit the exam, `tapebench.load` opens stored results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from tapebench.exam.evaluate import Outcome
    from tapebench.runs.results import Results

__version__ = "0.1.0"

register(
    id="Tape-v0",
    entry_point="tapebench.gym:TapeEnv",
    vector_entry_point="tapebench.gym:TapeVectorEnv",
)
register(
    id="Tape-v1",
    entry_point="tapebench.gym:TapeEnv",
    vector_entry_point="tapebench.gym:TapeVectorEnv",
    kwargs={"version": 1},
)


def evaluate(agent: Any, **options: Any) -> Outcome:
    """Have a policy, an agent object or a named one sit an exam: see `runs.evaluation.evaluate`."""
    from tapebench.runs import evaluation

    return evaluation.evaluate(agent, **options)


def load(root: str | Path) -> Results:
    """The finished runs under a results directory: see `runs.results.load_results`."""
    from tapebench.runs.results import load_results

    return load_results(root)
