# make demo      installs neaptide and plays the main scenario on two systems
# make test      installs neaptide and runs all checks: lint, types, imports, tests. As root on Debian
#                it also installs and starts what some tests need; elsewhere it lists what it left out
# make proof     plays what takes longer: other generations and Kafkas, comparisons, sweeps. It says
#                first how long it takes, and goes on where it was interrupted
# make reference writes docs/reference from the tables of the program
# make site      builds the documentation: build/site
# make release   builds everything that a release has: dist (sdist, wheel), build/site, and the
#                container image neaptide:VERSION where Docker answers; make proof must have passed
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes at once; a file of tests is in one of them. One more than cores: many wait.
JOBS   ?= $(shell expr $$(nproc) + 1)
PROCESSES = $(if $(filter-out 1,$(JOBS)),--numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder)

.PHONY: demo test venv dev lint types imports unit proof compatibility durations fix bench clean reference site release dist image

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
	$(BIN)/pip install -qq --editable '.[connect,docker,ssh,tls]' --group dev
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
		$(BIN)/pytest -m 'not proof' --keep-durations build/durations.json $(PROCESSES)

proof: dev
	$(BIN)/python -m tests.environment run -- $(BIN)/python -m tests.proof $(PROCESSES)

# Other people's suites on our own broker and on a real Kafka; writes docs/compatibility.md.
compatibility: dev
	$(BIN)/python -m tests.environment run -- $(BIN)/python -m tests.compatibility

# What the last runs of unit and proof have measured; the longest files come first by it.
durations:
	cp build/durations.json tests/durations.json

fix: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Prints JSON; compares on this machine, in this run.
bench: dev
	for benchmark in tests/benchmarks/[a-z]*.py; do \
		$(BIN)/python -m tests.benchmarks.$$(basename $$benchmark .py); done

reference: venv
	$(BIN)/python -m neaptide.harness.reference docs/reference

site: dev
	$(BIN)/mkdocs build --strict --quiet

# What an earlier build has left would be packed again.
dist: dev
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# The brokers of `--host docker` have an image of their own; this one is neaptide itself.
# IMAGE_FLAGS is for another base or registry: make image IMAGE_FLAGS='--build-arg BASE=…'
image: dist
	docker build $(IMAGE_FLAGS) --tag neaptide:$$($(BIN)/neaptide --version) .

release: proof dist site
	@if docker version >/dev/null 2>&1; then $(MAKE) image; \
		else echo "no Docker answers: the image was not built"; fi

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
