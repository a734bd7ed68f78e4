from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def agents_are_importable(monkeypatch):
    """Also in processes of their own."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
