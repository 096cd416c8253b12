"""Settings of the device plugin, and of what its methods bring: NVIDIA's GPU Operator, Aliyun's gpushare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpunode.settings.chart import (
    HOST,
    PATH,
    ChartName,
    ChartVersion,
    Digest,
    ReleaseName,
    ReleaseSettings,
    Repository,
    TaggedVersion,
    found_in,
    said_by_settings,
    wrong_values,
)
from gpunode.settings.component import AbsolutePath, Component, DnsLabel, Sha256, matching
from gpunode.settings.driver import root_elsewhere

STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")

_Image = Annotated[str, matching(rf"{HOST}{PATH}", "an image's name such as 'registry/nvidia/plugin'")]
# A DaemonSet is named RELEASE-nvidia-device-plugin-gpu-feature-discovery, and cut at 63 characters.
_NAMED, _OF_A_NAME = "nvidia-device-plugin", 41
_Release = Annotated[
    str,
    matching(
        r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?",
        "a release's name: lower-case letters, digits and '-' inside, 20 characters at most, since the chart cuts "
        "its DaemonSets' names at 63",
    ),
]
_TAGGED_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)", re.ASCII)
_Tag = Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "an image's tag")]


def _no_list(value: Any) -> Any:
    if isinstance(value, list | tuple):
        raise ValueError(
            "must be one string, joined by commas, as the chart takes it ('volume-mounts,cdi-cri'); no list"
        )
    return value


def _strategies(text: str) -> str:
    parts = text.split(",")
    unknown = [part for part in parts if part not in STRATEGIES]
    if unknown:
        raise ValueError(
            f"has {unknown[0][:40]!r} in it; each part must be one of {', '.join(STRATEGIES)}, without spaces"
        )
    if len(set(parts)) != len(parts):
        raise ValueError("names one strategy twice")
    return text


class DevicePluginSettings(ReleaseSettings):
    """NVIDIA's device plugin, by its helm chart or otherwise (`method`), where `kubernetes.enabled`. All nodes of a run
    must have the same, but for `method`; what differs from node to node is `sharing`. No secrets belong in here: name a
    Kubernetes Secret instead. See docs/device-plugin.md."""

    component: ClassVar[str] = "device_plugin"

    former: ClassVar[Mapping[str, str]] = {"way": "method"}

    method: Literal["helm", "manifest", "gpu-operator", "gpushare", "none"] = "helm"
    """How a node's GPUs get into the cluster: NVIDIA's device plugin by `helm`, or by a static `manifest` of gpunode's;
    by `helm` beside NVIDIA's `gpu-operator` (component `gpu_operator`); Aliyun's `gpushare`; `none`: not by gpunode."""
    chart: ChartName = "nvidia-device-plugin"
    repository: Repository = "https://nvidia.github.io/k8s-device-plugin"
    version: ChartVersion = "0.20.0"
    release: _Release = "nvdp"
    """Name of the release, of 20 characters at most."""
    namespace: DnsLabel = "nvidia-device-plugin"
    """Its namespace, created if need be; `default` is refused."""
    image: _Image | None = None
    """Image without tag, from a mirror, say; not given: the chart's."""
    image_tag: _Tag | None = None
    """Tag of the image; not given: the chart's."""
    image_digest: Digest | None = None
    """Digest of the image, `sha256:…`: nodes run that and nothing else, wherever the tag points, and the verdict
    compares it with what the pods say. With another `version` or `image_tag` goes another digest. By `helm`,
    `gpu-operator` and `manifest`."""
    config_name: DnsLabel | None = None
    """Name of a ConfigMap of your own, in `namespace`, with the plugin's configurations; nodes choose by
    `sharing.config`, and one whose entry is not there is refused. Not given: the configurations are made from the
    nodes' `sharing`."""
    device_list_strategy: Annotated[str, BeforeValidator(_no_list), AfterValidator(_strategies)] | None = None
    """How a container is told its GPUs: `envvar` (the plugin's default), `volume-mounts`, `cdi-annotations`, `cdi-cri`,
    or several joined by commas. Must agree with the container toolkit's settings."""
    device_id_strategy: Literal["uuid", "index"] | None = None
    """GPUs by UUID (the plugin's default) or by index."""
    fail_on_init_error: bool | None = None
    """`False`: a plugin that finds no GPU waits, and does not end (the plugin's default is true)."""
    pass_device_specs: bool | None = None
    """`True`: needed with the kubelet's static CPU manager; the plugin runs privileged then."""
    driver_root: AbsolutePath | None = None
    """Root of the driver's installation, where it is not `/` (nvidiaDriverRoot); not given: `driver.root` of the
    cluster's nodes."""
    gfd: bool = False
    """GPU feature discovery: labels with product, memory, MIG of each node."""
    nfd: Literal["chart", "present", "none"] = "none"
    """Node feature discovery: of the `chart` (the GPU Operator's where there is one), `present` in the cluster already,
    or `none`. gpunode labels GPU nodes itself (nvidia.com/gpu.present) with the last, and with `present` unless there
    is an operator. `gfd` and the GPU Operator need one of the first two."""
    runtime_class: Literal["auto", "nvidia", "none"] = "auto"
    """The RuntimeClass `nvidia`, created by gpunode and used by the plugin's pods: `auto` where a node's default
    runtime is runc."""

    @property
    def program_version(self) -> str:
        """Return the version of the plugin's program: that of the image's tag where it names one, else the chart's."""
        tagged = _TAGGED_VERSION.match(self.image_tag or "")
        return tagged[1] if tagged else self.version

    @property
    def strategies(self) -> tuple[str, ...]:
        """Return the strategies by which a container is told its GPUs; the plugin's default where none is set."""
        return tuple(self.device_list_strategy.split(",")) if self.device_list_strategy else ("envvar",)

    @property
    def tag(self) -> str | None:
        """Return the image's tag, with its digest where that is set; None: the chart's own.

        The chart's templates write REPOSITORY:TAG, and know no digest (0.14 to 0.20): it goes along with the tag, of
        which runtimes then make nothing.
        """
        if self.image_digest is None:
            return self.image_tag
        return f"{self.image_tag or f'v{self.version}'}@{self.image_digest}"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together, or not in a chart's values."""
        if self.namespace == "default":
            yield "namespace", "is refused by the chart: give the plugin a namespace of its own"
        yield from super().contradictions()
        if self.gfd and self.nfd == "none":
            yield "gfd", "writes its labels by node feature discovery; set device_plugin.nfd to 'chart' or 'present'"
        yield from wrong_values(self.values)
        if len(self._fullname) > _OF_A_NAME:
            message = (
                f"makes objects' names of {self._fullname[:80]}, which the chart cuts at 63 characters: "
                f"{_OF_A_NAME} are allowed; shorten nameOverride or fullnameOverride"
            )
            yield "values", message

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield another root of the driver than the node's."""
        root = root_elsewhere(others)
        if root is not None and self.driver_root not in (None, root):
            yield "driver_root", f"is not driver.root, {root!r}; leave it out: the plugin is told driver.root"

    @property
    def _fullname(self) -> str:
        """Return what the chart's DaemonSets are named after."""
        if full := self.values.get("fullnameOverride"):
            return str(full)
        name = str(self.values.get("nameOverride") or _NAMED)
        return self.release if name in self.release else f"{self.release}-{name}"


