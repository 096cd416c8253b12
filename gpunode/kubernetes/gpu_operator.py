"""NVIDIA's GPU Operator beside nodes that gpunode prepared: its release, and what cannot be had together with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.kubernetes.helm.asked import AskedRelease
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings.cluster.chart_values import merged
from gpunode.settings.gpu_operator import METHOD
from gpunode.settings.model import Settings

# The chart that a release must be of to be taken away.
CHART = "gpu-operator"
# Of node feature discovery. source: gpu-operator, controllers/state_manager.go (v24.9 to v26.7).
_FEATURE = "feature.node.kubernetes.io/"
_FOUND_BY = tuple(f"{_FEATURE}pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de"))
# Images that the chart's templates write as REPOSITORY/IMAGE:VERSION, and tag as the chart. Of the others the operator
# makes REPOSITORY/IMAGE@sha256:… where the version begins so.
# source: gpu-operator, templates/_helpers.tpl and internal/image/image.go (v24.9 to v26.7).
_TAGGED_AS_THE_CHART = ("operator", "validator")

_NOT_FOUND = (
    "device_plugin.nfd is 'present', and the GPU Operator finds GPU nodes by one of {labels}: there is {actual}. Have "
    "the cluster's node feature discovery label by vendor, or by class and vendor (its worker's "
    "sources.pci.deviceLabelFields), or set device_plugin.nfd to 'chart'"
)
GPU_LABELS = cluster_finding(
    "GPU labels of node feature discovery",
    "Node feature discovery gives GPU nodes no label by which the GPU Operator would find them.",
    "Without the label of an NVIDIA PCI device the operator takes the node for one without a GPU.",
    remedies=(BY_HAND,),
    causes=(_NOT_FOUND,),
)


def decide_found(settings: Settings, labels: Mapping[str, str]) -> Decision[None]:
    """Return whether the operator takes a node with these labels for one with GPUs; others than gpunode label it so."""
    if settings.device_plugin.method != METHOD or settings.device_plugin.nfd != "present":
        return Decision(())
    desired, good = ", ".join(_FOUND_BY), any(labels.get(name) == "true" for name in _FOUND_BY)
    there = ", ".join(sorted(name for name in labels if name.startswith(f"{_FEATURE}pci-") and "10de" in name)[:5])
    reason = _NOT_FOUND.format(labels=desired, actual=there or "none of an NVIDIA device")
    item = GPU_LABELS.compared(there or None, f"one of {desired}", good, cause=reason)
    return Decision((item,), (), None if good else reason)


def operator(hosts: Mapping[str, Settings]) -> AskedRelease | None:
    """Return the release that the cluster of these hosts is to get; None where none of them asks for the operator."""
    first = next(
        (each for each in hosts.values() if each.kubernetes.enabled and each.device_plugin.method == METHOD), None
    )
    if first is None:
        return None
    desired = first.gpu_operator
    digests: dict[str, Any] = {
        name: {"version": f"{desired.version}@{digest}" if name in _TAGGED_AS_THE_CHART else digest}
        for name, digest in desired.image_digests.items()
    }
    ours: dict[str, Any] = {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "devicePlugin": {"enabled": False},
        "gfd": {"enabled": False},
        "nfd": {"enabled": first.device_plugin.nfd == "chart"},
        "dcgmExporter": {"enabled": desired.dcgm_exporter},
        "migManager": {"enabled": desired.mig_manager},
    }
    return AskedRelease(first.kubernetes, desired, merged(desired.values, merged(digests, ours)))
