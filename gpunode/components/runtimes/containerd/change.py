"""The change of containerd's files: of the root file, or of a drop-in next to it."""

from __future__ import annotations

from typing import Any, Literal

import tomlkit

from gpunode.base import tables
from gpunode.base.toml_edit import ConfigurationRefused, filled, plain, table_in
from gpunode.components.runtimes.containerd import reading
from gpunode.components.runtimes.containerd.adoption import adopted, with_removal
from gpunode.components.runtimes.containerd.companions import refuse_unknown_default, tables_in
from gpunode.components.runtimes.containerd.drop_in import drop_in, with_import, with_imports, without_import
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.containerd.keys import as_read
from gpunode.components.runtimes.containerd.merged import desired_values
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.runtime import RuntimeChange, Runtimes, WrittenFile

Placement = Literal["auto", "root", "drop-in"]


def needed_change(
    actual: Containerd, desired: Runtimes, placement: Placement = "auto", adopts: bool = False
) -> RuntimeChange | None:
    """Return the change that files or daemon need; None where they are as desired.

    adopts: whether the drop-in of nvidia-ctk is taken over
    Raise ConfigurationRefused where the files cannot be edited. `actual.version` must be known.
    """
    state = adopted(actual, desired) if adopts else actual
    version = state.version or ""
    place = placement_of(state, desired, placement)
    files = _root_alone(state, version, desired) if place == "root" else _with_drop_in(state, version, desired)
    _refuse_ignored(state, files, state.own_drop_in if place == "drop-in" else state.config_path)
    files = with_removal(files, actual, state)
    _refuse_unknown(state, files, desired.default)
    unhealthy = state.active and state.cri_plugin != "ok"
    if not (files or state.stale or unhealthy):
        return None
    expected = tuple(f"{key}={value}" for key, value in desired_values(desired, version).items())
    since = f"{state.configured_at} {state.unit_written_at}"
    return RuntimeChange(files, _staged(state, files, place), expected, "restart", since)


def placement_of(state: Containerd, desired: Runtimes, placement: Placement) -> Literal["root", "drop-in"]:
    """Return which file gets the runtimes.

    `auto`: a drop-in where containerd merges drop-ins key by key, so that a root file of kubeadm's or an
    administrator's is kept; else the root file, since an older containerd replaces the root file's section by the
    drop-in's. A root file that has the desired values already keeps them.
    """
    if state.generated:
        return "drop-in"
    if placement != "auto":
        return placement
    version = state.version or ""
    if not reading.merges_drop_ins(version):
        return "root"
    if (
        state.drop_in(state.own_drop_in) is None
        and state.config_text
        and render(state.config_text, version, desired) == state.config_text
    ):
        return "root"
    try:
        drop_in(state.config_text, version, desired)
    except ConfigurationRefused:
        # A root file that disables the CRI plugin, for example: an edit of the root file enables it.
        return "root"
    return "drop-in"


def _root_alone(state: Containerd, version: str, desired: Runtimes) -> tuple[WrittenFile, ...]:
    text = render(without_import(state.config_text, version, state.own_drop_in), version, desired)
    files = (WrittenFile(state.config_path, text),) if text != state.config_text else ()
    return (*files, WrittenFile(state.own_drop_in, None)) if state.drop_in(state.own_drop_in) is not None else files


def _with_drop_in(state: Containerd, version: str, desired: Runtimes) -> tuple[WrittenFile, ...]:
    text = drop_in(_beneath(state, version), version, desired)
    actual = state.drop_in(state.own_drop_in)
    root = with_import(state.config_text, version, state.own_drop_in)
    if state.generated and root != state.config_text:
        raise ConfigurationRefused(
            f"{state.unit} writes this file at each start, and it imports no folder. Remedy: use a release that does "
            "(k3s and RKE2: newer than February 2026; k0s: 1.36), and start it once; or leave containerd.unit out"
        )
    # The drop-in first: with a root file that imports a missing file, an older containerd does not start.
    files = () if actual is not None and actual.text == text else (WrittenFile(state.own_drop_in, text),)
    return files if root == state.config_text else (*files, WrittenFile(state.config_path, root))


