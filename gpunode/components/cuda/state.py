"""Which CUDA toolkits are on a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpunode.base import tables
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import Reading
from gpunode.base.template import rendered
from gpunode.settings import Settings

_RELEASE = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_PATH = re.compile(r"^/usr/local/cuda-(\d+\.\d+)$")
# Where Arch has the one that there is.
ARCH_HOME = "/opt/cuda"


@dataclass(frozen=True)
class CudaToolkits(Reading):
    """Hold toolkits (major.minor) under /usr/local and in /opt/cuda, where /usr/local/cuda points, and nvcc's words.

    `by_runfile` are those that a .run file installed, `releases` are (major.minor, major.minor.patch): what gpunode
    recorded when it installed one, else what version.json tells, where that is a release and not a date.
    `interrupted` is the one that gpunode's transaction has begun and not ended: half a toolkit, perhaps.
    `arch_version` is that of /opt/cuda.
    """

    versions: tuple[str, ...]
    default_path: str | None
    nvcc_version: str | None
    profile: bool
    by_runfile: tuple[str, ...] = ()
    releases: tuple[tuple[str, str], ...] = ()
    interrupted: str | None = None
    arch_version: str | None = None

    @property
    def default_version(self) -> str | None:
        """Return major.minor of the toolkit behind /usr/local/cuda."""
        if self.default_path == ARCH_HOME:
            return self.arch_version
        match = _PATH.match(self.default_path or "")
        return match[1] if match else None


def parse_cuda(lines: list[str]) -> CudaToolkits:
    """Parse the CUDA probe's lines (gpunode/components/cuda/state.sh)."""
    found = values(lines)
    known = tables.cuda().toolkit_driver
    releases = {version: release for version, release in _by_version(lines, "told") if release in known}
    releases |= dict(_by_version(lines, "release"))
    release = _RELEASE.search(found.get("nvcc", ""))
    arch = re.fullmatch(r"(\d+\.\d+)(\.\d+)*", found.get("arch", ""))
    return CudaToolkits(
        versions=(*_versions(repeated(lines, "toolkit")), *([arch[1]] if arch else [])),
        default_path=found.get("default"),
        nvcc_version=release[2] if release else None,
        profile=found.get("profile") == "yes",
        by_runfile=_versions(repeated(lines, "runfile")),
        releases=tuple(sorted(releases.items())),
        interrupted=found.get("interrupted"),
        arch_version=arch[1] if arch else None,
    )


def _by_version(lines: list[str], key: str) -> Iterator[tuple[str, str]]:
    for line in repeated(lines, key):
        path, _, release = line.partition(" ")
        if (match := _PATH.match(path)) and release:
            yield match[1], release


def _versions(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(match[1] for path in paths if (match := _PATH.match(path)))


PROFILE = "/etc/profile.d/cuda.sh"
# The package of that name brings a script of its own, which an upgrade of it brings again.
ARCH_PROFILE = "/etc/profile.d/gpunode-cuda.sh"
PATHS = (PROFILE, ARCH_PROFILE)


def profile_path(settings: Settings) -> str:
    """Return the path of the profile script; the settings are those of `resolve_for_os`."""
    return ARCH_PROFILE if settings.cuda.source == "distribution" else PROFILE


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return the script that puts CUDA on the PATH."""
    if not settings.cuda.enabled:
        return {}
    return {profile_path(settings): rendered("cuda.sh") if settings.cuda.profile else None}
