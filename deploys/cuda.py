"""The CUDA toolkit, from NVIDIA's package repository or by NVIDIA's own installer, the .run file."""

from deploys.component import component, distribution, node, settings
from deploys.repositories import trust
from gpunode.cuda import ARCH_HOME
from gpunode.driver_packages import on_system
from gpunode.runfile import cuda_runfile
from gpunode.settings import CudaSettings
from operations import cuda as toolkits
from operations import files, packages

PROFILE = "/etc/profile.d/cuda.sh"
# The package of that name brings a script of its own, which an upgrade of it brings again.
ARCH_PROFILE = "/etc/profile.d/gpunode-cuda.sh"


@component("CUDA", own_files=True)
def cuda() -> None:
    """Install the CUDA toolkit and the profile script that puts it on the PATH."""
    asked = on_system(settings(), node().operating_system).cuda
    if not asked.enabled:
        return
    if asked.source == "runfile":
        _runfile()
    else:
        toolkits.none_half_installed(
            name="Undo a CUDA runfile that was interrupted",
            version=asked.version,
            shared=asked.source == "cuda-repository",
        )
        _packages(asked)
    at_home = asked.source == "distribution"
    toolkits.linked(
        name=f"Point /usr/local/cuda at {asked.version}", version=asked.version, home=ARCH_HOME if at_home else ""
    )
    profile = ARCH_PROFILE if at_home else PROFILE
    if asked.profile:
        files.template(name="Put CUDA on the PATH", path=profile, source="cuda.sh")
    else:
        files.absent(name="Take CUDA off the PATH", path=profile)


def _packages(asked: CudaSettings) -> None:
    wanted: dict[str, str | None] = {"cuda": asked.version}
    repository = ""
    if asked.source == "cuda-repository":
        trust("cuda")
        wanted, repository = {f"cuda-toolkit-{asked.version.replace('.', '-')}": None}, "cuda"
    packages.installed(
        name=f"Install CUDA toolkit {asked.version}",
        family=distribution().family,
        wanted=wanted,
        repository=repository,
    )


def _runfile() -> None:
    asked = settings().cuda
    toolkits.installed(
        name=f"Install CUDA toolkit {asked.release} by its runfile",
        file=cuda_runfile(settings(), node().operating_system),
        version=asked.version,
        release=asked.release or "",
        proxies=settings().proxy.environment,
    )


# pyinfra runs the file by itself, where gpu_node.py and `deploys.cuda.cuda` import it.
if __name__ != "deploys.cuda":
    cuda()
