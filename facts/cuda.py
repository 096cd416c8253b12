"""CUDA toolkits."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.cuda.state import CudaToolkits as Reading
from gpunode.components.cuda.state import parse_cuda
from gpunode.facts.base import NodeFact


class CudaToolkits(NodeFact[Reading]):
    """Read the toolkits under /usr/local and in /opt/cuda, the default link, nvcc, and what an interruption left."""

    probe = shell_text("components/cuda/state")
    parse = staticmethod(parse_cuda)
