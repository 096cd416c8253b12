"""Which version of the device plugin, Kubernetes or helm a thing needs: device_plugin.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from gpunode.base import tables, versions
from gpunode.base.tables.reading import Row, Table, table


@dataclass(frozen=True)
class Needs(Row):
    """Hold the oldest version that has a feature, and where that is stated."""

    minimum: str
    source: str

    def are_met_by(self, version: str) -> bool:
        """Say whether a version is new enough; raise VersionError."""
        return versions.at_least(version, self.minimum)


@dataclass(frozen=True)
class Unquoted(Row):
    """Hold since which version a chart writes a value as no API server takes it, which one mends it, and the source."""

    since: str
    mended: str
    source: str

    def concerns(self, version: str) -> bool:
        """Say whether a version has that fault; raise VersionError."""
        return versions.at_least(version, self.since) and not versions.at_least(version, self.mended)


@dataclass(frozen=True)
class Clients(Row):
    """Hold how many MPS clients the plugin grants a GPU below compute capability 7.5, and the source."""

    most: int
    source: str


@dataclass(frozen=True)
class Known(Row):
    """Hold device_plugin.yaml, whose comments say what each part is."""

    device_plugin: Table[str, Needs]
    kubernetes: Table[str, Needs]
    helm: Table[str, Needs]
    mps_clients_before_turing: Clients
    unquoted_values: Table[str, Unquoted]
    unread_values: Table[str, str]
    unlisted_values: Table[str, tuple[str, ...]]


known = table(Known, "device_plugin.yaml")


@cache
def of_kubernetes() -> Mapping[str, Needs]:
    """Return feature -> the Kubernetes that has it; `device-plugin` is what the plugin as such needs."""
    rows = (row for row in tables.minimums() if row.component == "kubernetes" and row.needed_by and row.minimum)
    stated = {row.needed_by or "": Needs(row.minimum or "", row.source) for row in rows}
    return MappingProxyType({**known().kubernetes, **stated})
