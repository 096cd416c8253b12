"""nvidia_peermem, by which RDMA adapters reach the GPUs' memory: is it loaded where it is asked for, and can it be?

NVIDIA builds it with the driver's other modules. It needs nvidia, ib_core, and of the latter an interface for peers'
memory, which MOFED and DOCA-OFED bring and the kernel's own ib_core lacks: built where there was none, it refuses to
load (EINVAL). What it was built with shows only then.
source: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-peermem/nvidia-peermem.c; NVIDIA's driver README, chapter
"GPUDirect RDMA Peer Memory Client"
"""

from __future__ import annotations

from gpunode.base.comparison import BY_HAND, RUN
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.components.driver.state import DriverState, driver_finding

MODULE = "nvidia_peermem"
# Mellanox' own module of before; one of them alone can be loaded.
FORMER = "nv_peer_mem"
NO_STACK = "no RDMA stack is loaded (ib_core): install MOFED or DOCA-OFED, or leave driver.peermem out"
_OTHER = f"{FORMER} is loaded, and one of the two alone can be: disable its service, and take its package away"
_EFFECT = "RDMA adapters reach the GPUs' memory by it (GPUDirect RDMA)"

PEERMEM = driver_finding(
    "nvidia_peermem",
    "The module nvidia_peermem is not loaded as the settings ask.",
    "RDMA adapters reach the GPUs' memory by it (GPUDirect RDMA); without it transfers go through the host.",
    causes=(_OTHER, _EFFECT, NO_STACK),
)


def decide_peermem(desired: bool, actual: DriverState) -> Decision[None]:
    """Return what is to be done about nvidia_peermem; while a boot is pending, it comes with that.

    desired: whether it is asked for, on a node with a GPU
    """
    if not desired or actual.reboot_pending:
        return Decision(())
    good = actual.peermem == MODULE
    cause = _OTHER if actual.peermem == FORMER else _EFFECT if actual.rdma else NO_STACK
    is_ours = actual.rdma and actual.peermem is None
    remedy = RUN if is_ours else BY_HAND
    item = PEERMEM.compared(actual.peermem, MODULE, good, cause=cause, remedy=remedy)
    step = Step[None](f"load {MODULE}, now and at boot", bad(item), Disruption.nothing)
    return Decision((item,), (step,) if is_ours else ())
