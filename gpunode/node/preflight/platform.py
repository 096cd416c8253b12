"""Can this node be provisioned at all, with its records, operating system, architecture, GPUs and disk?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.state import DriverState
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.system.applied import PATH
from gpunode.system.disk import Disk
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.transaction import FOLDER

_DISTRIBUTIONS = "gpunode/data/distributions.yaml"
_SUPPORTED = f"CUDA installation guide for Linux ({_DISTRIBUTIONS})"
_PCI = "/sys/bus/pci/devices (vendor 10de, class 03)"

NEWER_RECORD = RefusalMessage(
    "newer-record",
    "A newer gpunode wrote the record on the node, or the journal of a change.",
    component="node",
    reason="a newer gpunode than this one wrote {files}: what it did on this node is not known here",
    source="the key schema of these files",
    remedy="update gpunode here to the version that ran on the node last",
)
TEGRA = RefusalMessage(
    "system-tegra",
    component="{component}",
    reason="this is a Tegra board: its driver and its CUDA belong to the board's own software (JetPack)",
    source="CUDA installation guide for Linux",
    remedy="set driver.source = 'present' and cuda.enabled = False, or take the node out of the inventory",
)
UNKNOWN_SYSTEM = RefusalMessage(
    "system-unknown",
    "The node's operating system is not supported.",
    component="operating system",
    reason="{name} ({id} {version}) is not supported{why}",
    source=_SUPPORTED,
    remedy="use one of {names}",
)
ARCHITECTURE = RefusalMessage(
    "system-architecture",
    "The node's architecture is not supported on its operating system.",
    component="operating system",
    reason="architecture {architecture} is not supported on {name}",
    source=_SUPPORTED,
    remedy="on {name} use one of {architectures}",
)
NO_CONTAINERD = RefusalMessage(
    "system-without-containerd",
    "The distribution has no package containerd.",
    component="containerd",
    reason="{name} has no package containerd",
    source=_DISTRIBUTIONS,
    remedy="set containerd.source = 'docker-repository', or 'present' where it is installed by other means",
)
NO_CONTAINERD_OF_DOCKER = RefusalMessage(
    "system-without-docker-s-containerd",
    "Docker's repository has no containerd for this distribution.",
    component="containerd",
    reason="Docker's repository has no packages for {name}",
    source=_DISTRIBUTIONS,
    remedy="set containerd.source = 'distribution', or 'present' where it is installed by other means",
)
NO_DOCKER_OF_DOCKER = RefusalMessage(
    "system-without-docker-s",
    "Docker's repository has no packages for this distribution.",
    component="docker",
    reason="Docker's repository has no packages for {name}",
    source=_DISTRIBUTIONS,
    remedy="set docker.source = 'present' where it is installed by other means",
)
NO_DOCKER = RefusalMessage(
    "system-without-docker",
    "The distribution has no package docker.io.",
    component="docker",
    reason="{name} has no package docker.io",
    source=_DISTRIBUTIONS,
    remedy="set docker.source = {instead}'present' where it is installed by other means",
)


def record_refusals(machine: Machine) -> Iterator[Refusal]:
    """Refuse a node whose record, or a transaction's journal, a newer gpunode wrote: what it did there is not known."""
    journals = [f"{FOLDER}/{name}.json" for name in machine.interrupted.newer]
    if files := [*([PATH] if machine.applied.newer else []), *journals]:
        yield NEWER_RECORD(files=", ".join(files))


def system_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse what is in no table of supported systems, and a Tegra's driver, which belongs to the board."""
    found = tables.distribution(system.id, system.version_id)
    changes_driver = settings.driver.installs or settings.driver.removes
    if system.tegra and (changes_driver or settings.cuda.enabled):
        yield TEGRA(component="driver" if changes_driver else "cuda")
    if found is None:
        reason = tables.reason_to_refuse(system.id, system.version_id)
        values = {"name": system.name, "id": system.id, "version": system.version_id}
        yield UNKNOWN_SYSTEM(
            **values, why=f": {reason}" if reason else "", names=", ".join(row.name for row in tables.distributions())
        )
    elif system.architecture not in found.architectures:
        yield ARCHITECTURE(
            architecture=system.architecture, name=found.name, architectures=", ".join(found.architectures)
        )
    elif settings.containerd.enabled and settings.containerd.source == "distribution" and not found.containerd:
        yield NO_CONTAINERD(name=found.name)
    elif settings.containerd.enabled and settings.containerd.source == "docker-repository" and found.docker == "":
        yield NO_CONTAINERD_OF_DOCKER(name=found.name)
    elif settings.docker.enabled and settings.docker.source == "docker-repository" and found.docker == "":
        yield NO_DOCKER_OF_DOCKER(name=found.name)
    elif settings.docker.enabled and settings.docker.source == "distribution" and found.family != "apt":
        yield NO_DOCKER(name=found.name, instead="" if found.docker == "" else "'docker-repository', or ")
    if found is not None:
        yield from source_refusals(settings, found)


