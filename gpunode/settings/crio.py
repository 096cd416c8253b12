"""Settings of CRI-O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gpunode.base import versions
from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import Component, UpstreamVersion
from gpunode.settings.runtimes import Runtime


@dataclass(frozen=True)
class Known(Row):
    """Hold the first CRI-O that reads CDI specifications, which is the oldest that gpunode configures."""

    first_with_cdi: str


known = table(Known, "crio.yaml")


class CrioSettings(Runtime):
    """CRI-O that is there already: gpunode installs none, it makes the runtime nvidia known in
    crio.conf.d/99-nvidia.toml, the file of `nvidia-ctk runtime configure --runtime=crio`; whatever else that file says
    stays. CDI specifications CRI-O reads by itself. Only a SIMULATED CRI-O was ever configured so."""

    component: ClassVar[str] = "crio"

    enabled: bool = False
    """true: gpunode configures CRI-O."""
    source: Literal["present"] = "present"
    """It is there already: whoever owns the node installs it."""
    version: UpstreamVersion | None = None
    """Upstream version or branch, such as `1.31`, that has to be there; not given: any with CDI."""
    default_runtime: Literal["nvidia", "crun", "runc"] = "nvidia"
    """Runtime of containers that name none; with another one, which CRI-O has to know, pods choose nvidia by a
    RuntimeClass. The runtime nvidia calls a runc or crun of the PATH."""
    systemd_cgroup: bool = True
    """`cgroup_manager`: systemd, else cgroupfs; must agree with the kubelet's cgroupDriver."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a version that knows no CDI."""
        first = known().first_with_cdi
        if self.version is not None and not versions.at_least(self.version, versions.major_minor(first)):
            yield "version", f"knows no CDI; {first} is the first that does"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what CRI-O lacks or is in the way of: its runtime, the kubelet's one, the test's containers."""
        if not self.enabled:
            return
        if self.default_runtime == "nvidia" and not _is_on(others, "toolkit"):
            message = "needs the nvidia runtime, which toolkit.enabled = False leaves out"
            yield "default_runtime", f"{message}; use 'crun' or enable the toolkit"
        if _is_on(others, "kubernetes") and _is_on(others, "containerd"):
            message = "cannot stand beside containerd in a cluster, whose kubelet has one"
            yield "enabled", f"{message}; set containerd.enabled = False"
        starts = _is_on(others, "containerd") or _is_on(others, "docker")
        if getattr(others.get("verify"), "smoke", False) and not starts:
            message = "leaves verify.smoke nothing to start containers by, which is docker or containerd"
            yield "enabled", f"{message}; set it to False"


def _is_on(others: Mapping[str, Component], name: str) -> bool:
    # One whose own settings are wrong is told of by itself.
    return bool(getattr(others.get(name), "enabled", name == "toolkit"))
