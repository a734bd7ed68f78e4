import jax
import pytest
from hypothesis import settings

jax.config.update("jax_debug_key_reuse", True)
settings.register_profile("project", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
