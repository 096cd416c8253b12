"""What dpkg has of the driver on a node, which of it is held, and which of it was removed by force.

`dpkg --force-depends` and `rpm -e --nodeps` take one package out of the driver and leave what depends on it: nothing
that is desired by its name is missing then. The files that keep the driver's packages as they are name it still.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.probe_output import decoded, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.tables.sources import DriverSource
from gpunode.packages.driver_packages.names import belongs, brings_kernels, is_package, wanted
from gpunode.packages.driver_packages.sources import leftovers
from gpunode.packages.installed_packages import satisfies

# They go with their kernel.
_OF_A_KERNEL = re.compile(r"linux-(modules|objects|signatures)-.*|kmod-nvidia-.*\d+\.\d+\.\d+-.*")


def taken_away(
    source: DriverSource, desired: Mapping[str, str | None], installed: Mapping[str, str], pinned: Mapping[str, str]
) -> dict[str, str | None]:
    """Return package -> rule, as in `desired`, of what is missing of the driver and nobody asks for by its name.

    Nothing of it where the driver is not the one that was pinned: another version, flavour or source brings what it
    needs itself, and what went with the former one is not missing.

    + desired: package -> branch or version (None: any), as package_set returns it
    + installed, pinned: name -> version, of the driver's packages, and of those that gpunode keeps as they are
    """
    # One that is asked for since then is neither there nor pinned.
    bound = {name: rule for name, rule in desired.items() if rule and name in installed and name not in source.beside}
    upstreams = {_upstream(version) for name in bound for version in (installed[name], pinned.get(name))}
    upstream, *others = upstreams or {None}
    if upstream is None or others or not all(satisfies(upstream, rule) for rule in bound.values()):
        return {}
    rule = next(iter(bound.values()))
    missing = dict(_missing(desired, installed, pinned))
    going = leftovers(source, desired, {**installed, **missing}, rule)
    # What is numbered apart from the driver comes at any version.
    return {
        name: rule if _upstream(version) == upstream else None for name, version in missing.items() if name not in going
    }


def _missing(
    desired: Mapping[str, str | None], installed: Mapping[str, str], pinned: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name, version in sorted(pinned.items()):
        if belongs(name) and name not in installed and name not in desired and not _OF_A_KERNEL.fullmatch(name):
            yield name, version


def _upstream(version: str | None) -> str | None:
    try:
        return None if version is None else versions.upstream(version)
    except versions.VersionError:
        return None


@dataclass(frozen=True)
class DriverPackages(Reading):
    """Hold what dpkg has of the driver, of kernels and their headers: (name, version), and which of them are held.

    `interrupted` as in InstalledPackages. `preferences` and `unattended` are the texts of our two files that keep them
    still, None where there is none.
    """

    packages: tuple[tuple[str, str], ...]
    held: tuple[str, ...] = ()
    interrupted: bool = False
    preferences: str | None = None
    unattended: str | None = None

    @property
    def driver(self) -> dict[str, str]:
        """Return name -> version of the driver's packages alone."""
        return {name: version for name, version in self.packages if belongs(name)}

    def missing(self, desired: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the names that are not there as desired; those that have a version must share one upstream version."""
        actual = dict(self.packages)
        bad = [name for name, rule in desired.items() if name not in actual or not satisfies(actual[name], rule)]
        together = {versions.upstream(actual[name]) for name, rule in desired.items() if rule and name not in bad}
        if len(together) > 1:
            bad += [name for name, rule in desired.items() if rule and name not in bad]
        return tuple(sorted(bad))

    def to_hold(self, kernel: bool) -> dict[str, str]:
        """Return name -> version of what is to be held; with `kernel`, the packages that bring new kernels, too."""
        return {name: version for name, version in self.packages if belongs(name) or (kernel and brings_kernels(name))}

    @property
    def held_by_us(self) -> tuple[str, ...]:
        """Return the names in our preferences: what others hold is not ours to release."""
        lines = (self.preferences or "").splitlines()
        return tuple(word for line in lines if line.startswith("Package: ") for word in line.split()[1:])

    @property
    def pinned(self) -> Mapping[str, str]:
        """Return name -> version of what gpunode keeps as it is, be it there or not; none where no file says."""
        return pinned_by_apt(self.preferences or "")


def pinned_by_apt(text: str) -> dict[str, str]:
    """Return name -> version of what our preferences keep (templates/driver-preferences)."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("Package: "):
            names = line.split()[1:]
        elif line.startswith("Pin: version "):
            found |= dict.fromkeys(names, line.removeprefix("Pin: version ").strip())
    return {name: version for name, version in found.items() if is_package(name, version)}


def parse_driver_packages(lines: list[str]) -> DriverPackages:
    """Parse the probe of facts.driver.DriverPackages; dpkg must have told of itself."""
    found = values(lines)
    if found.get("dpkg") != "installed":
        raise ParseError("dpkg-query gave no answer")
    packages, held = wanted(lines)
    return DriverPackages(
        packages=tuple(sorted(dict(packages).items())),
        held=held,
        interrupted=found.get("interrupted") == "yes",
        preferences=decoded(found, "preferences"),
        unattended=decoded(found, "unattended"),
    )
