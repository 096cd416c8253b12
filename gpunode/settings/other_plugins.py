"""Settings of device plugins that are no component of gpunode's: each by a manifest file, or by a helm chart.

Also names of extended resources: which a node can have, and which of them a device plugin serves.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from gpunode.base.tables.reading import Row, table
from gpunode.settings.chart import ChartName, ChartValues, ReleaseName, ReleaseSettings, Repository, TaggedVersion
from gpunode.settings.component import LABEL, AbsolutePath, Component, DnsLabel, FilePath, matching

if TYPE_CHECKING:
    from gpunode.settings.plugin_manifest import Manifest


ResourceCount = Annotated[int, Field(ge=1, le=1_000_000)]
# A quota names it `requests.DOMAIN/NAME`, which must be a label's key, too: 253 characters before the slash.
_NAME = re.compile(rf"(?=[^/]{{1,244}}/){LABEL}(\.{LABEL})*/[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?", re.ASCII)
# What NVIDIA's device plugin offers. Others have names with the same prefix: the network operator's nvidia.com/hostdev,
# KubeVirt's nvidia.com/GRID_T4-2Q.
OF_PLUGIN = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)")
# The kubelet's own resources; what stands under it is no extended one.
_NATIVE = "kubernetes.io/"


@dataclass(frozen=True)
class Served(Row):
    """Hold how the names of resources begin that a device plugin offers: by whom, and where that is said."""

    begins: str
    plugin: str
    source: str


served = table(tuple[Served, ...], "extended_resources.yaml")


def resource_name(text: str) -> str:
    """Return an extended resource's name as it is; raise ValueError where a node cannot have it."""
    if _NAME.fullmatch(text) is None or text.startswith("requests."):
        raise ValueError(
            "must be DOMAIN/NAME such as 'example.com/dongle': the domain in lower case, the name of letters, digits, "
            "'-', '_' and '.' inside, 63 at most"
        )
    if _NATIVE in text:
        raise ValueError("is in Kubernetes' own domain kubernetes.io; take one of yours")
    return text


def of_others(text: str) -> str:
    """Return the name of a resource of another device plugin; raise ValueError where it is none, or NVIDIA's plugin's.

    What that one offers follows from the node's GPUs, MIG layout and `sharing`.
    """
    resource_name(text)
    if OF_PLUGIN.fullmatch(text) is not None:
        raise ValueError("is what NVIDIA's device plugin offers, which the verdict expects by itself; leave it out")
    return text


def by_hand(text: str) -> str:
    """Return the name of a resource that is counted by hand; raise ValueError where it is none, or a plugin's."""
    resource_name(text)
    for each in served():
        if text.startswith(each.begins):
            raise ValueError(
                f"is served by {each.plugin}, and the kubelet would overwrite a count by hand; leave it out, and let "
                "the plugin count"
            )
    return text


# What is gpunode's own among the names of the others: the RDMA shared device plugin, and DCGM's exporter by its chart.
RDMA, EXPORTER = "rdma-shared", "dcgm-exporter"
_BROUGHT_BY = {RDMA: "rdma_shared_device_plugin", EXPORTER: "dcgm_exporter_chart"}


def _no_other_s(text: str) -> str:
    if (component := _BROUGHT_BY.get(text)) is not None:
        raise ValueError(f"is the name of what {component} brings; take another one")
    return text


