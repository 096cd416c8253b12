"""CUDA toolkits on a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpunode.probe_output import repeated, values
from gpunode.reading import Reading

_RELEASE = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_PATH = re.compile(r"^/usr/local/cuda-(\d+\.\d+)$")


@dataclass(frozen=True)
class CudaToolkits(Reading):
    """Hold the toolkits under /usr/local (major.minor), where /usr/local/cuda points, and what its nvcc says.

    `by_runfile` are those that a .run file installed, `releases` are (major.minor, major.minor.patch) by version.json.
    `interrupted` is the one that gpunode's transaction has begun and not ended: half a toolkit, perhaps.
    """

    versions: tuple[str, ...]
    default_path: str | None
    nvcc_version: str | None
    profile: bool
    by_runfile: tuple[str, ...] = ()
    releases: tuple[tuple[str, str], ...] = ()
    interrupted: str | None = None

    @property
    def default_version(self) -> str | None:
        """Return major.minor of the toolkit behind /usr/local/cuda."""
        match = _PATH.match(self.default_path or "")
        return match[1] if match else None


def parse_cuda(lines: list[str]) -> CudaToolkits:
    """Parse the CUDA probe's lines (facts/cuda.py)."""
    found = values(lines)
    pairs = (line.partition(" ")[::2] for line in repeated(lines, "release"))
    release = _RELEASE.search(found.get("nvcc", ""))
    return CudaToolkits(
        versions=_versions(repeated(lines, "toolkit")),
        default_path=found.get("default"),
        nvcc_version=release[2] if release else None,
        profile=found.get("profile") == "yes",
        by_runfile=_versions(repeated(lines, "runfile")),
        releases=tuple((match[1], release) for path, release in pairs if (match := _PATH.match(path)) and release),
        interrupted=found.get("interrupted"),
    )


def _versions(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(match[1] for path in paths if (match := _PATH.match(path)))
