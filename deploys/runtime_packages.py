"""A container runtime's packages, whichever runtime it is."""

from gpunode.components.runtime_packages import way_out
from gpunode.deploys.component import distribution
from gpunode.deploys.repositories import trust
from gpunode.operations import packages
from gpunode.settings import ContainerdSettings, DockerSettings


def installed(runtime: str, asked: ContainerdSettings | DockerSettings, names: tuple[str, ...]) -> None:
    """Install a runtime from the source that the settings name; with `present` it is there already.

    + names: its packages in that source
    """
    if asked.source == "present":
        return
    by_docker = asked.source == "docker-repository"
    if by_docker:
        trust("docker")
    packages.installed(
        name=f"Install {runtime} of {'Docker' if by_docker else 'the distribution'}",
        family=distribution().family,
        wanted=dict.fromkeys(names, asked.version),
        repository="docker" if by_docker else "",
        instead=way_out(runtime, asked.source, distribution()),
    )
