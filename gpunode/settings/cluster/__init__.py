"""What settings come to in a cluster: a node's name there, its method, its runtime; and what cannot be had together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpunode.settings.other_plugins import EXPORTER, RDMA

if TYPE_CHECKING:
    from gpunode.settings.model import Settings

# The methods by which the plugin is its own chart's; beside a GPU Operator it is so, too.
BY_CHART = ("helm", "gpu-operator")


def node_name(host: str, settings: Settings) -> str:
    """Return a host's name in the cluster."""
    return settings.kubernetes.node_name or host.lower()


def default_runtime(settings: Settings) -> str | None:
    """Return the runtime of pods that choose none, by the settings; None where gpunode has no say in it."""
    if settings.containerd.enabled:
        return settings.containerd.default_runtime
    if settings.crio.enabled:
        return settings.crio.default_runtime
    return settings.docker.default_runtime if settings.docker.enabled else None


def needs_runtime_class(settings: Settings) -> bool:
    """Say whether, for this node, the plugin's pods have to choose the runtime by a RuntimeClass."""
    desired = settings.device_plugin.runtime_class
    return desired == "nvidia" or (desired == "auto" and default_runtime(settings) not in (None, "nvidia"))


def expected_resources(settings: Settings) -> dict[str, int]:
    """Return resource -> how many of it device plugins other than NVIDIA's are to offer on a node."""
    rdma = settings.rdma_shared_device_plugin
    of_rdma = {name: each.count for name, each in rdma.resources.items()} if rdma.enabled else {}
    return {**settings.kubernetes.expected, **of_rdma}


def other_plugins(settings: Settings) -> tuple[str, ...]:
    """Return the names of what gpunode brings to a node beside NVIDIA's plugin: other plugins, DCGM's exporter."""
    if not settings.kubernetes.enabled:
        return ()
    rdma = (RDMA,) if settings.rdma_shared_device_plugin.enabled else ()
    exporter = (EXPORTER,) if settings.dcgm_exporter_chart.enabled else ()
    return (*rdma, *exporter, *sorted(settings.kubernetes.device_plugins))
