"""Judge settings against what a node is, before anything on it is touched.

A refusal stops the node, a caution is only told. Both are decided from settings, facts and tables alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode import tables, versions
from gpunode.driver import DriverState
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpu
from gpunode.reading import Reading, Unknown
from gpunode.settings import Settings

_FLAVOURS = "NVIDIA driver installation guide (gpunode/data/drivers.yaml, flavours)"
_LAST_BRANCH = "NVIDIA driver life-cycle page (gpunode/data/drivers.yaml, last_branch)"
_CUDA_MINOR = "CUDA compatibility guide (gpunode/data/cuda.yaml, minor_version_compatibility)"
_CUDA_FULL = "CUDA release notes (gpunode/data/cuda.yaml, toolkit_driver)"
_CUDA_DROPPED = "CUDA release notes (gpunode/data/cuda.yaml, dropped)"
_DISTRIBUTIONS = "CUDA installation guide for Linux (gpunode/data/distributions.yaml)"


@dataclass(frozen=True)
class Refusal(Reading):
    """Hold why a node is refused: the component that cannot be had, the reason, its source, and what to do."""

    component: str
    reason: str
    source: str
    remedy: str

    def __str__(self) -> str:
        """Return `COMPONENT: REASON; REMEDY (source: SOURCE)`."""
        return f"{self.component}: {self.reason}; {self.remedy} (source: {self.source})"


@dataclass(frozen=True)
class Caution(Refusal):
    """Hold what a person should know before the run goes on; not a refusal."""


@dataclass(frozen=True)
class _Wanted:
    """Hold the driver that the node will have: an exact version, or only its branch, or neither."""

    version: str | None
    branch: str | None
    flavour: str | None

    def __str__(self) -> str:
        return self.version or (f"branch {self.branch}" if self.branch else "none")

    def at_least(self, minimum: str) -> bool:
        """Say whether this driver is new enough; of a branch, the repository's newest version is taken to be."""
        if self.version:
            return versions.at_least(self.version, minimum)
        return versions.at_least(self.branch or "0", versions.branch_of(minimum))


def needs_proprietary(generation: str | None) -> bool:
    """Say whether only the proprietary module drives GPUs of a generation; None (unknown GPU): it does not."""
    table = tables.drivers()
    if generation is None or generation in table.open_only | table.either:
        return False
    return generation in table.proprietary_only or generation in table.last_branch


def needs_open(generation: str | None) -> bool:
    """Say whether GPUs of a generation are driven by the open module only."""
    return generation in tables.drivers().open_only


def chosen_flavour(settings: Settings, gpus: Sequence[PciGpu]) -> str:
    """Return `open` or `proprietary`: the setting, else what the GPUs need, else open (NVIDIA's recommendation)."""
    if settings.driver.flavour != "auto":
        return settings.driver.flavour
    return "proprietary" if any(needs_proprietary(gpu.generation) for gpu in gpus) else "open"


def _by_gpunode(settings: Settings) -> bool:
    return settings.driver.enabled and settings.driver.source != "present"


def _wanted(settings: Settings, gpus: Sequence[PciGpu], driver: DriverState) -> _Wanted:
    """Return the driver that the settings ask for, or where gpunode does not install one, the driver that is there."""
    if _by_gpunode(settings):
        return _Wanted(settings.driver.version, settings.driver.branch, chosen_flavour(settings, gpus))
    version = driver.loaded_version or driver.module_version
    return _Wanted(version, driver.branch, driver.loaded_flavour or driver.module_flavour)


def _named(gpu: PciGpu) -> str:
    return f"{gpu.name or 'GPU ' + gpu.device_id} at {gpu.address}"


