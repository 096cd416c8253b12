"""Can this operating system on this architecture, with these GPUs, be provisioned at all?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import installed_by_gpunode
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

_BUS = "/sys/bus/pci/devices (vendor 10de, class 03)"
_DISTRIBUTIONS = "CUDA installation guide for Linux (gpunode/data/distributions.yaml)"


def system_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse what is in no table of supported systems, and a Tegra's driver, which belongs to the board."""
    supported = tables.distributions()
    found = tables.distribution(system.id, system.version_id)
    changes_driver = installed_by_gpunode(settings) or settings.driver.removes
    if system.tegra and (changes_driver or settings.cuda.enabled):
        yield Refusal(
            "driver" if changes_driver else "cuda",
            "this is a Tegra board: its driver and its CUDA belong to the board's own software (JetPack)",
            "CUDA installation guide for Linux",
            "set driver.source = 'present' and cuda.enabled = False, or take the node out of the inventory",
        )
    if found is None:
        reason = tables.reason_to_refuse(system.id, system.version_id)
        yield Refusal(
            "operating system",
            f"{system.name} ({system.id} {system.version_id}) is not supported{f': {reason}' if reason else ''}",
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
    elif settings.containerd.enabled and settings.containerd.source == "distribution" and not found.containerd:
        yield Refusal(
            "containerd",
            f"{found.name} has no package containerd",
            "gpunode/data/distributions.yaml",
            "set containerd.source = 'docker-repository', or 'present' where it is installed by other means",
        )
    elif settings.containerd.enabled and settings.containerd.source == "docker-repository" and found.docker == "":
        yield Refusal(
            "containerd",
            f"Docker's repository has no packages for {found.name}",
            "gpunode/data/distributions.yaml",
            "set containerd.source = 'distribution', or 'present' where it is installed by other means",
        )
    elif settings.docker.enabled and settings.docker.source == "docker-repository" and found.docker == "":
        yield Refusal(
            "docker",
            f"Docker's repository has no packages for {found.name}",
            "gpunode/data/distributions.yaml",
            "set docker.source = 'present' where it is installed by other means",
        )
    elif settings.docker.enabled and settings.docker.source == "distribution" and found.family != "apt":
        yield Refusal(
            "docker",
            f"{found.name} has no package docker.io",
            "gpunode/data/distributions.yaml",
            ("set docker.source = " if found.docker == "" else "set docker.source = 'docker-repository', or ")
            + "'present' where it is installed by other means",
        )
    if found is not None:
        yield from source_refusals(settings, found)


def source_refusals(settings: Settings, found: Distribution) -> Iterator[Refusal]:
    """Refuse to take from a repository what it does not have for the distribution."""
    table = "gpunode/data/distributions.yaml"
    if found.repository is not None:
        if settings.cuda.enabled and settings.cuda.source == "distribution":
            yield Refusal(
                "cuda", f"gpunode knows no CUDA packages of {found.name}'s own", table,
                "set cuda.source = 'cuda-repository' or 'runfile'",
            )  # fmt: skip
        return
    for name, component in (("driver", settings.driver), ("cuda", settings.cuda)):
        if component.enabled and component.source == "cuda-repository":
            yield Refusal(
                name, f"NVIDIA has no package repository for {found.name}", table,
                f"leave {name}.source out or set it to 'distribution' ({found.name}'s own packages), or to 'runfile'",
            )  # fmt: skip
    if settings.toolkit.enabled and settings.toolkit.channel != "stable":
        yield Refusal(
            "toolkit", f"{found.name} has the stable releases of the container toolkit alone", table,
            "set toolkit.channel = 'stable'",
        )  # fmt: skip


def gpu_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without an NVIDIA GPU, where the settings do not say that the driver is installed all the same."""
    if not machine.has_gpu and not _may_lack_gpu(settings):
        yield Refusal(
            "gpu",
            "no NVIDIA GPU is on the PCI bus",
            _BUS,
            "look at the machine (lspci -d 10de:), pass a GPU through to it, or take it out of the inventory; for an "
            "image of a GPU machine, set driver.without_gpu = 'install'",
        )


def gpu_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell what comes of a driver without a GPU."""
    if not machine.has_gpu and _may_lack_gpu(settings) and not settings.driver.removes:
        yield Caution(
            "gpu",
            "no NVIDIA GPU is on the PCI bus: the driver is installed, it cannot be loaded, and the verdict will be no "
            "GPU",
            _BUS,
            "set driver.flavour, which no GPU decides here, to what the GPUs to come need",
        )


def _may_lack_gpu(settings: Settings) -> bool:
    desired = settings.driver
    return desired.removes or (desired.installs and desired.without_gpu == "install")
