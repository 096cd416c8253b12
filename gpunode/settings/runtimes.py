"""Settings of the container runtimes (containerd, docker, CRI-O and podman) and of NVIDIA's container toolkit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from gpunode.base import tables, versions
from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import (
    AbsolutePath,
    Component,
    RuntimeName,
    ServiceUnit,
    ToolkitVersion,
    UpstreamVersion,
)

_SHARED = {
    "accept_nvidia_visible_devices_envvar_when_unprivileged": False,
    "accept_nvidia_visible_devices_as_volume_mounts": True,
}


class ToolkitSettings(Component):
    """The NVIDIA container toolkit: nvidia-container-runtime, nvidia-ctk, libnvidia-container. Keys of its config.toml
    that no setting names stay as they are; containers that run already are not disturbed."""

    enabled: bool = True
    """false: the container toolkit is not installed."""
    version: ToolkitVersion | None = None
    """Exact upstream version, such as `1.17.8`; not given: the repository's newest."""
    channel: Literal["stable", "experimental"] = "stable"
    """Channel of NVIDIA's repository; release candidates are in `experimental` only."""
    hold: bool = False
    """Keep the toolkit's packages at what is installed: apt-mark hold and apt preferences, or dnf's versionlock;
    removed again with `False`. Another `version` still moves them."""
    migrate: bool = False
    """Where the deprecated nvidia-docker2 (or nvidia-container-runtime) is installed the node is refused; with `True`
    it is removed in the transaction that brings the toolkit. docker's daemon.json stays."""
    preset: Literal["none", "shared"] = "none"
    """`shared`: for nodes that several parties use. Unprivileged containers get no GPU by setting
    NVIDIA_VISIBLE_DEVICES, only by volume mounts (the two settings `accept_…` below are False and True). The device
    plugin's deviceListStrategy must then be volume-mounts or one of CDI's. See docs/security.md."""
    mode: Literal["auto", "legacy", "cdi", "jit-cdi"] | None = None
    """How GPUs get into containers (config.toml: nvidia-container-runtime.mode). `jit-cdi`, from 1.18 on: by CDI
    specifications that are made in memory at each start, which `auto` comes to there. Not given: a mode that the
    installed toolkit does not know is taken out of the file, and so is a list of runtimes of which none is there."""
    no_cgroups: bool | None = None
    """`True`: device cgroups are left alone, for rootless containers (config.toml: nvidia-container-cli.no-cgroups).
    Without effect in modes `cdi` and `jit-cdi`. Not given: the file's own True is drift next to containerd, docker or
    CRI-O, whose containers get no access to a GPU by it."""
    debug: bool | None = None
    """`True`: runtime and container CLI write logs at /var/log/nvidia-container-runtime.log and -toolkit.log; `False`:
    they do not."""
    accept_nvidia_visible_devices_envvar_when_unprivileged: bool | None = None
    """Whether NVIDIA_VISIBLE_DEVICES counts in an unprivileged container (config.toml:
    accept-nvidia-visible-devices-envvar-when-unprivileged; the toolkit's own default is true)."""
    accept_nvidia_visible_devices_as_volume_mounts: bool | None = None
    """Whether mounts below /var/run/nvidia-container-devices name a container's GPUs (config.toml:
    accept-nvidia-visible-devices-as-volume-mounts; the toolkit's own default is false)."""
    cdi: Literal["off", "generate"] = "off"
    """`generate`: keep a CDI specification of the loaded driver: by the toolkit's own nvidia-cdi-refresh where it has
    one (from 1.18), where nvidia-cdi-refresh.env says, else as /etc/cdi/nvidia.yaml. It is made again where no runtime
    can read it, it lacks a GPU or MIG device, or names what the node does not have. `off`: gpunode's own is removed."""
    device_links: bool = True
    """Keep a link in /dev/char for every NVIDIA device, now and by a udev rule: without them a container loses its GPUs
    at `systemctl daemon-reload` where systemd manages the cgroups."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any) -> Any:
        """Fill in what a preset says and the settings do not."""
        if isinstance(data, dict) and data.get("preset") == "shared":
            return {**data, **{key: value for key, value in _SHARED.items() if data.get(key) is None}}
        return data

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a release candidate of the stable channel, what a preset forbids, and modes that cannot work."""
        if self.version and "-rc" in self.version and self.channel == "stable":
            yield "version", "is a release candidate, which toolkit.channel 'stable' does not carry; use 'experimental'"
        for key, value in _SHARED.items():
            if self.preset == "shared" and getattr(self, key) is not value:
                yield key, f"is the opposite of what toolkit.preset 'shared' says ({value}); leave one out"
        if self.mode == "cdi" and self.cdi == "off":
            yield "mode", "needs a CDI specification, and toolkit.cdi is 'off'; set toolkit.cdi = 'generate' with it"
        if self.mode in ("cdi", "jit-cdi") and self.no_cgroups is not None:
            yield "no_cgroups", f"has no effect in toolkit.mode {self.mode!r}; leave it out, or use mode 'legacy'"
        first = tables.toolkit().modes.get(self.mode or "")
        if first and self.version and not versions.at_least(self.version, first):
            message = f"is known from toolkit.version {first} on, and {self.version} is asked for; use 'auto' or 'cdi'"
            yield "mode", message


