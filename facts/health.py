"""The GPUs' health: memory errors, row remapping, Xids."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI
from gpunode.system.health import Health as Reading
from gpunode.system.health import parse_health


class Health(NodeFact[Reading]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot."""

    probe = shell_text("system/health", shared=(SMI.of("remapped"),))
    parse = staticmethod(parse_health)
