"""The driver's packages of NVIDIA's CUDA repository for the lab's nodes: the table's rows with SIMULATED contents."""

from __future__ import annotations

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.driver import DRIVER_VERSIONS, contents, transitional
from gpunode.lab.world import apt

# What the lab's nodes are: for other distributions there is the table alone.
REPOSITORY = "debian12"


def cuda_driver_packages() -> list[Deb]:
    """Return the packages of the lab's versions, and what stands beside the driver: pinning, dkms, nvlsm.

    Versions beside these are in the table alone: to build them would take longer than it shows anything on a node.
    """
    built = {*DRIVER_VERSIONS, *(version.split(".")[0] for version in DRIVER_VERSIONS)}
    rows = [row for row in apt.driver_packages(REPOSITORY) if (row.driver or _pinned(row.name) or "") in {*built, ""}]
    return [*map(deb_of, rows), *transitional()]


def deb_of(row: apt.Package) -> Deb:
    """Return the package of a row."""
    files, scripts = contents(row.payload, row.driver)
    pins = tuple(Payload(path, text.encode()) for path, text in row.files)
    return Deb(
        row.name, row.version, f"{row.name} of NVIDIA's CUDA repository", architecture=row.architecture,
        pre_depends=row.pre_depends, depends=row.depends, recommends=row.recommends, provides=row.provides,
        conflicts=row.conflicts, breaks=row.breaks, replaces=row.replaces, files=(*files, *pins), scripts=scripts,
        # Whatever a package has in /etc is a configuration file, which stays behind when it is removed.
        conffiles=tuple(each.path for each in (*files, *pins) if each.path.startswith("etc/")),
    )  # fmt: skip


def _pinned(name: str) -> str:
    return name.removeprefix("nvidia-driver-pinning-") if name.startswith("nvidia-driver-pinning-") else ""
