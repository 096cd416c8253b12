"""Settings of DCGM, NVIDIA's Data Center GPU Manager: on the host, and its exporter by NVIDIA's chart in a cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from gpunode.base import versions
from gpunode.base.tables.reading import Row, table
from gpunode.settings.chart import (
    ChartName,
    ChartVersion,
    ReleaseName,
    ReleaseSettings,
    Repository,
    found_in,
    said_by_settings,
)
from gpunode.settings.component import Component, DnsLabel, UpstreamVersion, plain
from gpunode.settings.driver import root_elsewhere


@dataclass(frozen=True)
class Known(Row):
    """Hold how NVIDIA names DCGM's packages, and which driver's are CUDA 13's.

    paired: DCGM -> the exporter that was released with it
    """

    core: str
    diagnostics: str
    profiling: str
    exporter: str
    former: tuple[str, ...]
    first_branch_of_cuda_13: str
    paired: dict[str, str]
    options: dict[str, tuple[str, ...]]


known = table(Known, "dcgm.yaml")


def _address(text: str) -> str:
    try:
        # A scope (fe80::1%eth0) may hold any character, those of a unit's file among them.
        return str(ipaddress.ip_address(plain(text).replace("%", " ")))
    except ValueError:
        raise ValueError(
            "must be an IP address of the node's such as '10.0.0.7'; '0.0.0.0' or '::' are all of them"
        ) from None


def _of_dcgm_4(version: str) -> str:
    # Another major version has packages of other names.
    if versions.parsed(version).release[0] != 4:
        raise ValueError("must be a version of DCGM 4, such as '4.5.3', or its branch, such as '4.5'")
    return version


Address = Annotated[str, AfterValidator(_address)]


class ExporterSettings(Component):
    """NVIDIA's dcgm-exporter, which tells Prometheus of the GPUs, as a service of the host."""

    enabled: bool = False
    """true: install and run it; false: what gpunode runs of it is stopped, and its package stays."""
    version: UpstreamVersion | None = None
    """Version of the exporter, numbered apart from DCGM's; not given: what is there, else the repository's newest."""
    address: Address = "127.0.0.1"
    """The IP address at which it listens, without a password: NVIDIA's own default are all addresses of the node.
    '0.0.0.0' or '::' are all of them."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9400
    """The port at which it listens."""
    interval: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds from one reading of the GPUs to the next."""
    engine: Literal["host", "embedded"] = "host"
    """`host`: it asks the node's host engine (nvidia-dcgm.service), and adds no label `Hostname`, which would be
    127.0.0.1; `embedded`: it has an engine of its own. Of two engines one alone gets profiling metrics."""

    @property
    def listens(self) -> str:
        """Return ADDRESS:PORT, an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class DcgmSettings(Component):
    """DCGM 4 of NVIDIA's CUDA repository on the host: its host engine as nvidia-dcgm.service, dcgmi, and dcgm-exporter.
    In a cluster NVIDIA's chart (`dcgm_exporter_chart`) or GPU Operator brings an exporter: a node has one of them."""

    enabled: bool = False
    """true: install DCGM and run its host engine; false: what gpunode runs of it is stopped, gpunode's files go, and
    the packages stay."""
    version: Annotated[UpstreamVersion, AfterValidator(_of_dcgm_4)] | None = None
    """Version of DCGM 4 such as '4.5.3', or its branch such as '4.5'; not given: what is there, else the newest."""
    diagnostics: bool = True
    """Install what `dcgmi diag` runs on the GPUs, in the build for the driver's CUDA (12 or 13)."""
    profiling: bool = True
    """Install NVIDIA's proprietary part, by which the metrics DCGM_FI_PROF_* come."""
    health: bool = True
    """Have the host engine watch the GPUs' health (`dcgmi health -s a`), and take what `dcgmi health -c` says into
    drift and verdict: a warning and a failure are for a person."""
    migrate: bool = False
    """true: a package of DCGM 3 that is there (datacenter-gpu-manager) is removed for DCGM 4, which cannot stand beside
    it; false: such a node is refused."""
    exporter: ExporterSettings = Field(default_factory=lambda: ExporterSettings.model_validate({}))
    """The exporter of the GPUs' metrics, below."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield an exporter without DCGM."""
        if self.exporter.enabled and not self.enabled:
            yield "exporter.enabled", "needs DCGM; set dcgm.enabled = True with it"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a driver at another root, and the GPU Operator's exporter on the node beside DCGM on the host."""
        if self.enabled and (root := root_elsewhere(others)) is not None:
            yield "enabled", f"runs programs that need a driver at '/', and driver.root is {root!r}; leave it out"
        kubernetes: Any = others.get("kubernetes")
        plugin: Any = others.get("device_plugin")
        operator: Any = others.get("gpu_operator")
        if not self.enabled or None in (kubernetes, plugin, operator) or not kubernetes.enabled:
            return
        if plugin.method == "gpu-operator" and operator.dcgm_exporter:
            yield (
                "enabled",
                "has DCGM on the host, and gpu_operator.dcgm_exporter = True has it in the cluster, on the same node; "
                "set one of the two to False",
            )


