"""What settings say of a helm release, whichever component's they are: its chart, where that is, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator

from gpunode.settings.component import matching

_DEEPEST = 24
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_HOST = r"[A-Za-z0-9.-]+(:\d{1,5})?"
_PATH = r"(/[A-Za-z0-9._~+-]+)*"
_NAME = r"[a-z0-9][a-z0-9.-]*"
_NUMBERS = r"\d{1,4}\.\d{1,4}\.\d{1,4}(-[0-9A-Za-z.-]{1,30})?"

# As a label's value and as a release, a revision's secret is named after it: helm takes 53 at most.
ReleaseName = Annotated[
    str, AfterValidator(matching(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", "a release's name: 53 characters at most"))
]
ChartVersion = Annotated[
    str, AfterValidator(matching(_NUMBERS, "an exact chart version such as '0.20.0', and no range"))
]
# Some charts are numbered as their programs are tagged.
TaggedVersion = Annotated[
    str, AfterValidator(matching(rf"v?{_NUMBERS}", "an exact chart version such as 'v25.3.4', and no range"))
]
ChartName = Annotated[
    str,
    AfterValidator(
        matching(
            rf"{_NAME}|oci://{_HOST}{_PATH}|\.{{0,2}}/[A-Za-z0-9._~+@:=,/-]+",
            "a chart's name in the repository, 'oci://HOST/PATH', or a path that begins with '/' or './'",
        )
    ),
]
Repository = Annotated[
    str, AfterValidator(matching(rf"https?://{_HOST}{_PATH}/?", "an http:// or https:// address without user or query"))
]

# A tag may be moved to another image, a digest is the image's own.
Digest = Annotated[
    str,
    AfterValidator(
        matching(
            r"sha256:[0-9a-f]{64}",
            "an image's digest: 'sha256:' and 64 hexadecimal digits in lower case, as registries name it "
            "(`skopeo inspect docker://IMAGE:TAG`, or `docker buildx imagetools inspect IMAGE:TAG`)",
        )
    ),
]


TAKE_OVER = (
    "`True`: a release of this name and chart that gpunode did not install is changed to what is asked; else such a "
    "release is refused, unless it is as desired."
)


class ReleaseSettings(Protocol):
    """Name what a component's settings say of its release; `component` is by which name people set them."""

    @property
    def component(self) -> str: ...
    @property
    def chart(self) -> str: ...
    @property
    def repository(self) -> str: ...
    @property
    def ca_file(self) -> str | None: ...
    @property
    def version(self) -> str: ...
    @property
    def release(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def values(self) -> dict[str, Any]: ...
    @property
    def take_over(self) -> bool: ...
    @property
    def is_local_chart(self) -> bool: ...
    @property
    def model_fields_set(self) -> set[str]: ...


def is_path(chart: str) -> bool:
    """Say whether a chart is a file or directory on the machine where helm runs."""
    return chart.startswith(("/", "."))


def needs_no_repository(desired: ReleaseSettings) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong) where a repository is set for a chart that is in none."""
    if "repository" in desired.model_fields_set and re.fullmatch(_NAME, desired.chart) is None:
        yield (
            "repository",
            f"says nothing: {desired.component}.chart {desired.chart!r} is in no repository; leave one out",
        )


def _plain(value: Any) -> Any:
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


ChartValues = Annotated[dict[str, Any], AfterValidator(_plain)]
