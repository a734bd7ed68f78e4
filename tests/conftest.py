import os
import signal
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


ALL_CORES = os.sched_getaffinity(0)
"""For the tests whose subject cores are."""

use_own_core()

# Compiled programs and unpacked results are kept from run to run, for this process and all that it
# starts, but not among those of the user.
CACHE = ROOT / ".pytest_cache" / "cache-home"
os.environ["XDG_CACHE_HOME"] = str(CACHE)

import jax  # noqa: E402
import submitit  # noqa: E402, F401

from tapebench import training  # noqa: E402

# submitit sets up logging anew when it is imported, which closes the handlers that there are. That
# of absl, which comes with others, then closes its stream, unless it is the standard error of the
# moment: in a test that captures its own it would be pytest's. Here it is not.

# Shells let what they start in the background ignore Ctrl-C, and that is inherited. Tests that
# press it mean it.
signal.signal(signal.SIGINT, signal.default_int_handler)

training.use_compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
settings.register_profile("project", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def all_cores():
    """Every core of the machine, for a test whose subject they are."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES)
    yield sorted(ALL_CORES)
    os.sched_setaffinity(0, own)
