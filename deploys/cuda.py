"""The CUDA toolkit."""

from deploys.component import component, distribution, settings
from deploys.repositories import trust
from operations import files, packages

PROFILE = "/etc/profile.d/cuda.sh"


@component("CUDA")
def cuda() -> None:
    """Install the CUDA toolkit and the profile script that puts it on the PATH."""
    asked = settings().cuda
    if not asked.enabled:
        return
    trust("cuda")
    packages.installed(
        name=f"Install CUDA toolkit {asked.version}",
        family=distribution().family,
        wanted={f"cuda-toolkit-{asked.version.replace('.', '-')}": None},
        repository="cuda",
    )
    if asked.profile:
        files.template(name="Put CUDA on the PATH", path=PROFILE, source="cuda.sh")
    else:
        files.absent(name="Take CUDA off the PATH", path=PROFILE)
