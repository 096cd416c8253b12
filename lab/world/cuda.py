"""CUDA's packages in NVIDIA's repositories: cuda.yaml, read into types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gpunode.base import versions


@dataclass(frozen=True)
class CudaPackage:
    """Hold a package: its name, upstream version, revision, and the names that it needs."""

    name: str
    version: str
    revision: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Closure:
    """Hold what came with a toolkit's metapackage: the metapackages, and component -> version."""

    toolkit: str
    metapackages: tuple[str, ...]
    components: Mapping[str, str]


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cuda.yaml").read_text(encoding="utf-8"))
    return found


def toolkit_name(release: str) -> str:
    """Return the metapackage of a release: 12.8.1 -> cuda-toolkit-12-8."""
    major, minor = versions.major_minor(release).split(".")
    return str(_table()["name"]).replace("<X>", major).replace("<Y>", minor)


def full_version(release: str) -> str:
    """Return a metapackage's version for apt: 12.8.1-1."""
    return f"{release}-{_table()['revision']}"


def oldest_toolkit(repository: str) -> str | None:
    """Return the oldest toolkit (13.0) of a repository that has not the older ones; None where that was not seen."""
    found = _table()["oldest"].get(repository, {}).get("toolkit")
    return None if found is None else str(found)


def closures() -> tuple[Closure, ...]:
    """Return what was seen to come with a toolkit."""
    return tuple(
        Closure(row["toolkit"], tuple(row["metapackages"]), MappingProxyType(
            {name: version for version, names in row["components"].items() for name in names}))
        for row in _table()["closures"]
    )  # fmt: skip


def cuda_packages(repository: str) -> Iterator[CudaPackage]:
    """Yield what a repository (`rhel9`) has: what was seen, and the lab's own, of toolkits that it may have."""
    oldest = oldest_toolkit(repository) or "0"
    revision = str(_table()["revision"])
    known = {closure.toolkit: closure for closure in closures()}
    for release in sorted({*_table()["seen"], *_table()["lab"]}, key=versions.parsed):
        if versions.parsed(release) < versions.parsed(oldest):
            continue
        closure = known.get(release)
        own = toolkit_name(release)
        others = () if closure is None else (*(set(closure.metapackages) - {own}), *closure.components)
        yield CudaPackage(own, release, revision, tuple(sorted(others)))
        if closure is not None:
            yield from (CudaPackage(name, release, revision) for name in closure.metapackages if name != own)
            yield from (CudaPackage(name, version, revision) for name, version in closure.components.items())
