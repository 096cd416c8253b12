"""What a run does not change of a node, and what preflight judges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpunode.base.reading import Reading
from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.dcgm.state import Dcgm
from gpunode.components.driver.state import DriverState
from gpunode.components.rdma.decide import Rdma
from gpunode.components.runtimes.containerd.state import Containerd, parse_containerd
from gpunode.components.runtimes.crio.state import Crio
from gpunode.components.runtimes.docker.state import Docker, parse_docker
from gpunode.components.runtimes.packages import RuntimePackages
from gpunode.components.runtimes.podman.state import Podman
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.components.runtimes.unmanaged import Unmanaged, replaces_containerd
from gpunode.components.slurm.state import Slurm
from gpunode.packages.deb import AptSources
from gpunode.packages.driver_packages.sources import resolve_for_os
from gpunode.settings import Settings
from gpunode.system.applied import Applied
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.kubelet import Kubelet
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpus
from gpunode.system.transaction import Interrupted


@dataclass(frozen=True)
class Machine(Reading):
    """Hold what preflight judges, as it was before the run: system, GPUs, driver, what boots next, disk, apt's sources,
    container toolkit, packages of container runtimes, containerd, docker, podman, CRI-O, other programs' runtimes,
    Slurm, RDMA devices, DCGM, the kubelet, and what earlier runs recorded.

    `candidates` are (package, the version that would be installed) and `offers` (package, a version that the
    distribution's archive has), where somebody asked for them. So are `available`, (package, a version that any
    repository has), and `lists_age`, the seconds since the package lists were read; None: not known.
    """

    operating_system: OperatingSystem
    pci: PciGpus
    driver: DriverState
    cuda: CudaToolkits
    boot: Boot
    disk: Disk
    apt_sources: AptSources
    toolkit: ContainerToolkit = field(default_factory=lambda: ContainerToolkit((), None, None))
    candidates: tuple[tuple[str, str], ...] = ()
    offers: tuple[tuple[str, str], ...] = ()
    available: tuple[tuple[str, str], ...] = ()
    lists_age: int | None = None
    runtime_packages: RuntimePackages = field(default_factory=RuntimePackages)
    containerd: Containerd = field(default_factory=lambda: parse_containerd([]))
    docker: Docker = field(default_factory=lambda: parse_docker([]))
    podman: Podman = field(default_factory=Podman)
    crio: Crio = field(default_factory=Crio)
    unmanaged: Unmanaged = field(default_factory=Unmanaged)
    slurm: Slurm = field(default_factory=Slurm)
    rdma: Rdma = field(default_factory=Rdma)
    dcgm: Dcgm = field(default_factory=Dcgm)
    kubelet: Kubelet = field(default_factory=lambda: Kubelet(None))
    applied: Applied = field(default_factory=Applied)
    interrupted: Interrupted = field(default_factory=Interrupted)

    @property
    def has_gpu(self) -> bool:
        """Say whether there is an NVIDIA GPU; a Tegra's is part of the chip and not on the PCI bus."""
        return bool(self.pci.gpus) or self.operating_system.tegra

    @property
    def is_image(self) -> bool:
        """Say whether an image is made of this root directory: nothing of it runs, and nothing is started."""
        return not self.operating_system.booted


def without_hardware(machine: Machine) -> Machine:
    """Return a machine as it was read; of an image without GPUs and loaded modules, which are the build machine's."""
    if not machine.is_image:
        return machine
    driver = replace(
        machine.driver, loaded_version=None, loaded_flavour=None, uvm_loaded=False, nouveau_bound=False, parameters=()
    )
    return replace(machine, pci=PciGpus(()), driver=driver)


def resolved(settings: Settings, machine: Machine) -> Settings:
    """Return the settings with what they leave to the node: as `resolve_for_os`; no containerd that nothing uses."""
    settings = resolve_for_os(settings, machine.operating_system)
    if not replaces_containerd(settings, machine.unmanaged):
        return settings
    return settings.model_copy(update={"containerd": settings.containerd.model_copy(update={"enabled": False})})
