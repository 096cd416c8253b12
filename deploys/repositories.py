"""The package repositories of the settings, by name."""

from gpunode.deploys.component import distribution, node, settings
from gpunode.operations import apt, dnf, zypper
from gpunode.packages.repositories import package_repository

# Each has the operations repository and no_repository, with the same arguments. Where the distribution has everything
# itself (Arch), there is none of ours to be trusted.
_MANAGERS = {"apt": apt, "dnf": dnf, "zypper": zypper}


def distrust(name: str) -> None:
    """Remove the repository that `trust` added; a key and a list that others added stay."""
    if distribution().family not in _MANAGERS:
        return
    _MANAGERS[distribution().family].no_repository(name=f"Trust the {name} repository no more", label=name)


def trust(name: str) -> None:
    """Add the repository `cuda`, `toolkit` or `docker` of the settings, its key checked by fingerprint."""
    asked = package_repository(settings(), node().operating_system, name)
    if asked is None:
        return
    _MANAGERS[asked.family].repository(
        name=f"Trust the {name} repository",
        label=name,
        uri=asked.uri,
        suite=asked.suite,
        components=asked.components,
        key_url=asked.key_url,
        key_fingerprint=asked.key_fingerprint,
        packages_signed=asked.packages_signed,
        proxies=asked.proxies,
    )
