"""Arch's own packages of the driver: arch.yaml, read into types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

RELATIONS = ("depends", "provides", "conflicts", "replaces")
CONFIDENCES = ("packaging", "derived", "inferred")


@dataclass(frozen=True)
class ArchRow:
    """Hold a package of branches `first` to `last`: relations by name as a PKGBUILD has them, V the driver's version.

    `more` are what the lab's fixture depends on beside.
    """

    name: str
    first: int
    last: int
    pkgrel: int
    relations: Mapping[str, tuple[str, ...]]
    more: tuple[str, ...]
    unknown: tuple[str, ...]
    source: str
    confidence: str

    def of(self, relation: str, version: str) -> tuple[str, ...]:
        """Return a relation of the package at a driver's version."""
        return tuple(item.replace("=V", f"={version}") for item in self.relations[relation])

    def version(self, driver: str) -> str:
        """Return the package's version, which ends with its pkgrel."""
        return f"{driver}-{self.pkgrel}"


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "arch.yaml").read_text(encoding="utf-8"))
    return found


@cache
def arch_rows() -> tuple[ArchRow, ...]:
    """Return all rows; ValueError where one does not say how sure it is."""
    return tuple(_row(row) for row in _table()["packages"])


def arch_packages(driver: str) -> dict[str, ArchRow]:
    """Return name -> row of the packages that there are at a driver's version."""
    branch = int(driver.partition(".")[0])
    return {row.name: row for row in arch_rows() if row.first <= branch <= row.last}


def elsewhere() -> tuple[str, ...]:
    """Return the names of what the packages need of the distribution."""
    return tuple(_table()["elsewhere"])


def _row(row: Mapping[str, Any]) -> ArchRow:
    if row.get("confidence") not in CONFIDENCES or not row.get("source"):
        raise ValueError(f"{row.get('name')}: source and confidence ({', '.join(CONFIDENCES)}) are needed")
    return ArchRow(
        name=row["name"], first=row.get("from", 0), last=row.get("to", 9999), pkgrel=row.get("pkgrel", 1),
        relations=MappingProxyType({name: tuple(row.get(name, ())) for name in RELATIONS}),
        more=tuple(row.get("lab", {}).get("depends", ())), unknown=tuple(row.get("unknown", ())),
        source=row["source"], confidence=row["confidence"],
    )  # fmt: skip


__all__ = ["RELATIONS", "ArchRow", "arch_packages", "arch_rows", "elsewhere"]
