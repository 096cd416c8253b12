"""Every package set that gpunode would ask an rpm distribution for: flavours, rules and what boards need beside."""

from __future__ import annotations

from collections.abc import Iterable

from gpunode import tables
from gpunode.boot import Boot
from gpunode.driver_packages import module_stream, package_set
from gpunode.settings import settings_from
from tests.real.resolve_rpm import PackageSet

# A kernel of the family's shape: SUSE's modules that come built are named by its last word.
_KERNEL = {"dnf": "5.14.0-570.el9.x86_64", "zypper": "6.4.0-150600.23.65-default"}
BOARDS = {"gpus": (), "nvswitch": ("nvswitch",), "nvlink5": ("nvswitch", "nvlink5"), "gb200": ("imex",)}


def package_sets(os_id: str, rules: Iterable[str], boards: Iterable[str] = BOARDS) -> dict[str, PackageSet]:
    """Return label -> set for a distribution by its /etc/os-release ID.

    + rules: branches (`580`) and exact versions
    + boards: keys of BOARDS
    """
    source = tables.driver_source("cuda-repository", os_id)
    assert source is not None, os_id
    boot = Boot(_KERNEL[source.family], _KERNEL[source.family])
    found = {}
    for rule in rules:
        asked = settings_from({"driver": {"version" if "." in rule else "branch": rule}}).driver
        for flavour in ("open", "proprietary"):
            for board in boards:
                packages = package_set(asked, source, flavour, BOARDS[board], boot)
                stream = module_stream(asked, source, flavour)
                found[f"{rule} {flavour} {board}"] = PackageSet(packages, stream)
    return found


__all__ = ["BOARDS", "package_sets"]
