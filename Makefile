# `make` lists what there is. A bare Debian needs python3.11 (to 3.13), python3.11-venv and make.

# The first Python that can be used: a name on the PATH may be another project's, or a broken shim.
FIND_PYTHON = for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null && echo "$$python" && break; done
PYTHON = $(or $(shell $(FIND_PYTHON)),$(error Python 3.11, 3.12 or 3.13 with its venv module is needed: \
	apt-get install python3.11 python3.11-venv, or name it: make PYTHON=/path/to/python))
UV ?= uv
TESTS ?= tests
WORKERS ?= 2
DATABASE ?= sqlite

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What is installed is a superset of what is needed to run: never install less over more.
RUN := $(if $(wildcard .venv/.dev),.venv/.dev,.venv/.run)
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	--extra local --extra gymnasium --extra mcp --extra explorer --extra postgres pyproject.toml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run up down test test-all check fix wheel replay soak docs bench bench-recovery \
	screenshots bench-explorer bench-index \
	lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.dev ## create .venv with everything to run, test and check

run: $(RUN) ## play the CartPole example: a group of 8 episodes, nothing else needed
	@$(BIN)/episodes run examples/cartpole -n 8

test: .venv/.dev ## all tests but the soak; TESTS=path narrows them
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore=tests/soak $(TESTS)

test-all: .venv/.dev ## all tests with the long soak; DATABASE=postgresql plays them all on PostgreSQL
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --database $(DATABASE) $(TESTS)

check: .venv/.dev ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

fix: .venv/.dev ## repair what a tool can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: .venv/.dev ## build the wheel into dist/ and test what it installs
	$(BIN)/python -m build --wheel --no-isolation
	@$(BIN)/pytest -q tests/test_wheel.py

replay: .venv/.dev ## replay the recorded histories against the workflows of today
	@$(BIN)/pytest tests/workflows/test_replay.py

soak: .venv/.dev ## 500 episodes while all they need is killed; SEED=N repeats one, EPISODES=N, DATABASE=postgresql
	@$(BIN)/pytest --timeout 0 --database $(DATABASE) tests/soak

docs: .venv/.dev ## run the code blocks of the documentation
	@$(BIN)/pytest tests/test_docs.py

bench: .venv/.dev ## measure episodes per second against a plain workflow
	@$(BIN)/python -m benchmarks.episodes

bench-recovery: .venv/.dev ## measure how soon all goes on after a kill, and how soon a cancel is done
	@$(BIN)/python -m benchmarks.recovery

bench-explorer: .venv/.dev ## measure the explorer's pages over a million runs
	@$(BIN)/python -m benchmarks.explorer

screenshots: .venv/.dev ## take the README's screenshots of real runs; needs chromium
	@$(BIN)/python -m benchmarks.screenshots

bench-index: .venv/.dev ## measure the run index with a million runs; DATABASE=postgresql measures it there
	@$(BIN)/python -m benchmarks.run_index --database $(DATABASE)

up: ## start all of docker-compose.yml, with two workers; needs .env, see .env.example
	docker compose up --detach --build --scale worker=2

down: ## stop it; what it has kept stays
	docker compose down

lock: ## pin the newest versions that fit pyproject.toml, by hash; needs uv (or make UV=/path/to/uv)
	$(COMPILE) --upgrade --group build -o requirements/run.txt
	$(COMPILE) --upgrade --group dev -c requirements/run.txt -o requirements/dev.txt

clean: ## remove .venv and what tools left
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis .coverage*

.venv/.run: requirements/run.txt pyproject.toml
.venv/.dev: requirements/dev.txt pyproject.toml
.venv/.run .venv/.dev:
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing $< into .venv"
	@$(PIP) install --require-hashes -r $<
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
