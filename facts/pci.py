"""NVIDIA GPUs on the PCI bus."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.pci import PciGpus as Reading
from gpunode.system.pci import parse_pci_gpus


class PciGpus(NodeFact[Reading]):
    """Read NVIDIA's display controllers (class 0x03) and NVSwitches (0x0680) from sysfs, with no driver needed.

    From NVLink 5 on the switches are none of the bus's: they are reached by InfiniBand devices whose vital product data
    says SW_MNG (drivers.yaml, fabric_manager).
    """

    probe = shell_text("system/pci")
    parse = staticmethod(parse_pci_gpus)
