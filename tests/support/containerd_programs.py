"""The real containerd of several releases: Debian's by apt, and those of lab/go; each is kept in the lab's cache."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpunode.lab import go_programs
from gpunode.lab.cache import cache_dir, complete_or_nothing, locked
from gpunode.lab.packages.other_release import unpacked

# Release of containerd -> the suite of Debian that has it.
SUITES = {"1.6": "bookworm", "1.7": "trixie", "2": "sid"}
# Groups of lab/go with other releases.
GROUPS = ("containerd-1.7.35", "containerd-2.2.9", "containerd-2.3.7", "containerd-2.4.2")


@dataclass(frozen=True)
class Program:
    """One containerd: the folder of its programs, and the version that it prints."""

    folder: Path
    version: str


def debian(release: str) -> Path:
    """Return the folder with Debian's containerd, its shim and ctr; raise DebError where apt cannot fetch it."""
    folder = cache_dir() / f"containerd-{release}"
    with locked(cache_dir() / f"containerd-{release}.lock"):
        if not folder.is_dir():
            with complete_or_nothing(folder) as partial:
                unpacked(SUITES[release], ("containerd",), partial)
    return folder / "usr" / "bin"


@lru_cache
def programs(*releases: str) -> tuple[Program, ...]:
    """Return containerd programs: Debian's by release, others by group; all of Debian's where none is named.

    Raise DebError or LabError where one cannot be had.
    """
    return tuple(Program(folder, _version(folder)) for folder in map(_folder, releases or SUITES))


def _folder(release: str) -> Path:
    if release in SUITES:
        return debian(release)
    return go_programs.programs(release, lambda line: print(line, file=sys.stderr))


def _version(folder: Path) -> str:
    command = [str(folder / "containerd"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    version = str(printed.split()[2]).removeprefix("v")
    return version.partition("~")[0].partition("+")[0]
