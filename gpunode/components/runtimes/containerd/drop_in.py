"""containerd's runtimes in a drop-in, next to a root file that keeps its text.

Before 2.1, containerd replaces the root file's CRI section by the one of a drop-in: the drop-in has to repeat that
section, and hides later changes of the root file (data/containerd.yaml). A drop-in counts only where the root file
imports it.
"""

from __future__ import annotations

from functools import lru_cache
from posixpath import dirname
from typing import cast

from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, filled, plain, table_in
from gpunode.components.runtimes.containerd import reading
from gpunode.components.runtimes.containerd.companions import refuse_unknown_default
from gpunode.components.runtimes.containerd.editor import add_runtimes, readable, schema_version
from gpunode.components.runtimes.containerd.keys import AsRead, as_read, folds
from gpunode.components.runtimes.runtime import Runtimes

PATH = "/etc/containerd/conf.d/99-gpunode.toml"
_HEAD = "# Written by gpunode. It counts where the root file's `imports` name it.\n"
_REPEATS = (
    "# This containerd takes the section below in place of the root file's, which is why\n"
    "# it repeats that one: change both, or this one counts.\n"
)


# The nodes of a fleet have the same file, and parsing it takes longer than the whole decision.
@lru_cache(maxsize=256)
def drop_in(root: str | None, containerd_version: str, desired: Runtimes) -> str:
    """Return the text of a drop-in with the desired runtimes.

    root: the text of the root file; None or empty: there is none
    Raise ConfigurationRefused where the root file is no TOML, or no drop-in of its schema version can have them.
    """
    raw = plain(root or "")
    document = AsRead(raw, containerd_version)
    newest = reading.schema_of(containerd_version).default_version
    version = schema_version(document, containerd_version) if root else newest
    _refuse_disabled(document)
    merges = reading.merges_drop_ins(containerd_version)
    name = plugin = reading.section_of(document, version, containerd_version)
    if version == 1:
        if not folds(containerd_version):
            raise ConfigurationRefused(
                "the root file has schema version 1 (no `version` key), and a drop-in needs the same one. Remedy: "
                "change the root file instead, or convert it with `containerd config migrate`"
            )
        # With a root file of version 1, containerd 2 merges what a drop-in of its own version has.
        version = newest
        plugin = reading.sections(version, containerd_version)[0]
    plugins = table_in(document, "plugins")
    section = plugins[plugin] = cast(AsRead, table_in(plugins, name)).table

    def edit(made: Table) -> None:
        own = table_in(AsRead(made, containerd_version, raw if merges else None), "plugins", hidden=True)
        if not merges:
            filled(table_in(own, plugin), section)
        add_runtimes(own, plugin, containerd_version, desired, plugins, merges)
        imports = document.get("imports")
        others = [path for path in imports if path != PATH] if isinstance(imports, list) else []
        actual = table_in(plugins, plugin).get("containerd")
        refuse_unknown_default(desired.default, others, own[plugin]["containerd"], actual)

    return edited(f"{_HEAD}{'' if merges or not section else _REPEATS}version = {version}\n", edit)


@lru_cache(maxsize=256)
def is_imported(root: str | None, containerd_version: str | None = None, path: str = PATH) -> bool:
    """Return whether the root file imports a drop-in at `path`; raise ConfigurationRefused where it is no TOML."""
    return _imports(as_read(plain(root or ""), containerd_version).get("imports"), containerd_version, path)


def with_import(root: str | None, containerd_version: str, path: str = PATH) -> str:
    """Return the root file with an import of `path`; raise ConfigurationRefused where it cannot be edited."""

    def edit(table: Table) -> None:
        document = AsRead(table, containerd_version)
        if not document:
            document["version"] = reading.schema_of(containerd_version).default_version
        imports = document.get("imports", [])
        if not isinstance(imports, list):
            raise ConfigurationRefused(f"'imports' is no list here, but {imports!r}. Remedy: correct it", "imports")
        if _imports(imports, containerd_version, path):
            return
        if "imports" in document:
            imports.append(path)
        else:
            document["imports"] = [path]

    return edited(readable(root or "", containerd_version), edit)


@lru_cache(maxsize=256)
def without_import(root: str | None, containerd_version: str | None = None, path: str = PATH) -> str | None:
    """Return the root file without an import of exactly `path`; raise ConfigurationRefused where it is no TOML."""

    imports = as_read(plain(root or ""), containerd_version).get("imports")
    if root is None or not isinstance(imports, list) or path not in imports:
        return root
    return with_imports(root, [str(pattern) for pattern in imports if pattern != path], containerd_version)


def with_imports(root: str, paths: list[str], containerd_version: str | None) -> str:
    """Return the root file with exactly these imports; raise ConfigurationRefused where it is no TOML."""

    def edit(table: Table) -> None:
        document = AsRead(table, containerd_version)
        if paths:
            document["imports"] = paths
        elif "imports" in document:
            del document["imports"]

    return edited(root, edit)


def _imports(imports: object, containerd_version: str | None, path: str) -> bool:
    # A relative import is one of the root file's folder, which has the folder of the drop-ins.
    return path in reading.imported(imports, dirname(path), [path], containerd_version)


def _refuse_disabled(document: Table) -> None:
    disabled = document.get("disabled_plugins")
    if isinstance(disabled, list) and {*reading.CRI_PARTS} & {str(name) for name in disabled}:
        raise ConfigurationRefused(
            "the root file's `disabled_plugins` name the CRI plugin, which no drop-in can undo. Remedy: change the "
            "root file instead"
        )
