"""The state of a node's MIG configuration in one word, as its label has it, by a reading of the node."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.base.reading import Unknown
from gpunode.components.mig.choice import chosen
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.state import Mig
from gpunode.components.mig.target import StateNotKnown, TargetError, targets
from gpunode.settings.mig import MigSettings
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
