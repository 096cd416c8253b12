"""Objects that tests/cases name: where the driver comes from, and bare machines."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.system.operating_system import OperatingSystem
from tests.support.preflight import machine

CUDA, EL, SUSE = (
    next(row for row in tables.driver_sources() if system in row.systems and row.source == "cuda-repository")
    for system in ("debian", "rocky", "sles")
)
BARE = machine()
FEDORA = next(row for row in tables.driver_sources() if "fedora" in row.systems)
ARCH = OperatingSystem("arch", "", None, (), "Arch Linux", "x86_64", "6.16.8-arch1-1", False)
