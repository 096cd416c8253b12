"""Can the GPUs serve the MPS clients that are asked for, of the host's daemons or of the device plugin's?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import named
from gpunode.components.mig.choice import chosen
from gpunode.components.mps.environment import VARIABLE
from gpunode.components.mps.memory import without_room
from gpunode.node.preflight.words import caution, refusal
from gpunode.settings import Settings
from gpunode.settings.cluster.features import mps_clients_before_turing
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mps import MOST_CLIENTS
from gpunode.system.pci import PciGpu

# Compute capability 7.0 is Volta's.
_BEFORE_VOLTA = frozenset({"fermi", "kepler", "maxwell", "pascal"})
_MOST_BEFORE_VOLTA = 16
# Of 7.5 Turing's.
_BEFORE_TURING = _BEFORE_VOLTA | {"volta"}


def device_plugin_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse more MPS replicas than the plugin grants an old GPU: its pods would not start."""
    sharing = settings.sharing
    if not settings.kubernetes.enabled or sharing.strategy != "mps":
        return
    most, source = mps_clients_before_turing()
    desired = max(sharing.replicated.values(), default=0)
    old = next((gpu for gpu in gpus if gpu.generation in _BEFORE_TURING), None)
    if old is not None and desired > most:
        yield refusal("plugin-too-many-mps", desired=desired, named=named(old), most=most, source=source)


def mps_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse clients beyond what a GPU serves or has memory for, and MPS beside MIG."""
    desired = settings.mps
    if not desired.enabled:
        return
    if _divided(settings, gpus):
        yield refusal("mps-beside-mig", settings=settings)
    for gpu in gpus:
        if gpu.generation in _BEFORE_VOLTA:
            yield from _old(settings, gpu)
            break
    memory = {index: _memory(gpu) for index, gpu in enumerate(gpus)}
    beyond = [index for index in sorted(map(int, desired.memory_limits)) if index >= len(gpus)]
    if beyond:
        yield refusal("mps-beyond", beyond=", ".join(map(str, beyond)), count=len(gpus))
    if reason := without_room(desired, memory):
        what, _, remedy = reason.partition(": ")
        yield refusal("mps-no-room", what=what, remedy=remedy)


def mps_cautions(settings: Settings) -> Iterator[Caution]:
    """Tell of programs that do not know of the host's daemon, and of what the device plugin says of its own."""
    if settings.kubernetes.enabled and settings.sharing.strategy == "mps":
        yield caution("mps-experimental")
    if settings.mps.enabled and not settings.mps.environment:
        where = "/run/nvidia-mps/INDEX" if settings.mps.daemons == "gpu" else "/run/nvidia-mps"
        remedy = f"set {VARIABLE}={where} for each program"
        if settings.mps.daemons == "node":
            remedy += ", or mps.environment = True, which sets it for login shells and users' services"
        yield caution("mps-passed-by", variable=VARIABLE, remedy=remedy)


def _divided(settings: Settings, gpus: Sequence[PciGpu]) -> bool:
    if settings.mig.config is None:
        return False
    try:
        return any(each.entry is not None and each.entry.mig_enabled for each in chosen(settings.mig, gpus))
    except DeclarationError:
        # Refused by the name of MIG.
        return False


def _old(settings: Settings, gpu: PciGpu) -> Iterator[Refusal]:
    desired = settings.mps
    if desired.clients is not None and desired.clients > _MOST_BEFORE_VOLTA:
        yield refusal(
            "mps-too-many-for-old", desired=desired, named=named(gpu), most=_MOST_BEFORE_VOLTA, newer=MOST_CLIENTS
        )
    limits = desired.memory_limit is not None or desired.memory_limits or float(desired.active_thread_percentage) != 100
    if limits:
        yield refusal("mps-no-limits-on-old", named=named(gpu))


def _memory(gpu: PciGpu) -> int | None:
    """Return a GPU's memory in MiB as its name tells; None where that does not."""
    match = re.search(r"(\d+)\s?GB\b", gpu.name or "")
    return int(match[1]) * 1024 if match else None
