"""A whole node in one reading: every component's state, taken in one round trip."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.containerd.state import Containerd
from gpunode.cuda import CudaToolkits
from gpunode.docker import Docker
from gpunode.driver import DriverState
from gpunode.gpu import Gpus
from gpunode.keyring import Keyrings
from gpunode.kubelet import Kubelet
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpus
from gpunode.reading import Reading
from gpunode.toolkit import ContainerToolkit


@dataclass(frozen=True)
class Node(Reading):
    """Hold the state of every component of a node."""

    operating_system: OperatingSystem
    pci: PciGpus
    driver: DriverState
    gpus: Gpus
    cuda: CudaToolkits
    toolkit: ContainerToolkit
    containerd: Containerd
    docker: Docker
    kubelet: Kubelet
    keyrings: Keyrings
