"""TAPE: does an agent generalise to laws it has never seen, and if not, why?

`import tapebench` registers `Tape-v0` with Gymnasium and imports no JAX.
"""

from gymnasium.envs.registration import register

from tapebench.splits import Split, load
from tapebench.task import Task, make_task

__version__ = "0.1.0"
__all__ = ["Split", "Task", "load_split", "make_task"]

load_split = load

register(
    id="Tape-v0",
    entry_point="tapebench.gym:TapeEnv",
    vector_entry_point="tapebench.gym:TapeVectorEnv",
)
