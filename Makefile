# `make` alone lists the targets. They are all that CI runs (.ci/run), the same on a laptop.
# Needed on the machine: git, make and Python 3.11 or newer. Everything else goes into .venv.

PYTHON ?= python3
ARGS   ?=

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
UV     := $(or $(shell command -v uv 2>/dev/null),$(BIN)/uv)
UV_PIN := $(shell awk -F'"' '/^name = "uv"$$/ { getline; print $$2; exit }' uv.lock)

unexport VIRTUAL_ENV
export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS    := never

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench cases fuzz coverage clean test-browser test-deploy test-image test-servers test-harness test-conformance

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv with everything in it (the other targets do this by themselves)

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Airlock needs Python 3.11 or newer and '$(PYTHON)' is older or does not run; name another one: make PYTHON=python3.12" >&2; exit 1; }
	@[ -x "$(UV)" ] || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "'$(PYTHON)' cannot make a virtual environment: install the package python3-venv (Debian, Ubuntu), or put uv on the PATH" >&2; exit 1; }
	@[ -x "$(UV)" ] || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_PIN); }
	@"$(UV)" sync --all-extras --locked -q --python $(PYTHON)
	@touch $@

demo: $(READY) ## watch the gateway at work, in one minute
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(READY) ## run the tests; ARGS="-k name" and the like go to pytest
	@$(BIN)/python -m pytest -q -n auto --maxprocesses 8 $(ARGS)

check: $(READY) ## lint, format, types, import contracts, architecture tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests examples docs
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/arch

test-browser: $(READY) ## the pages in a real browser (Chromium, Debian: apt install chromium)
	@"$(UV)" sync --all-extras --locked -q --inexact --group browser
	@$(BIN)/python -m pytest -q -n auto --maxprocesses 4 tests/browser $(ARGS)

test-deploy: $(READY) ## lint and render what deploys: images, chart, units, stacks
	@"$(UV)" sync --all-extras --locked -q --inexact --group deploy --group servers
	@$(BIN)/python -m pytest -q -n 2 tests/deploy --ignore tests/deploy/test_image.py $(ARGS)

test-image: $(READY) ## build the image and drive a call through it (buildah, debootstrap; some minutes)
	@"$(UV)" sync --all-extras --locked -q --inexact --group deploy
	@$(BIN)/python -m pytest -q tests/deploy/test_image.py $(ARGS)

test-conformance: $(READY) ## the official conformance suite, direct and through the gateway (npm)
	@"$(UV)" sync --all-extras --locked -q --inexact --group conformance
	@$(BIN)/python -m pytest -q tests/conformance $(ARGS)

NPM_SERVERS := kubernetes-mcp-server@0.0.67 @modelcontextprotocol/server-postgres@0.6.2 @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0

test-servers: $(READY) ## real servers and SDK clients through the gateway, and the example policies (PyPI, npm)
	@"$(UV)" sync --all-extras --locked -q --inexact --group servers
	@[ -d $(VENV)/npm/node_modules/@modelcontextprotocol/client ] || PATH="$(CURDIR)/$(BIN):$$PATH" npm install --ignore-scripts --no-fund --no-audit --silent --prefix $(VENV)/npm $(NPM_SERVERS) || echo "no npm registry: the tests that need it say so"
	@AIRLOCK_TEST_NPM=$(VENV)/npm $(BIN)/python -m pytest -q tests/servers tests/compat $(ARGS)

NPM_CLIENTS := @openai/codex@0.171.0 @modelcontextprotocol/inspector@2.12.0 @google/gemini-cli@0.61.0
HARNESS     := $(VENV)/harness

test-harness: $(READY) ## real clients through the gateway: Claude Code, Codex, Hermes, MCP Inspector (PyPI, npm; 1.3 GB)
	@"$(UV)" sync --all-extras --locked -q --inexact --group conformance
	@for one in $(HARNESS) $(HARNESS)/hermes; do [ -x $$one/bin/python ] || "$(UV)" venv -q --python $(PYTHON) $$one || exit 1; done
	@"$(UV)" pip install -q --python $(HARNESS)/bin/python claude-agent-sdk==0.2.189
	@"$(UV)" pip install -q --python $(HARNESS)/hermes/bin/python 'hermes-agent[mcp]==0.19.0' || { [ -z "$$CI" ] && echo "no Hermes: the tests that need it say so"; }
	@[ -d $(HARNESS)/npm/node_modules/@google/gemini-cli ] || PATH="$(CURDIR)/$(BIN):$$PATH" npm install --ignore-scripts --no-fund --no-audit --silent --prefix $(HARNESS)/npm $(NPM_CLIENTS) || { [ -z "$$CI" ] && echo "no npm registry: the tests that need it say so"; }
	@AIRLOCK_TEST_CLAUDE=$$(echo $(HARNESS)/lib/python*/site-packages/claude_agent_sdk/_bundled/claude) AIRLOCK_TEST_GEMINI=$$(ls $(CURDIR)/$(HARNESS)/npm/node_modules/.bin/gemini 2>/dev/null) $(BIN)/python -m pytest -q -n 2 tests/harness $(ARGS)

bench: $(READY) ## measure CPU per request against the published original (needs a C compiler)
	@$(BIN)/python bench/run.py $(ARGS)

cases: $(READY) ## list the numbered cases that no test holds yet
	@$(BIN)/python tests/cases.py $(ARGS)

fuzz: $(READY) ## run the fuzz tests for longer
	@AIRLOCK_FUZZ_EXAMPLES=20000 $(BIN)/python -m pytest -q -n 2 tests/fuzz $(ARGS)

coverage: $(READY) ## run the tests with branch coverage
	@$(BIN)/coverage run -m pytest -q $(ARGS)
	@$(BIN)/coverage report

clean: ## remove what make made: environments, caches, builds, benchmark output
	@rm -rf $(VENV) build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache bench/.venv-peer bench/out
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
