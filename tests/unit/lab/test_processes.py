"""Programs that outlive the command that starts them: real processes of this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.lab import processes
from gpunode.lab.errors import LabError
from gpunode.lab.state import read_json, write_json

pytestmark = pytest.mark.real

SLEEP = ["sleep", "60"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.stop(tmp_path, "a")


def test_a_program_is_started_once_and_ended(folder: Path) -> None:
    processes.start(folder, "a", SLEEP)
    first = read_json(folder / "a.json")
    processes.start(folder, "a", SLEEP)
    assert processes.runs(folder, "a") and read_json(folder / "a.json") == first
    assert processes.stop(folder, "a") is True
    assert not processes.runs(folder, "a")
    assert processes.stop(folder, "a") is False


def test_another_process_that_has_got_the_number_is_not_ended(folder: Path) -> None:
    with subprocess.Popen(SLEEP) as other:
        try:
            write_json(folder / "a.json", {"pid": other.pid, "started": 1})
            assert processes.stop(folder, "a") is False
            assert other.poll() is None
        finally:
            other.kill()


def test_one_that_takes_no_word_is_ended_by_force(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PATIENCE_S", 0.5)
    processes.start(folder, "a", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"])
    while "up" not in (folder / "a.log").read_text():
        pass
    assert processes.stop(folder, "a") is True
    assert not processes.runs(folder, "a")


def test_one_that_ended_by_itself_runs_no_more_and_its_last_words_are_kept(folder: Path) -> None:
    processes.start(folder, "a", ["sh", "-c", "echo why"])
    deadline = time.monotonic() + 10
    while processes.runs(folder, "a"):
        assert time.monotonic() < deadline
    assert processes.last_words(folder, "a").endswith("\nwhy")


def test_a_program_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(LabError, match="a cannot be started: /nonexistent: No such file"):
        processes.start(folder, "a", ["/nonexistent"])
