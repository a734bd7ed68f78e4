import pytest

from sweeps import TINY
from tapebench.runs import tracks


@pytest.fixture
def tiny(monkeypatch):
    """A track that is over in seconds, in this process only."""
    known = tracks.tracks()
    monkeypatch.setattr(tracks, "tracks", lambda: {**known, "tiny": TINY})
