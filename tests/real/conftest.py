"""What was given, and what was found: one line where nothing is given, and the findings at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.checked import Checked

REPORT = Path(__file__).parents[2] / ".reports" / "world.txt"
NOTHING = "no repository at all was reached, and under CI=true that is a failure"
_told: list[str] = []
_found: list[Checked] = []


@pytest.fixture
def tell() -> Iterator[object]:
    """Return a function that keeps what was found, to be told at the end: tell(where, checked)."""

    def keep(where: str, checked: Checked) -> None:
        _told.extend(checked.lines(where))
        _found.append(checked)

    yield keep


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI's in which nothing was reached: each of its checks is skipped, and nothing was looked at."""
    if os.environ.get("CI") == "true" and _found and not any(checked.reached for checked in _found):
        _told.append(NOTHING)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was found in the live repositories, and keep it in .reports/world.txt."""
    if _told:
        terminalreporter.section("live repositories (.reports/world.txt)")
        for line in _told:
            terminalreporter.write_line(line)
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text("\n".join(_told) + "\n", encoding="utf-8")
