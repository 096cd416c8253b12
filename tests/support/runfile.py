"""Helpers and data for the tests of runfile."""

from __future__ import annotations

from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.driver.state import DriverState
from gpunode.system.boot import Boot
from tests.support.preflight import machine

SHA = "0123456789abcdef" * 4


TOOLS = Boot("6.1.0-40-amd64", build_tools=("gcc", "make", "dkms"))


def toolkits_of(by_runfile: tuple[str, ...] = ()) -> CudaToolkits:
    return CudaToolkits(("12.9",), "/usr/local/cuda-12.9", "12.9.86", True, by_runfile, (("12.9", "12.9.1"),))


TOOLKIT = toolkits_of()


BARE = machine()


WITH_TOOLS = machine(boot=TOOLS)


NO_TOOLKIT = CudaToolkits((), None, None, False)


BY_RUNFILE = DriverState(
    (), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True, runfile=True, dkms=True
)
