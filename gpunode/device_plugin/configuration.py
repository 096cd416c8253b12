"""The plugin's configuration of a node, as an entry of the chart's config.map: one for each distinct sharing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import yaml

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
