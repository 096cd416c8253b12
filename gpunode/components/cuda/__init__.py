"""CUDA toolkits: which a node has (`state`), and what is to be done about the one that is desired (`decide`)."""

from gpunode.components.cuda.state import ARCH_HOME, CudaToolkits, parse_cuda

__all__ = ["ARCH_HOME", "CudaToolkits", "parse_cuda"]
