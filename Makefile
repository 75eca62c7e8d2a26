# Every target makes what it needs by itself: a fresh clone needs only Python 3.11, pip, Node 20, npm and make.
# Extra arguments go in ARGS: make test ARGS="-k framing"

PYTHON ?= python3
BIN := .venv/bin
# What `make run` starts.
RUN ?= probe -- peers/node_modules/.bin/mcp-server-everything
FUZZ ?= 200000
CYCLES ?= 300
IMAGES ?= 2000
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-containers check format bench fuzz soak-kill powerloss lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install all that the other targets need
	@$(PYTHON) scripts/setup

run: setup ## Start Holdfast
	@$(BIN)/holdfast $(RUN) $(ARGS)

test: setup ## Run all tests
	@$(BIN)/python -m pytest -n auto $(ARGS)

test-containers: setup ## Test the container sandbox for real (installs podman and runc)
	@$(PYTHON) scripts/containers
	@HOLDFAST_CONTAINERS=1 $(BIN)/python -m pytest tests/sandbox/test_podman.py $(ARGS)

check: setup ## Check format, lint, types and layers
	@$(BIN)/python scripts/check

format: setup ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff format --quiet && $(BIN)/ruff check --quiet --fix

bench: setup ## Measure against peers; writes build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

fuzz: setup ## Fuzz the wire for long (FUZZ=number of frames)
	@HOLDFAST_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/wire -m fuzz --timeout 3600 $(ARGS)

soak-kill: setup ## Kill writers of the store at random moments (CYCLES=number of kills)
	@$(BIN)/python -m tests.store.soak --cycles $(CYCLES) $(ARGS)

powerloss: setup ## Cut the power under the store at random moments (IMAGES=number of cuts)
	@$(BIN)/python -m tests.store.powerloss --images $(IMAGES) $(ARGS)

lock: setup ## Lock the dependencies anew (ARGS=--upgrade for newer ones)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/lock $(ARGS)

clean: ## Remove all that make made
	@rm -rf .venv build dist peers/node_modules .coverage* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
