"""The packages of container runtimes: which install them, and which another source would remove."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading
from gpunode.base.tables.sources import Distribution

DOCKER_OF_DOCKER = ("docker-ce", "docker-ce-cli")
# The packages of container runtimes that the packages of another source would remove.
RUNTIMES = tuple(
    sorted({name for rows in tables.removals_of_runtimes().values() for gone in rows.values() for name in gone})
)
ORIGINS = {"distribution": "the distribution", "docker-repository": "Docker's repository"}


@dataclass(frozen=True)
class RuntimePackages(Reading):
    """The installed packages of container runtimes, from any source: (name, version)."""

    installed: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return their names."""
        return tuple(name for name, _ in self.installed)


def parse_runtime_packages(lines: list[str]) -> RuntimePackages:
    """Parse `package=NAME VERSION` lines; raise ParseError for another line."""
    pairs = [tuple(line.split(" ")) for line in repeated(lines, "package")]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise ParseError(f"not a package: {' '.join(wrong[0])[:80]!r}")
    return RuntimePackages(tuple(sorted((name, version) for name, version in pairs)))


def docker_packages(source: str, system: Distribution) -> tuple[str, ...]:
    """Return the packages that install docker and its client; none where it is installed already, or none are known."""
    if source == "docker-repository":
        return DOCKER_OF_DOCKER
    # Preflight refuses a distribution without docker.io.
    if source != "distribution" or system.family != "apt":
        return ()
    clients = (
        row.package
        for row in tables.docker_clients()
        if row.id == system.id and versions.at_least(system.version, row.since)
    )
    return ("docker.io", *clients)


def removed_for(desired: Collection[str], installed: Collection[str], family: str = "apt") -> tuple[str, ...]:
    """Return the installed packages that a family's package manager removes to install the missing desired ones."""
    table = tables.removals_of_runtimes().get(family, {})
    lost = {gone for name in desired if name not in installed for gone in table.get(name, ())}
    return tuple(name for name in installed if name in lost and name not in desired)


def is_had(runtime: str, source: str, system: Distribution) -> bool:
    """Return whether a source (distribution, docker-repository) has containerd or docker for a distribution."""
    if source == "docker-repository":
        return system.docker != ""
    return system.containerd if runtime == "containerd" else system.family == "apt"


def way_out(runtime: str, source: str, system: Distribution) -> str:
    """Return the settings that need no such removal, as the start of a remedy; preflight refuses none of them."""
    other = {"distribution": "docker-repository", "docker-repository": "distribution"}[source]
    named = f"{other!r}, or " if is_had(runtime, other, system) else ""
    return f"set {runtime}.source = {named}'present' to leave what is there"
