"""What boots next: kernels, headers, modules, initial file systems, secure boot."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.initramfs import INITRAMFS, LOOKED_INTO
from gpunode.system.boot import Boot as Reading
from gpunode.system.boot import parse_boot


class Boot(NodeFact[Reading]):
    """Read what decides whether the next boot has an NVIDIA module; nothing is unpacked and nothing is built."""

    probe = shell_text("system/boot", shared=(Shared(INITRAMFS),), LOOKED_INTO=LOOKED_INTO)
    parse = staticmethod(parse_boot)
