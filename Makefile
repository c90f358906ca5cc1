# The distribution's own Python, where there is one: such builds are optimised, self-made ones a third slower.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 /usr/bin/python3.14) python3)
VENV := .venv
BIN := $(VENV)/bin
# What running needs, and what development adds: ten times as much.
RUN := $(VENV)/.installed
DEV := $(VENV)/.development
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The tools that check the web UI. Without npm the rest works, and one sentence says what is missing.
UI := src/mainspring/ui
UI_TOOLS := $(VENV)/ui-tools
UI_STAMP := $(VENV)/.ui-libraries
# Without bytecode, pytest would rewrite the assertions of all tests in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup kubernetes up quick test test-kubernetes test-image thorough lint docs reference coverage services services-stop bench simulate chaos clean

$(RUN): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Mainspring needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(PIP) --editable '.[speed]'
	@touch $@

$(DEV): $(RUN)
	@$(PIP) --editable '.[dev,speed]'
	@touch $@

$(UI_STAMP): $(DEV) $(UI)/package-lock.json scripts/ui-libraries
	@if $(BIN)/python scripts/ui-libraries --dev $(UI_TOOLS); then touch $@; fi

setup: $(DEV) $(UI_STAMP)

# The libraries of the web UI come with the installation; this fetches them if they are missing or outdated.
up: $(RUN)
	@$(BIN)/python scripts/ui-libraries || :
	@exec $(BIN)/mainspring up examples/quickstart.py

# Nothing is skipped: what a test needs and cannot have fails it. `pytest` alone runs the tests one after another.
test: $(DEV) lint
	@scripts/services start
	@scripts/test

# The manifests and the chart on a real API server with controllers, a scheduler and a node: what `make kubernetes` builds.
test-kubernetes: $(DEV)
	@scripts/services start
	@set -a; . ./.services/urls; set +a; $(BIN)/python -m pytest -m kubernetes tests/ops/kubernetes

# The image of the Containerfile: built without a registry, then run by podman as in the manifests. Needs root and Debian.
test-image: $(DEV)
	@scripts/image
	@$(BIN)/python -m pytest -m image tests/executors/test_image.py

# What takes too long for `test`: every fault under each elector, one after the other, in about five minutes, and as many
# seeds of the simulator as fit five more.
thorough: $(DEV)
	@scripts/services start
	@set -a; . ./.services/urls; set +a; $(BIN)/python -m pytest -m slow_electors
	@MAINSPRING_SIMULATE_SECONDS=300 $(BIN)/python -m pytest tests/simulation/test_seeds.py

# The inner loop: what breaks most often, in less than a minute, without any server. The store inline, as the simulator has it, is left to `test`.
quick: $(DEV) lint
	@$(BIN)/python -m pytest -n 4 --dist loadscope -x tests/test_tidy.py tests/core tests/services tests/adapters/sqlite/test_sqlite_conformance.py \
		--deselect tests/adapters/sqlite/test_sqlite_conformance.py::TestInline

# Which lines no test runs, by file; the report is in htmlcov/.
coverage: $(DEV)
	@scripts/services start
	@scripts/test --cov=mainspring --cov-report=term:skip-covered --cov-report=html

services:
	@scripts/services start

# The API server, controllers and scheduler of Kubernetes, and Helm, built once into a cache outside of this folder, in about ten minutes. Tests use
# them where they are, and a small stand-in of the API server otherwise.
kubernetes:
	@scripts/servers/kubernetes/build

services-stop:
	@scripts/services stop

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@for file in tests/*/conftest.py; do $(BIN)/mypy --exclude none $$file || exit 1; done
	$(BIN)/lint-imports
	@if test -e $(UI_STAMP); then node $(UI_TOOLS)/node_modules/typescript/bin/tsc -p $(UI)/jsconfig.json; fi

# The documentation site, in site/. MkDocs has an environment of its own: its 110 MB are no part of `make setup`.
DOCS_BIN := $(VENV)-docs/bin
$(DOCS_BIN)/mkdocs: pyproject.toml
	@$(PYTHON) -m venv $(VENV)-docs
	@$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"])')
	@touch $@

# The pages of docs/reference, from the code: commands, operations of the API, public names, errors, events.
reference: $(DEV)
	@$(BIN)/python scripts/docs/reference.py

docs: $(DOCS_BIN)/mkdocs reference
	@NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --quiet --strict
	@echo "site/index.html is built; $(PYTHON) -m http.server --directory site serves it with search"

# Embedded, then on servers that it starts and stops itself; `python -m bench --help` for parts of it.
bench: $(DEV)
	$(BIN)/python -m bench
	$(BIN)/python -m bench --store postgres

simulate: $(RUN)
	$(BIN)/mainspring simulate --seeds 200 --profile chaos

chaos: $(DEV)
	$(BIN)/python -m mainspring.testing.chaos --seconds 120

clean:
	rm -rf $(VENV)
