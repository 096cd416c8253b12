"""The lab's nodes as Node objects of the cluster, which a kubelet would register."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpunode.lab.cluster.kubectl import asked, told
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node

Report = Callable[[str], None]

# Whose Node object it is: those of others are left alone.
LABEL = "gpunode-lab"
# Admission gives it to every new node; a kubelet's node would lose it by being ready.
_NOT_READY = "node.kubernetes.io/not-ready"
_RESOURCES = {"cpu": "8", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def register(kubeconfig: Path, lab: str, nodes: Sequence[Node], log_port: int, report: Report) -> None:
    """Create the Node objects that are missing; raise LabError where another one has the name.

    `log_port` is where the kubelets' stand-in answers, on this machine's loopback.
    """
    there = {item["metadata"]["name"]: item for item in asked(kubeconfig, "get", "nodes")["items"]}
    for node in nodes:
        found = there.get(node.name)
        if found is None:
            printed = told(kubeconfig, "create", "--filename", "-", "--output", "json", sends=_object(lab, node))
            found = json.loads(printed)
            report(f"cluster: {node.name} is registered; its kubelet is SIMULATED")
        if found["metadata"].get("labels", {}).get(LABEL) != lab:
            raise LabError(f"the cluster has a node {node.name}, which is not of lab {lab}: remove it, or take another")
        taints = found["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != _NOT_READY]
        if len(kept) != len(taints):
            _patch(kubeconfig, node, {"spec": {"taints": kept or None}})
        _patch(kubeconfig, node, {"status": _endpoint(node, log_port)}, "--subresource=status")


def unregister(kubeconfig: Path, lab: str) -> None:
    """Remove the lab's Node objects; raise LabError."""
    told(kubeconfig, "delete", "nodes", "--selector", f"{LABEL}={lab}", "--ignore-not-found")


def _patch(kubeconfig: Path, node: Node, patch: dict[str, Any], *words: str) -> None:
    told(kubeconfig, "patch", "node", node.name, *words, "--type", "merge", "--patch", json.dumps(patch))


def _endpoint(node: Node, log_port: int) -> dict[str, Any]:
    return {
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "Hostname", "address": node.name},
            {"type": "ExternalIP", "address": "127.0.0.1"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
    }


def _object(lab: str, node: Node) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "SIMULATED: no kubelet runs"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                LABEL: lab,
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "status": {
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
            "conditions": [ready],
            "nodeInfo": _info(),
        },
    }


def _info() -> dict[str, str]:
    names = (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
        "kubeProxyVersion", "operatingSystem", "architecture",
    )  # fmt: skip
    known = {"kubeletVersion": "v1.20.2-simulated", "operatingSystem": "linux", "architecture": "amd64",
             "osImage": "gpunode lab node", "containerRuntimeVersion": "containerd://simulated"}  # fmt: skip
    return {name: known.get(name, "") for name in names}
