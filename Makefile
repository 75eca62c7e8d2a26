# Every target sets up what it needs: a fresh clone needs only Python 3.11, pip, Node 20, npm and make.
# Pass extra arguments in ARGS: make test ARGS="-k framing"

PYTHON ?= python3
BIN := .venv/bin
# The command that `make run` starts.
RUN ?= up
FUZZ ?= 200000
FOLDERS ?= 20000
REPEATS ?= 10
CYCLES ?= 300
DOOR_CYCLES ?= 100
UP_CYCLES ?= 50
UPDATES ?= 1000000
IMAGES ?= 2000
# Some tests wait: one worker more than there are cores keeps the cores busy.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS ?=
# The tests start hundreds of Python processes. Without stored bytecode, each of them would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

# Only `make test` leaves out the tests marked slow.
test-slow test-containers stage-kill stage-heavy conformance peers interrupts teams fuzz soak soak-up soak-stream: export HOLDFAST_SLOW := 1

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-plain-user conformance peers test-containers check format bench interrupts teams fuzz soak soak-kill soak-up soak-stream powerloss lock clean stage-kill stage-heavy

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything that the other targets need
	@$(PYTHON) scripts/setup
	$(if $(filter setup,$(MAKECMDGOALS)),@echo "Set-up is complete. Next: source $(BIN)/activate && holdfast --help")

run: setup ## Start Holdfast
	@$(BIN)/holdfast $(RUN) $(ARGS)

test: setup ## Run the tests, but for those marked slow
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-slow: setup ## Run the tests that `make test` leaves out because they take long
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

test-plain-user: setup ## Run some tests as a plain user that is made for it (only root can do this)
	@$(PYTHON) scripts/plain-user $(ARGS)

test-containers: setup ## Test the container sandbox with podman (installs podman and runc)
	@$(PYTHON) scripts/containers
	@HOLDFAST_CONTAINERS=1 $(BIN)/python -m pytest tests/sandbox/test_podman.py $(ARGS)

check: setup ## Check format, lint, types and layers
	@$(BIN)/python scripts/check

format: setup ## Format the code and apply automatic fixes
	@$(BIN)/ruff format --quiet && $(BIN)/ruff check --quiet --fix

bench: setup ## Run the benchmarks against peers; writes build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

stage-kill: setup ## Kill the browser's server and its host 50 times each, at random moments
	@HOLDFAST_STAGE_KILLS=50 $(BIN)/python -m pytest tests/stage/test_kill_cycles.py -n 0 $(ARGS)

stage-heavy: setup ## Test the browser with pages that need much memory or time
	@HOLDFAST_STAGE_HEAVY=1 HOLDFAST_STAGE_EXAMPLES=100 $(BIN)/python -m pytest tests/stage/test_hostile_pages.py tests/stage/test_mutating_pages.py tests/stage/test_corpus.py tests/stage/test_traffic.py -n 0 --timeout 900 $(ARGS)

conformance: setup ## Run MCP's official conformance suite against a toolkit server, and through the gateway
	@HOLDFAST_CONFORMANCE=all $(BIN)/python -m pytest tests/peers/test_conformance.py tests/peers/test_gateway_conformance.py $(ARGS)

peers: setup ## Test every combination of third-party clients and servers
	@$(BIN)/python -m pytest -n auto tests/peers $(ARGS)

interrupts: setup ## Cancel, cut and kill turns of a model after every event of its answers, in all formats
	@HOLDFAST_EVERY_EVENT=1 $(BIN)/python -m pytest -n $(WORKERS) tests/agent/model/test_history.py tests/agent/model/test_failures.py --timeout 600 $(ARGS)

teams: setup ## Kill hosts whose sessions send messages, and race for budgets, many times, in every combination
	@HOLDFAST_LONG_TESTS=1 $(BIN)/python -m pytest tests/host/test_messages_survive.py tests/safety/test_51_agents_past_their_limits.py tests/agent/model/test_budgets.py --timeout 600 $(ARGS)

fuzz: setup ## Fuzz the wire and project folders, and repeat random attacks (FUZZ frames, FOLDERS folders, REPEATS)
	@HOLDFAST_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/wire -m fuzz --timeout 3600 $(ARGS)
	@HOLDFAST_FOLDERS=$(FOLDERS) $(BIN)/python -m pytest tests/safety -m fuzz -n $(WORKERS) $(ARGS)
	@HOLDFAST_REPEATS=$(REPEATS) $(BIN)/python -m pytest $$(grep -l 'import REPEATS' -r tests --include 'test_*.py') --timeout 3600 $(ARGS)

soak: setup ## Stress the links and the gateway: CYCLES sessions with good and bad endings, 100 x 100 concurrent calls, hostile servers
	@HOLDFAST_CYCLES=$(CYCLES) HOLDFAST_CROSSINGS=100 HOLDFAST_NEIGHBOURS=3 \
		$(BIN)/python -m pytest tests/connect/test_leaks.py tests/connect/test_context.py \
		tests/connect/http/test_streamable.py tests/connect/test_isolation.py tests/gateway/test_sessions.py -s $(ARGS)

soak-kill: setup ## Kill store writers and `holdfast acp` at random moments (CYCLES, DOOR_CYCLES)
	@$(BIN)/python -m tests.store.soak --cycles $(CYCLES) $(ARGS)
	@$(BIN)/python -m tests.journeys.soak --cycles $(DOOR_CYCLES) $(ARGS)

soak-up: setup ## Kill `holdfast up` under load (UP_CYCLES), and attack it while another client calls
	@HOLDFAST_UP_CYCLES=$(UP_CYCLES) $(BIN)/python -m pytest tests/journeys/test_up.py -k kill_9 -n0 $(ARGS)
	@HOLDFAST_UP_CYCLES=$(UP_CYCLES) $(BIN)/python -m pytest tests/safety/test_64_neighbours_of_an_attack.py -n0 $(ARGS)

soak-stream: setup ## Stream a million updates to a slow editor, subscriber and watcher; memory must stay flat (UPDATES)
	@HOLDFAST_STREAM=$(UPDATES) $(BIN)/python -m benchmarks.agents.slow_reader
	@HOLDFAST_SUBSCRIBER_EVENTS=$(UPDATES) HOLDFAST_SUBSCRIBER_ROUNDS=50 HOLDFAST_WATCHER_EVENTS=100000 \
		$(BIN)/python -m pytest tests/session/test_subscription.py tests/host/remote/test_watcher_that_stops_reading.py \
		-n0 -s --timeout 3600 $(ARGS)

powerloss: setup ## Simulate power loss under the store (IMAGES=number of cuts)
	@$(BIN)/python -m tests.store.powerloss --images $(IMAGES) $(ARGS)

lock: setup ## Lock the dependencies again (ARGS=--upgrade for newer versions)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/lock $(ARGS)

clean: ## Remove everything that make created
	@rm -rf .venv build dist peers/node_modules .coverage* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
