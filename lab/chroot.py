"""Programs and files within an unpacked root filesystem."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpunode.lab.errors import LabError


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file with its folders, at exactly this mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def within(folder: Path, *command: str) -> str:
    """Run a program of the root filesystem in `folder` there; return what it said, raise LabError where it fails."""
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    return run(["chroot", str(folder), *command], f"`{' '.join(command[:2])}` in the base image", environment)


def run(command: list[str], what: str, environment: dict[str, str] | None = None) -> str:
    """Run a program and return what it said; raise LabError with `what` failed and its last words."""
    # Stdin is no terminal, and nothing of the caller's environment reaches a chroot.
    result = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-8:])
        raise LabError(f"{what} failed (exit code {result.returncode}). It said:\n{tail}")
    return result.stdout
