"""A whole node in one reading: every component's state, taken in one round trip."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpunode.base.reading import Reading
from gpunode.components.containerd.state import Containerd
from gpunode.components.crio.state import Crio
from gpunode.components.cuda import CudaToolkits
from gpunode.components.docker.state import Docker
from gpunode.components.driver import DriverState
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.components.mps import Mps
from gpunode.components.podman.state import Podman
from gpunode.components.runtime_packages import RuntimePackages
from gpunode.components.toolkit import ContainerToolkit
from gpunode.node.machine import Machine
from gpunode.packages.apt_sources import AptSources
from gpunode.packages.keyring import Keyrings
from gpunode.system.applied import Applied
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.exposed import Exposed
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from gpunode.system.interrupted import Interrupted
from gpunode.system.kubelet import Kubelet
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpus
from gpunode.system.sysctl import KubernetesSysctls


@dataclass(frozen=True)
class Node(Reading):
    """Hold the state of every component of a node; `candidates` and `offers` as in Machine."""

    operating_system: OperatingSystem
    pci: PciGpus
    driver: DriverState
    gpus: Gpus
    health: Health
    cuda: CudaToolkits
    toolkit: ContainerToolkit
    containerd: Containerd
    docker: Docker
    kubelet: Kubelet
    keyrings: Keyrings
    boot: Boot
    disk: Disk
    apt_sources: AptSources
    mps: Mps = field(default_factory=Mps)
    mig: Mig = field(default_factory=lambda: Mig("absent"))
    mig_boot: MigBoot = field(default_factory=MigBoot)
    sysctls: KubernetesSysctls = field(default_factory=KubernetesSysctls)
    applied: Applied = field(default_factory=Applied)
    runtime_packages: RuntimePackages = field(default_factory=RuntimePackages)
    exposed: Exposed = field(default_factory=Exposed)
    interrupted: Interrupted = field(default_factory=Interrupted)
    podman: Podman = field(default_factory=Podman)
    crio: Crio = field(default_factory=Crio)
    candidates: tuple[tuple[str, str], ...] = ()
    offers: tuple[tuple[str, str], ...] = ()

    @property
    def machine(self) -> Machine:
        """Return the part that preflight judges."""
        return Machine(
            self.operating_system,
            self.pci,
            self.driver,
            self.cuda,
            self.boot,
            self.disk,
            self.apt_sources,
            self.toolkit,
            self.candidates,
            self.offers,
            self.runtime_packages,
            self.podman,
            self.crio,
        )
