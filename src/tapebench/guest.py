"""Agents from outside, `package.module:factory`, as policies; in this process or in their own.

The factory takes no arguments and returns an object with

    reset(num_envs)          forget everything; so many episodes begin
    act(obs) -> actions      observations float32 [num_envs, size] -> integer cells [num_envs]
    belief() -> [num_envs, 256]    optional: the posterior over rules, to be measured

and keeps its memory to itself. It is given the task by nothing but its observations: they show
the length, and with t/H the horizon. When an observation's t/H is back at 0 that episode began
anew, with the same rule. An agent never sees which rule holds.

`in_process` calls the object directly. `in_subprocess` runs it in a process of its own and gives
each call a deadline, so that a crash or a hang ends in a message. The two sides exchange JSON
headers and raw arrays, never pickles.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, Any

import numpy as np

from tapebench import dynamics
from tapebench.policy import Policy, blind

DEADLINE = 60.0
"""Seconds for one call of an agent, by default; starting it may take five times as long."""

_MAX_HEADER = 1 << 16


class AgentError(ValueError):
    """The agent did something it must not, or nothing in time; the message says what."""


def load_factory(spec: str) -> Callable[[], Any]:
    """The factory that `package.module:name` stands for, from the current directory or the path."""
    module_name, colon, name = spec.partition(":")
    if not colon or not module_name or not name:
        raise AgentError(f"{spec!r} names no factory: write package.module:factory")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _conduct(f"importing {module_name}"):
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            where = "from the current directory or PYTHONPATH"
            raise AgentError(f"there is no module {module_name} to import {where}") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise AgentError(f"{module_name} has no factory {name!r} that can be called")
    return found


@contextmanager
def _conduct(what: str) -> Iterator[None]:
    """Whatever an agent's code raises is an `AgentError`; what it prints goes to standard error."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except AgentError:
        raise
    except Exception as error:
        raise AgentError(f"{what} failed: {_describe(error)}") from error


def make_agent(spec: str) -> Any:
    """Call the factory and look at what it gives."""
    with _conduct(f"{spec}()"):
        agent = load_factory(spec)()
    for method in ("reset", "act"):
        if not callable(getattr(agent, method, None)):
            kind = type(agent).__name__
            raise AgentError(f"{spec}() gave a {kind} without a method {method}()")
    return agent


