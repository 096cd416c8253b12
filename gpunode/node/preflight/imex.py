"""Can the node be one of an IMEX domain?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.names import is_imex
from gpunode.packages.driver_packages.sources import driver_source
from gpunode.settings import Settings

NO_MULTI_NODE_NVLINK = RefusalMessage(
    "imex-no-multi-node-nvlink",
    "The NVLink of the node's GPUs reaches no other machine, so that IMEX has nothing to do.",
    reason="the NVLink of these GPUs ({gpus}) reaches no other machine, so that IMEX has nothing to do",
    source="gpunode/data/pci.yaml, multi_node_nvlink; NVIDIA IMEX guide, supported platforms",
    remedy="set imex.enabled = False on this host, or take it out of the group whose data enables it",
)
NOT_PACKAGED = RefusalMessage(
    "imex-not-of-this-source",
    "This source of the driver has no nvidia-imex.",
    reason="driver.source = '{source}' has no nvidia-imex, which must have exactly the driver's version",
    source="gpunode/data/driver_packages.yaml (packages: imex)",
    remedy="set driver.source = 'cuda-repository', or install nvidia-imex at the driver's version by hand",
)


def imex_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse GPUs whose NVLink ends in the machine, and a driver whose source has no nvidia-imex."""
    gpus = machine.pci.gpus
    if not settings.imex.enabled or machine.is_image or not gpus:
        return
    # A GPU that is in no table may reach other machines.
    if not machine.pci.reaches_other_machines and all(gpu.name is not None for gpu in gpus):
        yield NO_MULTI_NODE_NVLINK(gpus=", ".join(sorted({str(gpu.name) for gpu in gpus})))
        return
    if not settings.driver.installs or any(is_imex(name) for name, _ in machine.driver.packages):
        return
    source = driver_source(settings, machine.operating_system, machine.boot)
    if source is None or "imex" not in source.packages:
        yield NOT_PACKAGED(source=settings.driver.source)
