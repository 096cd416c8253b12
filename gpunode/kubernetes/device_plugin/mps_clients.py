"""Whose programs a restart of the plugin's MPS daemons would end; what is to be done before it: decide_restart.py.

A daemon takes its clients along when it ends. The plugin starts it anew with every other configuration of its node, and
the chart brings its pods anew, on all nodes at once, with every other ConfigMap or version.
source: NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/main.go (SIGHUP) and the chart's checksum/config
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpunode.kubernetes.device_plugin.view import MPS_DAEMON
from gpunode.kubernetes.helm.change import Act, ReleaseChange
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, kubectl
from gpunode.kubernetes.nodes.cordon import told
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, LabelChange
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.sharing import WHOLE_GPU

# With `sharing.rename`, too. MPS shares whole GPUs alone.
_SHARED = (WHOLE_GPU, f"{WHOLE_GPU}.shared")
_FINISHED = ("Succeeded", "Failed")


def asking(kubernetes: KubernetesSettings, nodes: Collection[str] = ()) -> tuple[str, ...]:
    """Return the command that asks for every pod of the cluster, or for those of the one node that is named."""
    of_one = [f"spec.nodeName={name}" for name in nodes] if len(nodes) == 1 else []
    only = ("--field-selector", *of_one) if of_one else ()
    return kubectl(kubernetes, "get", "pods", "--all-namespaces", *only, "--output", "json")


def parse_clients(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a list of Pods: node -> those on it that have a GPU, or a part of one; raise ParseError.

    One that has ended has none any more. Whether one uses its GPU at this moment, the cluster does not know.
    """
    return told(text, "list of Pods", lambda found: _by_node(found["items"]))


def _by_node(items: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for item in items:
        spec, status = item["spec"], item.get("status") or {}
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
        has_gpu = any(str(limit[name]) != "0" for limit in limits for name in _SHARED if name in limit)
        if has_gpu and spec.get("nodeName") and status.get("phase") not in _FINISHED:
            metadata = item["metadata"]
            found.setdefault(str(spec["nodeName"]), []).append(f"{metadata['namespace']}/{metadata['name']}")
    return {node: tuple(sorted(names)) for node, names in sorted(found.items())}


def with_daemon(nodes: Mapping[str, ClusterNode]) -> frozenset[str]:
    """Return the nodes on which the plugin's MPS daemon runs."""
    return frozenset(name for name, node in nodes.items() if node.labels.get(MPS_CAPABLE) == "true")


def label_restarts(change: LabelChange, node: ClusterNode) -> bool:
    """Say whether the MPS daemon of a node ends, or begins anew, by a change of the node's labels."""
    after = change.applied_to(node.labels)
    same = all(after.get(name) == node.labels.get(name) for name in (CONFIG, MPS_CAPABLE))
    return bool(with_daemon({node.name: node})) and not same


def release_restarts(change: ReleaseChange) -> bool:
    """Say whether every MPS daemon of the cluster ends, or begins anew, by what helm is told."""
    acts = [step.act for step in change.steps]
    # Nobody has looked at what these change; but a revision by which the daemons stay ends none, whatever is in it.
    if Act.UNINSTALL in acts or (Act.ROLLBACK in acts and not any(map(_is_daemon, change.stays_behind))):
        return True
    ids = [each.identity for each in change.differences]
    return Act.UPGRADE in acts and any(_is_daemon(each) and each not in change.stays for each in ids)


def release_outdates(change: ReleaseChange) -> bool:
    """Say whether every MPS daemon of the cluster is to begin anew after what helm is told, each by its node's turn."""
    acts = [step.act for step in change.steps]
    return Act.UPGRADE in acts and any(
        _is_daemon(each.identity) and each.identity in change.stays and each.path.startswith("spec.template")
        for each in change.differences
    )


def _is_daemon(identity: Identity) -> bool:
    return identity.kind == "DaemonSet" and identity.name.endswith(MPS_DAEMON)
