# The two commands of the README are `make bench` and `make test`. Both set everything up in .venv
# first, which takes a few minutes the first time and nothing after that.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
DOCS_VENV := .venv-docs
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps
# Exact versions with their hashes, from wherever pip is told to look. A file that differs by a bit
# is refused.
LOCKED := $(PIP) --require-hashes --requirement

.PHONY: bench test quick fuzz nightly lint browser clients throughput cost training-speed sweeps \
  worlds croissant docs lock data clean

# The baselines, then every agent of a track; `make bench TRACK=smoke` is over sooner.
TRACK ?= lite
bench: $(VENV)/.installed
	$(VENV)/bin/python examples/baselines.py
	$(VENV)/bin/tape bench --track $(TRACK)

# Each file of tests is one worker's, as its tests share what they have made.
PYTEST := $(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
TIMED = @began=$$(date +%s); $(1) \
  && echo "make $@: $$(($$(date +%s) - began)) seconds without the set-up"

test: $(VENV)/.installed-dev $(DOCS_VENV)/.installed browser
	$(call TIMED,$(MAKE) --no-print-directory lint && $(PYTEST))

# What starts no process, opens no browser and trains next to nothing.
quick: $(VENV)/.installed-dev
	$(call TIMED,$(MAKE) --no-print-directory lint && $(PYTEST) -m "not slow")

# Pages are tested in a real browser, from Debian's packages. Without one those tests fail.
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
browser:
	@command -v chromium >/dev/null \
	  || ($(ROOT) apt-get -qq update && $(ROOT) apt-get -qq install -y --no-install-recommends chromium) \
	  || echo "make: cannot install chromium here: the tests of the pages will fail" >&2

# What comes from others, spoilt in every way that the fuzzer knows, for an hour.
fuzz: $(VENV)/.installed-dev
	$(VENV)/bin/python tests/support/fuzz.py --seconds 3600

# What takes too long for every run of the suite: many random kills, the benchmarks, the fuzzer.
nightly: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest --nightly
	$(MAKE) fuzz

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Programs of others on the environment, unmodified. gymnax wants an older Gymnasium than the locked
# one, so they have a venv of their own; what they warn of each other is no error here.
CLIENTS := .venv-clients
clients:
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --requirement tests/clients/requirements.txt \
	  --editable ".[gymnax]"
	$(CLIENTS)/bin/python -m pytest -W default tests/clients tests/test_gymnax.py

# What the speed claims rest on; installs the peers it compares with into a venv of their own.
throughput: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/throughput.py

# What one decision of the planning and inference references costs.
cost: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/references.py

# How fast agents train, compared with Stable-Baselines3 and the machine's own limit.
training-speed: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/training.py

# What a second core is worth to a sweep, and what Ray costs a run.
sweeps: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/sweeps.py

# What a seed of the world models costs, against tape length.
worlds: $(VENV)/.installed-dev
	$(VENV)/bin/python benchmarks/worlds.py

# The documentation as a site, in build/site.
docs: $(DOCS_VENV)/.installed
	$(DOCS_VENV)/bin/python tools/site.py
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict --clean
	@echo "make docs: $(CURDIR)/build/site/index.html"
	@echo "  to search it: $(DOCS_VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/site"

$(DOCS_VENV)/.installed: requirements-docs.lock
	$(PYTHON) -m venv --clear $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
	  --require-hashes --requirement requirements-docs.lock
	touch $@

# The shipped data, computed again. Tests compare it byte for byte.
data: $(VENV)/.installed
	$(VENV)/bin/python tools/make_data.py

# Whether others can read the metadata of a dataset: installs what reads it into a venv of its own.
croissant: $(VENV)/.installed
	$(PYTHON) -m venv --clear .croissant-venv
	.croissant-venv/bin/python -m pip install --quiet . mlcroissant pyarrow
	.croissant-venv/bin/python tools/croissant.py
	rm -r .croissant-venv

# The versions that are known to work together, from a fresh resolution of pyproject.toml for every
# platform, with the hashes of all their files. torch stands apart, as it has two builds of one
# version: the tests are run with the one for CPUs, found where TORCH_CPU says.
TORCH_CPU ?= $(PIP_FIND_LINKS)
RESOLVE := .lock-venv/bin/uv --quiet pip compile --upgrade --universal --python-version 3.11 \
  --generate-hashes --no-annotate --no-header
lock:
	$(PYTHON) -m venv --clear .lock-venv
	.lock-venv/bin/python -m pip install --quiet uv
	$(RESOLVE) pyproject.toml --group build --output-file requirements.lock
	echo 'torch; python_version < "3"' > .lock-venv/without-torch.txt
	$(RESOLVE) pyproject.toml --group build --extra dev --constraint requirements.lock \
	  --override .lock-venv/without-torch.txt --output-file requirements-dev.lock
	echo 'torch==2.13.0+cpu' | $(RESOLVE) - --constraint requirements-dev.lock \
	  --find-links "$(TORCH_CPU)" --output-file requirements-torch.lock
	echo 'torch==2.13.0' | $(RESOLVE) - --constraint requirements-dev.lock \
	  --output-file requirements-torch-cuda.lock
	$(RESOLVE) --group docs --output-file requirements-docs.lock
	rm -r .lock-venv

clean:
	rm -rf $(VENV) $(DOCS_VENV) $(CLIENTS) build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# First what the project needs, by hash, then the project itself, which is built with what is there.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml requirements.lock
	$(LOCKED) requirements.lock
	$(PIP) --no-build-isolation --editable .
	touch $@

# The registry's torch for Linux comes with gigabytes of CUDA, so the CPU build is asked for first.
$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock requirements-torch.lock
	$(LOCKED) requirements-dev.lock
	$(LOCKED) requirements-torch.lock \
	  || (echo "make: pip finds no torch 2.13.0+cpu here; taking the registry's build" >&2 \
	    && $(LOCKED) requirements-torch-cuda.lock)
	touch $@
