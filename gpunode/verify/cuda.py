"""Is the CUDA toolkit there, and the one that programs find?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import versions
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import compared


def cuda(settings: Settings, node: Node) -> Iterator[Finding]:
    wanted = settings.cuda.version
    yield compared("cuda", "toolkit", ", ".join(node.cuda.versions) or None, wanted, wanted in node.cuda.versions)
    yield compared(
        "cuda", "/usr/local/cuda", node.cuda.default_version, wanted, node.cuda.default_version == wanted,
        remedy="`update-alternatives --config cuda` on the node",
    )  # fmt: skip
    nvcc = node.cuda.nvcc_version
    yield compared("cuda", "nvcc", nvcc, wanted, nvcc is not None and versions.in_branch(nvcc, wanted))
    if settings.cuda.profile:
        yield compared("cuda", "profile script", "yes" if node.cuda.profile else None, "yes", node.cuda.profile)
