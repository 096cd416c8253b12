"""Settings of containerd and docker, and what those of every container runtime have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from gpunode.settings.component import Component, UpstreamVersion


class Runtime(Component):
    """A container runtime."""

    component: ClassVar[str]

    enabled: bool = False
    source: str
    version: UpstreamVersion | None = None
    """Upstream version; not given: the source's newest. Not with `source: present`."""
    default_runtime: str | None

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a version of a package that gpunode does not install."""
        if self.source == "present" and self.version is not None:
            yield "version", f"cannot be asked for with {self.component}.source 'present'; leave one of the two out"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a default runtime that the container toolkit would bring, where there is to be none."""
        without_toolkit = not getattr(others.get("toolkit"), "enabled", True)
        if self.enabled and self.default_runtime == "nvidia" and without_toolkit:
            message = "needs the nvidia runtime, which toolkit.enabled = False leaves out"
            yield "default_runtime", f"{message}; use 'runc' or enable the toolkit"


class ContainerdSettings(Runtime):
    """containerd: its package, its runtimes and its kernel modules (overlay, br_netfilter)."""

    component: ClassVar[str] = "containerd"

    enabled: bool = True
    """false: gpunode leaves containerd alone."""
    source: Literal["distribution", "docker-repository", "present"] = "distribution"
    """Where it comes from: the distribution's `containerd`, Docker's `containerd.io`, or `present`: already there, only
    configured."""
    default_runtime: Literal["nvidia", "runc"] = "nvidia"
    """Runtime of containers that name none; with `runc`, pods choose nvidia by a RuntimeClass."""
    systemd_cgroup: bool = True
    """Use systemd's cgroup driver for runc and nvidia; must agree with the kubelet's cgroupDriver."""
    cdi: bool | None = None
    """`enable_cdi`, for containerd 1.7 and later; not given: left as it is."""
    placement: Literal["auto", "root", "drop-in"] = "auto"
    """Where the runtimes stand: in the `root` file, in a `drop-in` beside it, or `auto`: whichever is safe for the
    version (a drop-in where containerd merges it key by key, as 2.1 does; else the root file)."""
    kubernetes_sysctls: bool = False
    """Set what Kubernetes needs of the kernel: IPv4 forwarding, bridged traffic through iptables."""


class DockerSettings(Runtime):
    """Docker: its package and daemon.json, of which every other key is kept. Runtimes and the default one take a
    reload, the cgroup driver and CDI a restart, which containers survive where `live-restore` is on."""

    component: ClassVar[str] = "docker"

    enabled: bool = False
    """true: gpunode installs and configures docker."""
    source: Literal["distribution", "docker-repository", "present"] = "distribution"
    """Where it comes from: the distribution's `docker.io` (Debian, Ubuntu), Docker's `docker-ce`, or `present`: already
    there, only configured."""
    default_runtime: Literal["nvidia", "runc"] = "nvidia"
    """Runtime of containers that name none; with `runc`, `docker run --runtime nvidia`."""
    systemd_cgroup: bool = True
    """Use systemd's cgroup driver (`native.cgroupdriver=systemd`), else cgroupfs."""
    cdi: bool | None = None
    """`features.cdi`, for docker 25.0 and later; not given: left as it is."""

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a source of packages that another one's stand against, too."""
        yield from super().beside(others)
        other = others.get("containerd")
        if not self.enabled or not isinstance(other, ContainerdSettings) or not other.enabled:
            return
        if len({self.source, other.source} - {"present"}) > 1:
            yield "source", f"cannot stand beside containerd.source {other.source!r}: each brings its own containerd"
