"""CUDA toolkits."""

from __future__ import annotations

from gpunode.cuda import CudaToolkits as Reading
from gpunode.cuda import parse_cuda
from gpunode.facts.base import NodeFact
from gpunode.probe import shell_text


class CudaToolkits(NodeFact[Reading]):
    """Read the toolkits under /usr/local and in /opt/cuda, the default link, nvcc, and what an interruption left."""

    probe = shell_text("cuda/state")
    parse = staticmethod(parse_cuda)
