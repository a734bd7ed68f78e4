# The two commands of the README are `make bench` and `make test`. Both set everything up in .venv
# first, which takes a few minutes the first time and nothing after that.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet --constraint requirements.lock

.PHONY: bench test quick fuzz lint browser throughput cost training-speed sweeps worlds lock data clean

# What needs no learning, then every baseline of a track; `make bench TRACK=smoke` is over sooner.
TRACK ?= lite
bench: $(VENV)/.installed
	$(VENV)/bin/python examples/trivial_lines.py
	$(VENV)/bin/tape bench --track $(TRACK)

test: $(VENV)/.installed-dev browser lint
	$(VENV)/bin/python -m pytest -n 2

quick: $(VENV)/.installed-dev browser lint
	$(VENV)/bin/python -m pytest -n 2 -m "not slow"

# Pages are tested in a real browser, from Debian's packages. Without one those tests fail.
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
browser:
	@command -v chromium >/dev/null \
	  || ($(ROOT) apt-get -qq update && $(ROOT) apt-get -qq install -y --no-install-recommends chromium) \
	  || echo "make: cannot install chromium here: the tests of the pages will fail" >&2

# What comes from others, spoilt in every way that the fuzzer knows, for an hour.
fuzz: $(VENV)/.installed-dev
	$(VENV)/bin/python tests/fuzz.py --seconds 3600

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# What the speed claims rest on; installs the peers it compares with into a venv of their own.
throughput: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/throughput.py

# What one decision of the planning and inference references costs.
cost: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/references.py

# How fast agents train, beside Stable-Baselines3 and the machine's own limit.
training-speed: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/training.py

# What a second core is worth to a sweep, and what Ray costs a run.
sweeps: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/sweeps.py

# What a seed of the world models costs, against tape length.
worlds: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/worlds.py

# The shipped data, computed again. Tests compare it byte for byte.
data: $(VENV)/.installed
	$(VENV)/bin/python tools/make_data.py

# The versions that are known to work together, from a fresh resolution of pyproject.toml.
lock:
	$(PYTHON) -m venv --clear .lock-venv
	.lock-venv/bin/python -m pip install --quiet torch==2.13.0
	.lock-venv/bin/python -m pip install --quiet --editable '.[dev]'
	.lock-venv/bin/python -m pip freeze --exclude-editable | sed -E 's/ @ .*//; s/\+.*//' > requirements.lock
	rm -r .lock-venv

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml requirements.lock
	$(PIP) --editable .
	touch $@

# torch comes first and alone: its version is pinned to one with a CPU build.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[dev]'
	touch $@