def _operating_system(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    supported = tables.distributions()
    found = tables.distribution(system.id, system.version_id)
    if system.tegra and (_by_gpunode(settings) or settings.cuda.enabled):
        yield Refusal(
            "driver" if _by_gpunode(settings) else "cuda",
            "this is a Tegra board: its driver and its CUDA belong to the board's own software (JetPack)",
            "CUDA installation guide for Linux",
            "set driver.source = 'present' and cuda.enabled = False, or take the node out of the inventory",
        )
    if found is None:
        yield Refusal(
            "operating system",
            f"{system.name} ({system.id} {system.version_id}) is not supported",
            _DISTRIBUTIONS,
            f"use one of {', '.join(row.name for row in supported)}",
        )
    elif system.architecture not in found.architectures:
        yield Refusal(
            "operating system",
            f"architecture {system.architecture} is not supported on {found.name}",
            _DISTRIBUTIONS,
            f"on {found.name} use one of {', '.join(found.architectures)}",
        )


def _gpus(system: OperatingSystem | Unknown, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    # A Tegra's GPU is part of the chip and not on the PCI bus.
    if not gpus and not (isinstance(system, OperatingSystem) and system.tegra):
        yield Refusal(
            "gpu",
            "no NVIDIA GPU is on the PCI bus",
            "/sys/bus/pci/devices (vendor 10de, class 03)",
            "look at the machine (lspci -d 10de:), pass a GPU through to it, or take it out of the inventory",
        )


def _present(settings: Settings, driver: DriverState) -> Iterator[Refusal]:
    asked = settings.driver
    if not asked.enabled or asked.source != "present":
        return
    version = driver.loaded_version or driver.module_version
    if version is None:
        yield Refusal(
            "driver",
            "driver.source is 'present', but the node has no NVIDIA driver",
            "/sys/module/nvidia and modinfo nvidia",
            "install it by its own way, or set driver.source = 'cuda-repository'",
        )
    elif (asked.version and not versions.same(version, asked.version)) or (
        asked.branch and not versions.in_branch(version, asked.branch)
    ):
        yield Refusal(
            "driver",
            f"driver.source is 'present', and {version} is there, not {asked.version or 'branch ' + str(asked.branch)}",
            "/sys/module/nvidia and modinfo nvidia",
            "ask for the one that is there, or set driver.source = 'cuda-repository'",
        )


def _flavour(settings: Settings, gpus: Sequence[PciGpu], wanted: _Wanted) -> Iterator[Refusal]:
    old = [gpu for gpu in gpus if needs_proprietary(gpu.generation)]
    new = [gpu for gpu in gpus if needs_open(gpu.generation)]
    if old and new:
        yield Refusal(
            "driver",
            f"{_named(old[0])} ({old[0].generation}) needs the proprietary kernel module and {_named(new[0])} "
            f"({new[0].generation}) the open one: one node cannot drive both",
            _FLAVOURS,
            "take one of the two out of the machine",
        )
        return
    if wanted.flavour == "open" and old:
        yield Refusal(
            "driver",
            f"the open kernel module does not drive {_named(old[0])} ({old[0].generation})",
            _FLAVOURS,
            "set driver.flavour = 'proprietary' or 'auto'",
        )
    if wanted.flavour == "proprietary" and new:
        yield Refusal(
            "driver",
            f"the proprietary kernel module does not drive {_named(new[0])} ({new[0].generation})",
            _FLAVOURS,
            "set driver.flavour = 'open' or 'auto'",
        )


def _last_branch(gpus: Sequence[PciGpu], wanted: _Wanted) -> Iterator[Refusal]:
    if wanted.branch is None:
        return
    last_branches = tables.drivers().last_branch
    for generation in dict.fromkeys(gpu.generation for gpu in gpus):
        last = last_branches.get(generation or "")
        if last is not None and versions.parsed(wanted.branch) > versions.parsed(last):
            gpu = next(gpu for gpu in gpus if gpu.generation == generation)
            yield Refusal(
                "driver",
                f"driver {wanted} no longer drives {_named(gpu)} ({generation}): its last branch is {last}",
                _LAST_BRANCH,
                f"set driver.branch = '{last}'",
            )


def _cuda(settings: Settings, gpus: Sequence[PciGpu], wanted: _Wanted) -> Iterator[Refusal]:
    if not settings.cuda.enabled:
        return
    asked, table = settings.cuda.version, tables.cuda()
    dropped = table.dropped_generations(asked)
    for gpu in gpus:
        if gpu.generation in dropped:
            yield Refusal(
                "cuda",
                f"CUDA {asked} no longer supports {_named(gpu)} ({gpu.generation})",
                _CUDA_DROPPED,
                "ask for an older cuda.version",
            )
            break
    minor = table.minor_driver(asked) if settings.cuda.compatibility == "minor" else None
    minimum, source = (minor, _CUDA_MINOR) if minor else (table.full_driver(asked), _CUDA_FULL)
    # Where gpunode installs no driver and none is there, nobody has said which one will be: a caution, not a refusal.
    if minimum is None or (wanted.version is None and wanted.branch is None):
        return
    if not wanted.at_least(minimum):
        yield Refusal(
            "cuda",
            f"CUDA {asked} needs driver {minimum} or newer (cuda.compatibility '{settings.cuda.compatibility}'), "
            f"and the driver is {wanted}",
            source,
            f"set driver.branch to '{versions.branch_of(minimum)}' or newer, or ask for an older cuda.version",
        )


def _unanswered(**answers: object) -> Iterator[Refusal]:
    for component, answer in answers.items():
        if isinstance(answer, Unknown):
            yield Refusal(
                component.replace("_", " "),
                f"cannot be judged: {answer.reason}",
                "the node's answer",
                "look at the node, then run again",
            )


def refusals(
    settings: Settings,
    operating_system: OperatingSystem | Unknown,
    gpus: Sequence[PciGpu] | Unknown,
    driver: DriverState | Unknown,
) -> tuple[Refusal, ...]:
    """Return every reason to refuse a node; none means that the run may go on.

    What the node did not answer is a reason too: nothing may be changed on a guess.
    """
    found = list(_unanswered(operating_system=operating_system, gpu=gpus, driver=driver))
    if isinstance(operating_system, OperatingSystem):
        found += _operating_system(settings, operating_system)
    if not isinstance(gpus, Unknown):
        found += _gpus(operating_system, gpus)
    if isinstance(driver, Unknown) or isinstance(gpus, Unknown):
        return tuple(found)
    wanted = _wanted(settings, gpus, driver)
    found += _present(settings, driver)
    if settings.driver.enabled:
        found += _flavour(settings, gpus, wanted)
        found += _last_branch(gpus, wanted)
    found += _cuda(settings, gpus, wanted)
    return tuple(found)


def cautions(
    settings: Settings,
    gpus: Sequence[PciGpu] | Unknown,
    driver: DriverState | Unknown,
) -> tuple[Caution, ...]:
    """Return what a person should know though it is no reason to refuse."""
    found: list[Caution] = []
    if isinstance(gpus, Unknown) or isinstance(driver, Unknown):
        return ()
    for gpu in gpus:
        if gpu.generation is None:
            found.append(
                Caution(
                    "gpu",
                    f"{_named(gpu)} is in no table; it is taken for one that the open kernel module drives",
                    "gpunode/data/pci_ids.json",
                    "set driver.flavour yourself, or make the table anew from a current pci.ids",
                )
            )
    wanted = _wanted(settings, gpus, driver)
    branches = tables.drivers().branches
    if settings.driver.enabled and wanted.branch is not None:
        known = branches.get(wanted.branch)
        if known is None or known.end_of_life == "past":
            state = "is in no table" if known is None else "has reached its end of life"
            found.append(
                Caution(
                    "driver",
                    f"driver branch {wanted.branch} {state}",
                    "NVIDIA driver life-cycle page (gpunode/data/drivers.yaml, branches)",
                    "consider a production or long-term-support branch",
                )
            )
    if settings.cuda.enabled and wanted.version is None and wanted.branch is None:
        found.append(
            Caution(
                "cuda",
                f"whether the driver is new enough for CUDA {settings.cuda.version} cannot be said: there is none yet",
                _CUDA_MINOR,
                "install the driver, or set driver.enabled = True",
            )
        )
    return tuple(found)
