"""Programs of others, in a venv of their own: `make clients` installs them and runs these tests."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("gymnax") else ["test_*.py"]
