"""The real containerd of several releases: of a folder that is given, or Debian's own by apt."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked
from gpunode.lab.packages.other_release import unpacked

VARIABLE = "GPUNODE_REAL_CONTAINERD"
# Whose archive has which.
SUITES = {"1.6": "bookworm", "1.7": "trixie", "2.1": "sid"}


@dataclass(frozen=True)
class Program:
    """Hold one containerd: its file, and the version that it says."""

    path: Path
    version: str

    def reads(self, file: Path) -> dict[str, Any] | str:
        """Return what it makes of a configuration file, with all that it takes for granted; or why it cannot."""
        done = subprocess.run(
            [self.path, "--config", file, "config", "dump"], capture_output=True, text=True, timeout=60, check=False
        )
        # containerd 2 says that it could not read a file, prints what it takes for granted, and ends with 0.
        if done.returncode or "level=error" in done.stderr or not done.stdout.strip():
            return done.stderr.strip() or f"exit status {done.returncode}"
        return tomllib.loads(done.stdout)


def programs() -> dict[str, Program]:
    """Return each containerd by the name of its folder, `1.6` say; raise OSError or DebError where one is missing."""
    given = os.environ[VARIABLE]
    if given == "debian":
        return {name: _program(_of_debian(name)) for name in SUITES}
    return {folder.name: _program(folder / "containerd") for folder in sorted(Path(given).iterdir()) if _has(folder)}


def _has(folder: Path) -> bool:
    return (folder / "containerd").is_file()


def _of_debian(name: str) -> Path:
    folder = cache_dir() / f"containerd-{name}-alone"
    with locked(cache_dir() / f"containerd-{name}-alone.lock"):
        if not folder.is_dir():
            with complete_or_nothing(folder) as made:
                unpacked(SUITES[name], ("containerd",), made)
    return folder / "usr" / "bin" / "containerd"


def _program(path: Path) -> Program:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return Program(path, said.split()[2].split("+")[0])
