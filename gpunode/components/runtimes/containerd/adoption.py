"""The drop-in that `nvidia-ctk runtime configure` writes, taken over: its settings go to gpunode's own files.

nvidia-ctk 1.18 and newer write the CRI section of the root file again, with a runtime nvidia (run: 1.19.1, 1.20.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, leaves, plain, put, table_in
from gpunode.components.runtimes.containerd.companions import inherited, tables_in
from gpunode.components.runtimes.containerd.drop_in import without_import
from gpunode.components.runtimes.containerd.editor import (
    cdi_is_always_on,
    default_table_counts,
    readable,
    schema_version,
)
from gpunode.components.runtimes.containerd.keys import AsRead, as_read
from gpunode.components.runtimes.containerd.reading import CRI_PLUGINS, section_of
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.runtime import Runtimes, WrittenFile

NVIDIA_DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
_NVIDIA, _RUNC = ("containerd", "runtimes", "nvidia"), ("containerd", "runtimes", "runc")
# What gpunode writes into its own file by the settings.
_OWN = {
    ("containerd", "default_runtime_name"),
    *((*_RUNC, *rest) for rest in (("runtime_type",), ("options", "SystemdCgroup"))),
    *((*_NVIDIA, *rest) for rest in (("runtime_type",), ("options", "SystemdCgroup"), ("options", "BinaryName"))),
}


def adopted(state: Containerd, desired: Runtimes) -> Containerd:
    """Return the node without nvidia-ctk's drop-in: what gpunode does not set itself is in the root file.

    Raise ConfigurationRefused where the drop-in has more than nvidia-ctk writes, or a file cannot be edited.
    """
    drop_in, version = state.drop_in(NVIDIA_DROP_IN), state.version or ""
    if drop_in is None or not drop_in.imported:
        return state
    document = as_read(plain(drop_in.text or ""), version)
    plugins = tables_in(document, "plugins")
    others = [*(document.keys() - {"version", "plugins"}), *(plugins.keys() - {*CRI_PLUGINS})]
    if others:
        raise ConfigurationRefused(
            f"{NVIDIA_DROP_IN} has {', '.join(sorted(others))}, which nvidia-ctk does not write, so that it is not "
            "taken over. Remedy: move that to the root file, or set containerd.adopt_drop_in = False"
        )
    section = next((tables_in(plugins, name) for name in CRI_PLUGINS if name in plugins), {})
    own = _OWN | {("enable_cdi",)} if desired.cdi is not None or cdi_is_always_on(version) else _OWN
    values = [(path, value) for path, value in leaves(section) if path not in own]

    def edit(table: Table) -> None:
        root = AsRead(table, version)
        name = section_of(root, schema_version(root, version), version)
        actual = tables_in(root, "plugins", name, "containerd")
        inherits = _inherits(tables_in(section, *_NVIDIA), actual, default_table_counts(version))
        for path, value in values:
            if path[: len(_NVIDIA)] == _NVIDIA and (inherits or (value == "" and not tables_in(actual, *_NVIDIA[1:]))):
                continue
            inner = table_in(table_in(root, "plugins", hidden=True), name)
            for key in path[:-1]:
                inner = table_in(inner, key, hidden=True)
            put(inner, path[-1], value)

    text = without_import(state.config_text, version, NVIDIA_DROP_IN)
    rest = tuple(each for each in state.drop_ins if each.path != NVIDIA_DROP_IN)
    return replace(state, config_text=edited(readable(text or "", version), edit) if values else text, drop_ins=rest)


def with_removal(files: tuple[WrittenFile, ...], state: Containerd, without: Containerd) -> tuple[WrittenFile, ...]:
    """Return the files of a change of the node without nvidia-ctk's drop-in, with what removes that one.

    state: the node as it is; without: the same node by `adopted`
    """
    if without is state:
        return files
    texts = {without.config_path: without.config_text, **{file.path: file.text for file in files}}
    if texts[state.config_path] == state.config_text:
        del texts[state.config_path]
    # A root file that imports a missing file ends the start of containerd.
    order = sorted(texts, key=lambda path: (texts[path] is None, path == state.config_path))
    return (*(WrittenFile(path, texts[path]) for path in order), WrittenFile(NVIDIA_DROP_IN, None))


def _inherits(nvidia: Mapping[str, Any], containerd: Mapping[str, Any], legacy: bool) -> bool:
    """Return whether a new runtime nvidia of the root file gets the same keys as the drop-in's.

    containerd: the table of that name in the root file
    """
    own = {path[len(_NVIDIA) :] for path in _OWN}
    both = (nvidia, inherited(containerd, legacy))
    keys = ({path: value for path, value in leaves(each) if value and path not in own} for each in both)
    return "nvidia" not in tables_in(containerd, "runtimes") and next(keys) == next(keys)
