"""GPUs by nvidia-smi: what they are, and their health."""

from __future__ import annotations

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import SMI, NodeFact, probe_command
from gpunode.system import gpu, health
from gpunode.system.gpu_users import SPECIFICATIONS, parse_gpu_users
from gpunode.system.gpu_users import GpuUsers as Reading


class GpuUsers(NodeFact[Reading]):
    """Read the processes on each GPU, and which running container has which GPU or MIG device.

    Of containerd, docker, podman and CRI-O, from the specification by which each container was started. No part of
    what drift and the verdict read: one asks for it by hand, and `verify.vector_add_pods` does while its pods run.
    """

    parse = staticmethod(parse_gpu_users)

    def command(self, look: int = 0) -> Probe:
        """Return the probe's command; `look` tells one look from the next, each of which is asked anew."""
        specifications = " ".join(SPECIFICATIONS)
        text = shell_text("system/gpu_users", shared=(SMI,), SPECIFICATIONS=specifications, LOOK=str(look))
        return probe_command(text)


class Gpus(NodeFact[gpu.Gpus]):
    """Read nvidia-smi's rows."""

    probe = shell_text("system/gpu", shared=(SMI,))
    parse = staticmethod(gpu.parse_gpus)


class Health(NodeFact[health.Health]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot."""

    probe = shell_text("system/health", shared=(SMI.of("remapped"),))
    parse = staticmethod(health.parse_health)
