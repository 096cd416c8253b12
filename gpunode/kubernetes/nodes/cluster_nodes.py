"""The nodes of a cluster as kubectl lists them, with what gpunode noted of their drain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from gpunode.base.document import newer
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import load_json, quantity
from gpunode.kubernetes.nodes.labels import CONFIG, OURS, RESOURCES
from gpunode.settings.kubernetes import KubernetesSettings

T = TypeVar("T")

ANNOTATION = "gpunode/drain"
# Under this name the API server knows what gpunode's requests have set.
MANAGER = "gpunode"
# The API server takes 256 KiB of annotations for each object; nobody reads that much.
_LONGEST = 2000


@dataclass(frozen=True)
class Note:
    """Hold what the annotation of a node says.

    state: draining, drained; or why it is not given back: drain blocked, failed, not ready
    reason: for what the node was to be emptied
    since: when that began, as 2026-01-31T12:00:00Z
    cordon: gpunode where the cordon is gpunode's, else other
    message: what stands in the way
    """

    state: str
    reason: str
    since: str
    cordon: str
    message: str = ""

    @property
    def text(self) -> str:
        """Return the annotation's value."""
        cut = {key: value[:_LONGEST] for key, value in asdict(self).items() if value}
        return json.dumps(cut, ensure_ascii=False)


@dataclass(frozen=True)
class ClusterNode:
    """Hold what the API server says of a node.

    `ours` is the annotation that names gpunode's labels, `resources` that of the extended resources that it counts,
    `capacity` and `allocatable` resource -> number as text (16000, where the API server writes 16k), `note` what
    gpunode noted of its drain (None: nothing that can be read), `is_annotated` whether it has any annotation.

    `version`: by which a request is refused where somebody else's came between; `set_by_others`: whether somebody else
    has the last word on `spec.unschedulable`, which kubectl's own `get` leaves out; `boot_id`: of the boot in which the
    kubelet last told its state, empty where it tells none.
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
    version: str = ""
    set_by_others: bool = False
    boot_id: str = ""

    @property
    def is_held_back(self) -> bool:
        """Say whether no pods come to the node by a cordon of gpunode's; somebody else's is his to lift."""
        return self.unschedulable and self.note is not None and self.note.cordon == MANAGER and not self.set_by_others

    def is_back(self, boot_id: str) -> bool:
        """Say whether the node is Ready in the boot that runs, by its kubelet's own word.

        What the kubelet said before a reboot stays in the cluster for a while after it.
        """
        return self.ready and self.boot_id in ("", boot_id)


def told(text: str, what: str, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the JSON that kubectl printed; raise ParseError where it is no such thing."""
    try:
        return read(load_json(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParseError(f"kubectl's answer is no {what}") from None


def kubectl(kubernetes: KubernetesSettings, *words: str) -> tuple[str, ...]:
    """Return a kubectl command for the settings' cluster."""
    where = [] if kubernetes.kubeconfig is None else ["--kubeconfig", kubernetes.kubeconfig]
    context = [] if kubernetes.context is None else ["--context", kubernetes.context]
    return (kubernetes.kubectl, *where, *context, *words)


def parse_nodes(text: str) -> dict[str, ClusterNode]:
    """Parse `kubectl get nodes -o json`: name -> node; raise ParseError."""
    return told(text, "list of nodes", lambda found: {node.name: node for node in map(_node, found["items"])})


def parse_note(text: str | None) -> Note | None:
    """Return what the annotation says; None where it is none of gpunode's, or of a version that is not known here."""
    try:
        found = load_json(text or "")
        if newer(found, 1):
            return None
        return Note(**{name: str(found.get(name) or "") for name in Note.__dataclass_fields__})
    except (ValueError, AttributeError):
        return None


def parse_node(text: str) -> ClusterNode:
    """Parse a Node as the API server has it; raise ParseError."""
    return told(text, "Node", lambda found: _node(found, str(found["metadata"]["resourceVersion"])))


def _node(item: Mapping[str, Any], version: str = "") -> ClusterNode:
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    ready = [each for each in status.get("conditions") or [] if each.get("type") == "Ready"]
    annotations = metadata.get("annotations") or {}
    owners = {
        str(entry.get("manager"))
        for entry in metadata.get("managedFields") or []
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    }
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
        version=version,
        set_by_others=bool(owners - {MANAGER}),
        boot_id=str((status.get("nodeInfo") or {}).get("bootID") or ""),
    )


def _counts(status: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {str(name): str(quantity(count)) for name, count in (status.get(kind) or {}).items()}


def labelled_for(nodes: Mapping[str, ClusterNode]) -> frozenset[str]:
    """Return the plugin's configurations that nodes are labelled for."""
    return frozenset(node.labels[CONFIG] for node in nodes.values() if CONFIG in node.labels)
