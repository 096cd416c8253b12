"""Whether new files would change what containerd makes of all its files, told before they are written.

A file may say what containerd takes for granted (`privileged_without_host_devices = false`, say): then it differs, the
merged configuration does not, and no restart is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.components.containerd.drop_in import PATH
from gpunode.components.containerd.state import CRI_PLUGINS, Containerd
from gpunode.components.runtime import RuntimeChange, WrittenFile

_Path = tuple[str, ...]


def restarts(state: Containerd, change: RuntimeChange) -> bool:
    """Say whether a daemon is to be started anew: a file may say in other words what it already runs by."""
    return not (runs_by(state) and runs_by(state) == state.merged and stays_the_same(state, change))


def runs_by(state: Containerd) -> str:
    """Return the digest of what a healthy daemon runs by; empty where it has to be restarted in any case."""
    healthy = state.active and state.cri_plugin == "ok"
    unit_changed = (state.unit_written_at or 0.0) > (state.started_at or 0.0)
    if not healthy or unit_changed:
        return ""
    return state.loaded or (state.merged or "" if not state.stale else "")


def stays_the_same(state: Containerd, change: RuntimeChange) -> bool:
    """Say whether the merged configuration is after a change what it is now; False where that cannot be told."""
    try:
        return _stays(state, change)
    except ConfigurationRefused:
        # An older drop-in of gpunode's that a hand has spoilt: it is about to be written anew.
        return False


def _stays(state: Containerd, change: RuntimeChange) -> bool:
    if state.merged_text is None or not change.files or not _told_by_leaves(state, change):
        return False
    merged = _leaves(state.merged_text)
    for file in change.files:
        before, after = _leaves(_present(state, file.path)), _leaves(file.text or "")
        if any(path not in after for path in before):
            return False
        for path, value in after.items():
            if not _same(before.get(path), value) and not _same(merged.get(path), value):
                return False
    return True


def _told_by_leaves(state: Containerd, change: RuntimeChange) -> bool:
    """Say whether comparing values is enough: files are read as before, in the same order, and none of them goes."""
    written = {file.path: file for file in change.files}
    if any(file.text is None for file in change.files):
        return False
    root = written.get(state.config_path, WrittenFile(state.config_path, state.config_text))
    before, after = _parsed(state.config_text or ""), _parsed(root.text or "")
    if before and before.get("version", 1) != after.get("version", 1):
        return False
    if before.get("imports", []) != after.get("imports", []) and PATH not in written:
        return False
    merges = versions.at_least(versions.major_minor(state.version or ""), tables.containerd().drop_ins_merge_since)
    # Where a section takes another's place, that of somebody else's drop-in would be lost.
    others = (drop_in for drop_in in state.drop_ins if drop_in.imported and drop_in.path != PATH)
    return merges or PATH not in written or not any(drop_in.section for drop_in in others)


def _present(state: Containerd, path: str) -> str:
    if path == state.config_path:
        return state.config_text or ""
    drop_in = state.drop_in(path)
    return (drop_in.text or "") if drop_in is not None and drop_in.imported else ""


def _leaves(text: str) -> dict[_Path, Any]:
    """Return the values of a file by their paths; the CRI plugin's, which has other names by version, under one."""
    return dict(_walk(_parsed(text), ()))


def _walk(table: dict[str, Any], path: _Path) -> Iterator[tuple[_Path, Any]]:
    for key, value in table.items():
        here = (*path, key)
        if here in (("version",), ("imports",)):
            continue
        if path == ("plugins",) and key in CRI_PLUGINS:
            here = ("plugins", "cri")
        if isinstance(value, dict):
            yield from _walk(value, here)
        else:
            yield here, value


def _same(one: Any, other: Any) -> bool:
    # In Python True is 1.
    return type(one) is type(other) and bool(one == other)


def _parsed(text: str) -> dict[str, Any]:
    return plain(text)
