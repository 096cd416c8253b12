"""Settings of DCGM, NVIDIA's Data Center GPU Manager, on the host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gpunode.base import versions
from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import Component, UpstreamVersion, plain
from gpunode.settings.driver import root_elsewhere


@dataclass(frozen=True)
class Known(Row):
    """Hold how NVIDIA names DCGM's packages, and which driver's are CUDA 13's.

    paired: DCGM -> the exporter that was released with it
    oldest_chart: the first version of the chart dcgm-exporter that is DCGM 4's
    """

    core: str
    diagnostics: str
    profiling: str
    exporter: str
    former: tuple[str, ...]
    first_branch_of_cuda_13: str
    paired: dict[str, str]
    oldest_chart: str


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
