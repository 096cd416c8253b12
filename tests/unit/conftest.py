"""Fixtures of the unit tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyinfra.context import ctx_host

from facts.transaction import TransactionJournal
from gpunode.transaction import Journal
from tests.unit.simulated_host import Host

# In a fresh checkout hypothesis first builds its tables of Unicode, which it takes for a slow test; and the time of a
# busy machine is no property of the code.
settings.register_profile("unit", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("unit")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let one of several processes that run side by side take its part of the files (tests/fast.py)."""
    parser.addoption("--part", metavar="K/N", help="run every Nth file of the unit tests, beginning with the Kth")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the files of other parts."""
    if not config.getoption("--part"):
        return
    part, _, parts = config.getoption("--part").partition("/")
    mine = set(sorted({item.path for item in items})[int(part) - 1 :: int(parts)])
    config.hook.pytest_deselected(items=[item for item in items if item.path not in mine])
    items[:] = [item for item in items if item.path in mine]


@pytest.fixture
def run_shell() -> Callable[[str], tuple[int, list[str]]]:
    """Return a function that runs a probe under this machine's sh: exit code and lines."""

    def run(command: str) -> tuple[int, list[str]]:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.splitlines()

    return run


@pytest.fixture
def host() -> Iterator[Host]:
    """Return the host that operations see."""
    current = Host({TransactionJournal: Journal(None, None, None, False)})
    ctx_host.set(current)
    yield current
    ctx_host.reset()
