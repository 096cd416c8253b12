"""Docker's repository, and Debian's own containerd and docker: docker.yaml, read into types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gpunode.base import versions
from gpunode.lab.world.deb_row import DebRow, deb_row
from gpunode.lab.world.rpm_row import RpmRow, rpm_row


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "docker.yaml").read_text())
    return found


@cache
def docker_packages() -> Mapping[str, DebRow]:
    """Return the packages of Docker's repository by their names."""
    return MappingProxyType({row["name"]: deb_row(row) for row in _table()["packages"]})


@cache
def docker_rpms() -> Mapping[str, RpmRow]:
    """Return the packages of Docker's repository for dnf by their names."""
    return MappingProxyType({row["name"]: rpm_row(row) for row in _table()["rpm"]["packages"]})


@cache
def debian_packages(suite: str) -> Mapping[str, DebRow]:
    """Return what a release of Debian (`bookworm`) has of containerd and docker, by name."""
    of = _table()["debian"]
    rows = (deb_row(row, of["source"], of["confidence"]) for row in of[suite])
    return MappingProxyType({row.name: row for row in rows})


def docker_version(name: str, upstream: str) -> str:
    """Return a version in the shape that Docker's repository gives a package: 5:26.1.5-1~debian.12~bookworm."""
    row = docker_packages()[name]
    plain = row.suffixed_after and not versions.parsed(upstream) > versions.parsed(row.suffixed_after)
    revision = "1" if plain else _table()["suite"]["suffix"]
    return f"{f'{row.epoch}:' if row.epoch else ''}{upstream}-{revision}"


def listed_versions(name: str) -> tuple[str, ...]:
    """Return the versions that were seen in the repository, as apt lists them."""
    return tuple(_table()["versions"].get(name, ()))
