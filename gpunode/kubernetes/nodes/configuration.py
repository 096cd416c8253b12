"""The plugin's configuration of a node, as an entry of the chart's config.map: one for each distinct sharing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpunode.base.reading import ParseError
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings

# A node that nobody labelled gets it: whole GPUs, one pod each.
DEFAULT = "none"
_KEYS = {"time-slicing": "timeSlicing", "mps": "mps"}


@dataclass(frozen=True)
class Configuration:
    """Hold an entry of config.map: its name, which a node's label names, and its text."""

    name: str
    text: str


def configuration(sharing: SharingSettings) -> Configuration:
    """Return the plugin's configuration for a node; equal sharing, equal name."""
    content: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": sharing.mig_strategy}}
    if sharing.strategy != "none":
        content["sharing"] = {_KEYS[sharing.strategy]: _shared(sharing)}
    return Configuration(_name(sharing), yaml.safe_dump(content, sort_keys=False))


def with_entries_in_use(values: Mapping[str, Any], manifest: str, in_use: Collection[str]) -> Mapping[str, Any]:
    """Return a chart's values with those configurations of the release that nodes are still labelled for.

    A plugin whose configuration goes away before its node's label does not start, and the upgrade fails for it.

    + manifest: of the release as it is; empty where there is none
    + in_use: names that nodes' labels give
    """
    desired = values["config"].get("map")
    if desired is None:
        return values
    left = {name: f"{text.rstrip()}\n" for name, text in _entries(manifest) if name in in_use and name not in desired}
    entries = dict(sorted({**desired, **left}.items()))
    return {**values, "config": {**values["config"], "map": entries}} if left else values


def _entries(manifest: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of what a manifest's ConfigMaps hold; raise ParseError."""
    try:
        documents = list(yaml.safe_load_all(manifest))
    except yaml.YAMLError:
        raise ParseError("the release's manifest is no YAML") from None
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "ConfigMap":
            yield from ((str(name), str(text)) for name, text in (each.get("data") or {}).items())


def _shared(sharing: SharingSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"renameByDefault": sharing.rename}
    # MPS has no such field in older plugins: it always refuses.
    if sharing.strategy == "time-slicing" and sharing.fail_requests_greater_than_one is not None:
        found["failRequestsGreaterThanOne"] = sharing.fail_requests_greater_than_one
    found["resources"] = [{"name": name, "replicas": count} for name, count in sorted(sharing.replicated.items())]
    return found


def _name(sharing: SharingSettings) -> str:
    """Return a name for people that no two different configurations have: `mig-mixed`, `time-slicing-5-renamed`."""
    parts = [] if sharing.mig_strategy == "none" else ["mig", sharing.mig_strategy]
    if sharing.strategy != "none":
        parts.append(sharing.strategy)
        if set(sharing.replicated) == {WHOLE_GPU}:
            parts.append(str(sharing.replicated[WHOLE_GPU]))
        else:
            # Several resources do not fit into a label's value: what they are is in the entry.
            text = json.dumps(sharing.replicated, sort_keys=True)
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
        parts += ["renamed"] if sharing.rename else []
        if sharing.strategy == "time-slicing" and sharing.fail_requests_greater_than_one is not None:
            parts.append("one-each" if sharing.fail_requests_greater_than_one else "many-each")
    return "-".join(parts) or DEFAULT
