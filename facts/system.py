"""The system of a node: readiness, boots, distribution, PCI bus, kernel, disk, units, files of others."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, Shared, Text, shell_text
from gpunode.facts.base import UNITS, NodeFact
from gpunode.system import boot, disk, exposed, kernel, operating_system, pci, readiness, running_boot, service


class Unit(NodeFact[service.Unit]):
    """Read whether a unit exists, runs and starts at boot."""

    parse = staticmethod(service.parse_unit)

    def command(self, unit: str) -> Probe:  # type: ignore[override]
        """Return the probe for `unit`, by its full name (`ssh.service`); what several ask of systemd is asked once."""
        told = 'for name in LoadState ActiveState SubState UnitFileState; do says $name; echo "$name=$SAID"; done'
        return Probe([(None, Text(f"unit {shlex.quote(unit)} || exit 0\n{told}", (UNITS.of(unit),)))])


class OperatingSystem(NodeFact[operating_system.OperatingSystem]):
    """Read /etc/os-release, uname, and whether the board is a Tegra."""

    probe = shell_text("system/operating_system")
    parse = staticmethod(operating_system.parse_operating_system)


class PciGpus(NodeFact[pci.PciGpus]):
    """Read NVIDIA's display controllers (class 0x03) and NVSwitches (0x0680) from sysfs, with no driver needed.

    From NVLink 5 on the switches are none of the bus's: they are reached by InfiniBand devices whose vital product data
    says SW_MNG (drivers.yaml, fabric_manager).
    """

    probe = shell_text("system/pci")
    parse = staticmethod(pci.parse_pci_gpus)


class KernelFeatures(NodeFact[kernel.KernelFeatures]):
    """Read whether overlay, br_netfilter and ib_umad are there.

    A module that is built in shows neither in lsmod nor, without parameters, in /sys/module: read its effect.
    """

    probe = r"""
grep -qw overlay /proc/filesystems && echo feature=overlay
[ -d /proc/sys/net/bridge ] && echo feature=br_netfilter
[ -d /sys/module/ib_umad ] || [ -e /dev/infiniband/umad0 ] && echo feature=ib_umad
"""
    parse = staticmethod(kernel.parse_kernel_features)


class KubernetesSysctls(NodeFact[kernel.KubernetesSysctls]):
    """Read the parameters that gpunode.system.kernel names."""

    probe = shell_text("system/sysctl", NAMES=" ".join(kernel.KUBERNETES))
    parse = staticmethod(kernel.parse_sysctls)


class Disk(NodeFact[disk.Disk]):
    """Read the free space where drivers, CUDA, package archives and initial file systems go."""

    probe = shell_text("system/disk", FOLDERS="/usr /usr/local /var /boot")
    parse = staticmethod(disk.parse_disk)


class Exposed(NodeFact[exposed.Exposed]):
    """Read which files that root runs by others than root may write, and which with passwords everybody may read."""

    probe = shell_text("system/exposed", FILES=" ".join(exposed.FILES))
    parse = staticmethod(exposed.parse_exposed)


# Seconds that systemd and cloud-init are given, and what does not end then until it is killed.
_SYSTEM, _CLOUD_INIT, _KILL = 10, 20, 2
# Within which the probe is answered by any machine, with some for its shell and the way there.
LONGEST = _SYSTEM + _CLOUD_INIT + 2 * _KILL + 5


class Readiness(NodeFact[readiness.Readiness]):
    """Read cloud-init's status and systemd's state."""

    probe = rf"""
echo "system=$(timeout -k {_KILL} {_SYSTEM} systemctl is-system-running)"
command -v cloud-init >/dev/null && echo cloud_init= &&
  timeout -k {_KILL} {_CLOUD_INIT} cloud-init status --long 2>&1 | sed 's/^/cloud_init=/'
"""
    parse = staticmethod(readiness.parse_readiness)


# "RELEASE TIME" of each image that was looked into and does not load nouveau: to look takes a second per image.
LOOKED_INTO = "/var/lib/gpunode/initramfs-without-nouveau"
# Programs that list and make initial file systems.
INITRAMFS = f"{shell_text('system/initramfs')}\n"


class Boot(NodeFact[boot.Boot]):
    """Read what decides whether the next boot has an NVIDIA module; nothing is unpacked and nothing is built."""

    probe = shell_text("system/boot", shared=(Shared(INITRAMFS),), LOOKED_INTO=LOOKED_INTO)
    parse = staticmethod(boot.parse_boot)


class RunningBoot(NodeFact[running_boot.RunningBoot]):
    """Read what tells this boot from another: the kernel's boot_id, and when pid 1 began, which tells a container's.

    A record that is older than the module on disk is of another installation, and no longer counts.
    """

    probe = shell_text("system/running_boot", RECORD=running_boot.RECORD)
    parse = staticmethod(running_boot.parse_running_boot)
