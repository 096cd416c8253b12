"""Pod Security of the namespaces whose pods mount folders of the node: what is to be done about their label."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.desired_cluster import hosts_by
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART
from gpunode.settings.cluster.gpu_operator import METHOD
from gpunode.settings.kubernetes import KubernetesSettings

# The plugin, its discovery and the operator's pods mount the node's folders, which `baseline` forbids.
LABEL, NEEDED = "pod-security.kubernetes.io/enforce", "privileged"
# Its pods are the cluster's own; who enforces Pod Security there has seen to it.
_OF_THE_CLUSTER = "kube-system"


@dataclass(frozen=True)
class NamespaceChange:
    """Hold what is to be done about a namespace: words for kubectl and its standard input; none: it is as desired."""

    said: str
    words: tuple[str, ...] = ()
    stdin: str | None = None
    refused: bool = False


def namespaces(hosts: Mapping[str, Settings]) -> dict[str, str]:
    """Return the namespaces that gpunode brings such pods into, and by which setting each is chosen."""
    found: dict[str, str] = {}
    for settings in hosts_by((*BY_CHART, "manifest"), hosts).values():
        found[settings.device_plugin.namespace] = "device_plugin.namespace"
        if settings.device_plugin.method == METHOD:
            found[settings.gpu_operator.namespace] = "gpu_operator.namespace"
    return {name: setting for name, setting in found.items() if name != _OF_THE_CLUSTER}


def asking(kubernetes: KubernetesSettings, name: str) -> tuple[str, ...]:
    """Return the command that asks for a namespace; it prints nothing where there is none."""
    return kubectl(kubernetes, "get", "namespace", name, "--ignore-not-found", "--output", "json")


def parse_labels(text: str) -> Mapping[str, str] | None:
    """Parse what `asking` printed: the namespace's labels, None where there is no such namespace; raise ParseError."""
    if not text.strip():
        return None
    try:
        return dict(json.loads(text)["metadata"].get("labels") or {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ParseError("kubectl's answer is no Namespace") from None


def namespace_change(
    kubernetes: KubernetesSettings, name: str, labels: Mapping[str, str] | None, setting: str
) -> NamespaceChange:
    """Return what has a namespace admit pods that mount folders of the node; somebody's other will is refused."""
    what = f"namespace {name}"
    if labels is None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: NEEDED}}}
        words = kubectl(kubernetes, "create", "--filename", "-")
        return NamespaceChange(f"{what}: there is none", words, json.dumps(document))
    found = labels.get(LABEL)
    if found == NEEDED:
        return NamespaceChange(f"{what} as desired")
    if found is None:
        words = kubectl(kubernetes, "label", "namespace", name, f"{LABEL}={NEEDED}")
        return NamespaceChange(f"{what}: no label {LABEL}", words)
    said = (
        f"{what} enforces {found[:40]!r} of Pod Security ({LABEL}), and pods that mount folders of the node need "
        f"{NEEDED!r}: set that label, or set {setting} to another namespace"
    )
    return NamespaceChange(said, refused=True)
