"""The state of a node's MIG configuration in one word, as its label has it, by a reading of the node."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.components.mig.state import Mig
from gpunode.components.mig.target import TargetError, targets
from gpunode.settings import Settings
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
