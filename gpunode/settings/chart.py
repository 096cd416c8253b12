"""Settings of a helm release: its chart, where that is, its values, and which versions features need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from gpunode.base import tables, versions
from gpunode.base.tables.reading import Row, Table, table
from gpunode.settings.component import AbsolutePath, Component, DnsLabel, matching

_DEEPEST = 24
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
HOST = r"[A-Za-z0-9.-]+(:\d{1,5})?"
PATH = r"(/[A-Za-z0-9._~+-]+)*"
_NAME = r"[a-z0-9][a-z0-9.-]*"
_NUMBERS = r"\d{1,4}\.\d{1,4}\.\d{1,4}(-[0-9A-Za-z.-]{1,30})?"

# As a label's value and as a release, a revision's secret is named after it: helm takes 53 at most.
ReleaseName = Annotated[str, matching(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", "a release's name: 53 characters at most")]
ChartVersion = Annotated[str, matching(_NUMBERS, "an exact chart version such as '0.20.0', and no range")]
# Some charts are numbered as their programs are tagged.
TaggedVersion = Annotated[str, matching(rf"v?{_NUMBERS}", "an exact chart version such as 'v25.3.4', and no range")]
ChartName = Annotated[
    str,
    matching(
        rf"{_NAME}|oci://{HOST}{PATH}|\.{{0,2}}/[A-Za-z0-9._~+@:=,/-]+",
        "a chart's name in the repository, 'oci://HOST/PATH', or a path that begins with '/' or './'",
    ),
]
Repository = Annotated[
    str, matching(rf"https?://{HOST}{PATH}/?", "an http:// or https:// address without user or query")
]

# A tag may be moved to another image, a digest is the image's own.
Digest = Annotated[
    str,
    matching(
        r"sha256:[0-9a-f]{64}",
        "an image's digest: 'sha256:' and 64 hexadecimal digits in lower case, as registries name it "
        "(`skopeo inspect docker://IMAGE:TAG`, or `docker buildx imagetools inspect IMAGE:TAG`)",
    ),
]


def plain_json(value: Any, depth: int = _DEEPEST) -> Any:
    """Return a value unchanged where JSON can hold it; raise ValueError where not, or below `depth` levels."""
    if depth == 0:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isprintable():
                raise ValueError("must have strings for keys, at every depth")
            plain_json(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            plain_json(item, depth - 1)
    elif isinstance(value, str):
        if _UNWRITABLE.search(value):
            raise ValueError("holds a character that YAML cannot hold")
    elif isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise ValueError("holds a number that JSON does not know")
    elif value is not None and not isinstance(value, bool | int | float):
        raise ValueError(
            f"holds a {type(value).__name__}; allowed are mappings, lists, strings, numbers, True and False"
        )
    return value


ChartValues = Annotated[dict[str, Any], AfterValidator(plain_json)]


class ReleaseSettings(Component):
    """A release of a chart."""

    component: ClassVar[str]

    chart: ChartName
    """The chart: its name in `repository`, `oci://HOST/PATH`, or a path on the machine where helm runs (a directory or
    a .tgz)."""
    repository: Repository
    """Address of the chart repository, or of a mirror; for a `chart` by name alone."""
    ca_file: AbsolutePath | None = None
    """File with the certificates that a repository or registry is checked by."""
    version: str
    """Exact version of the chart."""
    release: str
    """Name of the release."""
    take_over: bool = False
    """`True`: a release of this name and chart that gpunode did not install is changed to what is asked; else such a
    release is refused, unless it is as desired."""
    namespace: DnsLabel
    """Its namespace, created if need be."""
    values: ChartValues = Field(default_factory=dict, max_length=100)
    """Other values of the chart, as they are. helm replaces lists (`tolerations`) as a whole. What a setting stands for
    is refused here."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield where a repository is set for a chart that is in none."""
        if "repository" in self.model_fields_set and re.fullmatch(_NAME, self.chart) is None:
            message = f"says nothing: {self.component}.chart {self.chart!r} is in no repository; leave one out"
            yield "repository", message


@dataclass(frozen=True)
class Needs(Row):
    """Hold the oldest version that has a feature, and where that is stated."""

    minimum: str
    source: str

    def are_met_by(self, version: str) -> bool:
        """Say whether a version is new enough; raise VersionError."""
        return versions.at_least(version, self.minimum)


@dataclass(frozen=True)
class Unquoted(Row):
    """Hold since which version a chart writes a value as no API server takes it, which one mends it, and the source."""

    since: str
    mended: str
    source: str

    def concerns(self, version: str) -> bool:
        """Say whether a version has that fault; raise VersionError."""
        return versions.at_least(version, self.since) and not versions.at_least(version, self.mended)


@dataclass(frozen=True)
class Clients(Row):
    """Hold how many MPS clients the plugin grants a GPU below compute capability 7.5, and the source."""

    most: int
    source: str


@dataclass(frozen=True)
class Known(Row):
    """Hold device_plugin.yaml, whose comments say what each part is."""

    device_plugin: Table[str, Needs]
    kubernetes: Table[str, Needs]
    helm: Table[str, Needs]
    mps_clients_before_turing: Clients
    unquoted_values: Table[str, Unquoted]
    unread_values: Table[str, str]
    unlisted_values: Table[str, tuple[str, ...]]
    settings_of_values: Table[str, Table[str, str]]
    allowed_values: Table[str, Table[str, bool]]


known = table(Known, "device_plugin.yaml")


@cache
def of_kubernetes() -> Mapping[str, Needs]:
    """Return feature -> the Kubernetes that has it; `device-plugin` is what the plugin as such needs."""
    rows = (row for row in tables.minimums() if row.component == "kubernetes" and row.needed_by and row.minimum)
    stated = {row.needed_by or "": Needs(row.minimum or "", row.source) for row in rows}
    return MappingProxyType({**known().kubernetes, **stated})


def too_old(version: str | None, feature: str) -> Needs | None:
    """Return what a feature needs where a version of Kubernetes is older; None: it is not, or is not known."""
    needs = of_kubernetes()[feature]
    return None if version is None or needs.are_met_by(version) else needs


def wrong_values(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) of values that a setting stands for, that nothing reads, or of a wrong type."""
    yield from said_by_settings(values, "nvidia-device-plugin")
    for name, read in known().unread_values.items():
        if found_in(values, name) is not None:
            yield "values", f"{name} is read by no template of the chart; set {read} in its place"
    annotations = values.get("podAnnotations")
    if isinstance(annotations, dict):
        for name, value in annotations.items():
            if not isinstance(value, str):
                message = (
                    f"podAnnotations.{name[:80]} must be a string, quoted: Kubernetes takes no {type(value).__name__}"
                )
                yield "values", message
    elif annotations is not None:
        yield "values", "podAnnotations must be a mapping of strings"


def said_by_settings(values: Mapping[str, Any], chart: str) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) of values of a chart that a setting stands for, and that may not be as they are."""
    allowed = known().allowed_values.get(chart, {})
    for name, setting in known().settings_of_values[chart].items():
        found = found_in(values, name)
        if found is None or found is allowed.get(name):
            continue
        kind = (
            ", and as one string at that, no list" if name == "deviceListStrategy" and isinstance(found, list) else ""
        )
        yield "values", f"{name} is said by {setting}{kind}"


def found_in(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted name; None where there is none."""
    node: Any = values
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of `over` laid over them; mappings are merged, as helm does, all else is replaced."""
    found = dict(values)
    for name, value in over.items():
        below = found.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merged(below, value)
        found[name] = value
    return found
