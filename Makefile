# Everything a newcomer runs. `make help` lists it; each target installs what it needs first.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
UV ?= uv
ARGS ?=
SEEDS ?= 2000
FROM ?= 0
REQUESTS ?= 500
SEED ?= 1
MINUTES ?= 3

.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-clusters lint types format simulate mutants crash-points chaos bench bench-context servers stop-servers lock

help: ## list what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.runtime ## put Briefline and what it needs at run time into .venv
dev: $(VENV)/.dev ## the same, with the tools of the tests

demo: install ## run the BitMall team on the demo request: no server, no key
	@$(BIN)/briefline demo $(ARGS)

test: lint types ## linters, types and all tests; starts RabbitMQ and Redis if none is found
	@$(BIN)/python -m ops.servers run -- $(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

test-clusters: dev ## the tests that share servers, on a Redis in cluster mode and three RabbitMQ nodes
	@$(BIN)/python -m ops.servers cluster -- $(BIN)/python -m pytest -n 2 --dist loadgroup -m "servers and not own_server" \
	  tests/contract tests/system tests/ops/blackboard tests/ops/broker tests/faults $(ARGS)

lint: dev ## ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: dev ## mypy, strict
	@$(BIN)/mypy

simulate: dev ## run the whole system under seeded faults in virtual time (SEEDS=2000 FROM=0)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM) $(ARGS)

mutants: dev ## take rules away from the code, and see the simulation find each
	@$(BIN)/python -m tests.simulation.mutations $(ARGS)

crash-points: dev ## let each process die before and after each durable step, on servers of its own (ARGS=--pairs: twice in a row)
	@$(BIN)/python -m tests.crash $(ARGS)

chaos: dev ## break processes, servers and lines while requests run (REQUESTS=500 SEED=1 MINUTES=3)
	@$(BIN)/python -m tests.chaos --requests $(REQUESTS) --seed $(SEED) --minutes $(MINUTES) $(ARGS)

growth: dev ## measure what a request costs as numbers grow, on servers of its own (full size: ARGS=--full)
	@$(BIN)/python -m ops.bench.growth $(ARGS)

# In an environment of its own: what it is measured beside stays out of the others.
bench: ## measure CPU, speed and memory beside Celery and others (a quick look: ARGS="--only briefline,celery --pairs 2")
	@$(MAKE) --no-print-directory VENV=$(VENV)-bench .measure

bench-context: ## count what briefs save in tokens, beside passing the whole history on
	@$(MAKE) --no-print-directory VENV=$(VENV)-bench .count

.PHONY: .measure .count
.measure: $(VENV)/.bench
	@$(BIN)/python -m ops.bench $(ARGS)

.count: $(VENV)/.bench
	@$(BIN)/python -m ops.bench.context

format: dev ## rewrite the code as ruff wants it
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

servers: install ## start RabbitMQ and Redis for trying things out (installs them when root)
	@$(BIN)/python -m ops.servers start

stop-servers: install ## stop what `make servers` started
	@$(BIN)/python -m ops.servers stop

# The stamps are older than the locks when these change, and then pip runs again.
$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/pip
	$(call install_locked,requirements/runtime.txt)
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/pip
	$(call install_locked,requirements/dev.txt)
	@touch $@ $(VENV)/.runtime

$(VENV)/.bench: requirements/bench.txt pyproject.toml | $(BIN)/pip
	$(call install_locked,requirements/bench.txt)
	@touch $@

# --no-build-isolation: the build uses setuptools from the lock instead of fetching one that no hash holds.
define install_locked
	@$(BIN)/python -m pip install --quiet --require-hashes -r $(1)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
endef

# Debian ships venv without pip unless python3-venv is there.
$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "No python3 found. Briefline needs Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11. Name a newer one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory .python-venv
	@$(PYTHON) -m venv $(VENV)

.PHONY: .python-venv
.python-venv:
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  || { echo "Python lacks its venv part. Install it (Debian: apt-get install python3-venv) and run make again."; exit 1; }
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv

# A later lock keeps to the first one's versions, so that they fit into one environment.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" pyproject.toml requirements/build.in

lock: ## write requirements/*.txt anew from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is missing: pip install uv, or make UV=/path/to/uv lock"; exit 1; }
	$(COMPILE) $(ARGS) -o requirements/runtime.txt
	$(COMPILE) $(ARGS) -c requirements/runtime.txt --extra openai -o requirements/openai.txt
	$(COMPILE) $(ARGS) -c requirements/runtime.txt --extra s3 -o requirements/s3.txt
	$(COMPILE) $(ARGS) -c requirements/openai.txt -c requirements/s3.txt --extra dev -o requirements/dev.txt
	$(COMPILE) $(ARGS) -c requirements/openai.txt --extra bench -o requirements/bench.txt
