"""What a family's nodes take packages from: its repositories, and what its system has from the start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from gpunode.lab.families import PACMAN, Family
from gpunode.lab.packages.pkg import Pkg, build_pkgs
from gpunode.lab.packages.rpm import Rpm, build_rpms
from gpunode.lab.pacman_repository import build_pacman_mirror, system_pkgs
from gpunode.lab.rpm_repository import DISTRIBUTIONS, build_rpm_mirror, system_packages
from gpunode.lab.signing import key_file

Report = Callable[[str], None]


def system_digests(family: Family) -> list[str]:
    """Return the digests of the packages that the family's system has from the start."""
    packages: Sequence[Rpm | Pkg] = system_pkgs() if family is PACMAN else _rpms(family)
    return [hashlib.sha256(repr(package).encode()).hexdigest() for package in packages]


def system_files(family: Family, cache: Path, tools: Path) -> list[Path]:
    """Return the files of the packages that the family's system has from the start, built with what `tools` has."""
    key = key_file(cache / "keys", "repository")
    if family is PACMAN:
        return build_pkgs(system_pkgs(), cache / "packages", tools, key)
    return build_rpms({"system": _rpms(family)}, cache / "packages", tools, key)["system"]


def build_family_mirror(family: Family, cache: Path, mirror: Path, tools: Path, report: Report) -> None:
    """Build the family's repositories beside apt's in the mirror; `tools` is a root with its programs."""
    if family is PACMAN:
        build_pacman_mirror(cache, mirror, tools, report)
    else:
        build_rpm_mirror(cache, mirror, tools, report, DISTRIBUTIONS[family.distribution])


def _rpms(family: Family) -> list[Rpm]:
    return system_packages(DISTRIBUTIONS[family.distribution])
