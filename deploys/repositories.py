"""The package repositories of the settings, by name, and the packages of a container runtime from one of them."""

from gpunode.components.runtimes.packages import way_out
from gpunode.deploys.component import distribution, needed, node, settings
from gpunode.operations import packages
from gpunode.operations.packages import Now
from gpunode.operations.repositories import MANAGERS
from gpunode.packages.repositories import package_repository


def distrust(name: str) -> None:
    """Remove the repository that `trust` added; a key and a list that others added stay."""
    if (manager := MANAGERS.get(distribution().family)) is not None:
        needed(False, manager.distrusted, name=f"Trust the {name} repository no more", label=name)


def trust(name: str) -> None:
    """Add the repository `cuda`, `toolkit` or `docker` of the settings, its key checked by fingerprint."""
    desired = package_repository(settings(), node().operating_system, name)
    if desired is None:
        return
    MANAGERS[desired.family].trusted(
        name=f"Trust the {name} repository",
        label=name,
        uri=desired.uri,
        suite=desired.suite,
        components=desired.components,
        key_url=desired.key_url,
        key_fingerprint=desired.key_fingerprint,
        packages_signed=desired.packages_signed,
        proxies=desired.proxies,
    )


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
