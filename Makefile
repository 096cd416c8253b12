# gpunode: `make demo` shows it, `make test` proves it, `make setup` makes the environment alone.
# Every target may be run again at any time.

PYTHON ?= python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E")
APT := $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -q -y
# System packages of the lab and of the tests; tests/unit/test_installed.py compares them with the programs that are started.
LAB_PACKAGES := podman runc netavark aardvark-dns iptables nftables debootstrap dpkg-dev apt-utils gnupg openssh-client openssl zstd \
  busybox gcc libc6-dev
# The second tier: PostgreSQL for the history, and a browser for the page that `--html` writes.
DATABASE_PACKAGES := postgresql
BROWSER_PACKAGES := chromium fonts-dejavu-core
# The third tier: the virtual machine, and the real vagrant with the keys that it reads.
VM_PACKAGES := qemu-system-x86 grub-pc-bin grub-common e2fsprogs genisoimage
VAGRANT_PACKAGES := vagrant ruby-ed25519 ruby-bcrypt-pbkdf
# Hundreds of short programs start in the tests; without a cache of bytecode each of them compiles gpunode.
CACHED := env -u PYTHONDONTWRITEBYTECODE
# Go may be anywhere on the PATH, of which sudo leaves little.
TESTS := $(SUDO) $(CACHED) "PATH=$(PATH)" .venv/bin/python -m tests.run
TIMED = date +"==> %H:%M:%S $(1)"
# Names of scenarios: `make test-nodes SCENARIOS="dnf zypper"` runs these alone.
SCENARIOS ?=
ONLY = $(if $(SCENARIOS),--scenarios "$(SCENARIOS)")

.PHONY: help setup lab-tools nodes-tools all-tools demo demo-down test test-unit test-unit-2 test-nodes test-all bench test-real test-hardware rehearse-hardware lint package \
  docs pictures audit

help:
	@echo "make setup          make .venv, so that .venv/bin/pyinfra and .venv/bin/gpunode work"
	@echo "make demo           boot two lab nodes with simulated H100s and turn them into GPU nodes"
	@echo "make demo-down      take the demo's nodes down"
	@echo "make test           tier 1: unit tests, and the main job on lab nodes (12 minutes)"
	@echo "make test-unit      the unit tests of tier 1 alone (2 minutes; no nodes)"
	@echo "make test-nodes     tier 2: the other scenarios (40 minutes); SCENARIOS=\"dnf mps\" for some"
	@echo "make test-unit-2    the unit tests of tier 2 alone"
	@echo "make test-all       tier 3: everything, with the virtual machine and breaks (hours)"
	@echo "make test-real      what needs more than this machine, such as GPUNODE_REAL_REPOSITORIES=1 (docs/testing.md)"
	@echo "make test-hardware  on a machine with a GPU: gpunode's facts next to nvidia-smi's; writes docs/hardware.md"
	@echo "make rehearse-hardware  the main job for a machine with a GPU, on a lab node without network (8 minutes)"
	@echo "make bench          how long plans, probes and commands take; writes docs/performance.md"
	@echo "make lint           ruff, mypy, shellcheck, and the site of docs/ (into .site)"
	@echo "make package        build the sdist and the wheel, install and try each"
	@echo "make audit          look for known vulnerabilities in uv.lock"
	@echo "make docs           generate the reference pages"
	@echo "make pictures       make docs/pictures with a browser, of SIMULATED fleets"

setup: .venv/.complete

.venv/.complete: pyproject.toml uv.lock uv.requirements.txt
	@$(call TIMED,Python environment in .venv (under a minute))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpunode needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.12, say." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(APT) update && $(APT) install python3-venv; }
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r uv.requirements.txt
	@.venv/bin/uv sync --frozen --quiet --compile-bytecode
	@touch $@

# install NAMES: install the packages of the list that are missing.
install = @missing=; for package in $(1); do \
	  dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then $(call TIMED,Installing system packages:$$missing (half a minute)); \
	  $(APT) update >/dev/null && $(APT) install --no-install-recommends $$missing >/dev/null; fi

lab-tools:
	$(call install,$(LAB_PACKAGES))
nodes-tools: lab-tools
	$(call install,$(DATABASE_PACKAGES)) || echo "PostgreSQL cannot be installed here: its tests of the history are skipped"
	@command -v go >/dev/null || [ -x /usr/local/go/bin/go ] || \
	  echo "Go is missing: tests with crictl and NVIDIA's programs will fail. Install 1.26.6 or newer (https://go.dev/dl) in /usr/local/go"
	$(call install,$(BROWSER_PACKAGES)) || echo "chromium cannot be installed here: the page's tests in a browser are skipped"
all-tools: nodes-tools
	$(call install,$(VM_PACKAGES))
	$(call install,$(VAGRANT_PACKAGES)) || echo "vagrant cannot be installed here: its tests are skipped"

demo: setup lab-tools
	@$(SUDO) .venv/bin/python -m gpunode.lab.demo

demo-down: setup
	@$(SUDO) .venv/bin/gpunode lab down

lint: setup lab-tools
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/python -m tests.type_check
	@.venv/bin/python -m tests.shell_files
	@.venv/bin/python -m tests.docs_site

package: setup
	@.venv/bin/python -m tests.package

audit: setup
	@.venv/bin/python -m tests.advisories

docs: setup
	@.venv/bin/python -m tests.reference

pictures: setup nodes-tools
	@.venv/bin/python -m tests.pictures

test: setup lab-tools
	@$(TESTS) 1 $(ONLY)

test-unit: setup lab-tools
	@$(TESTS) 1 --unit

test-nodes: setup nodes-tools
	@$(TESTS) 2 $(ONLY)

test-unit-2: setup nodes-tools
	@$(TESTS) 2 --unit

test-all: export GPUNODE_TEST_ALL = 1
test-all: export GPUNODE_TEST_EXAMPLES = 1000
test-all: setup all-tools
	@$(TESTS) all $(ONLY)
	@$(call TIMED,Breaks of what gpunode promises most (half an hour))
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.mutation
	@$(call TIMED,Hostile texts for what reads nodes, servers and reports (10 minutes))
	@$(CACHED) .venv/bin/python -m tests.fuzz
	@$(call TIMED,The main job as on a machine with a GPU (10 minutes))
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.hardware.rehearse
	@$(MAKE) --no-print-directory bench

# Each writes its figures into docs/performance.md.
bench: setup lab-tools
	@for name in mig probe start; do $(SUDO) $(CACHED) .venv/bin/python -m tests.bench.$$name || exit; done

# Each check skips with one line where what it needs is not given.
test-real: setup
	@$(CACHED) .venv/bin/pytest -q tests/real

# Skips with one line where there is no GPU. INVENTORY=... looks at other machines than this one.
test-hardware: setup
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.hardware $(INVENTORY)

# What tests/hardware/run.sh does on a machine with a GPU. It needs Go and gcc.
rehearse-hardware: setup lab-tools
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.hardware.rehearse
