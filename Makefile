# gpunode: `make demo` shows it, `make test` proves it, `make setup` makes the environment alone.
# Every target may be run again at any time.

PYTHON ?= python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E")
APT := $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -q -y
# What the lab needs of the system; a program of each package that is there means that it is installed.
LAB_PACKAGES := podman runc netavark aardvark-dns iptables nftables debootstrap dpkg-dev apt-utils gnupg openssh-client openssl zstd
# A browser for the tests of the page that `--html` writes, and letters for its pictures; where the system has none, those tests skip.
BROWSER_PACKAGES := chromium fonts-dejavu-core
# What its virtual machine needs beside these, which only test-slow boots, and the real vagrant with the keys it reads.
VM_PACKAGES := qemu-system-x86 grub-pc-bin grub-common e2fsprogs genisoimage vagrant ruby-ed25519 ruby-bcrypt-pbkdf
# The tests start hundreds of short programs; where nothing may be cached, each of them compiles gpunode anew.
CACHED := env -u PYTHONDONTWRITEBYTECODE
# The unit tests in parts side by side, then the scenarios, which are side by side by themselves.
UNIT := $(SUDO) $(CACHED) .venv/bin/python -m tests.fast
SCENARIOS := $(SUDO) $(CACHED) .venv/bin/pytest
TIMED = date +"==> %H:%M:%S $(1)"

.PHONY: help setup lab-tools lab-vm-tools demo demo-down test-fast test test-slow test-real test-hardware lint package docs pictures audit browser-tools database-tools

help:
	@echo "make setup      make .venv, so that .venv/bin/pyinfra and .venv/bin/gpunode work"
	@echo "make demo       boot two lab nodes with simulated H100s and turn them into GPU nodes"
	@echo "make demo-down  take the demo's nodes down"
	@echo "make test-fast  unit tests (no nodes, about a minute)"
	@echo "make test       unit tests and scenarios on lab nodes"
	@echo "make test-slow  what takes long"
	@echo "make test-real  what needs something that not everybody has, such as GPUNODE_REAL_REPOSITORIES=1: live repositories (CONTRIBUTING.md)"
	@echo "make test-hardware  on a machine with a GPU: gpunode's facts beside nvidia-smi's, CUDA, MPS; writes docs/hardware.md"
	@echo "make lint       ruff, mypy, shellcheck, and the site of docs/ (into .site)"
	@echo "make package    build the sdist and the wheel, install and try each"
	@echo "make audit      look for known vulnerabilities in uv.lock; says so where it could not"
	@echo "make pictures   make docs/pictures by a chromium without a window, of SIMULATED fleets"
	@echo "make docs       generate the reference pages, docs/coverage.md and the tables of docs/support.md"

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

lab-vm-tools: LAB_PACKAGES += $(VM_PACKAGES)
lab-tools lab-vm-tools:
	@missing=; for package in $(LAB_PACKAGES); do \
	  dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then $(call TIMED,Installing what the lab needs:$$missing (half a minute)); \
	  $(APT) update >/dev/null && $(APT) install --no-install-recommends $$missing >/dev/null; fi

browser-tools:
	@command -v chromium >/dev/null || { $(call TIMED,Installing $(BROWSER_PACKAGES) (half a minute)); \
	  $(APT) update >/dev/null && $(APT) install --no-install-recommends $(BROWSER_PACKAGES) >/dev/null; } || \
	  echo "no chromium to be had here: the page's tests in a browser are skipped"

# The tests start a server of their own from it, and leave the one that Debian starts alone.
database-tools:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { $(call TIMED,Installing postgresql (half a minute)); \
	  $(APT) update >/dev/null && $(APT) install --no-install-recommends postgresql >/dev/null; } || \
	  echo "no PostgreSQL to be had here: the history's tests with it are skipped"

demo: setup lab-tools
	@$(SUDO) .venv/bin/python -m gpunode.lab.demo

demo-down: setup
	@$(SUDO) .venv/bin/gpunode lab down

lint: setup
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
	@.venv/bin/python -m gpunode.reference
	@.venv/bin/python -m tests.support
	@.venv/bin/python -m tests.coverage

pictures: setup browser-tools
	@.venv/bin/python -m tests.pictures

test-fast: setup
	@$(CACHED) .venv/bin/python -m tests.fast

test: setup lab-tools browser-tools database-tools
	@$(UNIT) -m "not slow"
	@$(SCENARIOS) -m "not slow" tests/test_scenarios.py

test-slow: export GPUNODE_TEST_ALL = 1
test-slow: export GPUNODE_TEST_EXAMPLES = 1000
test-slow: setup lab-vm-tools browser-tools database-tools
	@$(UNIT) -m "slow or not slow"
	@$(SCENARIOS) tests/test_scenarios.py
	@$(call TIMED,Mutants of what gpunode promises most (ten minutes))
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.mutation

# Each check skips with one line where what it needs is not given.
test-real: setup
	@$(CACHED) .venv/bin/pytest -q tests/real

# Skips with one line where there is no GPU. INVENTORY=... looks at other machines than this one.
test-hardware: setup
	@$(SUDO) $(CACHED) .venv/bin/python -m tests.hardware $(INVENTORY)
