"""Agents from outside, `package.module:factory`, as policies; in this process or in their own.

A file will do for the module, `path/to/file.py:factory`, and arguments may follow that are Python
literals, `factory(depth=3)`; they are read, never evaluated. The factory returns an object with

    reset(num_envs)          forget everything; so many episodes begin
    act(obs) -> actions      observations float32 [num_envs, size] -> integer cells [num_envs]
    belief() -> [num_envs, 256]    optional: the posterior over all rules, to be measured

and keeps its memory to itself. It is given the task by nothing but its observations: they show
the length, and with t/H the horizon. When an observation's t/H is back at 0 that episode began
anew, with the same rule. Which rule that is shows in no observation, and neither in the number of
a call nor in the place of a row, see `tapebench.exam.seating`.

`in_process` calls the object directly; from there it could reach into the evaluator, which is why
such a result is called *not isolated*. `in_subprocess` runs it in a process of its own and gives
each call a deadline, so that a crash or a hang ends in a message. The two sides exchange JSON
headers and raw arrays, never pickles.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from tapebench.base.shapes import Float32, Int64
from tapebench.exam.policy import Policy, blind
from tapebench.tasks.task import Task

DEADLINE = 60.0
"""Seconds for one call of an agent, by default; starting it may take five times as long."""

_PR_SET_DUMPABLE = 4
_MAX_HEADER = 1 << 16
_MAX_ARRAY = 1 << 30
_MAX_DETAILS = 8000
"""Letters of a traceback that are kept, the last ones."""

_DTYPE = re.compile("[<>|=]?[biuf][1248]")
"""What arrays of an agent may be of."""

_PIPE, _READ = 1 << 16, 1 << 20
"""Bytes that are written and read at a time."""


class AgentError(ValueError):
    """The agent did something it must not, or nothing in time; the message says what."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details
        """The traceback of what the agent's code raised, for its author."""


_SPEC = re.compile(r"(?P<module>.+?):(?P<name>[A-Za-z_][\w.]*)\s*(?P<call>\(.*\))?", re.DOTALL)
_MAX_SPEC = 1000
"""Letters of what names a factory, with its arguments."""


def load_factory(spec: str) -> Callable[[], Any]:
    """The factory that `package.module:name` or `file.py:name` stands for, with its arguments."""
    match = _SPEC.fullmatch(spec) if len(spec) <= _MAX_SPEC else None
    if match is None:
        raise AgentError(
            f"{spec[:100]!r} names no factory: write package.module:factory, or "
            "file.py:factory(depth=3)"
        )
    module_name, name = match["module"], match["name"]
    args, kwargs = _read_arguments(match["call"] or "()", spec)
    is_file = module_name.endswith(".py")
    factory: Any = _import_file(Path(module_name)) if is_file else _import_module(module_name)
    for part in name.split("."):
        factory = getattr(factory, part, None)
    if not callable(factory):
        raise AgentError(f"{module_name} has no factory {name!r} that can be called")
    return partial(factory, *args, **kwargs)


def _read_arguments(call: str, spec: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in `(3, depth=4)`, each of which must be a literal."""
    try:
        tree = ast.parse(f"factory{call}", mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError
        kwargs = {}
        for keyword in tree.keywords:
            if keyword.arg is None or keyword.arg in kwargs:
                raise ValueError
            kwargs[keyword.arg] = ast.literal_eval(keyword.value)
        return [ast.literal_eval(value) for value in tree.args], kwargs
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise AgentError(
            f"{spec!r}: arguments are numbers, texts, None, True, False, and tuples, lists or "
            "dictionaries of these, like make(depth=3)"
        ) from None


def _import_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _agent_errors(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            where = "from the current directory or PYTHONPATH"
            raise AgentError(f"there is no module {name} to import {where}") from None


def _import_file(path: Path) -> ModuleType:
    """A file as a module of its own. Like a script it finds the modules beside it."""
    if not path.is_file():
        raise AgentError(f"there is no file {path}")
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None, "it ends in .py"
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # before its code runs, which dataclasses look up
    try:
        with _agent_errors(f"importing {path.name}"):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _agent_errors(what: str) -> Iterator[None]:
    """Whatever an agent's code raises is an `AgentError`; what it prints goes to standard error.

    Leaving the program counts as failing, but for Ctrl-C, which is the user's.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (AgentError, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = _printable(f"{what} failed: {_describe(error)}{_place(error)}")
        raise AgentError(message, _details(error)) from error


def _describe(error: BaseException) -> str:
    text = ""
    with suppress(BaseException):
        text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Where in the agent's own code it was raised, or called what raised it."""
    frames = _own_frames(error)
    library = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in frames if not frame.filename.startswith((*library, "<"))]
    if not (own or frames):
        return ""
    last = (own or frames)[-1]
    return f" (in {os.path.basename(last.filename)}:{last.lineno})"


