"""Is the CUDA toolkit there, and the one that programs find?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import versions
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import compared
from gpunode.verify.subject import Subject


def cuda(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the CUDA toolkit, the link and the compiler that programs take, and the profile script."""
    wanted, there = settings.cuda.version, node.cuda.versions
    yield compared("cuda", Subject.CUDA_TOOLKIT, ", ".join(there) or None, wanted, wanted in there)
    if settings.cuda.source == "runfile" and wanted in there:
        release = dict(node.cuda.releases).get(wanted)
        yield compared("cuda", Subject.CUDA_RELEASE, release, settings.cuda.release, release == settings.cuda.release)
    default = node.cuda.default_version
    yield compared("cuda", Subject.CUDA_DEFAULT, default, wanted, default == wanted)
    nvcc = node.cuda.nvcc_version
    yield compared("cuda", Subject.NVCC, nvcc, wanted, nvcc is not None and versions.in_branch(nvcc, wanted))
    if settings.cuda.profile:
        yield compared("cuda", Subject.CUDA_PROFILE, "yes" if node.cuda.profile else None, "yes", node.cuda.profile)
