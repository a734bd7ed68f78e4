"""TAPE: does an agent generalise to laws it has never seen, and if not, why?

`import tapebench` registers `Tape-v0` and `Tape-v1` with Gymnasium and imports neither JAX nor
Matplotlib.

    env = gymnasium.make("Tape-v1")                              # the world, see tapebench.gym
    outcome = tapebench.evaluate(agent, track="core")            # an agent sits the exam
    outcome.score["by_stratum"]["beyond-reflex"]["ood"]          # success on unseen rules
    outcome.write_bundle(path)                                   # every action, to be replayed
    tapebench.load("runs").to_pandas()                           # stored runs, a row each
    tapebench.published("full")["full-fps30-strata"].to_pandas() # a table of published results
    tapebench.plot("mine.tape", out="figure.pdf")                # beside the published agents

`tapebench.env` is the environment for JAX, `tapebench.sb3` that for Stable-Baselines3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tapebench.exam.evaluate import Outcome
    from tapebench.report.tables import Table
    from tapebench.runs.results import Results

__all__ = ["evaluate", "load", "plot", "published"]

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


def evaluate(agent: Any, exam: Any = None, **options: Any) -> Outcome:
    """Have an agent sit an exam.

    `agent` is an object with `reset(num_envs)` and `act(obs)`, a name like `"flip-ones"`,
    `"package.module:factory"`, `"file.py:factory(depth=3)"`, a directory of runs, or a
    `tapebench.exam.policy.Policy`. The exam is that of a `track` (`track="core"`, and for one of
    its folds `split="folds-2"`), or of the `options` of `tapebench.exam.exam.make_exam`. Further
    options are `name`, `seeds`, `subprocess`, `deadline` and `lesions`, see
    `tapebench.exam.evaluate.evaluate`.
    """
    from tapebench.runs import evaluation

    return evaluation.evaluate(agent, exam, **options)


def load(root: str | Path) -> Results:
    """The finished runs under a results directory; `to_pandas()` and `query(sql)` read them."""
    from tapebench.runs.results import load_results

    return load_results(root)


def published(*tracks: str) -> dict[str, Table]:
    """Every table of the results that come with the package, by name, like `full-fps30-strata`.

    Of all tracks on which agents are compared, or of those that are named. A table has
    `markdown()`, `latex()`, `csv()`, `to_pandas()` and `to_polars()`.
    """
    from tapebench.report import published_tables

    return published_tables(*tracks)


def plot(*bundles: str | Path, track: str = "full", out: str | Path | None = None) -> Figure:
    """Draw bundles beside the published agents of a track, for a paper; see `report.beside.plot`.

    `out` is an svg, pdf or png file to write too.
    """
    from tapebench.report import beside

    return beside.plot(*bundles, track=track, out=out)
