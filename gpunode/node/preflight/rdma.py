"""Has the node the RDMA devices that its device plugin is to offer?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.codes import preflight
from gpunode.base.verdicts import Refusal
from gpunode.components.rdma import decide as rdma
from gpunode.node.machine import Machine
from gpunode.settings import Settings

_SOURCE = "Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/resources_manager.go and pci_net_device.go"


def rdma_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node on which the RDMA shared device plugin would offer nothing of a resource, and say so to nobody."""
    if machine.is_image:
        # The devices are the build machine's.
        return
    for item in rdma.decide(settings.rdma_shared_device_plugin, machine.rdma).findings:
        if item.cause is not None:
            reason, _, remedy = item.cause.partition(". ")
            remedy = remedy or "do that, or disable the plugin for this host"
            yield Refusal(rdma.COMPONENT, reason, _SOURCE, remedy, preflight("rdma-nothing-to-offer"))
