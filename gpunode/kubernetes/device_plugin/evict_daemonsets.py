"""Which pods leave a node with labels by which DaemonSets take it; pure.

The controller manager removes a DaemonSet's pod from a node that the DaemonSet does not take any more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.others import selected
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.kubernetes.nodes.labels import SELECTING, owned
from gpunode.settings.kubernetes import KubernetesSettings


@dataclass(frozen=True, order=True)
class DaemonSet:
    """Hold a DaemonSet's name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


def taking(labels: Mapping[str, str], annotation: str | None) -> dict[str, str]:
    """Return the labels of gpunode's by which DaemonSets take a node, those that are off it for now included."""
    ours = owned(annotation)
    return {name: value for name, value in SELECTING.items() if name in ours and labels.get(name, value) == value}


def pods_on(kubernetes: KubernetesSettings, node: str) -> tuple[str, ...]:
    """Return the command that asks for all pods on a node."""
    here = ("--field-selector", f"spec.nodeName={node}")
    return kubectl(kubernetes, "get", "pods", "--all-namespaces", *here, "--output", "json")


def leaving(text: str, before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[DaemonSet]:
    """Return the DaemonSets that take a node with its labels `before`, and with those `after` no more.

    + text: what `others.asking` printed
    """
    try:
        return frozenset(_leaving(json.loads(text)["items"], before, after))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ParseError(f"kubectl's answer is no list of DaemonSets: {type(error).__name__}") from None


def _leaving(items: Any, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[DaemonSet]:
    for item in items:
        pod = item["spec"]["template"]["spec"]
        if selected(pod, before) and not selected(pod, after):
            yield DaemonSet(str(item["metadata"]["namespace"]), str(item["metadata"]["name"]))


def left(text: str, sets: Collection[DaemonSet]) -> tuple[str, ...]:
    """Return the pods of these DaemonSets, as NAMESPACE/NAME; `text` is what `pods_on` printed."""
    try:
        return tuple(_left(json.loads(text)["items"], sets))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ParseError(f"kubectl's answer is no list of pods: {type(error).__name__}") from None


def _left(items: Any, sets: Collection[DaemonSet]) -> Iterator[str]:
    for item in items:
        metadata = item["metadata"]
        for owner in metadata.get("ownerReferences") or []:
            if owner["kind"] == "DaemonSet" and DaemonSet(metadata["namespace"], owner["name"]) in sets:
                yield f"{metadata['namespace']}/{metadata['name']}"
