"""Is there room for the packages?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Refusal
from gpunode.components.driver import DriverState
from gpunode.components.driver.flavour import installed_by_gpunode
from gpunode.node.preflight.words import refusal
from gpunode.settings import Settings
from gpunode.system.disk import Disk

_GIB = 1024**3


def disk_refusals(
    settings: Settings, disk: Disk, driver: DriverState, cuda_versions: tuple[str, ...]
) -> Iterator[Refusal]:
    """Refuse a node whose disk would be full halfway; what is installed already needs no room."""
    needed: dict[str, int] = defaultdict(int)
    what: dict[str, list[str]] = defaultdict(list)
    missing = []
    if installed_by_gpunode(settings) and driver.module_version is None:
        missing.append("driver_runfile" if settings.driver.source == "runfile" else "driver")
    if settings.cuda.enabled and settings.cuda.version not in cuda_versions:
        missing.append("cuda_runfile" if settings.cuda.source == "runfile" else "cuda")
    for component in missing:
        for folder, size in tables.disk_space(component).items():
            mount = disk.mount_of(folder)
            if mount is not None:
                needed[mount] += size
                what[mount].append(f"{component.partition('_')[0]} in {folder}")
    for mount, size in needed.items():
        free = min(free for _, name, free in disk.free if name == mount)
        if free < size:
            yield refusal(
                "disk-full",
                mount=mount,
                free=free / _GIB,
                needed=size / _GIB,
                what=", ".join(what[mount]),
                lacking=(size - free) / _GIB,
            )
