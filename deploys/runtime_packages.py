"""A container runtime's packages, whichever runtime it is."""

from collections.abc import Callable, Collection

from gpunode.components.runtime_packages import way_out
from gpunode.deploys.component import distribution
from gpunode.deploys.repositories import trust
from gpunode.operations import packages


def installed(
    runtime: str,
    source: str,
    desired: dict[str, str | None],
    waits: Callable[[], str | None],
    lost: Callable[[], Collection[str]] = tuple,
) -> None:
    """Install a runtime from a source of the settings; with `present` it is installed already.

    + desired: package -> version rule; None: any version
    + waits: returns why they are not upgraded in this run; None where they are
    + lost: returns the paths of programs that are lost
    """
    if source == "present":
        return
    by_docker = source == "docker-repository"
    if by_docker:
        trust("docker")
    packages.installed(
        name=f"Install {runtime} of {'Docker' if by_docker else 'the distribution'}",
        family=distribution().family,
        desired=desired,
        repository="docker" if by_docker else "",
        instead=way_out(runtime, source, distribution()),
        waits=waits,
        lost=lost,
    )
