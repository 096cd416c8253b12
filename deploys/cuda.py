"""The CUDA toolkit, from NVIDIA's package repository or by NVIDIA's own installer, the .run file."""

from gpunode.components.cuda.decide import Desired, decide, desired_of, lost
from gpunode.components.cuda.state import profile_path
from gpunode.components.runfile import cuda_runfile
from gpunode.deploys.component import component, distribution, node, own_file, run_alone, settings
from gpunode.deploys.repositories import trust
from gpunode.operations import cuda as toolkits
from gpunode.operations import packages
from gpunode.packages.driver_packages.sources import resolve_for_os
from gpunode.settings import CudaSettings


@component("CUDA", own_files=True)
def cuda() -> None:
    """Install the CUDA toolkit and the profile script that puts it on the PATH."""
    resolved = resolve_for_os(settings(), node().operating_system)
    chosen = resolved.cuda
    if not chosen.enabled:
        return
    desired = desired_of(resolved)
    if chosen.source == "runfile":
        _runfile(desired)
    else:
        if node().cuda.interrupted:
            toolkits.none_half_installed(name="Undo a CUDA runfile that was interrupted", desired=desired)
        elif decide(desired, node().cuda).refusal:
            toolkits.none_half_installed(name="Refuse what is in CUDA's way", desired=desired)
        _packages(chosen, desired)
    toolkits.linked(name=f"Point /usr/local/cuda at {chosen.version}", desired=desired)
    own_file(profile_path(resolved), keep="Put CUDA on the PATH", remove="Take CUDA off the PATH")


def _packages(chosen: CudaSettings, toolkit: Desired) -> None:
    desired: dict[str, str | None] = {"cuda": chosen.version}
    repository = ""
    if chosen.source == "cuda-repository":
        trust("cuda")
        desired, repository = {f"cuda-toolkit-{chosen.version.replace('.', '-')}": None}, "cuda"
    packages.installed(
        name=f"Install CUDA toolkit {chosen.version}",
        family=distribution().family,
        desired=desired,
        repository=repository,
        lost=lost(toolkit, node().cuda),
    )


def _runfile(desired: Desired) -> None:
    toolkits.installed(
        name=f"Install CUDA toolkit {desired.release} by its runfile",
        desired=desired,
        file=cuda_runfile(settings(), node().operating_system),
        proxies=settings().proxy.environment,
    )


run_alone(__name__, cuda)
