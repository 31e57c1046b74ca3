# Everything a person or a CI does here. `make help` lists it.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
# Tests keep compiled modules, also where the environment says that none are written (tools/check.py says why).
check test test-rest soak: export PYTHONDONTWRITEBYTECODE :=
.PHONY: help setup demo demo-fault test test-full test-rest check soak bench gpu-proof screenshots pictures docs assets lock sbom audit release clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## install what is missing; quick when nothing is
	@$(PYTHON) tools/setup.py --for demo

demo:  ## a real Slurm cluster on this machine and a training on it
	@$(PYTHON) tools/demo.py

demo-fault:  ## kill a node under that training and watch it go on
	@$(PYTHON) tools/demo_fault.py

test: check  ## check, integration, servers, the page in a browser, and the core path on real Slurm (root)
	@$(PYTHON) tools/setup.py --for test --quiet
	@$(BIN)/python -m pytest -m "not soak" -n 3 --dist load -o faulthandler_timeout=300 tests/integration tests/process tests/security/server tests/web
	@$(BIN)/python -m pytest -m "core and not soak" -n 2 --dist loadfile -o faulthandler_timeout=600 tests/cluster

test-full: test test-rest  ## everything on real clusters but the soak tests

test-rest:  ## what make test leaves out of test-full: all other tests on real clusters, many examples of each property
	@$(PYTHON) tools/setup.py --for test --quiet
	@$(BIN)/python -m pytest -m "hypothesis and not soak" -n 2 tests/unit tests/integration
	@$(BIN)/python -m pytest -m "not core and not soak" -n 2 --dist loadfile tests/cluster tests/security/tenants

check:  ## ruff, mypy, import contracts, unit tests (no root)
	@$(PYTHON) tools/setup.py --for check --quiet
	@$(BIN)/python tools/check.py

soak:  ## the long tests
	@$(PYTHON) tools/setup.py --for test --quiet
	@$(BIN)/python -m pytest -m soak -o faulthandler_timeout=14400 tests

bench:  ## the figures that the README quotes, but for the half hour of 100 faults
	@$(PYTHON) tools/setup.py --for demo --quiet
	@for part in cli_start server/server_requests bring_up/rendering bring_up/unchanged_apply jobs/container nodes/agent bring_up/bringup \
	    "server/billing_reports --most 4" "faults/recovery --no-stock" "faults/takeover --without-agent"; do \
	  echo "== $$part"; $(BIN)/python bench $$part || exit 1; done

gpu-proof:  ## check what Headway does with this machine's real GPUs, and write docs/gpu-checks.md
	@$(PYTHON) node/gpu_proof $(ARGS)

screenshots:  ## every page, light, dark and on a phone: screenshots/index.html
	@$(PYTHON) tools/setup.py --for test --quiet
	@$(BIN)/python tests/support/site/screenshots.py screenshots

pictures:  ## take the README's pictures again
	@$(PYTHON) tools/setup.py --for test --quiet
	@$(BIN)/python tests/support/site/screenshots.py --readme docs/pictures

docs:  ## the documentation: reference pages from the code, and the site that the server serves at /docs
	@$(BIN)/python tools/docs.py reference
	@$(BIN)/python tools/docs.py build

assets:  ## the page's browser libraries
	@$(BIN)/python tools/assets.py

lock:  ## pin all Python packages again from pyproject.toml (UPGRADE=1: newest versions)
	@tools/lock.sh

sbom:  ## print the server's bill of materials (CycloneDX 1.6); headway image sbom prints that of a node image
	@$(BIN)/python tools/sbom.py

release:  ## the files of a release in dist/: packages, bills of materials, provenance, SHA256SUMS (ARGS="--key FILE")
	@$(PYTHON) tools/setup.py --for check --quiet
	@$(BIN)/python tools/release.py $(ARGS)

audit:  ## known vulnerabilities of pinned packages and of the node image (ARGS="--help")
	@$(BIN)/python tools/audit.py $(ARGS)

clean:  ## remove the demo, node images and state (YES=1: other clusters too)
	@$(PYTHON) tools/clean.py
