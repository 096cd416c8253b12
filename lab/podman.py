"""Calls of podman, with its failures turned into messages."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from gpunode.lab.errors import LabError

# runc, because crun wants limits that are not ours to raise, or a pure cgroup v2 (shared note on lab nodes).
_PODMAN = ("podman", "--runtime", "runc")


def podman(*arguments: str, timeout: float = 120) -> str:
    """Run podman and return its standard output without the closing newline.

    Raises LabError with podman's own words if it fails or takes longer than `timeout` seconds.
    """
    result = attempt(*arguments, timeout=timeout)
    if result.returncode:
        said = (result.stderr or result.stdout).strip() or "nothing"
        raise LabError(f"podman {arguments[0]} failed (exit code {result.returncode}) and said: {said}")
    return result.stdout.rstrip("\n")


def attempt(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run podman and return the finished process, whatever its exit code.

    Raises LabError if podman is absent or takes longer than `timeout` seconds.
    """
    try:
        return subprocess.run(
            [*_PODMAN, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError("podman is not installed: apt-get install podman runc netavark") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"podman {' '.join(arguments[:2])} did not end within {timeout:.0f} seconds") from error


def inspect_containers(*filters: str) -> list[dict[str, Any]]:
    """Return podman's description of each container, running or not, that matches all filters (`key=value`)."""
    wanted = [part for condition in filters for part in ("--filter", condition)]
    names = podman("ps", "--all", "--quiet", "--no-trunc", *wanted).split()
    if not names:
        return []
    described: list[dict[str, Any]] = json.loads(podman("container", "inspect", *names))
    return described
