"""The configuration schemas that a containerd version reads; the table is data/containerd.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.tables.runtimes import ContainerdSchema
from gpunode.base.toml_edit import BOM, ConfigurationRefused

_RANGE = re.compile(r"^(?P<major>\d+)\.(?:x|(?P<first>\d+)(?:-\d+\.(?P<last>\d+))?)$")
_PLUGINS = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}


def schema_of(containerd_version: str) -> ContainerdSchema:
    """Return the schemas that a containerd version such as `1.6.20~ds1` reads; raise ConfigurationRefused."""
    try:
        major, minor = (int(part) for part in versions.major_minor(containerd_version).split("."))
    except versions.VersionError as error:
        raise ConfigurationRefused(f"{containerd_version!r} is not a containerd version such as 1.7.24") from error
    for schema in tables.containerd().schemas:
        match = _RANGE.match(schema.containerd)
        if match is None or int(match["major"]) != major:
            continue
        first = int(match["first"] or 0)
        if first <= minor <= int(match["last"] or (first if match["first"] else minor)):
            return schema
    known = ", ".join(schema.containerd for schema in tables.containerd().schemas)
    raise ConfigurationRefused(f"containerd {major}.{minor} is not supported; supported: {known}")


def cri_plugin(file_version: int) -> str:
    """Return the key under `plugins` that holds the runtimes in a file of a schema version."""
    return _PLUGINS[file_version]


def default_table_counts(containerd_version: str) -> bool:
    """Return whether this containerd reads the table `default_runtime`, which then wins over `default_runtime_name`."""
    version = versions.major_minor(containerd_version)
    return not versions.at_least(version, tables.containerd().default_table_before)


def as_read(text: str, containerd_version: str) -> str:
    """Return a file's text, without a byte order mark where this containerd cannot read one."""
    version = versions.major_minor(containerd_version)
    if versions.at_least(version, tables.containerd().byte_order_mark_before):
        return text.removeprefix(BOM)
    return text


def names_runtime(default_runtime: Any) -> bool:
    """Return whether a table `default_runtime` names a runtime: `containerd config default` prints an empty one."""
    return isinstance(default_runtime, Mapping) and bool(default_runtime.get("runtime_type"))
