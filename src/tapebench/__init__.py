"""TAPE: does an agent generalise to laws it has never seen, and if not, why?

`import tapebench` registers `Tape-v0` with Gymnasium and imports no JAX.
"""

from gymnasium.envs.registration import register

__version__ = "0.1.0"

register(
    id="Tape-v0",
    entry_point="tapebench.gym:TapeEnv",
    vector_entry_point="tapebench.gym:TapeVectorEnv",
)
