"""Helpers and data for the tests of preflight."""

from dataclasses import replace
from datetime import date
from typing import Any

from gpunode.base import tables
from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.driver.state import DriverState
from gpunode.node.machine import Machine
from gpunode.packages.deb import AptSources
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu, PciGpus

TODAY = date(2026, 1, 15)


DEBIAN = OperatingSystem("debian", "12", "bookworm", (), "Debian GNU/Linux 12 (bookworm)", "x86_64", "6.1.0-1", False)


UBUNTU = replace(DEBIAN, id="ubuntu", version_id="24.04", codename="noble", name="Ubuntu 24.04.3 LTS")


NO_DRIVER = DriverState((), None, None, None, None, None)


OPEN_550 = DriverState((), "550.54.15", "Dual MIT/GPL", "550.54.15", "open", "550.54.15")


def _gpu(device_id: str, address: str = "0000:1a:00.0") -> PciGpu:
    known = tables.pci_device(device_id)
    return PciGpu(address, device_id, known.name if known else None, known.generation if known else None)


H100, B200, V100, T4, P100 = map(_gpu, ("2330", "2901", "1DB1", "1EB8", "15F8"))


UNKNOWN_GPU = _gpu("FFFE")


def machine(
    system: OperatingSystem = DEBIAN, gpus: tuple[PciGpu, ...] = (H100,), driver: DriverState = NO_DRIVER, **more: Any
) -> Machine:
    """Return a bare machine, as preflight reads it, with what is given instead."""
    bare = Machine(
        operating_system=system,
        pci=PciGpus(gpus),
        driver=driver,
        cuda=CudaToolkits((), None, None, False),
        boot=Boot("6.1.0-40-amd64"),
        disk=Disk(()),
        apt_sources=AptSources("amd64"),
    )
    return replace(bare, **more)


MACHINE = machine()
