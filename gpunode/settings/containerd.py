"""Settings of containerd."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.component import Component, UpstreamVersion


class ContainerdSettings(Component):
    """Say how containerd shall run containers on a node."""

    summary: ClassVar[str] = "containerd: its package, its runtimes and its kernel modules (overlay, br_netfilter)."

    enabled: bool = Field(True, description="false: gpunode leaves containerd alone.")
    source: Literal["distribution", "docker-repository", "present"] = Field(
        "distribution",
        description=(
            "Where it comes from: the distribution's `containerd`, Docker's `containerd.io`, or `present`: "
            "already there, only configured."
        ),
    )
    version: UpstreamVersion | None = Field(
        None, description="Upstream version; not given: the source's newest. Not with `source: present`."
    )
    default_runtime: Literal["nvidia", "runc"] = Field(
        "nvidia",
        description="Runtime of containers that name none; with `runc`, pods choose nvidia by a RuntimeClass.",
    )
    systemd_cgroup: bool = Field(
        True, description="Use systemd's cgroup driver for runc and nvidia; must agree with the kubelet's cgroupDriver."
    )
    cdi: bool | None = Field(None, description="`enable_cdi`, for containerd 1.7 and later; not given: left as it is.")
    placement: Literal["auto", "root", "drop-in"] = Field(
        "auto",
        description=(
            "Where the runtimes stand: in the `root` file, in a `drop-in` beside it, or `auto`: whichever is safe for "
            "the version (a drop-in where containerd merges it key by key, as 2.1 does; else the root file)."
        ),
    )
    kubernetes_sysctls: bool = Field(
        False, description="Set what Kubernetes needs of the kernel: IPv4 forwarding, bridged traffic through iptables."
    )

    def contradictions(self) -> list[tuple[str, str]]:
        """Return a version of a package that gpunode does not install."""
        if self.source == "present" and self.version is not None:
            return [("version", "cannot be asked for with containerd.source 'present'; leave one of the two out")]
        return []
