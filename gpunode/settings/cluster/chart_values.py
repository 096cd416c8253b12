"""Values of the chart that a person sets by `device_plugin.values`: which cannot be, and how they are merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.settings.cluster.features import known

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
