"""NVIDIA's GPU Operator with nodes that gpunode prepared: its release, its MIG manager, and what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.base.findings import Finding
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.nodes.cluster_nodes import told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import MIG_CONFIG, MIG_STATE
from gpunode.settings import Settings
from gpunode.settings.chart import merged
from gpunode.settings.device_plugin import METHOD

# Of the manager's pods, and of the nodes that they go to: those whose GPUs the operator knows to have MIG.
# source: gpu-operator, assets/state-mig-manager/0600_daemonset.yaml, controllers/state_manager.go
SELECTOR = "app=nvidia-mig-manager"
_GOES_TO = ("nvidia.com/gpu.deploy.mig-manager", "true")
_DONE, _FAILED = "success", "failed"

_SEE_LOG = (
    f"see `kubectl --namespace {{namespace}} logs --selector {SELECTOR}`, correct what it reports, and set the label "
    f"{MIG_CONFIG} again"
)
MIG_MANAGER = cluster_finding(
    "the operator's MIG manager on",
    "The GPU Operator's MIG manager has not done what the node's label asks for.",
    "The label nvidia.com/mig.config.state has its progress: pending and rebooting while it works, failed where "
    "it gave up. The log of its pod has the reason, such as a GPU in use.",
    name="mig-manager",
    remedies=(_SEE_LOG,),
)


def judge_mig_manager(settings: Settings, labels: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether the manager has done what the node's label asks of it.

    Nothing where nobody asks for the manager, or it does not go to the node.

    It says `pending` and `rebooting` while it is at work, and begins again when the label changes.
    source: nvidia/mig-parted, deployments/container/reconfigure-mig.sh

    + labels: the node's
    """
    if settings.device_plugin.method != METHOD or not settings.gpu_operator.mig_manager:
        return
    if MIG_CONFIG not in labels or _GOES_TO not in labels.items():
        return
    state, namespace = labels.get(MIG_STATE), settings.gpu_operator.namespace
    item = MIG_MANAGER.compared(
        state,
        _DONE,
        state == _DONE,
        of=labels[MIG_CONFIG],
        remedy=_SEE_LOG.format(namespace=namespace),
    )
    yield replace(item, by_person=True) if state == _FAILED else item


def parse_pods(answer: str) -> tuple[str, ...]:
    """Return the pods' names; raise ParseError where kubectl did not list them."""
    return told(answer, "list of pods", lambda found: tuple(item["metadata"]["name"] for item in found["items"]))


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
