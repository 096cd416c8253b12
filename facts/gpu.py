"""GPUs by nvidia-smi: what they are, and their health."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import SMI, NodeFact
from gpunode.system import gpu, health


class Gpus(NodeFact[gpu.Gpus]):
    """Read nvidia-smi's rows."""

    probe = shell_text("system/gpu", shared=(SMI,))
    parse = staticmethod(gpu.parse_gpus)


class Health(NodeFact[health.Health]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot."""

    probe = shell_text("system/health", shared=(SMI.of("remapped"),))
    parse = staticmethod(health.parse_health)
