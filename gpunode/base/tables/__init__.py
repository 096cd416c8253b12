"""The tables of gpunode/data, each read once, when it is first asked for, into frozen objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from gpunode.base import versions
from gpunode.base.tables.driver_versions import (
    Cuda,
    CudaRunfile,
    DriverRunfile,
    Drivers,
    Health,
    Mig,
    Minimum,
    PciDevice,
)
from gpunode.base.tables.known_releases import Releases
from gpunode.base.tables.reading import Table, TableError, checked, content, text
from gpunode.base.tables.reading import table as _table
from gpunode.base.tables.sources import (
    Containerd,
    Distribution,
    DockerClient,
    DriverSource,
    PublicRepository,
    Refused,
    Repositories,
    Toolkit,
)

containerd = _table(Containerd, "containerd.yaml")
cuda = _table(Cuda, "cuda.yaml")
cuda_runfile = _table(CudaRunfile, "runfile.yaml", "cuda")
distributions = _table(tuple[Distribution, ...], "distributions.yaml", "distributions")
docker_clients = _table(tuple[DockerClient, ...], "runtimes.yaml", "clients")
driver_runfile = _table(DriverRunfile, "runfile.yaml", "driver")
driver_sources = _table(tuple[DriverSource, ...], "driver_packages.yaml", "sources")
drivers = _table(Drivers, "drivers.yaml")
health = _table(Health, "health.yaml")
mig = _table(Mig, "mig.yaml")
# Product (`H100`, `RTX PRO 6000`) -> oldest driver with MIG on it.
mig_minimum_driver = _table(Table[str, str], "minimums.yaml", "mig_minimum_driver")  # type: ignore[type-abstract]
minimums = _table(tuple[Minimum, ...], "minimums.yaml", "minimums")
multi_node_nvlink = _table(tuple[str, ...], "pci.yaml", "multi_node_nvlink")
# Family -> package of a container runtime -> the packages that its manager would remove for it.
removals_of_runtimes = _table(Table[str, Table[str, tuple[str, ...]]], "runtimes.yaml", "removes")  # type: ignore[type-abstract]
toolkit = _table(Toolkit, "toolkit.yaml")
_releases = _table(Table[str, Releases], "releases.yaml")  # type: ignore[type-abstract]
_mib_needed = _table(Table[str, Table[str, int]], "disk.yaml", "needs_mib")  # type: ignore[type-abstract]
_refused = _table(tuple[Refused, ...], "distributions.yaml", "refused")
_repositories = _table(Repositories, "repositories.yaml")


@cache
def releases() -> Mapping[str, Releases]:
    """Return program -> the releases of it that gpunode knows, those of CUDA and of the driver by their own tables."""
    own = dict(_releases())
    # Branches before those of the table are not listed one by one.
    own["driver"] = replace(own["driver"], spans=("384-509", *sorted(drivers().branches)))
    own["cuda"] = replace(own["cuda"], spans=cuda().versions[::-1])
    return MappingProxyType(own)


@cache
def _pci_devices() -> Mapping[str, PciDevice]:
    devices = json.loads(text("pci_ids.json"))["devices"]
    return MappingProxyType({device_id: PciDevice(device_id, **row) for device_id, row in devices.items()})


def pci_device(device_id: str) -> PciDevice | None:
    """Return the GPU with a PCI device id (four hex digits, any case, `0x` allowed); None if it is not in the table."""
    return _pci_devices().get(device_id.lower().removeprefix("0x").upper())


def disk_space(component: str) -> Mapping[str, int]:
    """Return folder -> bytes that a row of disk.yaml (driver, cuda, each with _runfile) needs free beforehand."""
    return {folder: size * 1024**2 for folder, size in _mib_needed()[component].items()}


def reason_to_refuse(os_id: str, version_id: str) -> str | None:
    """Return why a distribution that is known is not supported; None where nothing is known of it."""
    return next((row.reason for row in _refused() if row.id == os_id and row.version in (None, version_id)), None)


def distribution(os_id: str, version_id: str) -> Distribution | None:
    """Return the supported distribution with that /etc/os-release ID and VERSION_ID; None if there is none.

    A row whose version is a major number alone is for all its minor releases. A version that is newer than all rows of
    its ID has the newest row, with its own version as `newer`.
    """
    rows = {row.version: row for row in distributions() if row.id == os_id}
    if row := rows.get(version_id) or rows.get(version_id.partition(".")[0]):
        return row
    try:
        newest = max(rows.values(), key=lambda row: versions.parsed(row.version), default=None)
        is_newer = newest is not None and versions.parsed(version_id) > versions.parsed(newest.version)
    except versions.VersionError:  # a rolling release has no version
        return None
    # Its own archive is not that of the newest row.
    return replace(newest, newer=version_id, open_behind=None) if newest is not None and is_newer else None


def installs_headers(os_id: str) -> bool:
    """Say whether gpunode installs kernels' headers on a system by its /etc/os-release ID."""
    return any(row.installs_headers for row in driver_sources() if os_id in row.systems)


def headers_of_image(os_id: str) -> bool:
    """Say whether gpunode installs headers by the version of the kernel's own package on a system."""
    return any(row.headers_of_image for row in driver_sources() if os_id in row.systems)


def driver_source(source: str, os_id: str) -> DriverSource | None:
    """Return the row for a setting of driver.source on a system by its /etc/os-release ID; None if there is none."""
    return next((row for row in driver_sources() if row.source == source and os_id in row.systems), None)


@cache
def repositories(family: str = "apt", folder: str | None = None) -> Mapping[str, PublicRepository]:
    """Return the public repositories (cuda, toolkit, docker) of a family of distributions, with their pinned keys.

    + folder: the name of a distribution's own in NVIDIA's repository (`debian13`), which may have another key
    """
    known = _repositories()
    layers = (known.repositories, known.families.get(family, {}), known.own.get(folder or "", {}))
    found: dict[str, dict[str, Any]] = {}
    for name in known.repositories:
        row = found[name] = {}
        for layer in layers:
            more = dict(layer.get(name, {}))
            # The key that a later layer names counts, whatever an earlier one has pinned.
            if key := more.pop("key", None):
                more["key_fingerprint"] = drivers().signing_keys[key].fingerprint
            row.update(more)
    return MappingProxyType(checked(dict[str, PublicRepository], found, "repositories.yaml"))


__all__ = ["Distribution", "DriverSource", "TableError", "content"]
