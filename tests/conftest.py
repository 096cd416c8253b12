"""Scenarios begin with the first test, and run beside the unit tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lives import forget


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
