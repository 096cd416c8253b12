"""How much of what a node offers is taken: what its running pods ask for, as `kubectl inspect gpushare` counts it.

It is told and judged by nobody. gpushare's scheduler notes on each pod which GPU's memory it has.
source: Kubernetes, "Resource sharing within containers" of init and sidecar containers;
AliyunContainerService/gpushare-device-plugin, cmd/inspect/nodeinfo.go and main.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.kubernetes_yaml import quantity
from gpunode.kubernetes.device_plugin.promise import GPU_COUNT, GPU_MEMORY, gpus_of
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, kubectl
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.cordon import told
from gpunode.settings.kubernetes import KubernetesSettings

_VENDORS = ("nvidia.com/", "aliyun.com/")
_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
# One that has ended has nothing any more.
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


TAKEN = cluster_finding(
    "taken of",
    "Pods use this much of what the node offers.",
    "No setting asks for it. It is not known where the cluster does not list pods.",
    name="taken",
    remedies=("nothing to do",),
    classes=(),
)


@dataclass(frozen=True)
class Taken:
    """Hold what a node's pods have: resource -> how many; and GPU's index -> memory, as gpushare placed them."""

    resources: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)


def asking_taken(kubernetes: KubernetesSettings, node: str | None = None) -> tuple[str, ...]:
    """Return the command that asks for the pods of one node, or of all, that have not ended."""
    which = f"{_RUNNING},spec.nodeName{'!=' if node is None else f'={node}'}"
    return kubectl(kubernetes, "get", "pods", "--all-namespaces", "--field-selector", which, "--output", "json")


def parse_taken(text: str) -> dict[str, Taken]:
    """Parse a list of Pods: node -> what they have of it; raise ParseError."""
    return told(text, "list of Pods", lambda found: _by_node(found["items"]))


def _by_node(items: Sequence[Mapping[str, Any]]) -> dict[str, Taken]:
    resources: dict[str, Counter[str]] = {}
    memory: dict[str, Counter[int]] = {}
    for item in items:
        name, asked = str(item["spec"].get("nodeName") or ""), _asked(item["spec"])
        index = (item["metadata"].get("annotations") or {}).get(_INDEX, "")
        resources.setdefault(name, Counter()).update(asked)
        if asked[GPU_MEMORY] and index.isascii() and index.isdecimal():
            memory.setdefault(name, Counter())[int(index)] += asked[GPU_MEMORY]
    return {
        name: Taken({key: count for key, count in sorted(asked.items()) if count}, dict(memory.get(name, {})))
        for name, asked in resources.items()
    }


def _asked(spec: Mapping[str, Any]) -> Counter[str]:
    """Return what a pod holds of GPUs: its containers together, or more where one that runs before them has more."""
    found: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            # It goes on beside the others.
            found.update(_limits(container))
        else:
            before |= _limits(container)
    for container in spec.get("containers") or ():
        found.update(_limits(container))
    return found | before


def _limits(container: Mapping[str, Any]) -> Counter[str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    ours = {str(name): quantity(count) for name, count in limits.items() if str(name).startswith(_VENDORS)}
    return Counter({name: int(count) for name, count in ours.items()})


def judge_taken(node: ClusterNode, taken: Mapping[str, Taken]) -> Iterator[Finding]:
    """Yield, for each resource of GPUs that a node offers, how much of it is taken; nothing is desired of that."""
    of_node = taken.get(node.name, Taken())
    memory = {GPU_MEMORY: node.allocatable[GPU_MEMORY]} if node.allocatable.get(GPU_MEMORY, "0") != "0" else {}
    for resource, total in {**gpus_of(node.allocatable), **memory}.items():
        actual = f"{of_node.resources.get(resource, 0)} of {total}"
        if resource == GPU_MEMORY:
            actual += _by_gpu(node, of_node)
        yield TAKEN.finding(FindingClass.OK, actual, of=resource)


def _by_gpu(node: ClusterNode, taken: Taken) -> str:
    count, total = node.allocatable.get(GPU_COUNT, ""), node.allocatable[GPU_MEMORY]
    if not (count.isdecimal() and total.isdecimal() and int(count)):
        return ""
    each = int(total) // int(count)
    return f" ({', '.join(f'GPU {index}: {taken.memory.get(index, 0)} of {each}' for index in range(int(count)))})"
