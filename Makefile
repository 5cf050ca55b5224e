# PYTHON=python3.12 chooses the interpreter, VENV=… the place of the virtual environment,
# ARGS=… goes to the program behind the target: make test ARGS='tests/unit -k repository'
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
export VENV
ifdef PYTHON
export PYTHON
endif
python := $(VENV)/bin/python
ARGS ?=

ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(shell command -v $(name))))
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' exporter/__init__.py)
REVISION = $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# The OCI format, which these two prefer, has no health check.
image_format = $(if $(filter podman buildah,$(notdir $(ENGINE))),--format docker)
# What of the Dockerfile: base, nvidia, amd, neuron, gaudi, tpu or all. PLATFORM=linux/arm64 builds for another processor.
TARGET ?= all
IMAGE ?= accel-exporter:$(VERSION)$(if $(filter all,$(TARGET)),,-$(TARGET))

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## install and start the agent on this machine's accelerators, or on a simulated node if it has none
	@scripts/venv.sh run
	@exec $(VENV)/bin/accel-exporter serve --demo $(ARGS)

.PHONY: test
test: ## install what the tests need, and run them all
	@scripts/test-programs.sh
	@scripts/venv.sh dev
	@$(python) -m pytest $(ARGS)

.PHONY: test-kubelet
test-kubelet: ## build a kubelet and an API server from Debian's sources, and try attribution on them; takes root and minutes
	@scripts/test-programs.sh
	@scripts/venv.sh dev
	@scripts/helm.sh >/dev/null
	@KUBELET_PROGRAMS=$$(scripts/kubelet-programs.sh) && export KUBELET_PROGRAMS && \
	  tests/kubelet/enter.sh $(python) -m pytest tests/kubelet $(ARGS)

.PHONY: lint
lint: ## check style, types and the Dockerfile
	@scripts/venv.sh dev
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(VENV)/bin/hadolint Dockerfile

.PHONY: format
format: ## bring the code into its form
	@scripts/venv.sh dev
	$(python) -m ruff check --fix .
	$(python) -m ruff format .

.PHONY: bench
bench: ## measure, and print a table
	@scripts/venv.sh dev
	@$(python) -m benchmarks $(ARGS)

.PHONY: docs
docs: ## write the generated pages of docs/ and the list of metrics anew
	@scripts/venv.sh dev
	@$(python) -m exporter.docs $(ARGS)
	@$(python) -m releases $(ARGS)

.PHONY: chart
chart: ## write anew what the Helm chart and the plain manifests are made of
	@scripts/venv.sh dev
	@$(python) scripts/chart.py --helm "$$(scripts/helm.sh)" $(ARGS)

.PHONY: dashboards
dashboards: ## write the dashboards, the rules and their pages anew
	@scripts/venv.sh dev
	@$(python) -m dashboards $(ARGS)
	@$(python) -m alerts $(ARGS)

.PHONY: rules
rules: ## write the alerts with links to your copy of the runbooks: ARGS='--runbook-base URL --output FILE'
	@scripts/venv.sh dev
	@test -n "$(ARGS)" || { echo "say where they go: make rules ARGS='--runbook-base URL --output FILE'" >&2; exit 2; }
	@$(python) -m alerts $(ARGS)

.PHONY: lock
lock: ## resolve the locked dependencies anew (ARGS=--upgrade for newer versions)
	@scripts/lock.sh $(ARGS)

.PHONY: image
image: ## build the container image with docker, podman or buildah
	@test -n "$(ENGINE)" || { echo "no docker, podman or buildah on PATH; name one: make image ENGINE=…" >&2; exit 1; }
	$(ENGINE) build $(image_format) $(if $(PLATFORM),--platform $(PLATFORM)) --target $(TARGET) \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) --tag $(IMAGE) $(ARGS) .

.PHONY: clean
clean: ## remove what the other targets made, the virtual environments included
	rm -rf .venv .venv-ci .venv-lock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
