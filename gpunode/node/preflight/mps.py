"""Can the GPUs serve the MPS clients that are asked for?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import named
from gpunode.components.mig.choice import chosen
from gpunode.components.mps.environment import VARIABLE
from gpunode.components.mps.memory import without_room
from gpunode.settings import Settings
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mps import MOST_CLIENTS
from gpunode.system.pci import PciGpu

_SOURCE = "NVIDIA's Multi-Process Service documentation, limitations; nvidia-cuda-mps-control(1)"
# Compute capability 7.0 is Volta's.
_BEFORE_VOLTA = frozenset({"fermi", "kepler", "maxwell", "pascal"})
_MOST_BEFORE_VOLTA = 16


def mps_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse clients beyond what a GPU serves or has memory for, and MPS beside MIG."""
    desired = settings.mps
    if not desired.enabled:
        return
    if _divided(settings, gpus):
        yield Refusal(
            "mps",
            f"mig.config {settings.mig.config!r} divides GPUs, and the MPS daemons serve whole ones: a client would "
            "find none, and under Kubernetes the two exclude each other",
            _SOURCE,
            "leave mps.enabled or mig.config out, or set mig.config to 'all-disabled'",
        )
    for gpu in gpus:
        if gpu.generation in _BEFORE_VOLTA:
            yield from _old(settings, gpu)
            break
    memory = {index: _memory(gpu) for index, gpu in enumerate(gpus)}
    beyond = [index for index in sorted(map(int, desired.memory_limits)) if index >= len(gpus)]
    if beyond:
        yield Refusal(
            "mps", f"mps.memory_limits names GPU {', '.join(map(str, beyond))}, and the node has {len(gpus)}",
            "the PCI bus", "take it out, or mend the host's data",
        )  # fmt: skip
    if reason := without_room(desired, memory):
        what, _, remedy = reason.partition(": ")
        yield Refusal("mps", what, "the GPU's name in pci.ids", remedy)


def mps_cautions(settings: Settings) -> Iterator[Caution]:
    """Tell of programs that do not know of the daemon."""
    if settings.mps.enabled and not settings.mps.environment:
        where = "/run/nvidia-mps/INDEX" if settings.mps.daemons == "gpu" else "/run/nvidia-mps"
        remedy = f"set {VARIABLE}={where} for each program"
        if settings.mps.daemons == "node":
            remedy += ", or mps.environment = True, which sets it for login shells and users' services"
        yield Caution(
            "mps",
            f"a program without {VARIABLE} does not find the MPS daemon and passes it by: it takes a GPU as if there "
            "were no daemon, or is refused it",
            _SOURCE,
            remedy,
        )


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
        yield Refusal(
            "mps",
            f"mps.clients is {desired.clients}, and {named(gpu)}, which is older than Volta, serves "
            f"{_MOST_BEFORE_VOLTA} "
            f"(newer ones {MOST_CLIENTS})",
            _SOURCE,
            f"set mps.clients to {_MOST_BEFORE_VOLTA} or less",
        )
    limits = desired.memory_limit is not None or desired.memory_limits or float(desired.active_thread_percentage) != 100
    if limits:
        yield Refusal(
            "mps",
            f"{named(gpu)} is older than Volta, and has no limits of threads and memory for MPS clients",
            _SOURCE,
            "leave mps.active_thread_percentage, mps.memory_limit and mps.memory_limits out",
        )


def _memory(gpu: PciGpu) -> int | None:
    """Return a GPU's memory in MiB as its name tells; None where that does not."""
    match = re.search(r"(\d+)\s?GB\b", gpu.name or "")
    return int(match[1]) * 1024 if match else None
