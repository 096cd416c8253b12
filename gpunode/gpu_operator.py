"""NVIDIA's GPU Operator beside nodes that gpunode prepared: its release, and what cannot be had together with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.device_plugin.chart_values import found_in, merged, said_by_settings
from gpunode.device_plugin.features import of_kubernetes
from gpunode.helm.asked import AskedRelease
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written
from gpunode.versions import at_least

WAY = "gpu-operator"
# The chart that a release must be of to be taken away.
CHART = "gpu-operator"
# Dotted value of the chart -> what stands for it; it may not be True.
_OFF = {
    "driver.enabled": "driver, which gpunode brings: the operator's own would be a second one",
    "driver.nvidiaDriverCRD.enabled": "driver, which gpunode brings: the operator's own would be a second one",
    "toolkit.enabled": "toolkit, which gpunode brings: the operator's own would change the runtime's configuration",
    "devicePlugin.enabled": "device_plugin, whose chart gpunode rolls out beside the operator: two would give the same "
    "GPUs away",
    "gfd.enabled": "device_plugin.gfd: discovery has to know the plugin's configurations",
    "gpuCluster.deployCR": "device_plugin, whose chart gpunode rolls out beside the operator: a GPUCluster would give "
    "the same GPUs away by dynamic resource allocation",
    "sandboxWorkloads.enabled": "device_plugin, whose chart gpunode rolls out beside the operator: virtual machines "
    "would be given the same GPUs",
}
# It may not be False.
_ON = {"clusterPolicy.deployCR": "gpu_operator, whose ClusterPolicy says what the operator brings"}
# Of node feature discovery. source: gpu-operator, controllers/state_manager.go (v24.9 to v26.7).
_FEATURE = "feature.node.kubernetes.io/"
_FOUND_BY = tuple(f"{_FEATURE}pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de"))
# Images that the chart's templates write as REPOSITORY/IMAGE:VERSION, and tag as the chart. Of the others the operator
# makes REPOSITORY/IMAGE@sha256:… where the version begins so.
# source: gpu-operator, templates/_helpers.tpl and internal/image/image.go (v24.9 to v26.7).
_TAGGED_AS_THE_CHART = ("operator", "validator")
# Others that settings stand for.
_SETTINGS = {
    "devicePlugin.config": "sharing, from which the plugin's configurations are made",
    "nfd.enabled": "device_plugin.nfd",
    "dcgmExporter.enabled": "gpu_operator.dcgm_exporter",
    "migManager.enabled": "gpu_operator.mig_manager",
}


def wrong_values(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) of values of the operator's chart that a setting stands for."""
    off = {name: setting for name, setting in _OFF.items() if found_in(values, name) is not False}
    on = {name: setting for name, setting in _ON.items() if found_in(values, name) is not True}
    yield from said_by_settings(values, {**off, **on, **_SETTINGS})


def no_gpu_found(labels: Mapping[str, str]) -> str | None:
    """Return why the operator takes a node with these labels for one without GPUs; None where it finds them."""
    if any(labels.get(name) == "true" for name in _FOUND_BY):
        return None
    there = sorted(name for name in labels if name.startswith(f"{_FEATURE}pci-") and "10de" in name)
    found = f"there is {', '.join(there[:5])}" if there else "there is none of an NVIDIA device"
    return (
        "device_plugin.nfd is 'present', and the GPU Operator finds GPU nodes by one of "
        f"{', '.join(_FOUND_BY)}: {found}. "
        "Have the cluster's node feature discovery label by vendor, or by class and vendor (its worker's "
        "sources.pci.deviceLabelFields), or set device_plugin.nfd to 'chart'"
    )


def operator(hosts: Mapping[str, Settings]) -> AskedRelease | None:
    """Return the release that the cluster of these hosts is to get; None where none of them asks for the operator."""
    first = next(
        (each for each in hosts.values() if each.kubernetes.enabled and each.device_plugin.way == WAY), None
    )  # fmt: skip
    if first is None:
        return None
    asked = first.gpu_operator
    digests: dict[str, Any] = {
        name: {"version": f"{asked.version}@{digest}" if name in _TAGGED_AS_THE_CHART else digest}
        for name, digest in asked.image_digests.items()
    }
    ours: dict[str, Any] = {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "devicePlugin": {"enabled": False},
        "gfd": {"enabled": False},
        "nfd": {"enabled": first.device_plugin.nfd == "chart"},
        "dcgmExporter": {"enabled": asked.dcgm_exporter},
        "migManager": {"enabled": asked.mig_manager},
    }
    return AskedRelease(first.kubernetes, asked, merged(asked.values, merged(digests, ours)))


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what a node cannot have together with the operator."""
    if settings.device_plugin.nfd == "none":
        message = (
            "leaves the operator without the labels by which it finds GPU nodes, and it would take "
            "nvidia.com/gpu.present from them; set 'chart', or 'present' where the cluster has node feature discovery"
        )
        yield _problem("device_plugin.nfd", "none", message)
    if settings.gpu_operator.mig_manager and (settings.mig.config is not None or settings.mig.config_from_label):
        key = "mig.config_from_label" if settings.mig.config_from_label else "mig.config"
        message = f"has the operator apply MIG layouts, and by {key} gpunode does; leave one of them out"
        yield _problem("gpu_operator.mig_manager", True, message)
    version, needs = settings.kubernetes.version, of_kubernetes()["gpu-operator"]
    if version is not None and not at_least(version, needs.minimum):
        message = f"is older than the {needs.minimum} that device_plugin.way {WAY!r} needs ({needs.source})"
        yield _problem("kubernetes.version", version, message)


def _problem(key: str, value: object, message: str) -> Problem:
    return Problem(key, written(value), message)
