"""Has the node the RDMA devices that its device plugin is to offer?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components.rdma import decide as rdma
from gpunode.node.machine import Machine
from gpunode.settings import Settings

NOTHING_TO_OFFER = RefusalMessage(
    "rdma-nothing-to-offer",
    "The RDMA shared device plugin would have nothing to offer on this node.",
    component=rdma.COMPONENT,
    source="Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/resources_manager.go and pci_net_device.go",
    detail="None of the node's devices is one of a resource that the settings name, which the plugin would not report.",
    remedies=("correct what the reason names, or disable the plugin for this host",),
)


def rdma_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node on which the RDMA shared device plugin would offer nothing of a resource, without reporting it."""
    if machine.is_image:
        # The devices are the build machine's.
        return
    for item in rdma.decide(settings.rdma_shared_device_plugin, machine.rdma).findings:
        if item.cause is not None:
            yield NOTHING_TO_OFFER(reason=item.cause, remedy=item.remedy)
