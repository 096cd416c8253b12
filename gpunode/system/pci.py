"""NVIDIA GPUs as the PCI bus shows them: what is in the machine whether or not a driver is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base import tables
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading

_ID = "0x([0-9a-fA-F]{4})"
_LINE = re.compile(rf"^([0-9a-fA-F:.]+) {_ID} {_ID}(?: {_ID} {_ID})?$", re.ASCII)


@dataclass(frozen=True)
class PciGpu(Reading):
    """Hold one GPU: PCI address, vendor and device id in upper-case hex, and what the PCI table knows of it.

    `subsystem_id` is the board's, as nvidia-smi has it: device, then vendor (16C110DE); None where nothing tells it.
    """

    address: str
    device_id: str
    name: str | None
    generation: str | None
    vendor: str = "10DE"
    subsystem_id: str | None = None


@dataclass(frozen=True)
class PciGpus(Reading):
    """Hold every NVIDIA display controller of a node, by PCI address, and how its NVSwitches are reached.

    `nvswitches` are those on the bus; from NVLink 5 on there are `switch_managers` instead: InfiniBand devices by which
    the switches are managed, for which the module ib_umad must be there (`umad_loaded`).
    """

    gpus: tuple[PciGpu, ...]
    nvswitches: int = 0
    switch_managers: int = 0
    umad_loaded: bool = False

    @property
    def fabric(self) -> tuple[str, ...]:
        """Return the groups of packages that the switches need (driver_packages.yaml): none, nvswitch, and nvlink5."""
        if self.switch_managers:
            return ("nvswitch", "nvlink5")
        return ("nvswitch",) if self.nvswitches else ()

    @property
    def reaches_other_machines(self) -> bool:
        """Say whether a GPU's NVLink does, as in GB200 and GB300: it needs nvidia-imex."""
        products = tables.multi_node_nvlink()
        # A word may bear a board's number behind a hyphen: GB300-252.
        return any(word in products for gpu in self.gpus for word in re.split(r"[ -]", gpu.name or ""))

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of packages that switches and GPUs need beside the driver (driver_packages.yaml)."""
        return (*self.fabric, *(("imex",) if self.reaches_other_machines else ()))


def parse_pci_gpus(lines: list[str]) -> PciGpus:
    """Parse lines `gpu=0000:1a:00.0 0x10de 0x2330 0x16c1 0x10de` and `nvswitch=ADDRESS`, and of NVLink 5.

    The PCI table gives name and generation.
    """
    gpus = []
    for line in repeated(lines, "gpu"):
        match = _LINE.match(line)
        if match is None:
            raise ParseError(f"not a PCI device: {line[:80]!r}")
        address, vendor, device, board, maker = match.groups(default="")
        device_id = device.upper()
        known = tables.pci_device(device_id)
        gpus.append(
            PciGpu(
                address=address.lower(),
                device_id=device_id,
                name=known.name if known else None,
                generation=known.generation if known else None,
                vendor=vendor.upper(),
                subsystem_id=(board + maker).upper() or None,
            )
        )
    return PciGpus(
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.address)),
        nvswitches=len(repeated(lines, "nvswitch")),
        switch_managers=len(repeated(lines, "switch_manager")),
        umad_loaded=values(lines).get("umad") == "loaded",
    )
