"""Settings of NVIDIA's device plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator

from gpunode.settings.chart import HOST, PATH, ChartName, ChartVersion, Digest, ReleaseSettings, Repository
from gpunode.settings.cluster.chart_values import wrong_values
from gpunode.settings.component import AbsolutePath, Component, DnsLabel, matching
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
