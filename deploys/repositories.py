"""The package repositories of the settings, by name."""

from gpunode.deploys.component import distribution, needed, node, settings
from gpunode.operations import apt, dnf, dnf5, zypper
from gpunode.packages.repositories import package_repository

# Each has the operations repository and no_repository, with the same arguments. Where the distribution has everything
# itself (Arch), there is none of ours to be trusted.
_MANAGERS = {"apt": apt, "dnf": dnf, "dnf5": dnf5, "zypper": zypper}


def distrust(name: str) -> None:
    """Remove the repository that `trust` added; a key and a list that others added stay."""
    if distribution().family not in _MANAGERS:
        return
    manager = _MANAGERS[distribution().family]
    needed(False, manager.no_repository, name=f"Trust the {name} repository no more", label=name)


def trust(name: str) -> None:
    """Add the repository `cuda`, `toolkit` or `docker` of the settings, its key checked by fingerprint."""
    desired = package_repository(settings(), node().operating_system, name)
    if desired is None:
        return
    _MANAGERS[desired.family].repository(
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
