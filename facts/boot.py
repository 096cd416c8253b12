"""Which boot is running, and what boots next: kernels, headers, modules, initial file systems, secure boot."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.facts.base import NodeFact
from gpunode.system import boot, running_boot

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
