"""The pod that adds vectors on one GPU of a node, and says PASSED: NVIDIA's own test of all that is below it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpunode.kubernetes.device_plugin.view import Pod, View
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.settings.kubernetes import KubernetesSettings

LABEL = ("app.kubernetes.io/name", "gpunode-vector-add")
PASSED = "Test PASSED"
_ENDED = ("Succeeded", "Failed")


def pod(
    name: str, node: str, image: str, resource: str, runtime_class: str | None, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the pod for a node; it goes nowhere else, and takes one `resource`.

    + labels: by which the view that is to show it finds it, where it asks for some pods alone
    """
    where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [where]}}}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "affinity": affinity,
        # A cordoned node is tested, too, as DaemonSets run on it.
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "containers": [{"name": "vector-add", "image": image, "resources": {"limits": {resource: 1}}}],
    }
    if runtime_class is not None:
        spec["runtimeClassName"] = runtime_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {**(labels or {}), **dict([LABEL])}},
        "spec": spec,
    }


def of_node(view: View, node: str) -> tuple[Pod, ...]:
    """Return the test's pods on a node, such as a run that was cut off left behind."""
    key, value = LABEL
    return tuple(each for each in view.pods if each.labels.get(key) == value and each.node == node)


def has_ended(found: Pod) -> bool:
    """Say whether the test is over."""
    return found.phase in _ENDED


def is_crowded_out(found: Pod) -> bool:
    """Say whether it found no GPU that is free: others are at work with them, which is no fault."""
    return (
        found.phase == "Pending"
        and found.node is None
        and any(f"Insufficient {vendor}" in (found.waits or "") for vendor in ("nvidia.com/", "aliyun.com/"))
    )


def creating(kubernetes: KubernetesSettings, namespace: str) -> tuple[str, ...]:
    """Return the command that takes the pod on its standard input."""
    return kubectl(kubernetes, "create", "--namespace", namespace, "--filename", "-")


def removing(kubernetes: KubernetesSettings, namespace: str, *names: str) -> tuple[str, ...]:
    """Return the command that removes pods, whatever they are at."""
    words = (
        "delete",
        "pods",
        *names,
        "--namespace",
        namespace,
        "--ignore-not-found",
        "--wait=false",
        "--grace-period=1",
    )
    return kubectl(kubernetes, *words)


def log_of(kubernetes: KubernetesSettings, namespace: str, name: str) -> tuple[str, ...]:
    """Return the question for the last lines of a pod's log."""
    words = ("logs", name, "--namespace", namespace, "--all-containers", "--tail", "15")
    return kubectl(kubernetes, *words)


def text(*pods: Mapping[str, Any]) -> str:
    """Return pods for kubectl, all of them to be made at once."""
    return json.dumps(pods[0] if len(pods) == 1 else {"apiVersion": "v1", "kind": "List", "items": pods})
