"""Which process of a container is entered, and who is asked where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import inside
from gpunode.lab.errors import LabError

pytestmark = pytest.mark.pure


@pytest.fixture
def asked_of_podman(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Note what podman is asked in place of asking it."""
    asked: list[tuple[str, ...]] = []

    def attempt(*arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        asked.append(arguments)
        return subprocess.CompletedProcess(list(arguments), 125, "", "is not running")

    monkeypatch.setattr(inside, "attempt", attempt)
    return asked


@pytest.mark.parametrize("number", ["", "1", "999999999"], ids=["none yet", "one in no container", "a dead one"])
def test_podman_is_asked_where_the_number_is_not_that_of_a_container_s_first_process(
    number: str, tmp_path: Path, asked_of_podman: list[tuple[str, ...]]
) -> None:
    first = tmp_path / "pid"
    first.write_text(number)
    assert inside.run("lab-gpu-1", first, "gpu-1", "true", 5).returncode == 125
    assert asked_of_podman == [("exec", "lab-gpu-1", "sh", "-c", "true")]


def test_podman_is_asked_for_a_node_of_a_lab_that_an_older_checkout_made(
    tmp_path: Path, asked_of_podman: list[tuple[str, ...]]
) -> None:
    inside.run("lab-gpu-1", tmp_path / "none", "gpu-1", "true", 5)
    assert asked_of_podman != []


def test_a_command_that_does_not_end_is_an_error_of_the_lab_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, timeout: float, **__: Any) -> None:
        raise subprocess.TimeoutExpired("nsenter", timeout)

    monkeypatch.setattr(inside, "_process", lambda first: "1")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(LabError, match="a command in lab-gpu-1 did not end within 5 seconds: sleep 60"):
        inside.run("lab-gpu-1", tmp_path, "gpu-1", "sleep 60", 5)
