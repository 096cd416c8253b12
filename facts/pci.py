"""NVIDIA GPUs on the PCI bus."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.pci import PciGpus as Reading
from gpunode.pci import parse_pci_gpus


class PciGpus(NodeFact[Reading]):
    """Read NVIDIA's display controllers (class 0x03) and NVSwitches (0x0680) from sysfs, with no driver needed."""

    probe = r"""
for device in /sys/bus/pci/devices/*; do
  read -r vendor < "$device/vendor" || continue
  [ "$vendor" = 0x10de ] || continue
  read -r class < "$device/class"
  case "$class" in 0x03*) read -r id < "$device/device"; echo "gpu=${device##*/} $vendor $id";;
    0x0680*) echo "nvswitch=${device##*/}";; esac
done
"""
    parse = staticmethod(parse_pci_gpus)
