# Everything a new machine needs: git, Python 3.11 or newer, make. `make help` lists the targets.
SHELL := /bin/sh
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRA := $(if $(GPU),gpu,cpu)
LOCK := requirements-$(EXTRA).lock
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: lock-cpu help install demo demo-full test lint ui bench lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed-$(EXTRA) ## make the environment in .venv (GPU=1: with CUDA)

$(VENV)/.installed-$(EXTRA): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Cairn needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=python3.12, say")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages that $(LOCK) pins (a few minutes the first time)"
	@$(PIP) install --quiet --requirement $(LOCK)
	@$(PIP) install --quiet --no-deps --editable .
	@rm -f $(VENV)/.installed-* && touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-$(EXTRA) requirements-dev.lock
	@$(PIP) install --quiet --requirement requirements-dev.lock
	@touch $@

# roc-validator, which checks `cairn export ro-crate` in the tests, wants another rich than Cairn: it has its own place.
$(VENV)/rocrate/.installed: requirements-rocrate.lock $(VENV)/.installed-dev
	@test -x $(VENV)/rocrate/bin/python || $(PYTHON) -m venv $(VENV)/rocrate
	@$(VENV)/rocrate/bin/python -m pip --disable-pip-version-check install --quiet --requirement requirements-rocrate.lock
	@touch $@

demo: install ## draw the synthetic town, run the default graph, print the numbers
	@$(BIN)/cairn run

demo-full: install ## everything that works without a download (adds profiles/full.yaml to params.yaml)
	@$(BIN)/cairn run --profile full

test: $(VENV)/.installed-dev $(VENV)/rocrate/.installed ## the whole suite, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python cairn
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

lint: $(VENV)/.installed-dev ## format, lint, types
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/pyright --pythonpath $(BIN)/python cairn

ui: install ## the graph in Dagster's page, at http://127.0.0.1:3000
	@$(BIN)/cairn ui

bench: $(VENV)/.installed-dev ## side-by-side measurements against peers
	@for script in bench/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url
# The cpu lock leaves out what only PyTorch's CUDA build needs.
CUDA_ONLY = $(shell sed -n 's/^\(nvidia-[a-z0-9-]*\|triton\|cuda-[a-z0-9-]*\)==.*/\1/p' requirements-gpu.lock)

lock: ## resolve the three lock files again (needs uv)
	$(COMPILE) --extra gpu pyproject.toml -o requirements-gpu.lock
	$(MAKE) --no-print-directory lock-cpu

lock-cpu:
	$(COMPILE) --extra cpu $(foreach package,$(CUDA_ONLY),--no-emit-package $(package)) pyproject.toml -o requirements-cpu.lock
	$(COMPILE) --extra dev --constraint requirements-cpu.lock pyproject.toml -o requirements-dev.lock

clean: ## remove the environment and what a run wrote (not DVC's cache)
	rm -rf $(VENV) artifacts .cairn results.duckdb
