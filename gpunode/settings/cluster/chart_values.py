"""Which version a feature needs (device_plugin.yaml), and which values of the chart a person may set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

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


# Dotted value -> the setting that stands for it. A prefix stands for all below it.
_SETTINGS = {
    "config": "sharing, from which config.map is made (or device_plugin.config_name)",
    "migStrategy": "sharing.mig_strategy of each node, all of which this value would override",
    "deviceListStrategy": "device_plugin.device_list_strategy",
    "deviceIDStrategy": "device_plugin.device_id_strategy",
    "failOnInitError": "device_plugin.fail_on_init_error",
    "compatWithCPUManager": "device_plugin.pass_device_specs",
    "nvidiaDriverRoot": "device_plugin.driver_root",
    "runtimeClassName": "device_plugin.runtime_class",
    "gfd.enabled": "device_plugin.gfd",
    "nfd.enabled": "device_plugin.nfd",
    "image.repository": "device_plugin.image",
    "image.tag": "device_plugin.image_tag and device_plugin.image_digest",
    "namespace": "device_plugin.namespace",
    "namespaceOverride": "device_plugin.namespace",
}


def wrong_values(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) of values that a setting stands for, that nothing reads, or of a wrong type."""
    yield from said_by_settings(values, _SETTINGS)
    for name, read in known().unread_values.items():
        if found_in(values, name) is not None:
            yield "values", f"{name} is read by no template of the chart; set {read} in its place"
    annotations = values.get("podAnnotations")
    if isinstance(annotations, dict):
        for name, value in annotations.items():
            if not isinstance(value, str):
                message = (
                    f"podAnnotations.{name[:80]} must be a string, quoted: Kubernetes takes no {type(value).__name__}"
                )
                yield "values", message
    elif annotations is not None:
        yield "values", "podAnnotations must be a mapping of strings"


def said_by_settings(values: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) of values that a setting stands for: dotted value -> that setting."""
    for name, setting in settings.items():
        found = found_in(values, name)
        if found is None:
            continue
        kind = (
            ", and as one string at that, no list" if name == "deviceListStrategy" and isinstance(found, list) else ""
        )
        yield "values", f"{name} is said by {setting}{kind}"


def found_in(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted name; None where there is none."""
    node: Any = values
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of `over` laid over them; mappings are merged, as helm does, all else is replaced."""
    found = dict(values)
    for name, value in over.items():
        below = found.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merged(below, value)
        found[name] = value
    return found
