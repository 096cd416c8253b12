"""CUDA toolkits on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.probe_output import repeated, values
from gpunode.reading import Reading

_RELEASE = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_PATH = re.compile(r"^/usr/local/cuda-(\d+\.\d+)$")


@dataclass(frozen=True)
class CudaToolkits(Reading):
    """Hold the toolkits under /usr/local (major.minor), where /usr/local/cuda points, and what its nvcc says."""

    versions: tuple[str, ...]
    default_path: str | None
    nvcc_version: str | None
    profile: bool

    @property
    def default_version(self) -> str | None:
        """Return major.minor of the toolkit behind /usr/local/cuda."""
        match = _PATH.match(self.default_path or "")
        return match[1] if match else None


def parse_cuda(lines: list[str]) -> CudaToolkits:
    """Parse `toolkit=/usr/local/cuda-12.9`, `default=...`, `nvcc=...` and `profile=yes|no` lines."""
    found = values(lines)
    matches = (_PATH.match(path) for path in repeated(lines, "toolkit"))
    release = _RELEASE.search(found.get("nvcc", ""))
    return CudaToolkits(
        versions=tuple(match[1] for match in matches if match),
        default_path=found.get("default"),
        nvcc_version=release[2] if release else None,
        profile=found.get("profile") == "yes",
    )
