"""The entry of a ConfigMap of the user's own that a node's plugin is to read: is it there, and does the plugin take it?

Its answers, recorded by running it, are in tests/recorded/device_plugin.yaml.
source: NVIDIA/k8s-device-plugin, v0.15.0 to v0.20.0: cmd/config-manager/main.go, which ends where a node's label names
no entry of the ConfigMap
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.base.folding import in_one_line
from gpunode.base.structured_text import TextError, check_yaml
from gpunode.base.versions import at_least
from gpunode.kubernetes.device_plugin import config_file
from gpunode.kubernetes.nodes.cluster_nodes import told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings import Settings

# What a node gets whose label names none, before the only one that there is.
_FALLBACK = "default"
# Since then the pod's first container takes an entry before it has read the node's label, and ends where it has none.
_STARTS_WITHOUT_LABEL_SINCE = "0.18.2"

CONFIG_ENTRY = cluster_finding(
    "entry of ConfigMap",
    "The entry of your own ConfigMap does not give the desired sharing.",
    "The ConfigMap is yours and gpunode only reads it: the node would get another sharing than the settings.",
    remedies=(BY_HAND,),
)


def parse_config_map(text: str) -> dict[str, str] | None:
    """Parse a ConfigMap: entry -> its text; None where there is no such ConfigMap; raise ParseError."""
    return told(text, "ConfigMap", _texts) if text.strip() else None


def _texts(found: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(content) for name, content in (found.get("data") or {}).items()}


def decide_own_config(settings: Settings, entries: Mapping[str, str] | None) -> Decision[None]:
    """Return whether a node's entry is there, and one that the plugin takes; no run makes it.

    + entries: as of `parse_config_map`, of the ConfigMap that device_plugin.config_name names
    """
    plugin = settings.device_plugin
    where = f"{plugin.namespace}/{plugin.config_name}"
    if plugin.config_name is None:
        return Decision(())
    entry = chosen_entry(settings, entries)
    reason = _refusal(where, entry, entries) or _start_refusal(settings, where, entries or {})
    good, desired = reason is None, entry or "one that the plugin chooses"
    actual = desired if good else "none" if entry not in (entries or {}) else "not to be read by the plugin"
    item = CONFIG_ENTRY.compared(actual, desired, good, of=where, cause=reason)
    return Decision((item,), (), reason)


def chosen_entry(settings: Settings, entries: Mapping[str, str] | None) -> str | None:
    """Return the entry that a node's plugin reads; None where it would choose none, and end."""
    if settings.sharing.config is not None:
        return settings.sharing.config
    return _start_entry(entries or {})


def _start_entry(entries: Mapping[str, str]) -> str | None:
    """Return the entry of a node whose label names none; None where there is no such entry."""
    there = sorted(entries)
    return _FALLBACK if _FALLBACK in there else there[0] if len(there) == 1 else None


def _start_refusal(settings: Settings, where: str, entries: Mapping[str, str]) -> str | None:
    """Return why the plugin's pod would never get to read the node's label; None where it would."""
    version = settings.device_plugin.program_version
    if not at_least(version, _STARTS_WITHOUT_LABEL_SINCE) or _start_entry(entries) is not None:
        return None
    return (
        f"sharing.config: the pod of device plugin {version} takes an entry of the ConfigMap {where} before it reads "
        f"the node's label, and ends: there are several, and none is named {_FALLBACK!r}; add an entry of that name"
    )


def _refusal(where: str, entry: str | None, entries: Mapping[str, str] | None) -> str | None:
    """Return why the plugin would not start on the node, with the setting and the remedy; None where it would."""
    if entries is None:
        name = where.partition("/")[2]
        return (
            f"device_plugin.config_name {name!r}: the cluster has no ConfigMap {where}; make it "
            f"(`kubectl create configmap {name} --namespace {where.partition('/')[0]} --from-file=ENTRY=FILE`), "
            "or leave device_plugin.config_name out"
        )
    there = ", ".join(sorted(entries)) or "none"
    if entry is None:
        return (
            f"sharing.config names no entry of the ConfigMap {where}, and the plugin takes one by itself only where it "
            f"is named {_FALLBACK!r}, or is the only one; there are: {there}. Name one of these"
        )
    if entry not in entries:
        return (
            f"sharing.config {entry!r}: the ConfigMap {where} has no such entry; there are: {there}. Name one of "
            "these, or add the entry"
        )
    try:
        check_yaml(entries[entry], unique=True)
    except TextError as error:
        return (
            f"sharing.config {entry!r}: the entry of {where} cannot be read as YAML: {in_one_line(error)}; correct it"
        )
    reason = config_file.ends(entries[entry])
    return None if reason is None else f"sharing.config {entry!r}: the plugin ends with this entry of {where}: {reason}"
