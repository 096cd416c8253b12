"""Is the driver new enough for CUDA, and does CUDA still know the GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.cuda import CudaToolkits
from gpunode.components.driver.flavour import WantedDriver, named
from gpunode.node.preflight.words import caution, refusal
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu

_MINOR = "CUDA compatibility guide (gpunode/data/cuda.yaml, minor_version_compatibility)"
_FULL = "CUDA release notes (gpunode/data/cuda.yaml, toolkit_driver)"


def mixing_refusals(settings: Settings, system: OperatingSystem, actual: CudaToolkits) -> Iterator[Refusal]:
    """Refuse a runfile over the packages of the same toolkit, and packages over a runfile: they share its folder.

    What an interrupted transaction of ours left there is no toolkit of either: the run undoes it first, and then judges
    what has come back (operations/cuda.py).
    """
    desired = settings.cuda
    if not desired.enabled or desired.version not in actual.versions or desired.version == actual.interrupted:
        return
    folder, by_runfile = f"/usr/local/cuda-{desired.version}", desired.version in actual.by_runfile
    if desired.source == "runfile" and not by_runfile:
        yield refusal(
            "cuda-packages-there",
            folder=folder,
            remove=wording(system).remove,
            version=desired.version.replace(".", "-"),
        )
    if desired.source == "cuda-repository" and by_runfile:
        yield refusal("cuda-runfile-there", folder=folder)


def cuda_refusals(settings: Settings, gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a CUDA toolkit that dropped a GPU of the node, or that needs a newer driver than there will be."""
    if not settings.cuda.enabled:
        return
    release, table = settings.cuda.version, tables.cuda()
    dropped = table.dropped_generations(release)
    for gpu in gpus:
        if gpu.generation in dropped:
            yield refusal("cuda-dropped-gpu", asked=release, named=named(gpu), gpu=gpu)
            break
    minor = table.minor_driver(release) if settings.cuda.compatibility == "minor" else None
    minimum, source = (minor, _MINOR) if minor else (table.full_driver(release), _FULL)
    # Where gpunode installs no driver and none is there, nobody has said which one will be: a caution, not a refusal.
    if minimum is None or not desired.is_known:
        return
    if not desired.at_least(minimum):
        yield refusal(
            "cuda-driver-too-old",
            asked=release,
            minimum=minimum,
            settings=settings,
            desired=desired,
            source=source,
            branch=versions.branch_of(minimum),
        )


def offered_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a toolkit that is older than any in NVIDIA's repository for the distribution."""
    desired, actual = settings.cuda, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or actual is None or actual.oldest_cuda is None:
        return
    if not versions.at_least(desired.version, actual.oldest_cuda):
        yield refusal("cuda-not-offered", actual=actual, desired=desired)


def cuda_cautions(settings: Settings, desired: WantedDriver) -> Iterator[Caution]:
    """Tell of a toolkit that came after the table, and that nobody knows of a driver that is not there yet."""
    release, table = settings.cuda.version, tables.cuda()
    if settings.cuda.enabled and table.is_newer(release):
        yield caution("cuda-newer-than-table", asked=release, newest=table.versions[0])
    if settings.cuda.enabled and not desired.is_known:
        yield caution("cuda-driver-unknown", settings=settings)
