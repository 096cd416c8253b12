"""How containerd reads its files: the order of imports, and the sections that count for the runtimes.

Measured with containerd 1.6.20, 1.7.24, 2.1.9, 2.3.7 and 2.4.2, each started with every pair of a root file and a
drop-in of the versions and sections that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from posixpath import dirname, isabs, join, normpath
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.tables.sources import ContainerdSchema
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.components.runtimes.containerd.keys import as_read, folds

RUNTIME_PLUGIN, CRI_2 = "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"
# The sections of the CRI plugin's runtimes, by all schemas.
CRI_PLUGINS = (RUNTIME_PLUGIN, CRI_2, "cri")
# What `disabled_plugins` must not name: without its images plugin containerd 2 does not load the runtime plugin (run).
CRI_PARTS = (*CRI_PLUGINS, "io.containerd.cri.v1.images")


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern of Go's filepath.Match as a regular expression; None where containerd calls it wrong."""
    parts = re.findall(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|.", pattern, re.DOTALL)
    spelled_out = []
    for part in parts:
        if part in ("[", "\\"):
            return None
        if part.startswith("["):
            inner = re.sub(r"([\[&~|])", r"\\\1", part[1:])
            spelled_out.append(f"(?!/)[{inner}")
        else:
            spelled_out.append({"*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(part.removeprefix("\\")))
    try:
        return re.compile("".join(spelled_out), re.DOTALL)
    except re.error:
        return None


def imported(imports: Any, parent: str, paths: Iterable[str], containerd_version: str | None = None) -> list[str]:
    """Return which of these paths the `imports` of a file name, in the order in which containerd reads them.

    parent: the path of the file
    """
    found: list[str] = []
    for item in imports if isinstance(imports, list) else []:
        path = str(item) if isabs(str(item)) else join(_base(str(item), parent, containerd_version), str(item))
        path = f"/{normpath(path).lstrip('/')}"
        pattern = _glob(path) if "*" in path else None
        matches = (each for each in paths if (pattern.fullmatch(each) if pattern else each == path))
        found += sorted(matches, key=lambda each: each.split("/"))
    return found


def _base(path: str, parent: str, containerd_version: str | None) -> str:
    """Return the folder of a relative import: of the file, but for a pattern before 1.7 that of the daemon."""
    old = containerd_version is not None and not versions.at_least(containerd_version, "1.7")
    return "/" if "*" in path and old else dirname(parent)


def read_order(root: str, texts: Mapping[str, str | None], containerd_version: str | None) -> list[str]:
    """Return the paths of the files that containerd reads, in that order: a queue, which each file's imports join.

    root: the path of the root file; texts: path -> text of all files that may be imported, and of the root file
    """
    order: dict[str, None] = {}
    pending = [root]
    for path in pending:
        if path not in order:
            order[path] = None
            pending += imported(_imports_of(texts.get(path), containerd_version), path, texts, containerd_version)
    return [*order]


def _imports_of(text: str | None, containerd_version: str | None) -> object:
    try:
        return as_read(plain(text or ""), containerd_version).get("imports")
    except ConfigurationRefused:
        return []


def reaches(containerd_version: str | None, minor_release: str) -> bool:
    """Return whether a containerd is of a minor release or newer, its pre-releases included."""
    return versions.at_least(versions.major_minor(containerd_version or ""), minor_release)


def merges_drop_ins(containerd_version: str | None) -> bool:
    """Return whether this containerd merges drop-ins with the root file key by key."""
    return reaches(containerd_version, tables.containerd().drop_ins_merge_since)


@lru_cache(maxsize=256)
def schema_of(containerd_version: str) -> ContainerdSchema:
    """Return how a containerd version such as `1.6.20~ds1` reads files; raise ConfigurationRefused.

    One that is newer than all known ones is taken for the newest.
    """
    try:
        mistake = tables.releases()["containerd"].mistake(containerd_version)
        schema = versions.row_of(containerd_version, tables.containerd().schemas)
    except versions.VersionError as error:
        raise ConfigurationRefused(f"{containerd_version!r} is not a containerd version such as 1.7.24") from error
    if mistake or schema is None:
        raise ConfigurationRefused(f"containerd {containerd_version} {mistake}. Remedy: install one that is known")
    return schema


def sections(version: int, containerd_version: str) -> tuple[str, ...]:
    """Return the sections that count for the runtimes in a file of a schema version; none where it is not read."""
    schema = schema_of(containerd_version)
    if version > max(schema.sections) and tables.releases()["containerd"].is_newer(containerd_version):
        version = max(schema.sections)
    return schema.sections.get(max(version, 1), ())


def version_of(document: Mapping[str, Any]) -> int | None:
    """Return the schema version of a file: 1 where it has none, None where it is no version."""
    version = document.get("version", 1)
    is_version = isinstance(version, int) and not isinstance(version, bool) and version >= 0
    return (version or 1) if is_version else None


def section_of(document: Mapping[str, Any], version: int, containerd_version: str) -> str:
    """Return the section that containerd takes for the runtimes of a parsed file, or that a new one is to be.

    Raise ConfigurationRefused where several sections count and have keys in common.
    """
    candidates = sections(version, containerd_version)
    plugins = document.get("plugins", {})
    present = [name for name in candidates if isinstance(plugins, Mapping) and name in plugins]
    tables_of = {name: plugins[name] for name in present if isinstance(plugins[name], Mapping)}
    if len(tables_of) > 1 and len(set().union(*tables_of.values())) < sum(map(len, tables_of.values())):
        raise ConfigurationRefused(
            f"the file has the sections {' and '.join(present)}, which containerd {containerd_version} makes one of, "
            "and both have the same keys. Remedy: move the keys to one of them",
            present[0],
        )
    return next((name for name, table in tables_of.items() if "containerd" in table), (*present, candidates[0])[0])


def counted(documents: list[dict[str, Any]], containerd_version: str) -> list[tuple[str, ...]]:
    """Return, for each file in the order of reading, the sections that count for the runtimes.

    documents: the files' keys as this containerd reads them
    Raise ConfigurationRefused where this is no version of containerd that gpunode knows how to configure.
    """
    schema_of(containerd_version)
    own = [version_of(document) or 1 for document in documents]
    if reaches(containerd_version, tables.containerd().one_schema_before):
        return [sections(version, containerd_version) for version in own]
    if not folds(containerd_version):
        explicit = [version for version, document in zip(own, documents, strict=True) if "version" in document]
        return [sections((explicit or [1])[-1], containerd_version)] * len(documents)
    shared = next((version for version in reversed(own) if version > 1), 3)
    ids = sections(shared, containerd_version)
    # The plugins of a file without a version get the names of version 2.
    return [(*ids, "cri") if version == 1 and CRI_2 in ids else ids for version in own]
