import signal

import jax
import pytest
import submitit  # noqa: F401
from hypothesis import settings

# submitit sets up logging anew when it is imported, which closes the handlers that there are. That
# of absl, which comes with others, then closes its stream, unless it is the standard error of the
# moment: in a test that captures its own it would be pytest's. Here it is not.

# Shells let what they start in the background ignore Ctrl-C, and that is inherited. Tests that
# press it mean it.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_debug_key_reuse", True)
settings.register_profile("project", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
