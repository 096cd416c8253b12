"""Which kernel module drives which GPU, and which driver the settings come to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components import runfile
from gpunode.components.driver.state import DriverState
from gpunode.packages.driver_packages.sources import driver_source
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu

if TYPE_CHECKING:
    from gpunode.settings import Settings

_FLAVOURS = "NVIDIA driver installation guide (gpunode/data/drivers.yaml, flavours)"


@dataclass(frozen=True)
class WantedDriver:
    """Hold the driver that the node will have: an exact version, or only its branch, or neither."""

    version: str | None
    branch: str | None
    flavour: str | None

    def __str__(self) -> str:
        """Return the version, or the branch, or `none`."""
        return self.version or (f"branch {self.branch}" if self.branch else "none")

    @property
    def is_known(self) -> bool:
        """Say whether anything is known of it."""
        return self.version is not None or self.branch is not None

    def at_least(self, minimum: str) -> bool:
        """Say whether this driver is new enough; of a branch, the repository's newest version is taken to be."""
        if self.version:
            return versions.at_least(self.version, minimum)
        return versions.at_least(self.branch or "0", versions.branch_of(minimum))


def wanted_driver(
    settings: Settings, gpus: Sequence[PciGpu], driver: DriverState, system: OperatingSystem
) -> WantedDriver:
    """Return the driver that the settings ask for, or where gpunode does not install one, the driver that is there."""
    if settings.driver.installs:
        return WantedDriver(settings.driver.version, settings.driver.branch, chosen_flavour(settings, gpus, system))
    version = driver.loaded_version or driver.module_version
    return WantedDriver(version, driver.branch, driver.loaded_flavour or driver.module_flavour)


def needs_proprietary(generation: str | None) -> bool:
    """Say whether only the proprietary module drives GPUs of a generation; None (unknown GPU): it does not."""
    table = tables.drivers()
    if generation is None or generation in table.open_only | table.either:
        return False
    return generation in table.proprietary_only or generation in table.last_branch


def needs_open(generation: str | None) -> bool:
    """Say whether GPUs of a generation are driven by the open module only."""
    return generation in tables.drivers().open_only


def chosen_flavour(settings: Settings, gpus: Sequence[PciGpu], system: OperatingSystem) -> str:
    """Return `open` or `proprietary`: the setting, else what the GPUs need, else what there is of the driver.

    Of both it is open, NVIDIA's recommendation. The settings are those of `resolve_for_os`.
    """
    if settings.driver.flavour != "auto":
        return settings.driver.flavour
    if any(needs_proprietary(gpu.generation) for gpu in gpus):
        return "proprietary"
    if any(needs_open(gpu.generation) for gpu in gpus):
        return "open"
    return "open" if _has_open(settings, system) else "proprietary"


def _has_open(settings: Settings, system: OperatingSystem) -> bool:
    """Say whether the driver that is asked for comes with the open module: of older ones not every source has it."""
    desired = settings.driver
    if desired.source == "runfile":
        return desired.version is None or runfile.knows(desired.version, "open_module")
    source = driver_source(settings, system)
    first = source.flavour_since.get("open") if source is not None else None
    branch = versions.branch_of(desired.version) if desired.version else desired.branch
    return first is None or branch is None or versions.at_least(branch, first)


def named(gpu: PciGpu) -> str:
    """Return a GPU's name and address as a sentence has them."""
    return f"{gpu.name or 'GPU ' + gpu.device_id} at {gpu.address}"


OF_BOTH = RefusalMessage(
    "flavour-of-both",
    "One GPU of the node needs the proprietary kernel module and another one the open module.",
    component="driver",
    reason="{old} needs the proprietary kernel module and {new} the open one: one node cannot drive both",
    source=_FLAVOURS,
    remedy="take one of the two out of the machine",
    detail="A node has one driver module.",
)
NOT_OPEN = RefusalMessage(
    "flavour-not-open",
    "The open kernel module does not drive a GPU of the node, which is older than Turing.",
    component="driver",
    reason="the open kernel module does not drive {named}",
    source=_FLAVOURS,
    remedy="set driver.flavour = 'proprietary' or 'auto'",
)
NOT_PROPRIETARY = RefusalMessage(
    "flavour-not-proprietary",
    "The proprietary kernel module does not drive a GPU of the node, which only the open module drives.",
    component="driver",
    reason="the proprietary kernel module does not drive {named}",
    source=_FLAVOURS,
    remedy="set driver.flavour = 'open' or 'auto'",
)


def flavour_refusals(gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a kernel module that does not drive a GPU of the node, and GPUs that no one module drives."""
    old = [gpu for gpu in gpus if needs_proprietary(gpu.generation)]
    new = [gpu for gpu in gpus if needs_open(gpu.generation)]
    if old and new:
        yield OF_BOTH(old=_with_generation(old[0]), new=_with_generation(new[0]))
        return
    if desired.flavour == "open" and old:
        yield NOT_OPEN(named=_with_generation(old[0]))
    if desired.flavour == "proprietary" and new:
        yield NOT_PROPRIETARY(named=_with_generation(new[0]))


def _with_generation(gpu: PciGpu) -> str:
    return f"{named(gpu)} ({gpu.generation})"


DROPPED_GPU = RefusalMessage(
    "driver-dropped-gpu",
    "The desired driver branch no longer drives a GPU of the node.",
    reason="driver {desired} no longer drives {named}: its last branch is {last}",
    source="NVIDIA driver life-cycle page (gpunode/data/drivers.yaml, last_branch)",
    remedies=(
        "set driver.branch to the GPU's last branch; where NVIDIA's repository does not have it, set driver.source = "
        "'runfile' or 'distribution'",
    ),
)


def last_branch_refusals(
    gpus: Sequence[PciGpu], desired: WantedDriver, offered: Collection[str] = ()
) -> Iterator[Refusal]:
    """Refuse a branch that came after the last one for a GPU of the node.

    + offered: the branches that the driver's repository has, where it is known to lack some
    """
    if desired.branch is None:
        return
    last_branches = tables.drivers().last_branch
    for generation in dict.fromkeys(gpu.generation for gpu in gpus):
        last = last_branches.get(generation or "")
        if last is not None and versions.parsed(desired.branch) > versions.parsed(last):
            gpu = next(gpu for gpu in gpus if gpu.generation == generation)
            remedy = f"set driver.branch = '{last}'"
            if offered and last not in offered:
                remedy = f"set driver.source = 'runfile' with a version of branch {last}, or 'distribution' where the "
                remedy += "distribution has a driver that old: NVIDIA's repository for it has none"
            yield DROPPED_GPU(desired=desired, named=_with_generation(gpu), last=last, remedy=remedy)


IN_NO_TABLE = CautionMessage(
    "gpu-in-no-table",
    "A GPU of the node is in none of gpunode's tables.",
    reason="{named} is in no table: it is treated as a new GPU, which the open kernel module drives",
    source="gpunode/data/pci_ids.json",
    remedy="set driver.flavour, or use a newer gpunode, with a current pci.ids",
)


def unknown_gpus(gpus: Sequence[PciGpu]) -> Iterator[Caution]:
    """Warn of GPUs that are in no table."""
    for gpu in gpus:
        if gpu.generation is None:
            yield IN_NO_TABLE(named=named(gpu))
