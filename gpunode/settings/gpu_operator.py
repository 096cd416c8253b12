"""Settings of NVIDIA's GPU Operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.chart import ChartName, Digest, ReleaseName, ReleaseSettings, Repository, TaggedVersion
from gpunode.settings.cluster.chart_values import found_in, said_by_settings
from gpunode.settings.component import DnsLabel

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


class GpuOperatorSettings(ReleaseSettings):
    """NVIDIA's GPU Operator beside nodes that gpunode prepared: its driver, container toolkit, device plugin and GPU
    feature discovery are off, for these are gpunode's (`driver`, `toolkit`, `device_plugin`). Counts where
    `device_plugin.method` is `gpu-operator`; all nodes of a run must have the same. See docs/device-plugin.md."""

    component: ClassVar[str] = "gpu_operator"

    chart: ChartName = "gpu-operator"
    repository: Repository = "https://helm.ngc.nvidia.com/nvidia"
    version: TaggedVersion = "v25.3.4"
    """Exact version of the chart, as it is tagged there."""
    release: ReleaseName = "gpu-operator"
    namespace: DnsLabel = "gpu-operator"
    dcgm_exporter: bool = True
    """The exporter of the GPUs' metrics, on every node of the operator's."""
    mig_manager: bool = False
    """The operator's MIG manager, which applies what the label nvidia.com/mig.config says; refused where gpunode does
    (`mig.config`, `mig.config_from_label`)."""
    image_digests: dict[Literal["operator", "validator", "dcgm", "dcgmExporter", "migManager"], Digest] = Field(
        default_factory=dict
    )
    """Digests of the operator's images, by the chart's own names: `{'dcgmExporter': 'sha256:…'}`. The cluster runs
    these and nothing else, wherever a tag points. With another `version` go other digests."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together, or not in the chart's values."""
        if self.namespace in ("default", "kube-system"):
            yield "namespace", "is shared with others: give the operator a namespace of its own"
        yield from super().contradictions()
        off = {name: setting for name, setting in _OFF.items() if found_in(self.values, name) is not False}
        on = {name: setting for name, setting in _ON.items() if found_in(self.values, name) is not True}
        yield from said_by_settings(self.values, {**off, **on, **_SETTINGS})
        for name in self.image_digests:
            if found_in(self.values, f"{name}.version") is not None:
                yield "values", f"{name}.version is said by gpu_operator.image_digests; leave one of them out"
