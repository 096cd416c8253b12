"""Settings of NVIDIA's GPU Operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.chart import (
    TAKE_OVER,
    ChartName,
    ChartValues,
    Digest,
    ReleaseName,
    Repository,
    TaggedVersion,
    is_path,
    needs_no_repository,
)
from gpunode.settings.component import Component
from gpunode.settings.kubernetes import AbsolutePath, DnsLabel


class GpuOperatorSettings(Component):
    """Say which release of NVIDIA's GPU Operator comes into the cluster by the method `gpu-operator`."""

    component: ClassVar[str] = "gpu_operator"
    summary: ClassVar[str] = (
        "NVIDIA's GPU Operator beside nodes that gpunode prepared: its driver, container toolkit, device plugin and "
        "GPU feature discovery are off, for these are gpunode's (`driver`, `toolkit`, `device_plugin`). Counts where "
        "`device_plugin.method` is `gpu-operator`; all nodes of a run must have the same. See docs/device-plugin.md."
    )

    chart: ChartName = Field(
        "gpu-operator",
        description=(
            "The chart: its name in `repository`, `oci://HOST/PATH`, or a path on the machine where helm runs (a "
            "directory or a .tgz)."
        ),
    )
    repository: Repository = Field(
        "https://helm.ngc.nvidia.com/nvidia",
        description="Address of the chart repository, or of a mirror; for a `chart` by name alone.",
    )
    ca_file: AbsolutePath | None = Field(
        None, description="File with the certificates that a repository or registry is checked by."
    )
    version: TaggedVersion = Field("v25.3.4", description="Exact version of the chart, as it is tagged there.")
    release: ReleaseName = Field("gpu-operator", description="Name of the release.")
    take_over: bool = Field(False, description=TAKE_OVER)
    namespace: DnsLabel = Field("gpu-operator", description="Its namespace, created if need be.")
    dcgm_exporter: bool = Field(True, description="The exporter of the GPUs' metrics, on every node of the operator's.")
    mig_manager: bool = Field(
        False,
        description=(
            "The operator's MIG manager, which applies what the label nvidia.com/mig.config says; refused where "
            "gpunode does (`mig.config`, `mig.config_from_label`)."
        ),
    )
    image_digests: dict[Literal["operator", "validator", "dcgm", "dcgmExporter", "migManager"], Digest] = Field(
        default_factory=dict,
        description=(
            "Digests of the operator's images, by the chart's own names: `{'dcgmExporter': 'sha256:…'}`. The cluster "
            "runs these and nothing else, wherever a tag points. With another `version` go other digests."
        ),
    )
    values: ChartValues = Field(
        default_factory=dict,
        max_length=100,
        description=(
            "Other values of the chart, as they are. helm replaces lists (`tolerations`) as a whole. What a setting "
            "stands for is refused here."
        ),
    )

    @property
    def is_local_chart(self) -> bool:
        """Say whether the chart is a file or directory on the machine where helm runs."""
        return is_path(self.chart)

    def contradictions(self) -> list[tuple[str, str]]:
        """Return what cannot be asked for together, or not in the chart's values."""
        return list(self._contradictions())

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        from gpunode.settings.cluster.chart_values import found_in
        from gpunode.settings.cluster.gpu_operator import wrong_values

        if self.namespace in ("default", "kube-system"):
            yield "namespace", "is shared with others: give the operator a namespace of its own"
        yield from needs_no_repository(self)
        yield from wrong_values(self.values)
        for name in self.image_digests:
            if found_in(self.values, f"{name}.version") is not None:
                yield "values", f"{name}.version is said by gpu_operator.image_digests; leave one of them out"
