"""Is there room for the packages, and what else does apt listen to?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpunode import tables
from gpunode.apt_sources import AptSources
from gpunode.disk import Disk
from gpunode.driver import DriverState
from gpunode.preflight.flavour import installed_by_gpunode
from gpunode.preflight.verdicts import Caution, Refusal
from gpunode.settings import Settings

_GIB = 1024**3


def disk_refusals(
    settings: Settings, disk: Disk, driver: DriverState, cuda_versions: tuple[str, ...]
) -> Iterator[Refusal]:
    """Refuse a node whose disk would be full halfway; what is installed already needs no room."""
    needed: dict[str, int] = defaultdict(int)
    what: dict[str, list[str]] = defaultdict(list)
    missing = []
    if installed_by_gpunode(settings) and driver.module_version is None:
        missing.append("driver")
    if settings.cuda.enabled and settings.cuda.version not in cuda_versions:
        missing.append("cuda")
    for component in missing:
        for folder, size in tables.disk_space(component).items():
            mount = disk.mount_of(folder)
            if mount is not None:
                needed[mount] += size
                what[mount].append(f"{component} in {folder}")
    for mount, size in needed.items():
        free = min(free for _, name, free in disk.free if name == mount)
        if free < size:
            yield Refusal(
                "disk",
                f"{mount} has {free / _GIB:.1f} GiB free, and {size / _GIB:.1f} GiB are needed "
                f"({', '.join(what[mount])})",
                "df; gpunode/data/disk.yaml",
                f"free {(size - free) / _GIB:.1f} GiB on {mount}, or leave a component out (cuda.enabled = False)",
            )


def trust_cautions(sources: AptSources) -> Iterator[Caution]:
    """Tell of lists that also offer NVIDIA's packages, and of retired keys; the run disables what stands in its way."""
    for path, text in sources.sources:
        if any(not line.lstrip().startswith("#") and line.strip() for line in text.splitlines()):
            yield Caution(
                "repositories",
                f"{path} names NVIDIA packages too: a second entry of a repository of ours is disabled, another "
                "repository stays and may offer other versions",
                path,
                "remove it, if nobody needs it",
            )
    retired = tables.drivers().retired_key_ids
    for path, keys in sources.trusted:
        for key in keys:
            if any(key.endswith(identity) for identity in retired):
                yield Caution(
                    "repositories",
                    f"{path} trusts the retired key {key} for every repository; the run takes it out",
                    "NVIDIA's notice of 2022 (gpunode/data/drivers.yaml, signing_keys)",
                    "nothing to do",
                )


__all__ = ["disk_refusals", "trust_cautions"]