class Runtime(Component):
    """A container runtime."""

    component: ClassVar[str]
    # The default runtime to use where there is no runtime nvidia.
    plain: ClassVar[str] = "runc"

    enabled: bool = False
    source: str
    version: UpstreamVersion | None = None
    """Upstream version; not given: the source's newest. Not with `source: present`."""
    default_runtime: str | None

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a version of a package that gpunode does not install; crio.version is what has to be there already."""
        if self.source == "present" and self.version is not None and self.component != "crio":
            yield "version", f"cannot be asked for with {self.component}.source 'present'; leave one of the two out"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a default runtime that the container toolkit would bring, where there is to be none."""
        if self.enabled and self.default_runtime == "nvidia" and not _is_on(others, "toolkit"):
            message = "needs the nvidia runtime, which toolkit.enabled = False leaves out"
            yield "default_runtime", f"{message}; use {self.plain!r} or enable the toolkit"


def _is_on(others: Mapping[str, Component], name: str) -> bool:
    # One whose own settings are wrong is told of by itself.
    return bool(getattr(others.get(name), "enabled", name == "toolkit"))


OWN_UNIT = "containerd.service"


class ContainerdSettings(Runtime):
    """containerd: its package, its runtimes and its kernel modules (overlay, br_netfilter)."""

    component: ClassVar[str] = "containerd"

    enabled: bool = True
    """false: gpunode leaves containerd alone."""
    source: Literal["distribution", "docker-repository", "present"] = "distribution"
    """Where it comes from: the distribution's `containerd`, Docker's `containerd.io`, or `present`: already there, only
    configured."""
    default_runtime: RuntimeName = "nvidia"
    """Runtime of containers that name none: any that containerd's files have. With another one than nvidia, pods choose
    nvidia by a RuntimeClass. A new runtime nvidia inherits from the default runtime, else from runc, else from crun."""
    systemd_cgroup: bool = True
    """Use systemd's cgroup driver for runc and nvidia; must agree with the kubelet's cgroupDriver."""
    cdi: bool | None = None
    """`enable_cdi`, for containerd 1.7 and later; not given: left as it is. From 2.4 on CDI is always on."""
    placement: Literal["auto", "root", "drop-in"] = "auto"
    """Where the runtimes stand: in the `root` file, in a `drop-in` beside it, or `auto`: whichever is safe for the
    version (a drop-in where containerd merges it key by key, as 2.1 does; else the root file)."""
    unit: ServiceUnit = OWN_UNIT
    """Unit whose containerd is configured: a second containerd, or that of k3s, RKE2 or k0s (`k3s.service`), which
    write their file by themselves: gpunode writes a drop-in where the file imports it. Another unit than
    containerd.service takes `source: present`."""
    config: AbsolutePath | None = None
    """Its configuration file; not given: the one that the unit names. Takes `source: present`."""
    adopt_drop_in: bool = False
    """Take over the drop-in of `nvidia-ctk runtime configure`, /etc/containerd/conf.d/99-nvidia.toml: its settings go
    to gpunode's own files, and the drop-in and its import are removed in the same change. Not for a node where another
    program writes it again, as the GPU Operator's toolkit container does."""
    kubernetes_sysctls: bool = False
    """Set what Kubernetes needs of the kernel: IPv4 forwarding, bridged traffic through iptables."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield CDI that is to be off, too, where the version always has it on."""
        yield from super().contradictions()
        if self.source != "present" and (self.unit != OWN_UNIT or self.config is not None):
            message = "must be 'present' with another containerd.unit or a containerd.config: no package brings it"
            yield "source", message
        if self.config is not None and self.config.endswith(".tmpl"):
            yield "config", "is a template; leave it out: gpunode writes a drop-in for what its program makes of it"
        since = tables.containerd().cdi_always_since
        if self.cdi is False and self.version is not None and versions.at_least(self.version, since):
            yield "cdi", f"cannot be False with containerd.version {self.version!r}: from {since} on CDI is always on"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a test that would start its containers by another containerd."""
        yield from super().beside(others)
        tries = getattr(others.get("verify"), "smoke", False) and not _is_on(others, "docker")
        if self.enabled and self.unit != OWN_UNIT and tries:
            yield "unit", f"leaves verify.smoke no containers: it uses docker or {OWN_UNIT}; set it to False"


class DockerSettings(Runtime):
    """Docker: its package and daemon.json, of which every other key is kept. Runtimes and the default one take a
    reload, the cgroup driver and CDI a restart, which containers survive where `live-restore` is on."""

    component: ClassVar[str] = "docker"

    enabled: bool = False
    """true: gpunode installs and configures docker; containerd stays managed, too (`containerd.enabled`)."""
    source: Literal["distribution", "docker-repository", "present"] = "distribution"
    """Where it comes from: the distribution's `docker.io` (Debian, Ubuntu), Docker's `docker-ce`, or `present`: already
    there, only configured."""
    default_runtime: RuntimeName = "nvidia"
    """Runtime of containers that name none: any that daemon.json has. With another one than nvidia, `docker run
    --runtime nvidia`."""
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


# The first CRI-O that reads CDI specifications, which is the oldest that gpunode configures.
first_crio_with_cdi = table(str, "crio.yaml", "first_with_cdi")


class CrioSettings(Runtime):
    """CRI-O that is there already: gpunode installs none, it makes the runtime nvidia known in
    crio.conf.d/99-nvidia.toml, the file of `nvidia-ctk runtime configure --runtime=crio`; whatever else that file says
    stays. CDI specifications CRI-O reads by itself. Only a SIMULATED CRI-O was ever configured so."""

    component: ClassVar[str] = "crio"
    plain: ClassVar[str] = "crun"

    enabled: bool = False
    """true: gpunode configures CRI-O."""
    source: Literal["present"] = "present"
    """It is there already: whoever owns the node installs it."""
    version: UpstreamVersion | None = None
    """Upstream version or branch, such as `1.31`, that has to be there; not given: any with CDI."""
    default_runtime: RuntimeName = "nvidia"
    """Runtime of containers that name none; with another one, which CRI-O has to know, pods choose nvidia by a
    RuntimeClass. The runtime nvidia calls a runc or crun of the PATH."""
    systemd_cgroup: bool = True
    """`cgroup_manager`: systemd, else cgroupfs; must agree with the kubelet's cgroupDriver."""

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what CRI-O lacks or is in the way of: its runtime, the kubelet's one, the test's containers."""
        yield from super().beside(others)
        if not self.enabled:
            return
        if _is_on(others, "kubernetes") and _is_on(others, "containerd"):
            message = "cannot stand beside containerd in a cluster, whose kubelet has one"
            yield "enabled", f"{message}; set containerd.enabled = False"
        starts = _is_on(others, "containerd") or _is_on(others, "docker")
        if getattr(others.get("verify"), "smoke", False) and not starts:
            message = "leaves verify.smoke nothing to start containers by, which is docker or containerd"
            yield "enabled", f"{message}; set it to False"


@dataclass(frozen=True)
class Archive(Row):
    """The podman that a distribution's own archive has; empty: it has none."""

    id: str
    version: str
    podman: str


