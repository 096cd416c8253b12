"""Every stated minimum, judged on the node."""

from __future__ import annotations

from facts.base import NodeFact
from facts.node import Node, parse_node
from gpunode.node import Node as NodeReading
from gpunode.requirements import Requirements as Reading
from gpunode.requirements import judge


def requirements_of(node: NodeReading) -> Reading:
    """Return every stated minimum, judged by what the node is."""
    return Reading(
        judge(
            driver=node.driver.loaded_version or node.driver.module_version,
            toolkit=node.toolkit.version,
            docker2=node.toolkit.nvidia_docker2_version,
            kubelet=node.kubelet.version,
            docker=node.docker.version,
            default_runtime=node.containerd.default_runtime,
            tegra=node.operating_system.tegra,
            cuda_versions=node.cuda.versions,
            gpu_products=[gpu.name for gpu in node.pci.gpus if gpu.name],
        )
    )


def _parse(lines: list[str]) -> Reading:
    return requirements_of(parse_node(lines))


class Requirements(NodeFact[Reading]):
    """Read the node and judge each minimum: met, not met, not applicable or unknown."""

    probe = Node.probe
    parse = staticmethod(_parse)
