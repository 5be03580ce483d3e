# Two commands: `make demo` and `make test`. Each sets up .venv on first use and only then.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS := $(VENV)/.ready-for-tests

.PHONY: demo test test-slow lint bench papers clean
.DEFAULT_GOAL := demo

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "initscope needs Python 3.11 or newer, this is %d.%d; run make PYTHON=python3.11" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[fast]'
	touch $@

$(TESTS): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[fast,test]'
	touch $@

demo: $(STAMP)
	$(BIN)/initscope demo

lint: $(TESTS)
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(TESTS) lint
	$(BIN)/python -m pytest -n auto -m "not slow" --doctest-modules

test-slow: $(TESTS)
	$(BIN)/python -m pytest -n auto -m slow

# The kernels alone, then beside the peers: each in an environment of its own in build, made on first use; a few hours.
bench: $(STAMP)
	$(BIN)/python benchmarks/kernels.py --page docs/benchmarks.md
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/activation_accuracy.py --page docs/accuracy.md
	$(BIN)/python benchmarks/peers/run.py --page docs/benchmarks.md

# All figures, tables and theorems of the papers into build/papers, then their pages in docs; goes on where it was stopped.
papers: $(TESTS)
	$(BIN)/initscope papers run all --out build/papers
	$(BIN)/python docs/make_papers.py build/papers

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
