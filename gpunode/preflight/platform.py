"""Can this operating system on this architecture, with these GPUs, be provisioned at all?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode import tables
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpu
from gpunode.preflight.flavour import installed_by_gpunode
from gpunode.preflight.verdicts import Refusal
from gpunode.settings import Settings

_DISTRIBUTIONS = "CUDA installation guide for Linux (gpunode/data/distributions.yaml)"


def system_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse what is in no table of supported systems, and a Tegra's driver, which belongs to the board."""
    supported = tables.distributions()
    found = tables.distribution(system.id, system.version_id)
    if system.tegra and (installed_by_gpunode(settings) or settings.cuda.enabled):
        yield Refusal(
            "driver" if installed_by_gpunode(settings) else "cuda",
            "this is a Tegra board: its driver and its CUDA belong to the board's own software (JetPack)",
            "CUDA installation guide for Linux",
            "set driver.source = 'present' and cuda.enabled = False, or take the node out of the inventory",
        )
    if found is None:
        yield Refusal(
            "operating system",
            f"{system.name} ({system.id} {system.version_id}) is not supported",
            _DISTRIBUTIONS,
            f"use one of {', '.join(row.name for row in supported)}",
        )
    elif system.architecture not in found.architectures:
        yield Refusal(
            "operating system",
            f"architecture {system.architecture} is not supported on {found.name}",
            _DISTRIBUTIONS,
            f"on {found.name} use one of {', '.join(found.architectures)}",
        )


def gpu_refusals(system: OperatingSystem, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse a node without an NVIDIA GPU."""
    # A Tegra's GPU is part of the chip and not on the PCI bus.
    if not gpus and not system.tegra:
        yield Refusal(
            "gpu",
            "no NVIDIA GPU is on the PCI bus",
            "/sys/bus/pci/devices (vendor 10de, class 03)",
            "look at the machine (lspci -d 10de:), pass a GPU through to it, or take it out of the inventory",
        )
