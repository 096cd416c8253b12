"""What cannot be had together with NVIDIA's GPU Operator, and what of its chart settings stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.base.versions import at_least
from gpunode.settings.cluster.chart_values import found_in, said_by_settings
from gpunode.settings.cluster.features import of_kubernetes
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written

METHOD = "gpu-operator"
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
        message = f"is older than the {needs.minimum} that device_plugin.method {METHOD!r} needs ({needs.source})"
        yield _problem("kubernetes.version", version, message)


def _problem(key: str, value: object, message: str) -> Problem:
    return Problem(key, written(value), message)
