"""Is the driver new enough for CUDA, and does CUDA still know the GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.driver.flavour import WantedDriver, named
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu

_MINOR = "compatibility guide (gpunode/data/cuda.yaml, minor_version_compatibility)"
_FULL = "release notes (gpunode/data/cuda.yaml, toolkit_driver)"

PACKAGES_INSTALLED = RefusalMessage(
    "cuda-packages-there",
    "CUDA's packages are on the node, and a runfile would be mixed with them.",
    reason="{folder} exists and no runfile installed it: packages and a runfile would be mixed in it",
    source="{folder}/bin/cuda-uninstaller is absent",
    remedy="remove its packages (`{remove}` and its dependencies), or set cuda.source = 'cuda-repository'",
)
RUNFILE_INSTALLED = RefusalMessage(
    "cuda-runfile-there",
    "A CUDA toolkit of a runfile is on the node, and packages would be mixed with it.",
    reason="a runfile installed {folder}, and packages would be mixed with it",
    source="{folder}/bin/cuda-uninstaller",
    remedy="remove it (`{folder}/bin/cuda-uninstaller`), or set cuda.source = 'runfile'",
)


def mixing_refusals(settings: Settings, system: OperatingSystem, actual: CudaToolkits) -> Iterator[Refusal]:
    """Refuse a runfile over the packages of the same toolkit, and packages over a runfile: they share its folder.

    The rest of an interrupted transaction does not count: the run undoes it first, and then judges the result
    (operations/cuda.py).
    """
    desired = settings.cuda
    if not desired.enabled or desired.version not in actual.versions or desired.version == actual.interrupted:
        return
    folder, by_runfile = f"/usr/local/cuda-{desired.version}", desired.version in actual.by_runfile
    if desired.source == "runfile" and not by_runfile:
        package = f"cuda-toolkit-{desired.version.replace('.', '-')}"
        yield PACKAGES_INSTALLED(folder=folder, remove=f"{wording(system).remove} {package}")
    if desired.source == "cuda-repository" and by_runfile:
        yield RUNFILE_INSTALLED(folder=folder)


DROPPED_GPU = RefusalMessage(
    "cuda-dropped-gpu",
    "The desired CUDA release no longer supports a GPU of the node.",
    reason="CUDA {release} no longer supports {named} ({generation})",
    source="CUDA release notes (gpunode/data/cuda.yaml, dropped)",
    remedy="set an older cuda.version",
)
DRIVER_TOO_OLD = RefusalMessage(
    "cuda-driver-too-old",
    "The driver is too old for the desired CUDA release.",
    reason="CUDA {release} needs driver {minimum} or newer (cuda.compatibility {compatibility!r}), not {desired}",
    source="CUDA {source}",
    remedy="set driver.branch to '{branch}' or newer, or an older cuda.version",
)


def cuda_refusals(settings: Settings, gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a CUDA toolkit that dropped a GPU of the node, or that needs a newer driver than there will be."""
    if not settings.cuda.enabled:
        return
    release, table = settings.cuda.version, tables.cuda()
    dropped = table.dropped_generations(release)
    for gpu in gpus:
        if gpu.generation in dropped:
            yield DROPPED_GPU(release=release, named=named(gpu), generation=gpu.generation)
            break
    minor = table.minor_driver(release) if settings.cuda.compatibility == "minor" else None
    minimum, source = (minor, _MINOR) if minor else (table.full_driver(release), _FULL)
    # Where gpunode installs no driver and the node has none, its version is not known: a caution, not a refusal.
    if minimum is None or not desired.is_known:
        return
    if not desired.at_least(minimum):
        values = {"release": release, "compatibility": settings.cuda.compatibility, "desired": desired}
        yield DRIVER_TOO_OLD(**values, minimum=minimum, branch=versions.branch_of(minimum), source=source)


NOT_OFFERED = RefusalMessage(
    "cuda-not-offered",
    "NVIDIA's repository for this distribution has no packages of the desired CUDA version.",
    reason="NVIDIA's repository for {name} has no CUDA {release}: its oldest is {oldest}",
    source="gpunode/data/distributions.yaml (oldest_cuda)",
    remedy="set cuda.version to '{oldest}' or newer, or cuda.source = 'runfile'",
)


def offered_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a toolkit that is older than any in NVIDIA's repository for the distribution."""
    desired, actual = settings.cuda, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or actual is None or actual.oldest_cuda is None:
        return
    if not versions.at_least(desired.version, actual.oldest_cuda):
        yield NOT_OFFERED(name=actual.name, release=desired.version, oldest=actual.oldest_cuda)


DRIVER_UNKNOWN = CautionMessage(
    "cuda-driver-unknown",
    "It is not known whether the driver is new enough for CUDA, since the node has no driver yet.",
    reason="it is not known whether the driver is new enough for CUDA {release}: the node has none yet",
    source="CUDA " + _MINOR,
    remedy="install the driver, or set driver.enabled = True",
)


def cuda_cautions(settings: Settings, desired: WantedDriver) -> Iterator[Caution]:
    """Warn of a driver that is not known yet."""
    if settings.cuda.enabled and not desired.is_known:
        yield DRIVER_UNKNOWN(release=settings.cuda.version)
