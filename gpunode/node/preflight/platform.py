"""Can this node be provisioned at all, with its records, operating system, architecture and GPUs?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import installed_by_gpunode
from gpunode.node.machine import Machine
from gpunode.node.preflight.words import caution, refusal
from gpunode.settings import Settings
from gpunode.system.applied import PATH
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.transaction import FOLDER


def record_refusals(machine: Machine) -> Iterator[Refusal]:
    """Refuse a node whose record, or a transaction's journal, a newer gpunode wrote: what it did there is not known."""
    journals = [f"{FOLDER}/{name}.json" for name in machine.interrupted.newer]
    if files := [*([PATH] if machine.applied.newer else []), *journals]:
        yield refusal("newer-record", files=", ".join(files))


def system_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse what is in no table of supported systems, and a Tegra's driver, which belongs to the board."""
    supported = tables.distributions()
    found = tables.distribution(system.id, system.version_id)
    changes_driver = installed_by_gpunode(settings) or settings.driver.removes
    if system.tegra and (changes_driver or settings.cuda.enabled):
        yield refusal("system-tegra", component="driver" if changes_driver else "cuda")
    if found is None:
        reason = tables.reason_to_refuse(system.id, system.version_id)
        yield refusal(
            "system-unknown",
            system=system,
            why=f": {reason}" if reason else "",
            names=", ".join(row.name for row in supported),
        )
    elif system.architecture not in found.architectures:
        yield refusal("system-architecture", system=system, found=found, architectures=", ".join(found.architectures))
    elif settings.containerd.enabled and settings.containerd.source == "distribution" and not found.containerd:
        yield refusal("system-without-containerd", found=found)
    elif settings.containerd.enabled and settings.containerd.source == "docker-repository" and found.docker == "":
        yield refusal("system-without-docker-s-containerd", found=found)
    elif settings.docker.enabled and settings.docker.source == "docker-repository" and found.docker == "":
        yield refusal("system-without-docker-s", found=found)
    elif settings.docker.enabled and settings.docker.source == "distribution" and found.family != "apt":
        yield refusal(
            "system-without-docker",
            found=found,
            instead="set docker.source = " if found.docker == "" else "set docker.source = 'docker-repository', or ",
        )
    if found is not None:
        yield from source_refusals(settings, found)


def source_refusals(settings: Settings, found: Distribution) -> Iterator[Refusal]:
    """Refuse to take from a repository what it does not have for the distribution."""
    if found.repository is not None:
        if settings.cuda.enabled and settings.cuda.source == "distribution":
            yield refusal("source-no-own-cuda", found=found)
        return
    for name, component in (("driver", settings.driver), ("cuda", settings.cuda)):
        if component.enabled and component.source == "cuda-repository":
            yield refusal("source-no-repository", name=name, found=found)
    if settings.toolkit.enabled and settings.toolkit.channel != "stable":
        yield refusal("source-stable-alone", found=found)


def gpu_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without an NVIDIA GPU, where the settings do not say that the driver is installed all the same."""
    if not machine.has_gpu and not machine.is_image and not _may_lack_gpu(settings):
        yield refusal("gpu-none")


def gpu_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell what comes of a driver without a GPU, and what an image leaves to the first run on its machine."""
    if machine.is_image:
        if installed_by_gpunode(settings) and settings.driver.flavour == "auto":
            yield caution("image-flavour")
        late = {"mig.config": settings.mig.config, "mps.enabled": settings.mps.enabled}
        late |= {"kubernetes.enabled": settings.kubernetes.enabled, "slurm.enabled": settings.slurm.enabled}
        late["power"] = settings.power.is_asked
        late |= {"imex.enabled": settings.imex.enabled}
        if names := ", ".join(name for name, value in late.items() if value):
            yield caution("image-late", names=names)
    elif not machine.has_gpu and _may_lack_gpu(settings) and not settings.driver.removes:
        yield caution("gpu-none-yet")


def _may_lack_gpu(settings: Settings) -> bool:
    desired = settings.driver
    return desired.removes or (desired.installs and desired.without_gpu == "install")