# It is part of a label's name, and a release's.
PluginName = Annotated[
    str,
    matching(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", "lower-case letters, digits and '-' inside, 40 at most"),
    AfterValidator(_no_other_s),
]
_Resource = Annotated[str, AfterValidator(of_others)]
_OF_A_CHART = ("repository", "version", "release", "namespace", "ca_file", "take_over", "values")


class OtherPlugin(Component):
    """A device plugin of others, by a manifest file or by a helm chart."""

    manifest: FilePath | None = None
    """Manifest of the plugin's objects, on the machine where gpunode runs; a relative path counts from where it is run.
    Its DaemonSets go to the nodes alone that have the plugin."""
    chart: ChartName | None = None
    """In place of a manifest: the chart, by its name in `repository`, as `oci://HOST/PATH`, or a path on the machine
    where helm runs. Have its pods choose the nodes by a value of the chart's: the label is
    `gpunode/device-plugin.NAME: "true"`."""
    repository: Repository | None = None
    """Address of the chart repository, for a `chart` by name alone."""
    version: TaggedVersion | None = None
    """Exact version of the chart."""
    release: ReleaseName | None = None
    """Name of the release; not given: the plugin's."""
    namespace: DnsLabel | None = None
    """Namespace of the release, created if need be."""
    ca_file: AbsolutePath | None = None
    """File with the certificates that the repository or registry is checked by."""
    take_over: bool = False
    """`True`: a release of this name and chart that gpunode did not install is changed to what is asked."""
    values: ChartValues = Field(default_factory=dict, max_length=100)
    """Values of the chart, as they are."""
    resources: dict[_Resource, ResourceCount] = Field(default_factory=dict, max_length=50)
    """What the plugin is to offer on the node: the verdict waits for it in `allocatable`, and drift finds another
    count."""

    def wrong(self, name: str, taken: dict[tuple[str, str, str, str], str]) -> Iterator[tuple[str, str]]:
        """Yield (field, what is wrong): neither a manifest nor a chart, both, half a chart, a manifest that is refused.

        + taken: object -> the plugin that has it, of those before; this one's are added
        """
        if (self.manifest is None) == (self.chart is None):
            neither, both = (
                "is missing: name the plugin's manifest file, or its chart",
                "stands beside chart: leave one out",
            )
            yield "manifest", neither if self.chart is None else both
            return
        if self.manifest is not None:
            for field in _OF_A_CHART:
                if getattr(self, field) != type(self).model_fields[field].get_default(call_default_factory=True):
                    yield field, "says nothing of a manifest: leave it out"
            yield from self._of_manifest(name, taken)
            return
        for field in ("version", "namespace"):
            if getattr(self, field) is None:
                yield field, f"is missing: a release needs its {field}"
        by_name = self.chart is not None and not self.chart.startswith((".", "/", "oci://"))
        if by_name and self.repository is None:
            yield "repository", f"is missing: the chart {self.chart!r} is a name in one"
        if not by_name and self.repository is not None:
            yield "repository", f"says nothing: the chart {self.chart!r} is in no repository; leave one out"

    def _of_manifest(self, name: str, taken: dict[tuple[str, str, str, str], str]) -> Iterator[tuple[str, str]]:
        from gpunode.settings.plugin_manifest import ManifestError

        try:
            manifest = self.objects()
        except ManifestError as error:
            more = f" (and {len(error.mistakes) - 1} more)" if len(error.mistakes) > 1 else ""
            yield "manifest", f"is refused: {error.mistakes[0]}{more}"
            return
        for identity in manifest.identities:
            if identity in taken:
                _, kind, space, called = identity
                where = f"{space}/{called}" if space else called
                yield "manifest", f"has {kind} {where}, which kubernetes.device_plugins.{taken[identity]} has, too"
            taken.setdefault(identity, name)

    def objects(self) -> Manifest:
        """Return what the manifest holds; raise ManifestError. Read again only where the file changed."""
        from gpunode.settings.plugin_manifest import ManifestError, read_manifest

        path = Path(self.manifest or "")
        try:
            found = path.stat()
        except (OSError, ValueError):
            return read_manifest(path)
        if not stat.S_ISREG(found.st_mode):
            # A pipe would keep everybody waiting.
            raise ManifestError([f"{path}: is no regular file"])
        return _manifest(path, (found.st_ino, found.st_size, found.st_mtime_ns))

    def release_of(self, name: str) -> ReleaseSettings:
        """Return the release that the chart is to be, for a plugin of this name."""
        own = {field: getattr(self, field) for field in ReleaseSettings.model_fields}
        # Never asked where the chart is in none.
        repository = self.repository or "https://none.invalid"
        return _release_model(name).model_validate({**own, "repository": repository, "release": self.release or name})


@lru_cache(maxsize=64)
def _manifest(path: Path, stamp: tuple[int, int, int]) -> Manifest:
    from gpunode.settings.plugin_manifest import read_manifest

    return read_manifest(path)


@cache
def _release_model(name: str) -> type[ReleaseSettings]:
    """Return the model of a plugin's release, whose `component` is the key by which people find it."""
    return type("OtherRelease", (ReleaseSettings,), {"component": f"kubernetes.device_plugins.{name}"})
