"""The nodes of a cluster as kubectl tells of them, and the one patch that brings a node's labels about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.structured_text import quantity
from gpunode.kubernetes.nodes.cordon import ANNOTATION, MANAGER, Note, parse_note, told
from gpunode.kubernetes.nodes.labels import CONFIG, OURS, RESOURCES, LabelChange
from gpunode.settings.kubernetes import KubernetesSettings


@dataclass(frozen=True)
class ClusterNode:
    """Hold what the API server says of a node.

    `ours` is the annotation that names gpunode's labels, `resources` that of the extended resources that it counts,
    `capacity` and `allocatable` resource -> number as text (16000, where the API server writes 16k), `note` what
    gpunode noted of its drain, `is_annotated` whether it has any annotation.
    """

    name: str
    labels: Mapping[str, str]
    ours: str | None
    allocatable: Mapping[str, str]
    unschedulable: bool
    ready: bool
    note: Note | None = None
    resources: str | None = None
    capacity: Mapping[str, str] = field(default_factory=dict)
    is_annotated: bool = True

    @property
    def is_held_back(self) -> bool:
        """Say whether no pods come to the node by a cordon of gpunode's; somebody else's is his to lift."""
        return self.unschedulable and self.note is not None and self.note.cordon == MANAGER


def listing(kubernetes: KubernetesSettings, name: str | None = None) -> tuple[str, ...]:
    """Return the command that asks for every node at once, or for the one of this name, which need not be there."""
    only = () if name is None else ("--field-selector", f"metadata.name={name}")
    return kubectl(kubernetes, "get", "nodes", *only, "--output", "json")


def kubectl(kubernetes: KubernetesSettings, *words: str) -> tuple[str, ...]:
    """Return a kubectl command for the settings' cluster."""
    where = [] if kubernetes.kubeconfig is None else ["--kubeconfig", kubernetes.kubeconfig]
    context = [] if kubernetes.context is None else ["--context", kubernetes.context]
    return (kubernetes.kubectl, *where, *context, *words)


def parse_nodes(text: str) -> dict[str, ClusterNode]:
    """Parse `kubectl get nodes -o json`: name -> node; raise ParseError."""
    return told(text, "list of nodes", lambda found: {node.name: node for node in map(_node, found["items"])})


def _node(item: Mapping[str, Any]) -> ClusterNode:
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    ready = [each for each in status.get("conditions") or [] if each.get("type") == "Ready"]
    annotations = metadata.get("annotations") or {}
    return ClusterNode(
        name=str(metadata["name"]),
        labels=dict(metadata.get("labels") or {}),
        ours=annotations.get(OURS),
        allocatable=_counts(status, "allocatable"),
        unschedulable=spec.get("unschedulable") is True,
        ready=bool(ready) and ready[0].get("status") == "True",
        note=parse_note(annotations.get(ANNOTATION)),
        resources=annotations.get(RESOURCES),
        capacity=_counts(status, "capacity"),
        is_annotated=bool(annotations),
    )


def _counts(status: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {str(name): str(quantity(count)) for name, count in (status.get(kind) or {}).items()}


def labelled_for(nodes: Mapping[str, ClusterNode]) -> frozenset[str]:
    """Return the plugin's configurations that nodes are labelled for."""
    return frozenset(node.labels[CONFIG] for node in nodes.values() if CONFIG in node.labels)


def label_patch(kubernetes: KubernetesSettings, name: str, change: LabelChange) -> tuple[str, ...]:
    """Return the command that sets and removes a node's labels, and notes which are gpunode's: in one request.

    Two would leave labels that nobody knows for gpunode's where the second one fails.
    """
    labels: dict[str, str | None] = {**change.to_set, **dict.fromkeys(change.to_remove)}
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    if change.annotates:
        metadata["annotations"] = {OURS: change.ours}
    patch = json.dumps({"metadata": metadata}, sort_keys=True)
    return kubectl(kubernetes, "patch", "node", name, "--type", "merge", "--patch", patch)