def _beneath(state: Containerd, version: str) -> str | None:
    """Return what containerd merges with gpunode's drop-in: the root file, with the CRI sections of other drop-ins."""
    if not reading.merges_drop_ins(version):
        return state.config_text
    document = plain(state.config_text or "")
    own, is_changed = {*reading.CRI_PLUGINS} & {*tables_in(document, "plugins")}, False
    for other in (plain(each.text or "") for each in state.others if not each.error):
        for name in reading.CRI_PLUGINS:
            section = tables_in(other, "plugins", name)
            # A section of another schema is not merged key by key in the file, but after its migration.
            if section and reading.version_of(other) == reading.version_of(document) and (name in own or not own):
                filled(table_in(table_in(document, "plugins"), name), section)
                own, is_changed = own or {name}, True
    return tomlkit.dumps(document) if is_changed else state.config_text


def _staged(state: Containerd, files: tuple[WrittenFile, ...], place: str) -> str | None:
    """Return a root file that `containerd config dump` can check before any file is in place.

    It imports other drop-ins by name, and the new copy of gpunode's: a pattern would match the old copy, which this
    change may remove, and `config dump` of containerd 2 prints its defaults where an import is missing.
    """
    if not files:
        return None
    written = {file.path: file.text for file in files}
    root = written.get(state.config_path) or state.config_text or ""
    imports = [drop_in.path for drop_in in state.others]
    if place == "drop-in":
        is_new = written.get(state.own_drop_in) is not None
        imports.append(f"{state.own_drop_in}.gpunode-new" if is_new else state.own_drop_in)
    return with_imports(root, imports, state.version)


def _refuse_unknown(state: Containerd, files: tuple[WrittenFile, ...], default: str) -> None:
    """Raise ConfigurationRefused where neither changed nor merged files have the default runtime."""
    imported = [each for each in state.drop_ins if each.imported]
    texts = {state.config_path: state.config_text, **{each.path: each.text for each in imported if not each.error}}
    texts |= {file.path: file.text for file in files}
    documents = [as_read(plain(text or ""), state.version) for text in texts.values()]
    tables_of = [tables_in(each, "plugins", name, "containerd") for each in documents for name in reading.CRI_PLUGINS]
    merged: dict[str, Any] = {"runtimes": {each.name: {} for each in state.runtimes}}
    # What a drop-in has that cannot be read is not known.
    refuse_unknown_default(default, [each.path for each in imported if each.error], *tables_of, merged)


def _refuse_ignored(state: Containerd, files: tuple[WrittenFile, ...], own: str) -> None:
    """Raise ConfigurationRefused where containerd ignores gpunode's section for the schema version of another drop-in.

    own: the path of the file with gpunode's runtimes
    """
    version = state.version or ""
    others = state.others
    if not others or reading.reaches(version, tables.containerd().one_schema_before):
        return
    texts = state.texts | {file.path: file.text for file in files}
    order = reading.read_order(state.config_path, texts, version)
    unread = {drop_in.path for drop_in in others if drop_in.error}
    documents = {path: {} if path in unread else as_read(plain(texts[path] or ""), version) for path in order}
    sections = dict(zip(order, reading.counted([*documents.values()], version), strict=True))
    name = next((each for each in sections[own] if each in tables_in(documents[own], "plugins")), None)
    expected = reading.version_of(documents[own])
    for path, document in reversed(documents.items()):
        # Of two sections that are made one, the newer one's runtimes win as a whole.
        has_runtimes = "containerd" in tables_in(document, "plugins", reading.RUNTIME_PLUGIN)
        newer = has_runtimes and reading.RUNTIME_PLUGIN in sections[path] and name != reading.RUNTIME_PLUGIN
        actual = reading.version_of(document)
        if path != own and ((name is None and actual != expected) or newer):
            raise ConfigurationRefused(
                f"with the drop-in {path} (schema version {actual}), containerd {version} ignores the "
                f"runtimes of {own} (schema version {expected}). Remedy: write that drop-in in the "
                "same schema version and section, or remove it"
            )
