"""A container runtime's packages, whichever runtime it is."""

from gpunode.components.runtime import way_out
from gpunode.deploys.component import distribution
from gpunode.deploys.repositories import trust
from gpunode.operations import packages
from gpunode.operations.packages import Now


def installed(runtime: str, source: str, desired: dict[str, str | None], now: Now) -> None:
    """Install a runtime from a source of the settings; with `present` it is installed already.

    + desired: package -> version rule; None: any version
    + now: as of packages.installed
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
        now=now,
    )
