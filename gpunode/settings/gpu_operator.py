"""Settings of NVIDIA's GPU Operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.chart import ChartName, Digest, ReleaseName, ReleaseSettings, Repository, TaggedVersion
from gpunode.settings.component import DnsLabel


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
        from gpunode.settings.cluster.chart_values import found_in
        from gpunode.settings.cluster.gpu_operator import wrong_values

        if self.namespace in ("default", "kube-system"):
            yield "namespace", "is shared with others: give the operator a namespace of its own"
        yield from super().contradictions()
        yield from wrong_values(self.values)
        for name in self.image_digests:
            if found_in(self.values, f"{name}.version") is not None:
                yield "values", f"{name}.version is said by gpu_operator.image_digests; leave one of them out"
