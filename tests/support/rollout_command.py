"""Helpers and data for the tests of rollout command."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.fleet import drift
from tests.support.simulated_rollout import Lab

SECONDS = 180


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Lab], Lab]:
    def entered(found: Lab) -> Lab:
        monkeypatch.chdir(found.folder)
        monkeypatch.setattr(drift, "inspect", found.inspect)
        # No pyinfra beside it: the one on the PATH is taken.
        monkeypatch.setattr(sys, "executable", str(found.folder / "python"))
        monkeypatch.setenv("PATH", f"{found.folder / 'bin'}:{os.environ['PATH']}")
        return found

    return entered


@pytest.fixture
def lab(tmp_path: Path, enter: Callable[[Lab], Lab]) -> Lab:
    return enter(Lab(tmp_path))


def with_default_signals() -> None:
    """Heed what a job that runs in the background, or by nohup, has ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def pyinfra_of(lab: Lab) -> int:
    """Return the process of the pyinfra that a lab's command has started."""
    program = f"{lab.folder}/bin/pyinfra".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if program in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
    raise AssertionError("no pyinfra runs")


def alive(process: int) -> bool:
    """Say whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
