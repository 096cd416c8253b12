"""What a node is to offer its pods, by its settings and its MIG state, and how much of it its pods have.

How much is taken is for people: no setting asks for it. gpushare's scheduler notes on a pod which GPU's memory it has.
source: Kubernetes, "Resource sharing within containers" of init and sidecar containers;
AliyunContainerService/gpushare-device-plugin, cmd/inspect/nodeinfo.go and main.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.reading import Unknown
from gpunode.base.structured_text import quantity
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.state import Mig
from gpunode.components.mig.target import StateNotKnown, TargetError, chosen, targets
from gpunode.kubernetes.device_plugin.mig_resources import Divided, Registered, is_display, registered
from gpunode.kubernetes.gpushare.configuration import RESOURCE
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings.mig import MigSettings
from gpunode.settings.other_plugins import OF_PLUGIN
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpu

# Instances exist only while a driver is loaded: without one, none of the layout is applied.
_NO_DRIVER = "no driver"


def mig_state(settings: MigSettings, gpus: Sequence[PciGpu], state: Mig) -> str | Unknown | None:
    """Return one of gpunode.kubernetes.nodes.labels.MIG_STATES; None where no configuration is desired.

    `pending`: a change of the mode waits for a reset or a boot, or instances are still to be made. `failed`: no run
    can apply the configuration as it is, or no driver is loaded. Unknown: the GPUs could not be read or judged.
    """
    if settings.config is None:
        return None
    try:
        every = targets(settings, gpus, state)
    except StateNotKnown as error:
        return "failed" if state.status == _NO_DRIVER else Unknown(str(error))
    except TargetError:
        return "failed"
    if not all(each.is_reached for each in every):
        return "pending"
    for each in chosen(settings, gpus):
        if each.entry is not None and each.match is Match.MAYBE:
            return Unknown(f"it is not known whether {each.entry.path} is for GPU {each.index} ({each.gpu.address})")
    return "success"


def offered(state: Mig, by_strategy: str) -> Divided | None:
    """Return what a node's GPUs are divided into, as its device plugin sees them; None where nobody can say.

    + by_strategy: sharing.mig_strategy; without one the plugin sees GPUs alone, whatever they are divided into
    """
    if state.status != "ok":
        return None
    gpus = [gpu for gpu in state.gpus if not is_display(gpu.name)]
    if by_strategy == "none":
        return Divided(gpus=len(gpus), whole=len(gpus))
    divided = [gpu for gpu in gpus if gpu.enabled]
    if any(gpu.instances is None for gpu in divided):
        return None
    devices: Counter[tuple[str, str]] = Counter()
    empty = 0
    for gpu in divided:
        found = [part.profile for instance in gpu.instances or () for part in instance.compute]
        devices.update((gpu.device_id.upper(), profile) for profile in found)
        empty += not found
    return Divided(len(gpus), len(gpus) - len(divided), empty, dict(devices))


_VENDOR = "nvidia.com/"
GPU_MEMORY = RESOURCE
GPU_COUNT = "aliyun.com/gpu-count"


def promised(sharing: SharingSettings, divided: Divided, version: str) -> Registered:
    """Return what the node offers, nothing of which there is none; or why its device plugin ends.

    + version: of the plugin
    """
    registers = registered(sharing.mig_strategy, divided, version)
    found: dict[str, int] = {}
    for name, count in registers.resources.items():
        replicas = sharing.replicated.get(name, 1) if sharing.strategy != "none" else 1
        shared = f"{name}.shared" if sharing.rename and replicas > 1 else name
        if count:
            found[shared] = count * replicas
    return replace(registers, resources=found)


def promised_memory(gpus: Gpus, unit: str) -> dict[str, int] | None:
    """Return what gpushare offers of a node's GPUs, resource -> how many; None where nobody knows their memory.

    Its plugin rounds down, and takes the first GPU's memory for that of each (gpushare-device-plugin,
    pkg/gpu/nvidia/nvidia.go).

    + unit: gpushare.memory_unit
    """
    if gpus.status != "ok":
        return None
    first = min(gpus.gpus, key=lambda each: each.index, default=None)
    if first is None:
        return {}
    if first.memory_mib is None:
        return None
    each = first.memory_mib // 1024 if unit == "GiB" else first.memory_mib
    return {GPU_COUNT: len(gpus.gpus), GPU_MEMORY: len(gpus.gpus) * each}


def gpus_of(allocatable: Mapping[str, str]) -> dict[str, str]:
    """Return resource -> count of what a node offers of GPUs, MIG devices, and parts of them under whatever name."""
    ours = (WHOLE_GPU, f"{_VENDOR}mig-")
    return {name: count for name, count in sorted(allocatable.items()) if name.startswith(ours) and count != "0"}


def missing(desired: Mapping[str, int], allocatable: Mapping[str, str]) -> dict[str, tuple[str | None, int]]:
    """Return resource -> (found, wanted) where a node's allocatable resources are not what was promised.

    Beside those, what NVIDIA's device plugin offers is looked at; one of its resources that nobody promised is wanted 0
    times, and one at 0 is as good as none. gpushare's count stays with a node that it has left, and is no matter.
    """
    names = {*desired, *(name for name in allocatable if OF_PLUGIN.fullmatch(name))}
    return {
        name: (allocatable.get(name), desired.get(name, 0))
        for name in sorted(names)
        if allocatable.get(name, "0") != str(desired.get(name, 0))
    }


_VENDORS = ("nvidia.com/", "aliyun.com/")
_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
# One that has ended has nothing any more.
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


TAKEN = cluster_finding(
    "taken of",
    "Pods use this much of what the node offers.",
    "No setting asks for it. It is not known where the cluster does not list pods.",
    name="taken",
    remedies=("where it is not known, look whether the user of kubernetes.kubeconfig may list pods",),
    classes=(),
)


@dataclass(frozen=True)
class Taken:
    """Hold what a node's pods have: resource -> how many; and GPU's index -> memory, as gpushare placed them."""

    resources: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)


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
