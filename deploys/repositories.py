"""The package repositories of the settings, by name."""

from deploys.component import distribution, node, settings
from gpunode import tables
from operations import apt, dnf, zypper

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
    system, of = node().operating_system, distribution()
    if of.family not in _MANAGERS or of.repository is None:
        return
    filled = (
        settings()
        .repositories.on(name, of.family, of.unverified_key, of.repository)
        .at(
            distribution=of.repository,
            architecture=of.architectures[system.architecture],
            os_id=of.docker or system.id,
            channel=settings().toolkit.channel,
        )
    )
    # Docker's is divided by release, as distributions' own are.
    suite, components = (system.codename or of.version, "stable") if name == "docker" else ("/", "")
    _MANAGERS[of.family].repository(
        name=f"Trust the {name} repository",
        label=name,
        uri=filled.url,
        suite=suite,
        components=components,
        key_url=filled.key_url,
        key_fingerprint=filled.key_fingerprint,
        packages_signed=tables.repositories(of.family)[name].packages_signed,
        proxies=settings().proxy.environment,
    )
