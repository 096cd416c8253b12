"""What a reading of a node comes to in a few words."""

from __future__ import annotations

from gpunode.base.node_summary import NodeSummary
from gpunode.node import Node


def summary(node: Node) -> NodeSummary:
    """Return the summary of a node: what is loaded before what is on the disk, nvidia-smi's names before the bus'."""
    driver = node.driver
    shown = tuple(gpu.name for gpu in node.gpus.gpus)
    on_bus = tuple(gpu.name or f"{gpu.vendor}:{gpu.device_id}" for gpu in node.pci.gpus)
    return NodeSummary(
        operating_system=node.operating_system.name,
        kernel=node.operating_system.kernel,
        driver=driver.loaded_version or driver.module_version,
        driver_flavour=driver.loaded_flavour if driver.loaded_version else driver.module_flavour,
        cuda=node.cuda.default_version,
        toolkit=node.toolkit.version,
        gpu_models=tuple(dict.fromkeys(shown or on_bus)),
        gpus_on_bus=len(on_bus),
        gpus=len(shown),
        gpunode=node.applied.gpunode,
    )
