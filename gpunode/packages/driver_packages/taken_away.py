"""What was installed with the driver, is kept still by gpunode, and was taken away by somebody all the same.

Whoever takes one package out of the driver by force (`dpkg --force-depends`, `rpm -e --nodeps`) leaves what depends on
it in place: nothing that is asked for by its name is missing then. That it was there stands in the files that keep the
driver's packages as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpunode.base import versions
from gpunode.base.tables.sources import DriverSource
from gpunode.packages.driver_packages.names import belongs
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
