"""Values of the GPU Operator's chart that a person sets by `gpu_operator.values`: which settings stand for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.settings.cluster.chart_values import found_in, said_by_settings

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
