"""Scenarios begin with the first test; how long each took stands at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lives import TIMES, forget, taken

# What tests find is nobody's history; those of the history name their own.
os.environ["GPUNODE_HISTORY"] = "none"


@pytest.fixture(scope="session", autouse=True)
def lives(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes] | None]:
    """Start every scenario that was asked for; None where none was."""
    asked = [item.callspec.params["scenario"] for item in request.session.items if hasattr(item, "callspec")
             and item.path.name == "test_scenarios.py"]  # fmt: skip
    if not asked:
        yield None
        return
    # Here, lest a test takes what an earlier run left for an answer before the other process has begun.
    forget()
    checkout = Path(__file__).parent.parent
    process = subprocess.Popen([sys.executable, "-m", "tests.lives", *asked], cwd=checkout, stdin=subprocess.DEVNULL)
    yield process
    process.terminate()
    process.wait()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the scenarios that ran by how long they took, the longest first."""
    session = terminalreporter._session
    if session is None or not any(item.path.name == "test_scenarios.py" for item in session.items):
        return
    terminalreporter.section("scenarios by seconds (side by side; what each of its tests took: .reports/scenarios)")
    for line in taken(TIMES):
        terminalreporter.write_line(line)
