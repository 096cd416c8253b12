"""What boots next: kernels, headers, modules, initial file systems, secure boot."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.boot import Boot as Reading
from gpunode.system.boot import parse_boot

# "RELEASE TIME" of each image that was looked into and does not load nouveau: to look takes a second per image.
LOOKED_INTO = "/var/lib/gpunode/initramfs-without-nouveau"
# Programs that list and make initial file systems.
INITRAMFS = f"{shell_text('system/initramfs')}\n"


class Boot(NodeFact[Reading]):
    """Read what decides whether the next boot has an NVIDIA module; nothing is unpacked and nothing is built."""

    probe = shell_text("system/boot", shared=(Shared(INITRAMFS),), LOOKED_INTO=LOOKED_INTO)
    parse = staticmethod(parse_boot)
