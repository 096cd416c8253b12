"""NVIDIA GPUs as the PCI bus shows them: what is in the machine whether or not a driver is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode import tables
from gpunode.probe_output import repeated
from gpunode.reading import ParseError, Reading

_LINE = re.compile(r"^(?P<address>[0-9a-fA-F:.]+) 0x(?P<vendor>[0-9a-fA-F]{4}) 0x(?P<device>[0-9a-fA-F]{4})$")


@dataclass(frozen=True)
class PciGpu(Reading):
    """Hold one GPU: PCI address, vendor and device id in upper-case hex, and what the PCI table knows of it."""

    address: str
    device_id: str
    name: str | None
    generation: str | None
    vendor: str = "10DE"


@dataclass(frozen=True)
class PciGpus(Reading):
    """Hold every NVIDIA display controller of a node, by PCI address, and how many NVSwitches there are."""

    gpus: tuple[PciGpu, ...]
    nvswitches: int = 0


def parse_pci_gpus(lines: list[str]) -> PciGpus:
    """Parse lines `gpu=0000:1a:00.0 0x10de 0x2330` and `nvswitch=ADDRESS`; the PCI table gives name and generation."""
    gpus = []
    for line in repeated(lines, "gpu"):
        match = _LINE.match(line)
        if match is None:
            raise ParseError(f"not a PCI device: {line[:80]!r}")
        device_id = match["device"].upper()
        known = tables.pci_device(device_id)
        gpus.append(
            PciGpu(
                address=match["address"].lower(),
                device_id=device_id,
                name=known.name if known else None,
                generation=known.generation if known else None,
                vendor=match["vendor"].upper(),
            )
        )
    switches = repeated(lines, "nvswitch")
    return PciGpus(tuple(sorted(gpus, key=lambda gpu: gpu.address)), len(switches))
