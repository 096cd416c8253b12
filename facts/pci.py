"""NVIDIA GPUs on the PCI bus."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.pci import PciGpus as Reading
from gpunode.pci import parse_pci_gpus


class PciGpus(NodeFact[Reading]):
    """Read NVIDIA's display controllers (class 0x03) and NVSwitches (0x0680) from sysfs, with no driver needed.

    From NVLink 5 on the switches are none of the bus's: they are reached by InfiniBand devices whose vital product data
    says SW_MNG (drivers.yaml, fabric_manager).
    """

    probe = r"""
for device in /sys/bus/pci/devices/*; do
  read -r vendor < "$device/vendor" || continue
  [ "$vendor" = 0x10de ] || continue
  read -r class < "$device/class"
  case "$class" in
    0x03*)
      read -r id < "$device/device"; board=''; maker=''
      [ ! -r "$device/subsystem_device" ] || read -r board < "$device/subsystem_device"
      [ ! -r "$device/subsystem_vendor" ] || read -r maker < "$device/subsystem_vendor"
      echo "gpu=${device##*/} $vendor $id${board:+${maker:+ $board $maker}}";;
    0x0680*) echo "nvswitch=${device##*/}";; esac
done
for device in /sys/class/infiniband/*; do
  grep -qas SW_MNG "$device/device/vpd" && echo "switch_manager=${device##*/}"
done
[ -d /sys/module/ib_umad ] || [ -e /dev/infiniband/umad0 ] && echo umad=loaded
"""
    parse = staticmethod(parse_pci_gpus)
