"""What is to become of containerd's files: the root file, or a drop-in beside it, whichever is asked or is safe."""

from __future__ import annotations

from typing import Literal

from gpunode.base import tables, versions
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.drop_in import PATH, drop_in, is_imported, with_import, with_imports, without_import
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.overrides import wanted
from gpunode.components.containerd.state import Containerd
from gpunode.components.runtime import Act, RuntimeChange, WrittenFile

Placement = Literal["auto", "root", "drop-in"]


def change(state: Containerd, desired: Runtimes, placement: Placement = "auto") -> RuntimeChange | None:
    """Return what is to be changed, None where files and daemon are as desired.

    Raises ConfigurationRefused where the files cannot be edited. `state.version` must be known.
    """
    version = state.version or ""
    place = placed(state, desired, placement)
    files = _root_alone(state, version, desired) if place == "root" else _with_drop_in(state, version, desired)
    sick = state.active and state.cri_plugin != "ok"
    if not (files or state.stale or sick):
        return None
    if files:
        reason = " and ".join(file.path for file in files)
    else:
        reason = f"its CRI plugin is {state.cri_plugin}" if sick else "its files were changed since it started"
    act: Act = "restart"
    return RuntimeChange(files, _staged(state, files, place), _expected(desired), act, reason)


def placed(state: Containerd, desired: Runtimes, placement: Placement) -> Literal["root", "drop-in"]:
    """Return where the runtimes are to stand.

    `auto`: in a drop-in where containerd merges it key by key, so that kubeadm's or a hand's root file stays as it is;
    else in the root file, since an older containerd takes the drop-in's section in place of the root file's. Where the
    root file already says what is asked, nothing moves.
    """
    if placement != "auto":
        return placement
    version = state.version or ""
    if not versions.at_least(versions.major_minor(version), tables.containerd().drop_ins_merge_since):
        return "root"
    if (
        state.drop_in(PATH) is None
        and state.config_text
        and render(state.config_text, version, desired) == (state.config_text)
    ):
        return "root"
    try:
        drop_in(state.config_text, version, desired)
    except ConfigurationRefused:
        # Such as a root file that disables the CRI plugin: the editor of the root file can mend it, or says why not.
        return "root"
    return "drop-in"


def _root_alone(state: Containerd, version: str, desired: Runtimes) -> tuple[WrittenFile, ...]:
    text = render(without_import(state.config_text), version, desired)
    files = (WrittenFile(state.config_path, text),) if text != state.config_text else ()
    return (*files, WrittenFile(PATH, None)) if state.drop_in(PATH) is not None else files


def _with_drop_in(state: Containerd, version: str, desired: Runtimes) -> tuple[WrittenFile, ...]:
    made = drop_in(state.config_text, version, desired)
    actual = state.drop_in(PATH)
    root = with_import(state.config_text, version)
    # The drop-in first: a root file that imports what is not there keeps an older containerd from starting.
    files = () if actual is not None and actual.text == made else (WrittenFile(PATH, made),)
    return files if root == state.config_text else (*files, WrittenFile(state.config_path, root))


def _staged(state: Containerd, files: tuple[WrittenFile, ...], place: str) -> str | None:
    """Return a root file that can be checked before anything is in place.

    It imports the drop-ins of others by name, and of gpunode's the new copy alone: the old one, which a pattern would
    find, may be about to go, and `config dump` of containerd 2 answers a missing import with its defaults.
    """
    if not files:
        return None
    written = {file.path: file.text for file in files}
    root = written.get(state.config_path) or state.config_text or ""
    imports = [drop_in.path for drop_in in state.drop_ins if drop_in.imported and drop_in.path != PATH]
    if place == "drop-in":
        imports.append(f"{PATH}.gpunode-new" if written.get(PATH) is not None else PATH)
    return with_imports(root, imports)


def _expected(desired: Runtimes) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in wanted(desired).items())


__all__ = ["Placement", "change", "is_imported", "placed"]
