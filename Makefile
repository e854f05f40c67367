# Every target does its own set-up: Python (3.11 or later) and make are all a machine needs.
PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: help demo test test-long coverage bench lint docs gallery size house torture lowest audit clean

help:
	@echo "make demo   train on the bundled digits, print the comparison, leave plots below runs/"
	@echo "make test   run the tests, without the long ones"
	@echo "make test-long  run the long ones: documentation, notebooks, browser, attacks"
	@echo "make coverage  run all tests, and print which lines they reach"
	@echo "make bench  print the side-by-side speed ratios"
	@echo "make lint   ruff, type checker, import rules (the pre-commit set)"
	@echo "make docs   build the documentation site in build/site, and check it"
	@echo "make size   lines, files, what one fit crosses, the longest functions, import rules"
	@echo "make torture  attack files, processes, samplers, numbers; write the table of docs/trust.md"
	@echo "make lowest   run the tests with the lowest versions that pyproject.toml allows"
	@echo "make audit    look up known vulnerabilities of the pinned dependencies, where there is a network"
	@echo "make clean  remove the virtual environment and caches"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing annealfit into $(VENV) (the first time this takes a minute or more) ..."
	@$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing annealfit and its development tools into $(VENV) (the first time this takes minutes) ..."
	@$(PIP) --editable '.[all,dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/annealfit train digits

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m "not long"

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m long

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --cov --cov-report=term --cov-report=html:build/coverage

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pre-commit run --all-files --show-diff-on-failure

docs: $(VENV)/.dev
	$(BIN)/python tools/site.py build/site

gallery: $(VENV)/.dev
	$(BIN)/python tools/gallery.py

size: $(VENV)/.demo
	$(BIN)/python tools/size.py

house: size

torture: $(VENV)/.dev
	$(BIN)/python -W ignore tests/torture --write

lowest:
	$(PYTHON) tools/lowest_versions.py --venv $(LOWEST)

audit: | $(BIN)/python
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install pip-audit 2>/dev/null || true
	$(BIN)/python tools/audit.py

clean:
	rm -rf $(VENV) $(LOWEST) .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
