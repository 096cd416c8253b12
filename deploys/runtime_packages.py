"""A container runtime's packages, whichever runtime it is."""

from collections.abc import Callable

from gpunode.components.runtime_packages import way_out
from gpunode.deploys.component import distribution
from gpunode.deploys.repositories import trust
from gpunode.operations import packages
from gpunode.settings import ContainerdSettings, DockerSettings


def installed(
    runtime: str,
    desired: ContainerdSettings | DockerSettings,
    names: tuple[str, ...],
    waits: Callable[[], str | None],
) -> None:
    """Install a runtime from the source that the settings name; with `present` it is installed already.

    + names: its packages in that source
    + waits: returns why they are not upgraded in this run; None where they are
    """
    if desired.source == "present":
        return
    by_docker = desired.source == "docker-repository"
    if by_docker:
        trust("docker")
    packages.installed(
        name=f"Install {runtime} of {'Docker' if by_docker else 'the distribution'}",
        family=distribution().family,
        desired=dict.fromkeys(names, desired.version),
        repository="docker" if by_docker else "",
        instead=way_out(runtime, desired.source, distribution()),
        waits=waits,
    )
