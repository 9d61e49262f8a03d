# The one front door: CI types the same. Everything is installed into .venv, nothing outside of this folder.
# All paths are relative, so that the folder may have a space in its name.

PYTHON ?= python3
PY := .venv/bin/python
PIP_INSTALL := -m pip --quiet --disable-pip-version-check install

# Exported and not passed as -c: so they also hold in the environments that pip and build make for the build backend.
# pip before 25.3 looks at the first there, later ones at the second.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

# Each worker takes a second to start; more than four do not pay, and neither does one more than there are cores.
# Tests of one group, such as those that share the session of Spark, stay with one worker.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadgroup

# The pure rooms, and the part of them that must be covered completely, by their own tests and nobody else's.
COMMA := ,
SPACE := $(subst ,, )
PURE_CLUSTER := lease register endpoints health discovery settings
PURE_TESTS := tests/unit/wire tests/unit/flow tests/unit/security $(PURE_CLUSTER:%=tests/unit/cluster/test_%.py)
PURE_SOURCE := src/hopline/wire/*,src/hopline/flow/*,src/hopline/security/*,$(subst $(SPACE),$(COMMA),$(PURE_CLUSTER:%=src/hopline/cluster/%.py))
NOT_COUNTED := $(subst $(SPACE),$(COMMA),$(patsubst %,src/hopline/wire/%.py,columnar spans metaframes trailers))

# A message to try the wheel with: the smallest of the v6 vectors.
LINE := {"frames":["","","0a0568656c6c6f","06000000000001000500000048454c4c4f00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000200010000000000"]}

.PHONY: help install demo test quick check format bench fuzz simulate soak chaos-cluster chaos-pipeline dist docs constraints clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

install: .venv/installed ## make .venv with the hopline command
	@echo "Ready: .venv/bin/hopline --help"

demo: .venv/installed-spark ## see it work: a network, a capture of it, Spark, a report
	$(PY) examples/demo.py

# The pure rooms have been tried by then, and the fuzzer has a test that runs it.
test: .venv/installed-dev ## run everything: the pure rooms with their coverage, then all other tests
	$(PY) -m pytest -qq --cov --cov-report= $(PURE_TESTS)
	$(PY) -m coverage report --fail-under=100 --include='$(PURE_SOURCE)' --omit='$(NOT_COUNTED)'
	$(PY) -m pytest $(PARALLEL) -m "not heavy" $(PURE_TESTS:%=--ignore=%)
	$(PY) -m pytest -m heavy

quick: .venv/installed-dev ## run the fast tests, in under a minute
	$(PY) -m pytest $(PARALLEL) -m "not slow"

check: .venv/installed-dev ## lint, format, types and who imports whom
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo

format: .venv/installed-dev ## reformat, and fix what can be fixed safely
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench: .venv/installed ## measure
	$(PY) -m bench

fuzz: .venv/installed-dev ## fuzz for long
	$(PY) tests/fuzz/run.py --long

simulate: .venv/installed-dev ## look for two leaders in twenty worlds of a million steps
	$(PY) -m tests.simulation

soak: .venv/installed-dev ## ten nodes with faults, for five minutes
	$(PY) -m tests.e2e.soak

chaos-cluster: .venv/installed-dev ## three rendezvous and ten nodes, killed at random, for ten minutes
	$(PY) -m tests.e2e.chaos_cluster --minutes 10

chaos-pipeline: .venv/installed-dev ## the Spark pipeline, killed twenty times while a capture grows
	$(PY) -m tests.e2e.chaos_pipeline --kills 20

# `build` makes the wheel from the sdist, so trying the wheel tries both.
dist: .venv/installed-dev ## build the wheel and the sdist, and try the wheel without extras in a clean venv
	rm -rf dist build/wheel-venv
	$(PY) -m build
	$(PY) -m venv build/wheel-venv
	build/wheel-venv/bin/python $(PIP_INSTALL) dist/*.whl
	build/wheel-venv/bin/python -c 'import sys, importlib.util as u; sys.exit(list(filter(u.find_spec, ["numpy", "pyarrow"])) or 0)'
	build/wheel-venv/bin/hopline --version
	echo '$(LINE)' | build/wheel-venv/bin/hopline decode
	rm -rf build/wheel-venv

docs: .venv/installed ## regenerate the pages that are made from the code
	$(PY) docs/generate.py

# On the oldest Python we support: what has wheels for it has them for the later ones, not the other way round.
constraints: ## pin anew: the newest versions that work together
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "Pin with the oldest supported Python: make constraints PYTHON=python3.11" >&2; exit 1; }
	rm -rf build/constraints-venv
	$(PYTHON) -m venv build/constraints-venv
	env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT build/constraints-venv/bin/python $(PIP_INSTALL) --editable '.[spark,dev]' hatchling
	echo '# The versions we test with: the package, its extras and what builds it. Refresh with `make constraints`.' > build/constraints.txt
	build/constraints-venv/bin/python -m pip freeze --exclude-editable >> build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/constraints-venv

clean: ## remove all that make has made
	rm -rf .venv build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps come last in their recipes: an interrupted install is done again.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "hopline needs Python 3.11 or newer with venv (on Debian: apt install python3 python3-venv), or say which: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) $(PIP_INSTALL) --editable '.[columnar]'
	@touch $@

.venv/installed-spark: .venv/installed
	$(PY) $(PIP_INSTALL) --editable '.[spark]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(PY) $(PIP_INSTALL) --editable '.[dev]'
	@touch $@
