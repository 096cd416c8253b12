"""A container runtime's packages, whichever runtime it is."""

from deploys.component import distribution
from deploys.repositories import trust
from gpunode.settings import ContainerdSettings, DockerSettings
from operations import packages


def installed(runtime: str, asked: ContainerdSettings | DockerSettings, own: str, of_docker: tuple[str, ...]) -> None:
    """Install a runtime from the source that the settings name; with `present` it is there already.

    + own: the distribution's package; of_docker: those of Docker's repository
    """
    family = distribution().family
    if asked.source == "distribution":
        wanted = {own: asked.version}
        packages.installed(name=f"Install {runtime} of the distribution", family=family, wanted=wanted, repository="")
    elif asked.source == "docker-repository":
        trust("docker")
        wanted = dict.fromkeys(of_docker, asked.version)
        packages.installed(name=f"Install {runtime} of Docker", family=family, wanted=wanted, repository="docker")
