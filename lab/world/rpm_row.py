"""A row of a table on packages for dnf and zypper beside the driver's: its relations, as a spec file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpunode.lab.packages.rpm import Rpm

RELATIONS = ("requires", "provides", "conflicts", "obsoletes", "recommends")
CONFIDENCES = ("index", "log", "packaging", "doc", "test", "inferred")


@dataclass(frozen=True)
class RpmRow:
    """Hold a package's relations by name; in them V-R stands for the own version with its release."""

    name: str
    epoch: int
    relations: Mapping[str, tuple[str, ...]]
    source: str
    confidence: str

    def package(self, version: str, release: str) -> Rpm:
        """Return the package of a version, without any file."""

        def filled(relation: str) -> tuple[str, ...]:
            return tuple(item.replace("V-R", f"{version}-{release}") for item in self.relations[relation])

        return Rpm(
            self.name, version, self.name, self.epoch, release, requires=filled("requires"),
            provides=filled("provides"), conflicts=filled("conflicts"), obsoletes=filled("obsoletes"),
            recommends=filled("recommends"),
        )  # fmt: skip


def rpm_row(row: Mapping[str, Any]) -> RpmRow:
    """Return a row as it stands in a table; ValueError where it does not say how sure it is."""
    if row.get("confidence") not in CONFIDENCES or not row.get("source"):
        raise ValueError(f"{row.get('name')}: source and confidence ({', '.join(CONFIDENCES)}) are needed")
    relations = MappingProxyType({name: tuple(row.get(name, ())) for name in RELATIONS})
    return RpmRow(row["name"], row.get("epoch", 0), relations, row["source"], row["confidence"])
