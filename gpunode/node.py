"""A whole node in one reading: every component's state, taken in one round trip."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpunode.applied import Applied
from gpunode.apt_sources import AptSources
from gpunode.boot import Boot
from gpunode.containerd.state import Containerd
from gpunode.cuda import CudaToolkits
from gpunode.disk import Disk
from gpunode.docker.state import Docker
from gpunode.driver import DriverState
from gpunode.exposed import Exposed
from gpunode.gpu import Gpus
from gpunode.health import Health
from gpunode.interrupted import Interrupted
from gpunode.keyring import Keyrings
from gpunode.kubelet import Kubelet
from gpunode.machine import Machine
from gpunode.mig.boot import MigBoot
from gpunode.mig.state import Mig
from gpunode.mps import Mps
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpus
from gpunode.podman.state import Podman
from gpunode.reading import Reading
from gpunode.runtime_packages import RuntimePackages
from gpunode.sysctl import KubernetesSysctls
from gpunode.toolkit import ContainerToolkit


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
        )
