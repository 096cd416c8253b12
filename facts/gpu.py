"""GPUs by nvidia-smi."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI
from gpunode.system.gpu import Gpus as Reading
from gpunode.system.gpu import parse_gpus


class Gpus(NodeFact[Reading]):
    """Read nvidia-smi's rows."""

    probe = shell_text("system/gpu", shared=(SMI,))
    parse = staticmethod(parse_gpus)
