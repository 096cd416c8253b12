"""The drop-ins that override what gpunode sets for the runtimes, and the keys that they override."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.drop_in import PATH, is_imported
from gpunode.components.containerd.editor import NVIDIA_RUNTIME, Runtimes
from gpunode.components.containerd.state import Containerd, DropIn

DEFAULT_RUNTIME = "containerd.default_runtime_name"


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


def desired_values(desired: Runtimes) -> dict[str, str]:
    """Return the values that the merged configuration must have: key below the CRI plugin -> value in TOML."""
    cgroup = str(desired.systemd_cgroup).lower()
    values = {DEFAULT_RUNTIME: desired.default, systemd_cgroup_of("runc"): cgroup}
    if desired.nvidia:
        values["containerd.runtimes.nvidia.options.BinaryName"] = NVIDIA_RUNTIME
        values[systemd_cgroup_of("nvidia")] = cgroup
    if desired.cdi is not None:
        values["enable_cdi"] = str(desired.cdi).lower()
    return values


def overrides(state: Containerd, desired: Runtimes, own_drop_in: bool = False) -> Iterator[Override]:
    """Yield the keys to which another drop-in gives the last value, and another one than desired.

    own_drop_in: whether gpunode's runtimes are in a drop-in
    """
    merges = state.version is not None and versions.at_least(
        versions.major_minor(state.version), tables.containerd().drop_ins_merge_since
    )
    others = list(_others(state, own_drop_in))
    for key, value in desired_values(desired).items():
        for drop_in in reversed(others):
            actual = dict(drop_in.says).get(key)
            if actual is None and (merges or not drop_in.section):
                continue
            if (actual or _default(key)) != value:
                yield Override(drop_in.path, key, actual, value)
            break


def differing(state: Containerd, desired: Runtimes) -> Iterator[Override]:
    """Yield the keys that have another value in the merged configuration than desired."""
    merged = dict(state.effective)
    for key, value in desired_values(desired).items():
        if merged.get(key) != value:
            yield Override(None, key, merged.get(key), value)


def _default(key: str) -> str | None:
    """Return the value that containerd takes for a key that no file has."""
    return "false" if key.endswith(".SystemdCgroup") else {DEFAULT_RUNTIME: "runc"}.get(key)


def _others(state: Containerd, own_drop_in: bool) -> Iterator[DropIn]:
    """Yield the drop-ins that are not gpunode's and are read after what gpunode writes, in the order of reading."""
    imported = [drop_in for drop_in in state.drop_ins if drop_in.imported]
    if not own_drop_in:
        yield from (drop_in for drop_in in imported if drop_in.path != PATH)
        return
    paths = [drop_in.path for drop_in in imported]
    if PATH in paths:
        yield from imported[paths.index(PATH) + 1 :]
        return
    try:
        by_pattern = is_imported(state.config_text)
    except ConfigurationRefused:
        return  # The root file is no TOML: the edit of it reports that.
    if by_pattern:
        # A pattern reads files in the order of their names; an import that gpunode adds would come last.
        yield from (drop_in for drop_in in imported if drop_in.path > PATH)