def _own_frames(error: BaseException) -> traceback.StackSummary:
    """The stack from where the agent's code was entered."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, importlib.__file__)
    inner = [index for index, frame in enumerate(frames) if frame.filename not in ours]
    return traceback.StackSummary.from_list(frames[inner[0] :] if inner else [])


def _details(error: BaseException) -> str:
    """The whole traceback as text."""
    with suppress(BaseException):
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return "".join(lines)[-_MAX_DETAILS:]
    return ""


def make_agent(spec: str) -> Any:
    """Call the factory and look at what it gives."""
    call = spec if spec.endswith(")") else f"{spec}()"
    with _agent_errors(call):
        agent = load_factory(spec)()
    for method in ("reset", "act"):
        if not callable(getattr(agent, method, None)):
            kind = type(agent).__name__
            raise AgentError(f"{call} gave a {kind} without a method {method}()")
    return agent


def in_process(agent: Any, name: str, task: Task) -> Policy:
    """An object with `reset` and `act` as a policy for a task. It sees no rule."""

    def init(rule: None, num: int) -> Any:
        with _agent_errors(f"{name}: reset({num})"):
            agent.reset(num)
        return agent

    def act(memory: Any, obs: np.ndarray, stream: Any) -> tuple[Any, np.ndarray]:
        # A copy, contiguous: what an agent does to its observations stays its own.
        shown = np.array(obs, np.float32, order="C")
        with _agent_errors(f"{name}: act()"):
            actions = np.asarray(memory.act(shown))
        return memory, check_actions(actions, len(obs), task.length, name)

    def belief(memory: Any) -> np.ndarray:
        with _agent_errors(f"{name}: belief()"):
            probabilities = np.asarray(memory.belief())
        return check_belief(probabilities, task.family.num_rules, name)

    has_belief = callable(getattr(agent, "belief", None))
    return blind(Policy(name, init, act, backend="numpy", belief=belief if has_belief else None))


def check_actions(actions: Any, num: int, length: int, name: str) -> Int64[np.ndarray, " B"]:
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


def check_belief(belief: Any, num_rules: int, name: str) -> Float32[np.ndarray, "B R"]:
    """A belief as probabilities of rules; refused if it is not one."""
    array = np.asarray(belief, np.float32)
    if array.ndim != 2 or array.shape[1] != num_rules:
        raise AgentError(f"{name}: belief() gave shape {array.shape}, not [num_envs, {num_rules}]")
    if not np.isfinite(array).all() or (array < 0).any() or (abs(array.sum(1) - 1) > 1e-3).any():
        raise AgentError(f"{name}: belief() gave rows that are not probabilities")
    return array


@contextmanager
def in_subprocess(spec: str, name: str, task: Task, deadline: float = DEADLINE) -> Iterator[Policy]:
    """A policy whose agent lives in a process of its own, ended on leaving."""
    child = _Child(spec, name, deadline)
    try:
        yield in_process(child.start(), name, task)
    finally:
        child.end()


class _Child:
    """The other process, seen from this one.

    It leads a process group of its own, and all of the group ends with it. While it runs, this
    process keeps its memory from others of the same user, as far as the system does that.
    """

    def __init__(self, spec: str, name: str, deadline: float) -> None:
        if not deadline > 0:
            raise ValueError(f"the deadline must be above 0 seconds, not {deadline}")
        self._name, self._deadline = name, deadline
        _keep_memory(private=True)
        self._process = subprocess.Popen(
            # -P: files of the current directory are for the agent, not for Python itself.
            [sys.executable, "-P", "-m", "tapebench.exam.external", spec],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        for pipe in ("stdin", "stdout"):
            os.set_blocking(self._pipe(pipe).fileno(), False)

    def start(self) -> Any:
        """Wait until the agent is there; what stands for it here."""
        until = time.monotonic() + 5 * self._deadline
        methods = self._receive("start", until)[0].get("methods")
        if not isinstance(methods, list):
            raise _nonsense(self._name)
        return _WithBelief(self) if "belief" in methods else _Plain(self)

    def call(self, method: str, array: np.ndarray | None = None, **arguments: Any) -> Any:
        """Call a method over there; what it gives, or an `AgentError`."""
        until = time.monotonic() + self._deadline
        if method == "reset":
            _keep_memory(private=True)  # another one may have ended meanwhile
        self._send(_message({"method": method, **arguments}, array), method, until)
        return self._receive(method, until)[1]

    def end(self) -> None:
        _keep_memory(private=False)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
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

    def _send(self, data: bytes, method: str, until: float) -> None:
        """Write all of it; a process that does not read is late like one that does not answer."""
        pipe, rest = self._pipe("stdin"), memoryview(data)
        while rest:
            self._wait(pipe, selectors.EVENT_WRITE, method, until)
            try:
                rest = rest[os.write(pipe.fileno(), rest[:_PIPE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._gone(method) from None

    def _receive(self, method: str, until: float) -> tuple[dict[str, Any], np.ndarray | None]:
        pipe = self._pipe("stdout")

        def read(size: int) -> bytes:
            data = bytearray()
            while len(data) < size:
                self._wait(pipe, selectors.EVENT_READ, method, until)
                part = os.read(pipe.fileno(), min(size - len(data), _READ))
                if not part:
                    raise self._gone(method)
                data += part
            return bytes(data)

        header, array = _parse(read, self._name)
        if "error" in header:
            text, details = (str(header.get(key, "")) for key in ("error", "details"))
            raise AgentError(_printable(text)[:500], details[:_MAX_DETAILS])
        return header, array

    def _wait(self, pipe: IO[bytes], event: int, method: str, until: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, event)
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                limit = self._deadline * (5 if method == "start" else 1)
                raise AgentError(f"{self._name}: {method}() took longer than {limit:g} seconds")

    def _gone(self, method: str) -> AgentError:
        try:
            code: int | None = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        how = (
            f"was ended by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        )
        return AgentError(f"{self._name}: its process {how} during {method}()")


def _keep_memory(private: bool) -> None:
    """Ask Linux to keep other processes of this user from reading this one's memory, or no more.

    Whoever may trace anything, as root may, reads it all the same.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(not private), 0, 0, 0)


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


