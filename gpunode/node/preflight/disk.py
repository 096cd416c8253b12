"""Is there room for the packages?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components.driver.state import DriverState
from gpunode.settings import Settings
from gpunode.system.disk import Disk

_GIB = 1024**3

FULL = RefusalMessage(
    "disk-full",
    "A file system of the node has too little room for the packages.",
    reason="{mount} has {free:.1f} GiB free, and {needed:.1f} GiB are needed ({what})",
    source="df; gpunode/data/disk.yaml",
    remedy="free {lacking:.1f} GiB on {mount}, or leave a component out (cuda.enabled = False)",
)


def disk_refusals(
    settings: Settings, disk: Disk, driver: DriverState, cuda_versions: tuple[str, ...]
) -> Iterator[Refusal]:
    """Refuse a node whose disk would be full halfway; what is installed already needs no room."""
    needed: dict[str, int] = defaultdict(int)
    what: dict[str, list[str]] = defaultdict(list)
    missing, mounts = [], {folder: mount for folder, mount, _ in disk.free}
    if settings.driver.installs and driver.module_version is None:
        missing.append("driver_runfile" if settings.driver.source == "runfile" else "driver")
    if settings.cuda.enabled and settings.cuda.version not in cuda_versions:
        missing.append("cuda_runfile" if settings.cuda.source == "runfile" else "cuda")
    for component in missing:
        for folder, size in tables.disk_space(component).items():
            if (mount := mounts.get(folder)) is not None:
                needed[mount] += size
                what[mount].append(f"{component.partition('_')[0]} in {folder}")
    for mount, size in needed.items():
        free = min(free for _, name, free in disk.free if name == mount)
        if free < size:
            lacking = (size - free) / _GIB
            yield FULL(mount=mount, free=free / _GIB, needed=size / _GIB, what=", ".join(what[mount]), lacking=lacking)
