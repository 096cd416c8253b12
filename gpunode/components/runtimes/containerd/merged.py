"""The merged configuration of containerd: drop-ins that override gpunode's keys, and whether new files change it.

A file that only adds a default of containerd's (`privileged_without_host_devices = false`, for example) differs, but
the merged configuration does not, and no restart is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpunode.base.toml_edit import ConfigurationRefused, leaves, plain, same
from gpunode.components.runtimes.containerd.companions import RUNC_TYPE
from gpunode.components.runtimes.containerd.drop_in import is_imported
from gpunode.components.runtimes.containerd.editor import cdi_option
from gpunode.components.runtimes.containerd.reading import CRI_PLUGINS, merges_drop_ins
from gpunode.components.runtimes.containerd.state import Containerd, DropIn
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, RuntimeChange, Runtimes

DEFAULT_RUNTIME, CDI = "containerd.default_runtime_name", "enable_cdi"


@dataclass(frozen=True)
class Override:
    """A key with another value than desired.

    path: the drop-in that has this value; None where no drop-in explains the value of the merged configuration
    actual: its value; None where the key is missing
    """

    path: str | None
    key: str
    actual: str | None
    desired: str

    def __str__(self) -> str:
        """Return it as words."""
        if self.path is None:
            return f"{self.key} is {self.actual or 'not set'}, not {self.desired}"
        if self.actual is None:
            return f"{self.path} replaces the whole section, and leaves out {self.key} = {self.desired}"
        return f"{self.path} sets {self.key} = {self.actual}, not {self.desired}"


def systemd_cgroup_of(runtime: str) -> str:
    """Return the key of a runtime's SystemdCgroup."""
    return f"containerd.runtimes.{runtime}.options.SystemdCgroup"


def desired_values(desired: Runtimes, containerd_version: str | None) -> dict[str, str]:
    """Return the values that the merged configuration must have: key below the CRI plugin -> value in TOML."""
    cgroup = str(desired.systemd_cgroup).lower()
    values = {DEFAULT_RUNTIME: desired.default, systemd_cgroup_of("runc"): cgroup}
    if desired.nvidia:
        values["containerd.runtimes.nvidia.options.BinaryName"] = NVIDIA_RUNTIME
        values[systemd_cgroup_of("nvidia")] = cgroup
    if (cdi := cdi_option(desired.cdi, containerd_version)) is not None:
        values[CDI] = str(cdi).lower()
    return values


def overrides(state: Containerd, desired: Runtimes, own_drop_in: bool = False) -> Iterator[Override]:
    """Yield the keys to which another drop-in gives the last value, and another one than desired.

    own_drop_in: whether gpunode's runtimes are in a drop-in
    """
    merges = state.version is not None and merges_drop_ins(state.version)
    others = _others(state, own_drop_in)
    for key, value in desired_values(desired, state.version).items():
        for drop_in in reversed(others):
            actual = dict(drop_in.says).get(key)
            if actual is None and (merges or not drop_in.section):
                continue
            if (actual or _DEFAULTS.get(key)) != value:
                yield Override(drop_in.path, key, actual, value)
            break


def differing(state: Containerd, desired: Runtimes) -> Iterator[Override]:
    """Yield the keys that have another value in the merged configuration than desired."""
    merged = state.effective
    for key, value in desired_values(desired, state.version).items():
        if merged.get(key) != value:
            yield Override(None, key, merged.get(key), value)
    for runtime in state.runtimes if desired.nvidia else ():
        if runtime.name == "nvidia" and runtime.type not in (None, RUNC_TYPE):
            yield Override(None, "containerd.runtimes.nvidia.runtime_type", runtime.type, RUNC_TYPE)


# What containerd takes for a key that no file has.
_DEFAULTS = {DEFAULT_RUNTIME: "runc", **{systemd_cgroup_of(name): "false" for name in ("runc", "nvidia")}}


def _others(state: Containerd, own_drop_in: bool) -> list[DropIn]:
    """Return the drop-ins that are not gpunode's and are read after what gpunode writes, in the order of reading."""
    if not own_drop_in:
        return state.others
    imported = [drop_in for drop_in in state.drop_ins if drop_in.imported]
    paths = [drop_in.path for drop_in in imported]
    if state.own_drop_in in paths:
        return imported[paths.index(state.own_drop_in) + 1 :]
    try:
        by_pattern = is_imported(state.config_text, state.version, state.own_drop_in)
    except ConfigurationRefused:
        return []  # The root file is no TOML: the edit of it reports that.
    # A pattern reads files in the order of their names; an import that gpunode adds would come last.
    return [drop_in for drop_in in imported if by_pattern and drop_in.path > state.own_drop_in]


def needs_restart(state: Containerd, change: RuntimeChange) -> bool:
    """Return whether a change needs a restart: not where the daemon runs by the same merged configuration already."""
    running = running_digest(state)
    try:
        return not (running and running == state.merged and keeps_merged(state, change))
    except ConfigurationRefused:
        # gpunode's drop-in was edited and is no TOML: this change replaces it.
        return True


def running_digest(state: Containerd) -> str:
    """Return the digest of the configuration that a healthy daemon runs by; empty where it needs a restart anyway."""
    healthy = state.active and state.cri_plugin == "ok"
    unit_changed = (state.unit_written_at or 0.0) > (state.started_at or 0.0)
    if not healthy or unit_changed:
        return ""
    return state.loaded or (state.merged or "" if not state.stale else "")


def keeps_merged(state: Containerd, change: RuntimeChange) -> bool:
    """Return whether a change keeps the merged configuration; False where it is not known.

    Raise ConfigurationRefused where one of its files is no TOML.
    """
    if state.merged_text is None or not change.files or not _values_decide(state, change):
        return False
    texts = {state.config_path: state.config_text, **{each.path: each.text for each in state.drop_ins if each.imported}}
    merged = _leaves(state.merged_text)
    for file in change.files:
        before, after = _leaves(texts.get(file.path)), _leaves(file.text)
        if not before.keys() <= after.keys():
            return False
        if any(not (same(before.get(path), value) or same(merged.get(path), value)) for path, value in after.items()):
            return False
    return True


def _values_decide(state: Containerd, change: RuntimeChange) -> bool:
    """Return whether comparing values is enough: no file is removed, and their order and schema stay."""
    written = {file.path: file.text for file in change.files}
    if None in written.values():
        return False
    root = written.get(state.config_path, state.config_text)
    before, after = plain(state.config_text or ""), plain(root or "")
    if before and before.get("version", 1) != after.get("version", 1):
        return False
    if before.get("imports", []) != after.get("imports", []) and state.own_drop_in not in written:
        return False
    # Where a section replaces another one, the section of another drop-in would be lost.
    lost = not merges_drop_ins(state.version) and any(drop_in.section for drop_in in state.others)
    return not lost or state.own_drop_in not in written


def _leaves(text: str | None) -> dict[tuple[str, ...], Any]:
    """Return the values of a file by their paths; the CRI plugin, whose name depends on the version, has one name."""
    paths_of_cri = {("plugins", name) for name in CRI_PLUGINS}
    return {
        ("plugins", "cri", *path[2:]) if path[:2] in paths_of_cri else path: value
        for path, value in leaves(plain(text or ""))
        if path[0] not in ("version", "imports")
    }
