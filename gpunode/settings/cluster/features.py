"""Which version of the device plugin, Kubernetes or helm a thing needs: device_plugin.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from gpunode.base import tables, versions


@dataclass(frozen=True)
class Needs:
    """Hold the oldest version that has a feature, and where that is stated."""

    minimum: str
    source: str

    def are_met_by(self, version: str) -> bool:
        """Say whether a version is new enough; raise VersionError."""
        return versions.at_least(version, self.minimum)


@dataclass(frozen=True)
class Unquoted:
    """Hold since which version a chart writes a value as no API server takes it, which one mends it, and the source."""

    since: str
    mended: str
    source: str

    def concerns(self, version: str) -> bool:
        """Say whether a version has that fault; raise VersionError."""
        return versions.at_least(version, self.since) and not versions.at_least(version, self.mended)


@cache
def _table() -> Mapping[str, Any]:
    return MappingProxyType(tables.content("device_plugin.yaml"))


def _rows(component: str) -> dict[str, Needs]:
    return {name: Needs(**row) for name, row in _table()[component].items()}


def _stated(component: str, needed_by: str) -> Needs:
    rows = tables.minimums()
    row = next(row for row in rows if (row.component, row.needed_by) == (component, needed_by) and row.minimum)
    return Needs(row.minimum or "", row.source)


@cache
def of_plugin() -> Needs:
    """Return the oldest device plugin that gpunode brings into a cluster."""
    return _rows("device_plugin")["oldest"]


@cache
def of_kubernetes() -> Mapping[str, Needs]:
    """Return feature -> the Kubernetes that has it; `device-plugin` is what the plugin as such needs."""
    stated = {name: _stated("kubernetes", name) for name in ("device-plugin", "gpu-operator")}
    return MappingProxyType({**_rows("kubernetes"), **stated})


@cache
def of_helm() -> Mapping[str, Needs]:
    """Return feature -> the helm that has it."""
    return MappingProxyType(_rows("helm"))


@cache
def mps_clients_before_turing() -> tuple[int, str]:
    """Return how many MPS clients the plugin grants a GPU below compute capability 7.5, and the source."""
    row = _table()["mps_clients_before_turing"]
    return int(row["most"]), row["source"]


@cache
def unquoted_values() -> Mapping[str, Unquoted]:
    """Return value of the chart -> in which versions it makes objects that no API server takes."""
    return MappingProxyType({name: Unquoted(**row) for name, row in _table()["unquoted_values"].items()})


@cache
def unread_values() -> Mapping[str, str]:
    """Return dotted value that the chart's templates do not read -> the one that they read in its place."""
    return MappingProxyType(dict(_table()["unread_values"]))


@cache
def unlisted_values(chart: str) -> tuple[str, ...]:
    """Return patterns of the dotted values that a chart's templates read and its own values do not list."""
    return tuple(_table()["unlisted_values"].get(chart, ()))
