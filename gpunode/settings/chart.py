"""What settings say of a helm release, whichever component's they are: its chart, where that is, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

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


def plain_json(value: Any) -> Any:
    """Return a value as it is where JSON can hold it."""
    _look_into(value, _DEEPEST)
    return value


def _look_into(value: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isprintable():
                raise ValueError("must have strings for keys, at every depth")
            _look_into(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _look_into(item, depth - 1)
    elif isinstance(value, str):
        if _UNWRITABLE.search(value):
            raise ValueError("holds a character that YAML cannot hold")
    elif isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise ValueError("holds a number that JSON does not know")
    elif value is not None and not isinstance(value, bool | int | float):
        raise ValueError(
            f"holds a {type(value).__name__}; allowed are mappings, lists, strings, numbers, True and False"
        )


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