def _message(header: dict[str, Any], array: np.ndarray | None = None) -> bytes:
    """A message: the header's length, the header, the array it describes."""
    if array is not None:
        # The shape first, since a single number becomes a row of one by being made contiguous.
        header = {**header, "dtype": array.dtype.str, "shape": array.shape}
        array = np.ascontiguousarray(array)
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text + (b"" if array is None else array.tobytes())


def _parse(read: Callable[[int], bytes], name: str) -> tuple[dict[str, Any], np.ndarray | None]:
    """The other end of `_message`. The agent shares a process with its end: trust nothing."""
    size = int.from_bytes(read(4), "little")
    if size > _MAX_HEADER:
        raise _nonsense(name)
    try:
        header = json.loads(read(size))
        if not isinstance(header, dict):
            raise _nonsense(name)
        if "shape" not in header:
            return header, None
        if not _DTYPE.fullmatch(header["dtype"]):
            raise _nonsense(name)
        dtype, shape = np.dtype(header["dtype"]), tuple(map(int, header["shape"]))
        if len(shape) > 3 or min(shape, default=0) < 0:
            raise _nonsense(name)
        bytes_wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if bytes_wanted > _MAX_ARRAY:
            raise _nonsense(name)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, SyntaxError):
        raise _nonsense(name) from None
    # A copy, since what lies in the bytes that were read could not be written to.
    return header, np.frombuffer(read(bytes_wanted), dtype).reshape(shape).copy()


def _nonsense(name: str) -> AgentError:
    return AgentError(f"{name}: its process sent something that is no message")


def _printable(text: str) -> str:
    """Text of others in one line: what would steer a terminal is shown as a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def serve(spec: str) -> None:
    """The other process: build the agent, then answer calls until the pipe closes."""
    # What the agent prints must not get between the messages: it goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = sys.stdin.buffer

    def answer(header: dict[str, Any], array: np.ndarray | None = None) -> None:
        answers.write(_message(header, array))
        answers.flush()

    def read(size: int) -> bytes:
        data = calls.read(size)
        if len(data) < size:
            raise EOFError
        return data

    try:
        agent = make_agent(spec)
        methods = [name for name in ("reset", "act", "belief") if hasattr(agent, name)]
        answer({"methods": methods})
        while True:
            header, array = _parse(read, "the evaluator")
            method = header["method"]
            arguments = {"reset": (header.get("num"),), "act": (array,), "belief": ()}[method]
            with _agent_errors(f"{spec}: {method}()"):
                value = getattr(agent, method)(*arguments)
                array = None if method == "reset" else _as_array(value, spec, method)
            answer({}, array)
    except EOFError:
        return
    except AgentError as error:
        answer({"error": str(error), "details": error.details})
        raise SystemExit(1) from None


def _as_array(value: Any, spec: str, method: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim > 3:
        raise AgentError(f"{spec}: {method}() gave {type(value).__name__}, not an array of numbers")
    return array


if __name__ == "__main__":
    # By its full name, so that an AgentError raised there is the one caught here.
    from tapebench.exam import external

    external.serve(sys.argv[1])
