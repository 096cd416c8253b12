"""What a run does not change of a node, and what preflight judges."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.driver import DriverState
from gpunode.operating_system import OperatingSystem
from gpunode.pci import PciGpus
from gpunode.reading import Reading


@dataclass(frozen=True)
class Machine(Reading):
    """Hold the operating system, the GPUs on the bus, and the driver as it was before the run."""

    operating_system: OperatingSystem
    pci: PciGpus
    driver: DriverState
