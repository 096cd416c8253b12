"""What a node is to offer its pods, by its settings and its MIG state: compared with its allocatable resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpunode.components.mig.state import Mig
from gpunode.components.mig.target import TargetError, targets
from gpunode.kubernetes.gpushare.configuration import RESOURCE
from gpunode.settings import Settings
from gpunode.settings.extended_resources import OF_PLUGIN
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpu


def mig_state(settings: Settings, gpus: Sequence[PciGpu], state: Mig) -> str | None:
    """Return one of gpunode.kubernetes.nodes.labels.MIG_STATES; None where no MIG configuration is asked for.

    `pending`: a change of the mode waits for a reset or a boot, or instances are still to be made.
    """
    if settings.mig.config is None:
        return None
    try:
        every = targets(settings.mig, gpus, state)
    except TargetError:
        return "failed"
    return "success" if all(each.is_reached for each in every) else "pending"


def offered(state: Mig, by_strategy: str) -> tuple[int, dict[str, int]] | None:
    """Return how many GPUs a node has as wholes, and profile -> MIG devices of it; None where nobody can say.

    + by_strategy: sharing.mig_strategy; without one the plugin sees GPUs alone, whatever they are divided into
    """
    if state.status != "ok":
        return None
    if by_strategy == "none":
        return len(state.gpus), {}
    devices: dict[str, int] = {}
    for gpu in state.gpus:
        if gpu.enabled and gpu.instances is None:
            return None
        for each in (part for instance in gpu.instances or () for part in instance.compute):
            devices[each.profile] = devices.get(each.profile, 0) + 1
    return sum(not gpu.enabled for gpu in state.gpus), devices


_VENDOR = "nvidia.com/"
GPU_MEMORY = RESOURCE
GPU_COUNT = "aliyun.com/gpu-count"


def promised(sharing: SharingSettings, whole_gpus: int, mig_devices: Mapping[str, int]) -> dict[str, int]:
    """Return resource -> how many of it the node offers; nothing of which there is none.

    + whole_gpus: GPUs without MIG
    + mig_devices: profile, such as 1g.10gb -> how many MIG devices of it all GPUs of the node hold
    """
    offered = {WHOLE_GPU: whole_gpus}
    if sharing.mig_strategy == "single" and mig_devices:
        # The plugin offers them in the place of GPUs, and none beside them.
        offered = {WHOLE_GPU: sum(mig_devices.values())}
    elif sharing.mig_strategy == "mixed":
        offered |= {mig_resource(profile): count for profile, count in mig_devices.items()}
    found: dict[str, int] = {}
    for name, count in offered.items():
        replicas = sharing.replicated.get(name, 1) if sharing.strategy != "none" else 1
        shared = f"{name}.shared" if sharing.rename and replicas > 1 else name
        if count:
            found[shared] = count * replicas
    return found


def mig_resource(profile: str) -> str:
    """Return the resource of a MIG profile: `1g.10gb+me` -> `nvidia.com/mig-1g.10gb.me`."""
    return f"{_VENDOR}mig-{profile.replace('+', '.')}"


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
