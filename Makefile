# `make` lists the targets. Each one sets up what it needs.

PYTHON ?= python3
PORT ?= 6443
GENERATION ?= dcgm
LOAD ?= 3
NODES ?= 3

# Without bytecode on disk, each worker and each program that the tests start compiles everything.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# What the server needs; and with it, what the tools and the tests need.
SERVER := .venv/.server
READY := .venv/.ready
# --no-compile: Python compiles modules on import; most modules are never imported.
PIP := $(BIN)/pip install --disable-pip-version-check --quiet --no-compile --progress-bar off

.DEFAULT_GOAL := help
.PHONY: help setup run quick test check fix lint types layers lock pin vectors lines attack backends bench react install image dist \
  control-plane playground cluster model-server walkthroughs e2e

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with all tools; fetch Prometheus unless it is installed
	@$(BIN)/python -m adapter.cli.local_prometheus.binary >/dev/null

$(SERVER): manifests/requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11; use make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; \
	    [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update && apt-get install --yes --no-install-recommends python3-venv; }
	@echo "creating .venv" >&2
	@$(PYTHON) -m venv .venv
	@echo "installing manifests/requirements.lock: 170 MB" >&2
	@$(PIP) --require-hashes --only-binary :all: -r manifests/requirements.lock
	@touch $@

$(READY): $(SERVER) tests/requirements.lock setup.cfg pyproject.toml
	@echo "installing tests/requirements.lock: 300 MB more" >&2
	@$(PIP) --require-hashes --only-binary :all: -r tests/requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Only LOAD=gpu needs a package that the server does not.
run: $(if $(filter gpu,$(LOAD)),$(READY),$(SERVER)) ## Serve a simulated GPU fleet on https://127.0.0.1:6443 until Ctrl-C (PORT= GENERATION= LOAD= NODES=)
	@exec $(BIN)/python -m adapter demo --secure-port=$(PORT) --generation=$(GENERATION) \
	  --load=$(LOAD) --nodes=$(NODES)

# For `run`, LOAD is a factor; here it is a number of replicas, passed on only if the user gave it.
playground: setup ## Watch an HPA follow GPU load, without cluster and GPU (KUBERNETES= GENERATION= LOAD= NODES=)
	@exec $(BIN)/python -m tools.playground --generation=$(GENERATION) --nodes=$(NODES) \
	  $(if $(filter-out file,$(origin LOAD)),--load=$(LOAD))

cluster: setup ## Run a real Kubernetes cluster of one node until Ctrl-C; needs root and Debian (KUBERNETES=)
	@exec $(BIN)/python -m tools.node

quick: $(READY) ## Run the fast tests, which start no server
	$(BIN)/pytest -n 2 -m "not real and not slow" --ignore=tests/walkthroughs --ignore=tests/e2e $(ARGS)

# Each file runs in one worker, so that its servers start once. Four workers keep two cores busy
# while tests wait for servers.
test: setup ## Run the tests, without nightly ones, and hold the coverage gates
	@$(BIN)/python -m tools.control_plane.build >/dev/null
	$(BIN)/coverage erase
	@echo "left out until the nightly run: real servers of tests/tools/{backends,bench}"
	$(BIN)/coverage run -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not nightly" \
	  --hypothesis-profile=ci --durations=10 --ignore=tests/walkthroughs --ignore=tests/e2e $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='rules/*,certs/*' --fail-under=95
	$(BIN)/coverage report --include='adapter/*' --fail-under=90

check: lint types layers ## Check style, types and import layers; `make fix` corrects style

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

fix: $(READY) ## Format, apply ruff's fixes, and write the generated parts of the documents
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tools.docs

# All three have the same versions: those with which the libraries of the clouds work.
lock: $(READY) ## Update the lock files from the minimum versions in setup.cfg
	$(BIN)/pip install --disable-pip-version-check --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header \
	  --extra aws --extra azure --extra google setup.cfg -o manifests/identities.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header \
	  --constraint manifests/identities.lock setup.cfg -o manifests/requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header \
	  --extra dev --constraint manifests/identities.lock setup.cfg -o tests/requirements.lock

pin: $(READY) ## Pin the actions of CI and the base image by digest (needs GitHub and Docker Hub)
	@$(BIN)/python -m tools.pins

vectors: $(READY) ## Run the golden cases of a folder (DIR=path; our own without)
	@$(BIN)/python -m tests.vectors $(or $(DIR),tests/vectors/data)

lines: $(READY) ## Count lines of Python by folder
	@$(BIN)/python -m tools.lines

control-plane: $(READY) ## Run a real Kubernetes control plane until Ctrl-C (KUBERNETES=1.32.2 for another release)
	@exec $(BIN)/python -m tools.control_plane

install: ## Build the image and install it in the cluster of kubectl's context (PROMETHEUS= REGISTRY= NAMESPACE= RELEASE=)
	@manifests/install $(ARGS)

image: ## Build the image with docker, podman or buildah (IMAGE= PLATFORM= BUILDER= ARGS=)
	@manifests/image/build $(ARGS)

dist: $(READY) ## Build wheel, source distribution and chart of the commit into build/dist (REGISTRY=ghcr.io/OWNER)
	@$(BIN)/python -m tools.release dist --registry='$(REGISTRY)'

attack: setup ## Flood the adapter with hostile input, and print what it cost (ARGS="selectors accept" for two floods)
	@$(BIN)/python -m tools.attack $(ARGS)

backends: setup ## Build VictoriaMetrics, Thanos, Cortex and Prometheus 3 for the tests, or print where they are (ARGS=thanos for one)
	@$(BIN)/python -m tools.backends.programs $(ARGS)

bench: setup ## Measure what requests cost, as ratios within one run (PEER='command {flags}' for a second server)
	@$(BIN)/python -m tools.bench $(ARGS)

react: setup ## Measure how soon HPAs show a change of load, in a real control plane (ARGS=300 for 300 HPAs)
	@$(BIN)/python -m tools.bench.react $(ARGS)

model-server: setup ## Scale a real vLLM without a GPU by its waiting requests; installs 8 GiB (ARGS=--record or --advise)
	@$(BIN)/python -m tools.model_server $(ARGS)

walkthroughs: setup ## Scale on GPU load in a real control plane, story by story (ARGS=-k ack for one)
	$(BIN)/python -m pytest -s tests/walkthroughs $(ARGS)

e2e: setup ## Install, scale, disturb and replace the adapter in the cluster of KUBECONFIG, else on one node here (ARGS=-k drain for one; E2E_IMAGE=)
	$(BIN)/python -m pytest -s tests/e2e $(ARGS)
