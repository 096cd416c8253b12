"""A container runtime's packages, whichever runtime it is."""

from functools import partial

from gpunode.components.runtime_packages import way_out
from gpunode.deploys.component import distribution, settings
from gpunode.deploys.repositories import trust
from gpunode.operations import containerd, docker, packages
from gpunode.settings import ContainerdSettings, DockerSettings


def installed(runtime: str, desired: ContainerdSettings | DockerSettings, names: tuple[str, ...]) -> None:
    """Install a runtime from the source that the settings name; with `present` it is there already.

    + names: its packages in that source
    """
    if desired.source == "present":
        return
    wait = {"containerd": containerd.packages_wait, "docker": docker.packages_wait}[runtime]
    by_docker = desired.source == "docker-repository"
    if by_docker:
        trust("docker")
    packages.installed(
        name=f"Install {runtime} of {'Docker' if by_docker else 'the distribution'}",
        family=distribution().family,
        desired=dict.fromkeys(names, desired.version),
        repository="docker" if by_docker else "",
        instead=way_out(runtime, desired.source, distribution()),
        waits=partial(wait, desired.version, settings().disruption.allow != "nothing"),
    )
