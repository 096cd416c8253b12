"""A plugin of pytest's, `-p tests.measured`: what each unit test takes, and that only tests that say so start programs.

`--measure FILE` writes a line for each test: its name, seconds of a processor (with all that it started), and how many
programs it started. A test that starts one without a marker that says so fails. Not loaded always: Python tells
of every file that it opens, too, to whoever asks it to tell of programs.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests import warm

_SAY_SO = ("starts_programs", "builds", "node", "slow")
_STARTS = {"subprocess.Popen", "os.system", "os.fork", "os.forkpty"}


class Measured:
    """Count what this process starts, and write what each test takes."""

    def __init__(self, file: TextIO | None) -> None:
        self.file, self.started, self.before = file, 0, 0
        # It is no test's own.
        warm.started()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self.started += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.before, seconds = self.started, _seconds()
        done = yield
        if self.file is not None:
            print(item.nodeid, f"{_seconds() - seconds:.3f}", self.started - self.before, sep="\t", file=self.file)
        return done

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if self.started > self.before and not any(item.get_closest_marker(name) for name in _SAY_SO):
            number = self.started - self.before
            pytest.fail(f"started {number} programs: run them in this process or by tests/warm.py, share one for "
                        "many cases, or mark the test `starts_programs`", pytrace=False)  # fmt: skip


def _seconds() -> float:
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in own) + warm.taken


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file's name."""
    parser.addoption("--measure", metavar="FILE", type=Path, help="write what each test takes")


def pytest_configure(config: pytest.Config) -> None:
    """Begin."""
    path: Path | None = config.getoption("--measure")
    config.pluginmanager.register(Measured(path.open("w", buffering=1) if path else None))
