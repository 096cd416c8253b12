"""Is the driver new enough for CUDA, and does CUDA still know the GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.cuda import CudaToolkits
from gpunode.components.driver.flavour import WantedDriver, named
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu

_MINOR = "CUDA compatibility guide (gpunode/data/cuda.yaml, minor_version_compatibility)"
_FULL = "CUDA release notes (gpunode/data/cuda.yaml, toolkit_driver)"
_DROPPED = "CUDA release notes (gpunode/data/cuda.yaml, dropped)"


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
        yield Refusal(
            "cuda",
            f"{folder} is there and no runfile installed it: packages and a runfile would be mixed in it",
            f"{folder}/bin/cuda-uninstaller is absent",
            f"remove its packages (`{wording(system).remove} cuda-toolkit-{desired.version.replace('.', '-')}` and "
            "what "
            "came with them), or set cuda.source = 'cuda-repository'",
        )
    if desired.source == "cuda-repository" and by_runfile:
        yield Refusal(
            "cuda",
            f"{folder} was installed by a runfile, and packages would be mixed with it",
            f"{folder}/bin/cuda-uninstaller",
            f"remove it (`{folder}/bin/cuda-uninstaller`), or set cuda.source = 'runfile'",
        )


def cuda_refusals(settings: Settings, gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a CUDA toolkit that dropped a GPU of the node, or that needs a newer driver than there will be."""
    if not settings.cuda.enabled:
        return
    release, table = settings.cuda.version, tables.cuda()
    dropped = table.dropped_generations(release)
    for gpu in gpus:
        if gpu.generation in dropped:
            yield Refusal(
                "cuda",
                f"CUDA {release} no longer supports {named(gpu)} ({gpu.generation})",
                _DROPPED,
                "ask for an older cuda.version",
            )
            break
    minor = table.minor_driver(release) if settings.cuda.compatibility == "minor" else None
    minimum, source = (minor, _MINOR) if minor else (table.full_driver(release), _FULL)
    # Where gpunode installs no driver and none is there, nobody has said which one will be: a caution, not a refusal.
    if minimum is None or not desired.is_known:
        return
    if not desired.at_least(minimum):
        yield Refusal(
            "cuda",
            f"CUDA {release} needs driver {minimum} or newer (cuda.compatibility '{settings.cuda.compatibility}'), "
            f"and the driver is {desired}",
            source,
            f"set driver.branch to '{versions.branch_of(minimum)}' or newer, or ask for an older cuda.version",
        )


def offered_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse a toolkit that is older than any in NVIDIA's repository for the distribution."""
    desired, actual = settings.cuda, tables.distribution(system.id, system.version_id)
    if not desired.enabled or desired.source != "cuda-repository" or actual is None or actual.oldest_cuda is None:
        return
    if not versions.at_least(desired.version, actual.oldest_cuda):
        yield Refusal(
            "cuda",
            f"NVIDIA's repository for {actual.name} has no CUDA {desired.version}: its oldest is {actual.oldest_cuda}",
            "gpunode/data/distributions.yaml (oldest_cuda)",
            f"set cuda.version to '{actual.oldest_cuda}' or newer, or cuda.source = 'runfile'",
        )


def cuda_cautions(settings: Settings, desired: WantedDriver) -> Iterator[Caution]:
    """Tell of a toolkit that came after the table, and that nobody knows of a driver that is not there yet."""
    release, table = settings.cuda.version, tables.cuda()
    if settings.cuda.enabled and table.is_newer(release):
        yield Caution(
            "cuda",
            f"CUDA {release} is newer than {table.versions[0]}, the newest in gpunode's table: which driver all "
            "of its features need, and which GPUs it dropped, is not known",
            _FULL,
            f"look at the release notes of CUDA {release}, or use a newer gpunode",
        )
    if settings.cuda.enabled and not desired.is_known:
        yield Caution(
            "cuda",
            f"whether the driver is new enough for CUDA {settings.cuda.version} cannot be said: there is none yet",
            _MINOR,
            "install the driver, or set driver.enabled = True",
        )
