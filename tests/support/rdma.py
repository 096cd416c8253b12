"""A node with two RDMA devices, and the image of the plugin that offers them."""

from __future__ import annotations

from dataclasses import replace

from gpunode.components.rdma.decide import Port, Rdma, RdmaDevice, matching
from gpunode.settings.rdma import RdmaResource

IMAGE = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3"
HCA = RdmaDevice(
    "mlx5_0", "0000:3b:00.0", "15b3", "1017", "020700", "mlx5_core", umad=True, uverbs=True,
    ports=(Port(1, "ACTIVE", "InfiniBand"),), netdevs=(("ib0", "infiniband"),),
)  # fmt: skip
ROCE = replace(HCA, name="mlx5_1", device="101d", pci_class="020000", netdevs=(("enp59s0", "ether"), ("vf0", "ether")))
NODE = Rdma((HCA, ROCE), connection_manager=True)


def names(resource: RdmaResource, node: Rdma) -> list[str]:
    """Return the devices that fit a resource."""
    return [each.name for each in matching(resource, node)]
