# Everything starts here: `make run` needs Python 3.11 to 3.14, and nothing else.
# What is installed goes to .venv, in the versions of constraints.txt; nothing is downloaded after that.
# Where there is no Java 17 to 25, a Java of PyPI is installed too.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Where Python may not keep compiled modules, pytest rewrites the assertions of every test module in each run.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Another interpreter: make PYTHON=/path/to/python3.13 install
PYTHON ?=
RIGHT_PYTHON := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))

# Sets $$python to an interpreter of a right version, or says which ones there are and stops.
define find_python
python=; seen=; \
for name in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3); do \
  if "$$name" -c '$(RIGHT_PYTHON)' 2>/dev/null; then python=$$name; break; fi; \
  seen="$$seen $$name ($$("$$name" --version 2>/dev/null || echo 'does not run'))"; \
done; \
if [ -z "$$python" ]; then \
  echo "odi: Python 3.11 to 3.14 is needed, and none was found. Tried:$$seen" >&2; \
  echo "  → install one (Debian: sudo apt-get install python3.11-venv; macOS: brew install python@3.11;" >&2; \
  echo "    conda: conda create -n odi python=3.11), or name one: make PYTHON=/path/to/python3.11 $(or $(MAKECMDGOALS),install)" >&2; \
  exit 1; \
fi
endef

.PHONY: help install java run test check dev lint bench

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## make the environment in .venv, or bring it up to date

$(INSTALLED): pyproject.toml constraints.txt
	@$(find_python); \
	$(BIN)/python -c 'import pip; $(RIGHT_PYTHON)' 2>/dev/null || "$$python" -m venv --clear $(VENV)
	@echo "Installing into $(VENV): about 1 GB, once; a minute or a few ..." >&2
	@extras=dev,ui; $(BIN)/python -m odi_assets.spark.jvm.java 2>/dev/null || extras=dev,ui,java; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$$extras]"
	@touch $@

java: $(INSTALLED)
	@$(BIN)/python -m odi_assets.spark.jvm.java 2>/dev/null || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[java]'
	@$(BIN)/python -m odi_assets.spark.jvm.java

run: java ## run the sample: half of January 2013, then the other half
	$(BIN)/odi sample reset --yes --days 15
	$(BIN)/odi run flights
	$(BIN)/odi sample arrive --days 16
	$(BIN)/odi run flights

# How many cases of a test that takes Spark, a server or a process `make test` runs at most.
CASES ?= $(if $(ODI_TEST_WHOLE),100000,1)

test: java ## run all tests, in two workers, with one case of each; ODI_TEST_WHOLE=1: all cases; ARGS are pytest's
	@ODI_JAVA_ARCHIVE="$(CURDIR)/.cache/java" $(BIN)/odi java prepare >/dev/null || true
	$(BIN)/python -m pytest -n 2 --cases=$(CASES) $(ARGS)

check: $(INSTALLED) ## for every edit: ruff, mypy and the quick tests, without Spark and servers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m quick -n 2 --dist worksteal $(ARGS)

dev: java ## start Dagster's UI and daemon on http://127.0.0.1:3000
	$(BIN)/odi dev

lint: $(INSTALLED) ## ruff, mypy, and import-linter for the rooms
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: java ## run the benchmarks; ARGS may name some, or be `list`
	$(BIN)/python -m benchmarks $(ARGS)
