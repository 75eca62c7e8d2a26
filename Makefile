# Every target makes what it needs by itself: a fresh clone needs only Python 3.11, pip, Node 20, npm and make.
# Extra arguments go in ARGS: make test ARGS="-k framing"

PYTHON ?= python3
BIN := .venv/bin
# What `make run` starts.
RUN ?= chat
FUZZ ?= 200000
CYCLES ?= 300
DOOR_CYCLES ?= 100
UPDATES ?= 1000000
IMAGES ?= 2000
# Some tests wait for something: one more worker than there are cores keeps these busy.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test conformance peers test-containers check format bench fuzz soak soak-kill soak-stream powerloss lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install all that the other targets need
	@$(PYTHON) scripts/setup

run: setup ## Start Holdfast
	@$(BIN)/holdfast $(RUN) $(ARGS)

test: setup ## Run all tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-containers: setup ## Test the container sandbox for real (installs podman and runc)
	@$(PYTHON) scripts/containers
	@HOLDFAST_CONTAINERS=1 $(BIN)/python -m pytest tests/sandbox/test_podman.py $(ARGS)

check: setup ## Check format, lint, types and layers
	@$(BIN)/python scripts/check

format: setup ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff format --quiet && $(BIN)/ruff check --quiet --fix

bench: setup ## Measure against peers; writes build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

conformance: setup ## Run MCP's official suite against a toolkit server
	@$(BIN)/python -m pytest tests/peers/test_conformance.py $(ARGS)

peers: setup ## Run other people's clients and servers in every combination
	@HOLDFAST_PEERS=all $(BIN)/python -m pytest -n auto tests/peers $(ARGS)

fuzz: setup ## Fuzz the wire for long (FUZZ=number of frames)
	@HOLDFAST_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/wire -m fuzz --timeout 3600 $(ARGS)

soak: setup ## Links for long: CYCLES sessions that end well and badly, 100 x 100 calls at once, hostile neighbours
	@HOLDFAST_CYCLES=$(CYCLES) HOLDFAST_CROSSINGS=100 HOLDFAST_NEIGHBOURS=3 \
		$(BIN)/python -m pytest tests/connect/test_leaks.py tests/connect/test_context.py \
		tests/connect/test_http.py tests/connect/test_neighbours.py -s $(ARGS)

soak-kill: setup ## Kill writers of the store, and the editors' door, at random moments (CYCLES, DOOR_CYCLES)
	@$(BIN)/python -m tests.store.soak --cycles $(CYCLES) $(ARGS)
	@$(BIN)/python -m tests.journeys.soak --cycles $(DOOR_CYCLES) $(ARGS)

soak-stream: setup ## Stream a million updates to a slow reader and see that memory stays flat (UPDATES)
	@HOLDFAST_STREAM=$(UPDATES) $(BIN)/python -m benchmarks.agents.slow_reader

powerloss: setup ## Cut the power under the store at random moments (IMAGES=number of cuts)
	@$(BIN)/python -m tests.store.powerloss --images $(IMAGES) $(ARGS)

lock: setup ## Lock the dependencies anew (ARGS=--upgrade for newer ones)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/lock $(ARGS)

clean: ## Remove all that make made
	@rm -rf .venv build dist peers/node_modules .coverage* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
