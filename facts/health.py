"""The GPUs' health: memory errors, row remapping, Xids."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI
from gpunode.health import Health as Reading
from gpunode.health import parse_health
from gpunode.probe import shell_text


class Health(NodeFact[Reading]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot."""

    probe = shell_text("health", shared=(SMI.of("remapped"),))
    parse = staticmethod(parse_health)