def in_process(agent: Any, name: str, length: int) -> Policy:
    """An object with `reset` and `act` as a policy for tapes of `length`. It sees no rule."""

    def init(rule: None, num: int) -> Any:
        with _conduct(f"{name}: reset({num})"):
            agent.reset(num)
        return agent

    def act(memory: Any, obs: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        # A copy, contiguous: what an agent does to its observations stays its own.
        shown = np.array(obs, np.float32, order="C")
        with _conduct(f"{name}: act()"):
            actions = memory.act(shown)
        return memory, check_actions(actions, len(obs), length, name)

    def belief(memory: Any) -> np.ndarray:
        with _conduct(f"{name}: belief()"):
            found = memory.belief()
        return check_belief(found, name)

    has_belief = callable(getattr(agent, "belief", None))
    return blind(Policy(name, init, act, backend="numpy", belief=belief if has_belief else None))


def check_actions(actions: Any, num: int, length: int, name: str) -> np.ndarray:
    """Actions as integer cells, one for each of `num` observations."""
    array = np.asarray(actions)
    if array.shape != (num,):
        raise AgentError(f"{name}: act() gave shape {array.shape} for {num} observations")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise AgentError(f"{name}: act() gave {array[~np.isfinite(array)][0]} for an action")
    if array.dtype.kind not in "iu":
        raise AgentError(f"{name}: act() gave {array.dtype}: actions are integer cells")
    outside = (array < 0) | (array >= length)
    if outside.any():
        raise AgentError(
            f"{name}: act() chose cell {array[outside][0]}: cells are 0 to {length - 1}"
        )
    return array.astype(np.int64)


def check_belief(belief: Any, name: str) -> np.ndarray:
    """A belief as float32 `[B, 256]`; refused if it is not one."""
    array = np.asarray(belief, np.float32)
    if array.ndim != 2 or array.shape[1] != dynamics.NUM_RULES:
        raise AgentError(f"{name}: belief() gave shape {array.shape}, not [num_envs, 256]")
    if not np.isfinite(array).all() or (array < 0).any() or (abs(array.sum(1) - 1) > 1e-3).any():
        raise AgentError(f"{name}: belief() gave rows that are not probabilities")
    return array


@contextmanager
def in_subprocess(
    spec: str, name: str, length: int, deadline: float = DEADLINE
) -> Iterator[Policy]:
    """A policy whose agent lives in a process of its own, ended on leaving."""
    child = _Child(spec, name, deadline)
    try:
        yield in_process(child.start(), name, length)
    finally:
        child.end()


class _Child:
    """The other process, seen from this one."""

    def __init__(self, spec: str, name: str, deadline: float) -> None:
        if not deadline > 0:
            raise ValueError(f"the deadline must be above 0 seconds, not {deadline}")
        self._name, self._deadline = name, deadline
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tapebench.guest", spec],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.set_blocking(self._pipe("stdout").fileno(), False)

    def start(self) -> Any:
        """Wait until the agent is there; what stands for it here."""
        methods = self._receive("start", 5 * self._deadline)[0]["methods"]
        return _WithBelief(self) if "belief" in methods else _Plain(self)

    def call(self, method: str, array: np.ndarray | None = None, **given: Any) -> Any:
        """Call a method over there; what it gives, or an `AgentError`."""
        try:
            _send(self._pipe("stdin"), {"method": method, **given}, array)
        except BrokenPipeError:
            raise self._gone(method) from None
        return self._receive(method, self._deadline)[1]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] | None = getattr(self._process, name)
        assert pipe is not None
        return pipe

    def _receive(self, method: str, seconds: float) -> tuple[dict[str, Any], np.ndarray | None]:
        pipe, until = self._pipe("stdout"), time.monotonic() + seconds

        def read(size: int) -> bytes:
            data = b""
            with selectors.DefaultSelector() as selector:
                selector.register(pipe, selectors.EVENT_READ)
                while len(data) < size:
                    left = until - time.monotonic()
                    if left <= 0 or not selector.select(left):
                        raise AgentError(
                            f"{self._name}: {method}() took longer than {seconds:g} seconds"
                        )
                    part = os.read(pipe.fileno(), size - len(data))
                    if not part:
                        raise self._gone(method)
                    data += part
            return data

        header, array = _parse(read, self._name)
        if "error" in header:
            raise AgentError(str(header["error"]))
        return header, array

    def _gone(self, method: str) -> AgentError:
        try:
            code: int | None = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        how = (
            f"was ended by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        )
        return AgentError(f"{self._name}: its process {how} during {method}()")


class _Plain:
    """What `in_process` takes for the agent itself."""

    def __init__(self, child: _Child) -> None:
        self._child = child

    def reset(self, num_envs: int) -> None:
        self._child.call("reset", num=num_envs)

    def act(self, obs: np.ndarray) -> Any:
        return self._child.call("act", obs)


class _WithBelief(_Plain):
    def belief(self) -> Any:
        return self._child.call("belief")


def _send(pipe: IO[bytes], header: dict[str, Any], array: np.ndarray | None = None) -> None:
    """One message: the header's length, the header, the array it describes."""
    if array is not None:
        array = np.ascontiguousarray(array)
        header = {**header, "dtype": array.dtype.str, "shape": array.shape}
    text = json.dumps(header).encode()
    pipe.write(len(text).to_bytes(4, "little") + text)
    if array is not None:
        pipe.write(array.tobytes())
    pipe.flush()


def _parse(read: Callable[[int], bytes], name: str) -> tuple[dict[str, Any], np.ndarray | None]:
    """The other end of `_send`. The agent shares a process with its end: trust nothing."""
    size = int.from_bytes(read(4), "little")
    if size > _MAX_HEADER:
        raise AgentError(f"{name}: its process sent something that is no message")
    try:
        header = json.loads(read(size))
        if "shape" not in header:
            return dict(header), None
        dtype, shape = np.dtype(header["dtype"]), tuple(map(int, header["shape"]))
        if dtype.kind not in "biuf" or len(shape) > 3 or min(shape, default=0) < 0:
            raise ValueError
        bytes_wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if bytes_wanted > 1 << 30:
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise AgentError(f"{name}: its process sent something that is no message") from None
    # A copy, since what lies in the bytes that were read could not be written to.
    return header, np.frombuffer(read(bytes_wanted), dtype).reshape(shape).copy()


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def serve(spec: str) -> None:
    """The other process: build the agent, then answer calls until the pipe closes."""
    # What the agent prints must not get between the messages: it goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = sys.stdin.buffer

    def read(size: int) -> bytes:
        data = calls.read(size)
        if len(data) < size:
            raise EOFError
        return data

    try:
        agent = make_agent(spec)
        methods = [name for name in ("reset", "act", "belief") if hasattr(agent, name)]
        _send(answers, {"methods": methods})
        while True:
            header, array = _parse(read, "the evaluator")
            method = header["method"]
            given = {"reset": (header.get("num"),), "act": (array,), "belief": ()}[method]
            with _conduct(f"{spec}: {method}()"):
                found = getattr(agent, method)(*given)
            _send(answers, {}, None if method == "reset" else _as_array(found, spec, method))
    except EOFError:
        return
    except AgentError as error:
        _send(answers, {"error": str(error)})
        raise SystemExit(1) from None


def _as_array(found: Any, spec: str, method: str) -> np.ndarray:
    array = np.asarray(found)
    if array.dtype.kind not in "biuf" or array.ndim > 3:
        raise AgentError(f"{spec}: {method}() gave {type(found).__name__}, not an array of numbers")
    return array


if __name__ == "__main__":
    # By its full name, so that an AgentError raised there is the one caught here.
    from tapebench import guest

    guest.serve(sys.argv[1])
