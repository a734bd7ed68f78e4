"""A worker of `throughput.py`: sets contestants up, and measures one whenever it is told to.

It reads lines `go NAME LENGTH NUM` and answers each with one line of JSON; at the end of its
input it ends. It runs in our interpreter and, for the peers, in theirs: hence this file imports
neither `tapebench` nor a peer before the contestant that needs it is called.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class UnavailableError(Exception):
    """This machine cannot run the contestant; the message says why."""


class Prepared(NamedTuple):
    """A contestant ready to be timed."""

    run: Callable[[], Any]
    """Advances every environment by `steps`, and returns when that is done."""
    steps: int
    compile_seconds: float | None = None
    """What tracing and compiling took, for contestants that are compiled."""


def steps_for(num: int) -> int:
    """Steps in one call: about a million over all environments, and whole episodes if possible.

    Environments that start together also end together, so a call shorter than an episode could
    miss all resets and look too fast. Only the compiled ones, which pay for a reset in every step,
    are asked for batches so large that memory forbids more than 16 steps.
    """
    return min(4096, max(2**20 // num, 64 if num <= 2**16 else 16))


def random_actions(num_actions: int, num: int, steps: int) -> np.ndarray:
    """The actions of a whole call, `[steps, num]`, drawn beforehand for every contestant alike."""
    return np.random.default_rng(0).integers(num_actions, size=(steps, num))


# Raw dynamics: a rule per tape, flip and update, nothing else.


def dynamics_problem(length: int, num: int) -> tuple[np.ndarray, tuple[Any, ...], np.ndarray]:
    """Start tapes `[num, W]`, the laws of their rules, and the cells to flip `[steps, num]`."""
    from tapebench.physics import space
    from tapebench.physics.families import elementary

    rng = np.random.default_rng(0)
    tape = rng.integers(2**32, size=(num, space.num_words(length)), dtype=np.uint32)
    rule = rng.integers(elementary.NUM_RULES, size=num)
    cells = random_actions(length, num, steps_for(num)).astype(np.uint32)
    return tape & space.full(length), elementary.law(rule), cells


def dynamics_numpy(length: int, num: int) -> Prepared:
    from tapebench.physics import space
    from tapebench.physics.families import elementary

    start, law, cells = dynamics_problem(length, num)

    def run() -> np.ndarray:
        tape = start
        for cell in cells:
            tape = elementary.evolve_by(space.flip(tape, cell), law, length)
        return tape

    return Prepared(run, len(cells))


def dynamics_jax(length: int, num: int) -> Prepared:
    import jax

    from tapebench.physics import space
    from tapebench.physics.families import elementary

    def scan(tape: Any, law: Any, cells: Any) -> Any:
        def body(tape: Any, cell: Any) -> tuple[Any, None]:
            return elementary.evolve_by(space.flip(tape, cell), law, length), None

        return space.join(jax.lax.scan(body, space.split(tape), cells)[0])

    problem = jax.device_put(dynamics_problem(length, num))
    compiled, seconds = compile_jax(scan, *problem)
    run = functools.partial(call_jax, compiled, *problem)
    return Prepared(check_dynamics(run, length, num), problem[2].shape[0], seconds)


def dynamics_c(length: int, num: int) -> Prepared:
    if length != 32 or num % 8:
        raise ValueError("the C loop is written for tapes of 32 cells, eight at a time")
    library = build_c()
    start, law, cells = dynamics_problem(length, num)
    masks = np.ascontiguousarray(np.stack(law).reshape(8, num // 8, 8).swapaxes(0, 1))

    def run() -> np.ndarray:
        tape = start.copy()
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (tape, masks, cells)]
        library.run(*pointers, ctypes.c_size_t(num), ctypes.c_size_t(len(cells)))
        return tape

    return Prepared(check_dynamics(run, length, num), len(cells))


def build_c() -> ctypes.CDLL:
    """`dynamics.c`, compiled on the spot."""
    if not hasattr(os, "sched_setaffinity"):
        raise UnavailableError("this system does not bind a process to one core")
    source = Path(__file__).with_name("dynamics.c")
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "dynamics.so"
        command = ["cc", "-O3", "-mavx2", "-shared", "-fPIC", "-o", str(target), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise UnavailableError("there is no C compiler `cc` on this machine") from None
        except subprocess.CalledProcessError:
            raise UnavailableError("`cc -O3 -mavx2` does not compile dynamics.c here") from None
        library = ctypes.CDLL(str(target))
    if not library.has_avx2():
        raise UnavailableError("the processor has no AVX2")
    return library


def check_dynamics(run: Callable[[], Any], length: int, num: int) -> Callable[[], Any]:
    """Return `run` if it ends in the tapes that NumPy ends in, to the bit."""
    if not np.array_equal(np.asarray(run()), dynamics_numpy(length, num).run()):
        raise AssertionError(f"not the dynamics of NumPy at length {length}, {num} tapes")
    return run


# JAX environments: one scan over the steps in one compiled program.


def compile_jax(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """The function compiled for these arguments, and how many seconds that took."""
    import jax

    start = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled, time.perf_counter() - start


def call_jax(compiled: Callable[..., Any], *arguments: Any) -> Any:
    import jax

    return jax.block_until_ready(compiled(*arguments))


def scan_env(reset: Any, step: Any, num_actions: int, num: int, steps: int) -> Prepared:
    """Time `steps` steps of a batched environment, the same way for ours and for the peers.

    State and observation are carried, so both must exist after every step; reward and the two
    kinds of ending are collected. Parameters are closed over and each environment gets a fresh
    key per step, as users of gymnax write it.
    """
    import jax

    def scan(key: Any, state: Any, obs: Any, actions: Any) -> Any:
        def body(carry: Any, inputs: Any) -> Any:
            key, action = inputs
            obs, state, *outcome = step(jax.random.split(key, num), carry[0], action)
            return (state, obs), outcome[:3]

        return jax.lax.scan(body, (state, obs), (jax.random.split(key, steps), actions))

    obs, state = jax.jit(reset)(jax.random.split(jax.random.key(0), num))
    actions = jax.device_put(random_actions(num_actions, num, steps).astype(np.int32))
    arguments = (jax.random.key(1), state, obs, actions)
    compiled, seconds = compile_jax(scan, *arguments)
    return Prepared(functools.partial(call_jax, compiled, *arguments), steps, seconds)


def scan_gymnax(env: Any, params: Any, num: int) -> Prepared:
    """`scan_env` for what has the interface of gymnax 1.0: gymnax itself, and our environment."""
    import jax

    reset = jax.vmap(lambda key: env.reset(key, params))
    step = jax.vmap(lambda key, state, action: env.step(key, state, action, params))
    return scan_env(reset, step, int(env.num_actions), num, steps_for(num))


def tape_jax(length: int, num: int, *, packed: bool, family: str = "elementary") -> Prepared:
    from tapebench import env

    tape_env, params = env.make(packed=packed, **family_options(family, length))
    return scan_gymnax(tape_env, params, num)


def family_options(family: str, length: int) -> dict[str, Any]:
    """A ring, or a square torus for life, and 256 rules: all there are, or as many at random."""
    if family == "elementary":
        return {"length": length, "rules": "all"}
    from tapebench.physics import families

    rules = np.random.default_rng(0).choice(families.get(family).num_rules, 256, replace=False)
    side = round(length**0.5)
    size = {"shape": (side, side)} if family == "life" else {"length": length}
    return {"family": family, "rules": rules, **size}


def gymnax_cartpole(_: int, num: int) -> Prepared:
    env, params = import_module("gymnax").make("CartPole-v1")
    return scan_gymnax(env, params, num)


def xland_empty(_: int, num: int) -> Prepared:
    """XLand-MiniGrid with its own wrapper for resets. Its timestep is state and observation."""
    import jax

    env, params = import_module("xminigrid").make("MiniGrid-Empty-8x8")
    env = import_module("xminigrid.wrappers").GymAutoResetWrapper(env)

    def reset(keys: Any) -> Any:
        return (), jax.vmap(env.reset, in_axes=(None, 0))(params, keys)

    def step(_: Any, timestep: Any, actions: Any) -> Any:
        timestep = jax.vmap(env.step, in_axes=(None, 0, 0))(params, timestep, actions)
        terminated = timestep.last() & (timestep.discount == 0)
        return (), timestep, timestep.reward, terminated, timestep.last() & ~terminated

    return scan_env(reset, step, env.num_actions(params), num, steps=32)


# Gymnasium: Python loops around `step`. Only a tape has a length; for others it is 0.


def vector_env(
    length: int,
    num: int,
    *,
    name: str,
    mode: str = "vector_entry_point",
    steps: int | None = None,
    family: str | None = None,
) -> Prepared:
    """`gymnasium.make_vec` as it comes; both environments reset in the step after an end."""
    import gymnasium

    import_module("tapebench")
    size: dict[str, Any] = {"length": length} if length else {}
    if family is not None:
        size = family_options(family, length)
    env: Any = gymnasium.make_vec(name, num_envs=num, vectorization_mode=mode, **size)
    env.reset(seed=0)
    actions = random_actions(int(env.single_action_space.n), num, steps or steps_for(num))

    def run() -> None:
        for action in actions:
            env.step(action)

    return Prepared(run, len(actions))


def single_env(_: int, num: int, *, name: str) -> Prepared:
    """`gymnasium.make` as it comes, with a reset whenever an episode ends."""
    import gymnasium

    import_module("tapebench")
    env: Any = gymnasium.make(name)
    env.reset(seed=0)
    actions = list(random_actions(int(env.action_space.n), num, steps_for(num))[:, 0])

    def run() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return Prepared(run, len(actions))


CONTESTANTS: dict[str, Callable[[int, int], Prepared]] = {
    "dynamics-c": dynamics_c,
    "dynamics-jax": dynamics_jax,
    "dynamics-numpy": dynamics_numpy,
    "tape-jax-float": functools.partial(tape_jax, packed=False),
    "tape-jax-packed": functools.partial(tape_jax, packed=True),
    "gymnax-cartpole": gymnax_cartpole,
    "xland-empty": xland_empty,
    "tape-vector": functools.partial(vector_env, name="Tape-v1"),
    "ring2-jax": functools.partial(tape_jax, packed=False, family="ring2"),
    "ring2-vector": functools.partial(vector_env, name="Tape-v1", family="ring2"),
    "life-jax": functools.partial(tape_jax, packed=False, family="life"),
    "life-vector": functools.partial(vector_env, name="Tape-v1", family="life"),
    "cartpole-vector": functools.partial(vector_env, name="CartPole-v1"),
    "cartpole-sync": functools.partial(vector_env, name="CartPole-v1", mode="sync", steps=64),
    "tape-single": functools.partial(single_env, name="Tape-v1"),
    "cartpole-single": functools.partial(single_env, name="CartPole-v1"),
}


@functools.cache
def prepare(name: str, length: int, num: int) -> Prepared:
    return CONTESTANTS[name](length, num)


def measure(name: str, length: int, num: int, seconds: float) -> dict[str, Any]:
    """The best rate of the calls that fit into `seconds` (at least one), in steps per second."""
    try:
        prepared = prepare(name, length, num)
    except UnavailableError as error:
        return {"unavailable": str(error)}
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        prepared.run()
        best = min(best, time.perf_counter() - start)
    return {
        "rate": num * prepared.steps / best,
        "steps_per_call": prepared.steps,
        "compile_seconds": prepared.compile_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="time for one measurement")
    parser.add_argument("--pin", action="store_true", help="use one core only")
    options = parser.parse_args()
    if options.pin and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        _, name, length, num = line.split()
        print(json.dumps(measure(name, int(length), int(num), options.seconds)), file=answers)


if __name__ == "__main__":
    main()
