import pytest

from tapebench.datasets import store
from tapebench.datasets.spec import Spec
from tapebench.tasks import splits


def make_spec(behaviour, episodes=2000, **options):
    fields = {"track": "core", "length": 9, "horizon": 4, "split": splits.load("folds-0")}
    return Spec(behaviour=behaviour, episodes=episodes, **fields | options)


@pytest.fixture(scope="session")
def spec_of():
    return make_spec


@pytest.fixture
def small_files(monkeypatch):
    """A few hundred episodes in each file."""
    from tapebench.datasets import spec

    monkeypatch.setattr(spec, "STEPS_PER_FILE", 2048)


@pytest.fixture
def optimal(tmp_path, small_files):
    """A dataset of 1,200 episodes in three files."""
    return store.make(make_spec("optimal", 1200), tmp_path)[0]
