import fcntl
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]


def use_own_core() -> None:
    """Each worker of xdist keeps to one core, and so does all that it starts.

    Otherwise XLA starts as many threads as there are cores in each of them, and sweeps of one
    worker meet on the first core while the others have nothing to do. To be done before JAX counts.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    cores = sorted(os.sched_getaffinity(0))
    if worker.startswith("gw") and len(cores) > 1:
        os.sched_setaffinity(0, {cores[int(worker[2:]) % len(cores)]})


LONGEST = (
    "test_executors",
    "test_bench",
    "test_experiments",
    "test_training",
    "test_dreamer",
    "test_damage",
    "test_agents",
    "test_hints",
    "test_planning",
    "test_results_page",
    "test_rppo",
    "test_belief",
    "test_ppo",
    "test_dqn",
)
"""Files of tests that begin first, each on one worker, lest one of them be alone in the end."""

ALL_CORES = os.sched_getaffinity(0)
"""For the tests whose subject cores are."""

use_own_core()

# Compiled programs and unpacked results are kept from run to run, for this process and all that it
# starts, but not among those of the user.
CACHE = ROOT / ".pytest_cache" / "cache-home"
os.environ["XDG_CACHE_HOME"] = str(CACHE)
# All of them: operations outside of a program are one each, and tests have thousands.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# Most programs of the suite run for less time than they take to compile, which this halves. It is
# set for all that is compared, here and in the processes that tests start: once, as programs are
# kept under names that depend on every flag, and the workers of xdist begin with what is set here.
FEWER_PASSES = "--xla_llvm_disable_expensive_passes=true"
if FEWER_PASSES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FEWER_PASSES}".strip()
# Those names should not depend on where the programs are kept.
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")

import jax  # noqa: E402
import submitit  # noqa: E402, F401

import shape_checks  # noqa: E402

shape_checks.install()

import sweeps  # noqa: E402
from browsers import browser, visit  # noqa: E402, F401
from tapebench import agents  # noqa: E402
from tapebench.base import files  # noqa: E402
from tapebench.runs import training  # noqa: E402

# submitit sets up logging anew when it is imported, which closes the handlers that there are. That
# of absl, which comes with others, then closes its stream, unless it is the standard error of the
# moment: in a test that captures its own it would be pytest's. Here it is not.

# Shells let what they start in the background ignore Ctrl-C, nohup lets it ignore that the terminal
# is gone, and both is inherited. Tests that send these signals mean them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

files.provenance()  # asks git for the revision, once
training.use_compilation_cache()
settings.register_profile("project", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("project")


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="run what takes long, and nothing else")


def pytest_collection_modifyitems(config, items):
    """What takes long is for `--nightly`, and files that take long come first."""
    chosen, left = [], []
    for item in items:
        is_nightly = item.get_closest_marker("nightly") is not None
        (chosen if is_nightly == config.getoption("--nightly") else left).append(item)
    config.hook.pytest_deselected(items=left)
    order = {name: number for number, name in enumerate(LONGEST)}
    items[:] = sorted(chosen, key=lambda item: order.get(item.path.stem, len(order)))


_STARTS_A_PROCESS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
_quick_test: list[str] = []


def _refuse_processes(event, details):
    if _quick_test and event in _STARTS_A_PROCESS:
        raise AssertionError(f"{_quick_test[-1]} starts a process: mark it slow")


sys.addaudithook(_refuse_processes)


class _AtMostAChunk(partial):
    """How an agent trains; in `make quick` for a chunk from its first state, and no further."""

    def __call__(self, state):
        is_real = not isinstance(state.steps, jax.core.Tracer)  # else only its shape is asked for
        if _quick_test and is_real:
            is_new = int(state.steps) == 0
            assert is_new, f"{_quick_test[-1]} trains for more than a chunk: mark it slow"
        return super().__call__(state)


def _make_agent(*args, make=agents.make, **overrides):
    agent = make(*args, **overrides)
    return replace(agent, train=_AtMostAChunk(agent.train))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """In `make quick` a test that starts a process or trains for long has to be marked slow."""
    if item.config.option.markexpr == "not slow":
        _quick_test.append(item.nodeid)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agents, "make", _make_agent)
            try:
                return (yield)
            finally:
                _quick_test.clear()
    return (yield)


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


MANY_MAPPINGS = 10_000
"""Of the 65,530 that Linux gives a process by default, so that most are left for the next file."""


@pytest.fixture(autouse=True, scope="module")
def _let_compiled_programs_go():
    """Each holds a dozen or more mappings. With none left, XLA ends the process with a segmentation
    fault. Until there are many, the next file of tests may use what is there.
    """
    yield
    with open("/proc/self/maps", "rb") as mappings:
        if sum(1 for _ in mappings) > MANY_MAPPINGS:
            jax.clear_caches()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The user's cache of this test alone, with nothing in it but the programs that are kept."""
    programs = files.user_cache() / "jax"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files.user_cache().mkdir(parents=True)
    (files.user_cache() / "jax").symlink_to(programs)
    return files.user_cache()


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory):
    """Two agents of a tiny track with three seeds each, really trained, once for all workers."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / "tiny-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "tiny-runs").exists():
            sweeps.train_tiny(tmp_path_factory.mktemp("tiny")).rename(root / "tiny-runs")
    return root / "tiny-runs"


@pytest.fixture
def all_cores():
    """Every core of the machine, for a test whose subject they are."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES)
    yield sorted(ALL_CORES)
    os.sched_setaffinity(0, own)
