"""A track that is over in seconds, and what sweeps of it are compared by."""

import numpy as np

from tapebench.base import files
from tapebench.runs import store, tracks
from tapebench.runs.executors import Local
from tapebench.runs.plan import make_plan, run_plan
from tapebench.runs.training import RunSpec

SMOKE = tracks.get_track("smoke")
TINY = tracks.Track(
    **{
        **{key: getattr(SMOKE, key) for key in SMOKE.__dataclass_fields__},
        "name": "tiny",
        "agents": ("dqn", "ppo"),
        "steps": 1_000,
        "last": 1,
        "rules": (0, 4, 30, 110, 204),
    }
)

SHORT_RUN = RunSpec(
    agent="dqn",
    seed=3,
    options={"network": "mlp", "width": 16, "chunk": 200, "warmup": 200}
    | {"replay_size": 2000, "batch": 16},
    length=8,
    horizon=8,
    steps=1600,
    evaluate_every=400,
    episodes=2,
    last=2,
    rules=(0, 4, 30, 110, 204),
)
"""A run that is over in seconds, and long enough to be stopped on the way."""


def ignore(*anything):
    pass


def train_tiny(root):
    """The tiny track with three seeds, done."""
    plan = make_plan(TINY, root, seeds=range(3))
    assert run_plan(plan, root, Local(1), report=ignore, change=ignore) == []
    return root


def same_results(a, b):
    for name in ("eval", "curve", "train"):
        ours, theirs = (
            files.read_table(a / f"{name}.parquet"),
            files.read_table(b / f"{name}.parquet"),
        )
        assert list(ours) == list(theirs)
        for column in ours:
            np.testing.assert_array_equal(ours[column], theirs[column], err_msg=f"{name}.{column}")
    ours, theirs = store.load_checkpoint(a), store.load_checkpoint(b)
    assert ours[0] == theirs[0]
    for name, array in ours[1].items():
        np.testing.assert_array_equal(array, theirs[1][name], err_msg=name)
