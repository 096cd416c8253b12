"""GPUs by nvidia-smi."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI
from gpunode.gpu import Gpus as Reading
from gpunode.gpu import parse_gpus
from gpunode.probe import shell_text


class Gpus(NodeFact[Reading]):
    """Read nvidia-smi's rows."""

    probe = shell_text("gpu", shared=(SMI,))
    parse = staticmethod(parse_gpus)