class DcgmExporterChartSettings(ReleaseSettings):
    """NVIDIA's chart dcgm-exporter: pods that tell Prometheus of the GPUs, on the nodes where it is enabled, which
    gpunode labels for it. But for `enabled` all nodes with it must have the same. Needs `kubernetes.enabled`. A node
    has one exporter: this one, the host's (`dcgm.exporter`), or the GPU Operator's (`gpu_operator.dcgm_exporter`). See
    docs/dcgm.md."""

    component: ClassVar[str] = "dcgm_exporter_chart"

    enabled: bool = False
    """true: the node gets the exporter's pod. Where no node of the inventory has it any more, the release goes."""
    chart: ChartName = "dcgm-exporter"
    repository: Repository = "https://nvidia.github.io/dcgm-exporter/helm-charts"
    version: ChartVersion = "4.8.2"
    release: ReleaseName = "dcgm-exporter"
    namespace: DnsLabel = "dcgm-exporter"
    engine: Literal["embedded", "host"] = "embedded"
    """`embedded`: each pod has an engine of its own, and the node none. `host`: the pods ask the node's host engine
    (`dcgm.enabled`) at 127.0.0.1:5555, for which they are on the host's network: their port is then open at all
    addresses of the node, without a password. Of two engines one alone gets profiling metrics."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9400
    """The port at which the pods listen, and the chart's Service with them."""
    interval: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds from one reading of the GPUs to the next."""
    service_monitor: bool = False
    """true: a ServiceMonitor by which the Prometheus Operator finds the pods. The cluster must know that kind: a run
    says so before helm does anything. The chart's own default is true."""

    @property
    def pods(self) -> str | None:
        """Return NAMESPACE/RELEASE, with which its pods begin on a node that is to have them; None where it is not."""
        return f"{self.namespace}/{self.release}" if self.enabled else None

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield values of the chart that settings stand for, and a namespace in which the pods would not be alone."""
        yield from super().contradictions()
        if self.namespace in ("default", "kube-system"):
            yield "namespace", "is shared with others: give the exporter a namespace of its own"
        yield from said_by_settings(self.values, "dcgm-exporter")
        for name, kind in (("arguments", str), ("extraEnv", dict), ("tolerations", dict)):
            found = self.values.get(name, [])
            if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
                yield "values", f"{name} must be a list, as the chart has it"
        said = (*_words(self.values.get("arguments"), None), *_words(self.values.get("extraEnv"), "name"))
        for setting, options in known().options.items():
            if taken := [word for word in said if word.partition("=")[0] in options]:
                yield "values", f"{taken[0]} is said by dcgm_exporter_chart.{setting}"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what it cannot stand beside on a node: no cluster, another exporter, a second or a missing engine."""
        kubernetes: Any = others.get("kubernetes")
        dcgm: Any = others.get("dcgm")
        plugin: Any = others.get("device_plugin")
        operator: Any = others.get("gpu_operator")
        if not self.enabled or None in (kubernetes, dcgm, plugin, operator):
            return
        if not kubernetes.enabled:
            yield "enabled", "needs kubernetes.enabled = True: the exporter runs as pods of the node's cluster"
        if plugin.method == "gpu-operator" and operator.dcgm_exporter:
            yield "enabled", "is a second exporter beside gpu_operator.dcgm_exporter = True; set one of them to False"
        if plugin.method == "gpu-operator" and found_in(operator.values, "dcgm.enabled") is True:
            yield "enabled", "brings a second engine beside dcgm.enabled of gpu_operator.values; leave one of them out"
        if dcgm.exporter.enabled:
            yield "enabled", "is a second exporter beside dcgm.exporter.enabled = True; set one of them to False"
        elif dcgm.enabled and self.engine == "embedded":
            yield (
                "engine",
                "is a second engine beside dcgm.enabled = True, and one alone gets profiling metrics; set 'host', or "
                "dcgm.enabled = False",
            )
        elif self.engine == "host" and not dcgm.enabled:
            yield "engine", "needs the node's host engine: set dcgm.enabled = True with it, or 'embedded'"


def _words(found: Any, key: str | None) -> tuple[str, ...]:
    """Return the strings of a list, or those under a key of its mappings; anything else is told elsewhere."""
    listed = found if isinstance(found, list) else []
    of_key = [each.get(key) for each in listed if isinstance(each, dict)] if key is not None else listed
    return tuple(each for each in of_key if isinstance(each, str))
