"""Write containerd's runtimes as a drop-in beside the root file, which stays as it is.

Which is safe depends on the version: containerd before 2.1 takes a drop-in's CRI section in place of the root file's,
so that the drop-in has to repeat that section, and shadows what is later changed in the root file
(data/containerd.yaml). A drop-in counts only where the root file imports it.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import MutableMapping

import tomlkit

from gpunode import tables, versions
from gpunode.containerd.editor import (
    ConfigurationRefused,
    Runtimes,
    add_runtimes,
    file_version,
    opened,
    parsed,
    table_in,
)
from gpunode.containerd.schema import cri_plugin

PATH = "/etc/containerd/conf.d/99-gpunode.toml"


def drop_in(root: str | None, containerd_version: str, asked: Runtimes) -> str:
    """Return the text of a drop-in with the runtimes that are asked for, to stand beside the root file `root`.

    `root` is None or empty where there is none. Raises ConfigurationRefused where the root file cannot be parsed, or
    no drop-in of its schema version can do it.
    """
    document, schema = opened(root, containerd_version)
    # Of a lower version it would lose its runtimes, of a higher one it would keep containerd from starting.
    if document.get("version", 1) == 1:
        raise ConfigurationRefused(
            "the root file is of schema version 1 (it has no `version` key), and a drop-in has to be of the same; "
            "change the root file instead, or convert it with `containerd config migrate`"
        )
    version = file_version(document, schema, containerd_version)
    _refuse_disabled(document)
    made = tomlkit.document()
    made.add(tomlkit.comment("Written by gpunode. It counts where the root file's `imports` name it."))
    merges = versions.at_least(versions.major_minor(containerd_version), tables.containerd_merges_drop_ins_since())
    plugin = cri_plugin(version)
    section = document.get("plugins", {}).get(plugin)
    if not merges and section is not None:
        made.add(tomlkit.comment("This containerd takes the section below in place of the root file's, which is why"))
        made.add(tomlkit.comment("it repeats that one: change both, or this one counts."))
    made["version"] = version
    plugins = table_in(made, "plugins")
    if not merges and section is not None:
        plugins[plugin] = copy.deepcopy(section)
    add_runtimes(table_in(plugins, plugin), containerd_version, asked)
    return tomlkit.dumps(made)


def is_imported(root: str | None, path: str = PATH) -> bool:
    """Say whether the root file imports a drop-in at `path`; raise ConfigurationRefused where it is not TOML."""
    imports = parsed(root or "").get("imports", [])
    return isinstance(imports, list) and any(fnmatch.fnmatch(path, str(pattern)) for pattern in imports)


def with_import(root: str | None, containerd_version: str, path: str = PATH) -> str:
    """Return the root file with an import of `path`, as it was where it has one; raise ConfigurationRefused."""
    document, _ = opened(root, containerd_version)
    if root and is_imported(root, path):
        return root
    imports = document.get("imports", [])
    if not isinstance(imports, list):
        raise ConfigurationRefused(f"'imports' is no list in this file, but {imports!r}; mend it by hand")
    if "imports" in document:
        imports.append(path)
    else:
        document["imports"] = [path]
    return tomlkit.dumps(document)


def without_import(root: str | None, path: str = PATH) -> str | None:
    """Return the root file without an import of exactly `path`, which is about to go; raise ConfigurationRefused."""
    imports = parsed(root or "").get("imports", [])
    if not isinstance(imports, list) or path not in imports:
        return root
    document = parsed(root or "")
    kept = [pattern for pattern in imports if pattern != path]
    if kept:
        document["imports"] = kept
    else:
        del document["imports"]
    return tomlkit.dumps(document)


def with_imports(root: str, paths: list[str]) -> str:
    """Return the root file with exactly these imports; raise ConfigurationRefused where it is not TOML."""
    document = parsed(root)
    if paths:
        document["imports"] = paths
    elif "imports" in document:
        del document["imports"]
    return tomlkit.dumps(document)


def _refuse_disabled(document: MutableMapping[str, object]) -> None:
    disabled = document.get("disabled_plugins")
    if isinstance(disabled, list) and {"cri", cri_plugin(2), cri_plugin(3)} & {str(name) for name in disabled}:
        raise ConfigurationRefused(
            "the root file's `disabled_plugins` name the CRI plugin, which no drop-in can undo; change the root file "
            "instead"
        )
