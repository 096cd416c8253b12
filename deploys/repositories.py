"""The package repositories of the settings, by name."""

from deploys.component import node, settings
from gpunode import tables
from operations import apt


def distrust(name: str) -> None:
    """Remove the repository that `trust` added; a key and a list that others added stay."""
    apt.no_repository(name=f"Trust the {name} repository no more", label=name)


def trust(name: str) -> None:
    """Add the repository `cuda`, `toolkit` or `docker` of the settings, its key checked by fingerprint."""
    system = node().operating_system
    distribution = tables.distribution(system.id, system.version_id)
    if distribution is None:
        raise RuntimeError(f"{system.name} is not supported")
    repository = getattr(settings().repositories, name).at(
        distribution=distribution.repository,
        architecture=distribution.architectures[system.architecture],
        os_id=system.id,
        channel=settings().toolkit.channel,
    )
    suite, components = (system.codename or "", "stable") if name == "docker" else ("/", "")
    apt.repository(
        name=f"Trust the {name} repository",
        label=name,
        uri=repository.url,
        suite=suite,
        components=components,
        key_url=repository.key_url,
        key_fingerprint=repository.key_fingerprint,
        proxies=settings().proxy.environment,
    )
