# make demo   installs, runs the main job on our own broker, shows what was lost, and how to see it
# make test   installs, then everything that says whether this tree is good; as root on Debian it
#             also installs and starts what some tests need, elsewhere it says what it left out
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes at once, a file in one of them. More are quicker, on a machine that has the cores.
JOBS   ?= 1

.PHONY: demo test venv dev lint types imports unit fix bench clean

demo: venv
	$(BIN)/neaptide repro hw-truncation-loss --system neaptide:0.10 --system neaptide:0.11
	@echo 'Both runs in a browser, side by side, with their rounds, logs and matrix: $(BIN)/neaptide serve'

test: lint types imports unit

venv: $(VENV)/.installed

dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "neaptide needs Python 3.11 or later: make PYTHON=python3.11 …"; exit 69; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install -qq --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install -qq --editable '.[connect,docker,ssh]' --group dev
	@touch $@ $(VENV)/.installed

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

unit: dev
	$(BIN)/python -m tests.environment run -- \
		$(BIN)/pytest $(if $(filter-out 1,$(JOBS)),--numprocesses $(JOBS) --dist loadfile)

fix: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Prints JSON; compares on this machine, in this run.
bench: dev
	for benchmark in tests/benchmarks/[a-z]*.py; do \
		$(BIN)/python -m tests.benchmarks.$$(basename $$benchmark .py); done

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