METHOD = "gpu-operator"


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
        yield from said_by_settings(self.values, METHOD)
        for name in self.image_digests:
            if found_in(self.values, f"{name}.version") is not None:
                yield "values", f"{name}.version is said by gpu_operator.image_digests; leave one of them out"


_GpushareImage = Annotated[
    str,
    matching(
        rf"{HOST}(/[A-Za-z0-9._~+-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
        "an image such as 'registry.example.org/gpushare-plugin:v2'",
    ),
]
_Address = Annotated[
    str, matching(rf"https?://{HOST}(/[A-Za-z0-9._~+%-]+)*", "an http:// or https:// address without user or query")
]
_HostName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a host's name in the inventory")]


class GpushareSettings(Component):
    """Aliyun's gpushare, by which pods ask for GPU memory (`aliyun.com/gpu-mem`): scheduler extender, device plugin,
    and a kube-scheduler that asks the extender. It counts memory and does not isolate it: a pod that takes more than
    its share takes it from the others on its GPU. Counts where `device_plugin.method` is `gpushare`; all nodes of a run
    must have the same. See docs/device-plugin.md."""

    scheduler: Literal["patch", "theirs"] = "patch"
    """`patch`: kube-scheduler's static manifest is changed on the control-plane hosts, as a transaction; `theirs`:
    somebody else makes the scheduler ask the extender (managed control planes)."""
    schedulers: list[_HostName] = Field(default_factory=list, max_length=64)
    """The control-plane hosts, by their names in the inventory. Not given: the host of `kubernetes.run_on`; required
    where that is `@local`, unless `scheduler` is `theirs`."""
    manifest: AbsolutePath = "/etc/kubernetes/manifests/kube-scheduler.yaml"
    """Path of the scheduler's static manifest there."""
    extender_image: _GpushareImage = "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-schd-extender:1.11-d170d8a"
    """Image of the scheduler extender."""
    plugin_image: _GpushareImage = "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2-1.11-aff8a23"
    """Image of the device plugin."""
    node_port: int = Field(32766, ge=1024, le=65535)
    """Port of every node by which the scheduler reaches the extender."""
    memory_unit: Literal["GiB", "MiB"] = "GiB"
    """What one of `aliyun.com/gpu-mem` is."""
    ignorable: bool = False
    """true: pods are placed without the extender where it does not answer, and may share too much."""
    inspect_url: _Address | None = None
    """Address of the kubectl plugin `kubectl-inspect-gpushare`, installed on the machine that gpunode runs on; only
    together with its `inspect_sha256`. Not given: it is not installed."""
    inspect_sha256: Sha256 | None = None
    """Its SHA-256; required with `inspect_url`."""
    inspect_path: AbsolutePath = "/usr/local/bin/kubectl-inspect-gpushare"
    """Where it is put."""

    @property
    def address(self) -> str:
        """Return the address at which the scheduler asks the extender."""
        return f"http://127.0.0.1:{self.node_port}/gpushare-scheduler"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together."""
        if (self.inspect_url is None) != (self.inspect_sha256 is None):
            missing = "inspect_sha256" if self.inspect_sha256 is None else "inspect_url"
            yield missing, "is missing: what is fetched is checked, so that inspect_url and inspect_sha256 go together"
        if self.scheduler == "theirs" and self.schedulers:
            yield "schedulers", "says nothing with gpushare.scheduler 'theirs'; leave one of the two out"