@dataclass(frozen=True)
class PodmanVersions(Row):
    """The first podman with CDI, the first that reads what newer toolkits write, and the podman of known archives."""

    first_with_cdi: str
    first_with_gids: str
    first_toolkit_with_gids: str
    archives: tuple[Archive, ...]


podman_versions = table(PodmanVersions, "podman.yaml")


class PodmanSettings(Runtime):
    """Podman, whose containers get GPUs by CDI: `podman run --device nvidia.com/gpu=all`. It has no daemon, so that
    nothing is restarted, and its containers do not count for disruption.allow."""

    component: ClassVar[str] = "podman"

    enabled: bool = False
    """true: gpunode installs and configures podman."""
    source: Literal["distribution", "present"] = "distribution"
    """The distribution's package, or `present`: already there, only configured."""
    version: UpstreamVersion | None = None
    """Upstream version; not given: the distribution's. Not with `source: present`."""
    default_runtime: Literal["nvidia", "runc", "crun"] | None = None
    """Runtime of containers that name none, in containers.conf.d/50-gpunode.conf; with `nvidia`, containers get GPUs by
    NVIDIA_VISIBLE_DEVICES, too. Where crun or runc is not there, its package is installed (not with `source: present`,
    which is refused). Not given: gpunode writes no such file."""

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what podman lacks: a CDI specification, without which it has no way to a GPU."""
        toolkit = others.get("toolkit")
        if not self.enabled or toolkit is None:
            return
        if not _is_on(others, "toolkit"):
            yield "enabled", "needs the NVIDIA container toolkit, which toolkit.enabled = False leaves out"
        elif getattr(toolkit, "cdi", None) != "generate":
            yield "enabled", "needs a CDI specification; set toolkit.cdi = 'generate' with it"
