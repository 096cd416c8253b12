"""How a change of the release comes to its pods: the controller begins all of them anew, or gpunode node by node.

Of NVIDIA's chart all DaemonSets have one value for it, `updateStrategy`, from 0.15.0 to 0.20.0, which is every version
that knows MPS; its default is RollingUpdate. With OnDelete a pod stays as it is until somebody ends it.
source: NVIDIA/k8s-device-plugin, deployments/helm/nvidia-device-plugin, values.yaml and templates/daemonset-*.yml at
v0.15.0, v0.16.2, v0.17.4, v0.18.0, v0.19.0 and v0.20.0; templates/_helpers.tpl for `checksum/config`
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gpunode.kubernetes.nodes.configuration import configuration
from gpunode.settings.cluster.chart_values import merged
from gpunode.settings.sharing import SharingSettings

STRATEGY, ON_DELETE = "updateStrategy", "OnDelete"
_CHECKSUM = "checksum/config"
# One of each kind: what an entry consists of shows in them.
_SAMPLES: tuple[dict[str, Any], ...] = (
    {},
    {"mig_strategy": "mixed"},
    {"strategy": "mps", "replicas": 2},
    {"strategy": "time-slicing", "replicas": 2, "fail_requests_greater_than_one": True},
)


def node_by_node(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart's values by which no change of the release begins a pod anew; a person's own strategy stays.

    The chart has a digest of all entries in its pods, so that an entry of one node would make the pods of all nodes
    old ones. Here it is a digest of how gpunode writes entries: one of the same name says the same, and a node that
    gets another entry gets other pods with it.
    """
    if STRATEGY in values:
        return dict(values)
    found = merged(values, {STRATEGY: {"type": ON_DELETE}})
    if (found.get("config") or {}).get("map") is None or _CHECKSUM in (found.get("podAnnotations") or {}):
        return found
    return merged(found, {"podAnnotations": {_CHECKSUM: _form()}})


def is_node_by_node(values: Mapping[str, Any]) -> bool:
    """Say whether a change of the release leaves its pods as they are, by these values."""
    found = values.get(STRATEGY)
    return isinstance(found, Mapping) and found.get("type") == ON_DELETE


def _form() -> str:
    texts = (configuration(SharingSettings.model_validate(each)).text for each in _SAMPLES)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
