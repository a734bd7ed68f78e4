import pytest

from halts import Halts
from sweeps import TINY
from tapebench.runs import tracks


@pytest.fixture
def tiny(monkeypatch):
    """A track that is over in seconds, in this process only."""
    known = tracks.tracks()
    monkeypatch.setattr(tracks, "tracks", lambda: {**known, "tiny": TINY})


@pytest.fixture
def halts(tmp_path_factory, monkeypatch):
    """Points of runs at which the processes stop that this test starts."""
    halts = Halts(tmp_path_factory.mktemp("halts") / "points")
    for name, value in halts.environment.items():
        monkeypatch.setenv(name, value)
    yield halts
    halts.end()