NO_OWN_CUDA = RefusalMessage(
    "source-no-own-cuda",
    "gpunode knows no CUDA packages of the distribution's own.",
    component="cuda",
    reason="gpunode knows no CUDA packages of {name}'s own",
    source=_DISTRIBUTIONS,
    remedy="set cuda.source = 'cuda-repository' or 'runfile'",
)
NO_REPOSITORY = RefusalMessage(
    "source-no-repository",
    "NVIDIA has no package repository for this distribution.",
    component="{component}",
    reason="NVIDIA has no package repository for {name}",
    source=_DISTRIBUTIONS,
    remedy="leave {component}.source out or set it to 'distribution' ({name}'s own packages), or to 'runfile'",
)
STABLE_ONLY = RefusalMessage(
    "source-stable-alone",
    "The distribution has only the stable releases of the container toolkit.",
    component="toolkit",
    reason="{name} has only the stable releases of the container toolkit",
    source=_DISTRIBUTIONS,
    remedy="set toolkit.channel = 'stable'",
)


def source_refusals(settings: Settings, found: Distribution) -> Iterator[Refusal]:
    """Refuse to take from a repository what it does not have for the distribution."""
    if found.repository is not None:
        if settings.cuda.enabled and settings.cuda.source == "distribution":
            yield NO_OWN_CUDA(name=found.name)
        return
    for name, component in (("driver", settings.driver), ("cuda", settings.cuda)):
        if component.enabled and component.source == "cuda-repository":
            yield NO_REPOSITORY(component=name, name=found.name)
    if settings.toolkit.enabled and settings.toolkit.channel != "stable":
        yield STABLE_ONLY(name=found.name)


NO_GPU = RefusalMessage(
    "gpu-none",
    reason="no NVIDIA GPU is on the PCI bus",
    source=_PCI,
    remedy="look at the machine (lspci -d 10de:), pass a GPU through to it, or take it out of the inventory; for an "
    "image of a GPU machine, set driver.without_gpu = 'install'",
)


def gpu_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without an NVIDIA GPU, unless the settings install the driver without one."""
    if not machine.has_gpu and not machine.is_image and not _may_lack_gpu(settings):
        yield NO_GPU()


IMAGE_FLAVOUR = CautionMessage(
    "image-flavour",
    component="driver",
    reason="an image has no GPU to decide driver.flavour = 'auto': it gets the open modules where its driver has any",
    source="gpunode/data/drivers.yaml",
    remedy="set driver.flavour to what the GPUs of the machines need",
)
IMAGE_LATE = CautionMessage(
    "image-late",
    "Some settings need a machine with its GPUs, and have no effect on an image.",
    reason="{names}: not done on an image, since it needs a machine with its GPUs",
    source="docs/how-to/images.md",
    remedy="run deploys/gpu_node.py once on the machines that boot from the image",
)
NO_GPU_YET = CautionMessage(
    "gpu-none-yet",
    reason="no NVIDIA GPU is on the PCI bus: the driver is installed, cannot be loaded, and the verdict is no GPU",
    source=_PCI,
    remedy="set driver.flavour, which no GPU decides here, to what the GPUs to come need",
)


def gpu_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of a driver without a GPU, and of what an image leaves to the first run on its machine."""
    if machine.is_image:
        if settings.driver.installs and settings.driver.flavour == "auto":
            yield IMAGE_FLAVOUR()
        late = {"mig.config": settings.mig.config, "mps.enabled": settings.mps.enabled}
        late |= {"kubernetes.enabled": settings.kubernetes.enabled, "slurm.enabled": settings.slurm.enabled}
        late["power"] = settings.power.is_asked
        late |= {"imex.enabled": settings.imex.enabled}
        if names := ", ".join(name for name, value in late.items() if value):
            yield IMAGE_LATE(names=names)
    elif not machine.has_gpu and _may_lack_gpu(settings) and not settings.driver.removes:
        yield NO_GPU_YET()


def _may_lack_gpu(settings: Settings) -> bool:
    desired = settings.driver
    return desired.removes or (desired.installs and desired.without_gpu == "install")


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
