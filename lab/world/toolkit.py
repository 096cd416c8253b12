"""NVIDIA's container toolkit: toolkit.yaml, read into types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpunode.base import versions
from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.world.deb_row import DebRow, deb_row
from gpunode.lab.world.rpm_row import rpm_row


@dataclass(frozen=True)
class CdiRefresh:
    """Hold the toolkit's own units that renew a CDI specification: their folder, conffiles, and the ExecCondition.

    more: further files below the module's folder `deployments`, and the folder of each on a node
    """

    folder: str
    conffiles: tuple[str, ...]
    condition: str
    more: Mapping[str, str]


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "toolkit.yaml").read_text())
    return found


def packaged_versions() -> tuple[str, ...]:
    """Return the upstream versions that NVIDIA has packaged, oldest first."""
    return tuple(_table()["versions"]["packaged"])


def lab_versions() -> tuple[str, ...]:
    """Return the upstream versions that the lab's repositories have, oldest first."""
    return tuple(_table()["versions"]["lab"])


def built_versions() -> tuple[str, ...]:
    """Return the upstream versions whose programs the lab builds from NVIDIA's module, oldest first."""
    return tuple(_table()["versions"]["built"])


def full_version(version: str) -> str:
    """Return a package's version: 1.20.0-1."""
    return f"{version}-{_table()['versions']['revision']}"


def toolkit_row(name: str, version: str) -> DebRow:
    """Return a package's row at an upstream version; KeyError where there is none."""
    for row in _table()["packages"]:
        if row["name"] == name and _applies(row, version):
            return deb_row(row)
    raise KeyError(f"{name} {version}")


def toolkit_rpm(name: str, version: str) -> Rpm:
    """Return a package for rpm at an upstream version, without any file; KeyError where there is none."""
    for row in _table()["rpm_packages"]:
        if row["name"] == name and _applies(row, version):
            return rpm_row(row).package(version, str(_table()["versions"]["revision"]))
    raise KeyError(f"{name} {version}")


def cdi_refresh(version: str) -> CdiRefresh | None:
    """Return the units that a version has; None before 1.18."""
    for row in _table()["cdi_refresh"]:
        if _applies(row, version):
            known = sorted(row["condition"], key=versions.parsed)
            since = [first for first in known if versions.parsed(first) <= versions.parsed(version)]
            condition = row["condition"][(since or known[:1])[-1]]
            more = row.get("more", {})
            later = versions.parsed(version) >= versions.parsed(more.get("first", version))
            return CdiRefresh(row["folder"], tuple(row["conffiles"]), condition, more.get("files", {}) if later else {})
    return None


def modes(version: str) -> tuple[str, ...]:
    """Return what nvidia-container-runtime.mode may be."""
    (row,) = (row for row in _table()["modes"] if _applies(row, version))
    return tuple(row["modes"])


def _applies(row: Mapping[str, Any], version: str) -> bool:
    minor = versions.parsed(versions.major_minor(version))
    after = "from" not in row or versions.parsed(row["from"]) <= minor
    return after and ("to" not in row or minor <= versions.parsed(row["to"]))
