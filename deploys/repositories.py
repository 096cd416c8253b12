"""The package repositories of the settings, by name."""

from gpunode.deploys.component import distribution, needed, node, settings
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
