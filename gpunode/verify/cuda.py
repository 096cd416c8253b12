"""Is the CUDA toolkit there, and the one that programs find?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import versions
from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.families.wording import wording
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.settings import Settings


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
    # Whose package the manager holds for installed, a run does not install again.
    by_hand, again = lost_nvcc(settings, node), wording(node.operating_system).again
    package = "cuda" if settings.cuda.source == "distribution" else f"cuda-nvcc-{wanted.replace('.', '-')}"
    yield compared(
        "cuda", Subject.NVCC, nvcc, wanted, nvcc is not None and versions.in_branch(nvcc, wanted),
        remedy=f"install its package again: `{again} {package}` on the node, or whichever has it" if by_hand else RUN,
        cause="the toolkit is there, and its compiler is gone or does not run" if by_hand else None,
    )  # fmt: skip
    if settings.cuda.profile:
        yield compared("cuda", Subject.CUDA_PROFILE, "yes" if node.cuda.profile else None, "yes", node.cuda.profile)


def lost_nvcc(settings: Settings, node: Node) -> bool:
    """Say whether a toolkit that packages brought has lost its compiler, which only a person brings back."""
    wanted, cuda = settings.cuda.version, node.cuda
    there = wanted in cuda.versions and cuda.default_version == wanted
    return there and cuda.nvcc_version is None and settings.cuda.source != "runfile"
