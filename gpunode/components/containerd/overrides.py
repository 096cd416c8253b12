"""Which drop-in overrides what gpunode says of the runtimes, and in which key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.drop_in import PATH, is_imported
from gpunode.components.containerd.editor import NVIDIA_RUNTIME, Runtimes
from gpunode.components.containerd.state import Containerd, DropIn

# What containerd itself takes a key for that no file says.
_UNSAID = {"containerd.default_runtime_name": "runc"}


@dataclass(frozen=True)
class Shadow:
    """Hold a key that a drop-in says otherwise; `says` is None where it leaves the key out of the section it replaces.

    `path` is None where no drop-in accounts for what the merged configuration says.
    """

    path: str | None
    key: str
    says: str | None
    desired: str

    def __str__(self) -> str:
        """Return it as words."""
        if self.path is None:
            return f"{self.key} is {self.says or 'not said'}, not {self.desired}"
        if self.says is None:
            return f"{self.path} replaces the whole section, and leaves out {self.key} = {self.desired}"
        return f"{self.path} says {self.key} = {self.says}, not {self.desired}"


def wanted(desired: Runtimes) -> dict[str, str]:
    """Return what the merged configuration must say: key below the CRI plugin -> value as TOML writes it."""
    cgroup = str(desired.systemd_cgroup).lower()
    found = {
        "containerd.default_runtime_name": desired.default,
        "containerd.runtimes.runc.options.SystemdCgroup": cgroup,
    }
    if desired.nvidia:
        found["containerd.runtimes.nvidia.options.BinaryName"] = NVIDIA_RUNTIME
        found["containerd.runtimes.nvidia.options.SystemdCgroup"] = cgroup
    if desired.cdi is not None:
        found["enable_cdi"] = str(desired.cdi).lower()
    return found


def shadows(state: Containerd, desired: Runtimes, own_drop_in: bool = False) -> Iterator[Shadow]:
    """Yield what drop-ins of others say otherwise, and say last; `own_drop_in`: gpunode's runtimes stand in one."""
    merges = state.version is not None and versions.at_least(
        versions.major_minor(state.version), tables.containerd().drop_ins_merge_since
    )
    others = list(_others(state, own_drop_in))
    for key, value in wanted(desired).items():
        for drop_in in reversed(others):
            said = dict(drop_in.says).get(key)
            if said is None and (merges or not drop_in.section):
                continue
            if (said or _unsaid(key)) != value:
                yield Shadow(drop_in.path, key, said, value)
            break


def unexplained(state: Containerd, desired: Runtimes) -> Iterator[Shadow]:
    """Yield what the merged configuration says otherwise than is asked."""
    merged = dict(state.effective)
    for key, value in wanted(desired).items():
        if merged.get(key) != value:
            yield Shadow(None, key, merged.get(key), value)


def _unsaid(key: str) -> str | None:
    return "false" if key.endswith(".SystemdCgroup") else _UNSAID.get(key)


def _others(state: Containerd, own_drop_in: bool) -> Iterator[DropIn]:
    """Yield the drop-ins of others that are read after what gpunode writes, in the order in which they are read."""
    found = [drop_in for drop_in in state.drop_ins if drop_in.imported]
    if not own_drop_in:
        yield from (drop_in for drop_in in found if drop_in.path != PATH)
        return
    paths = [drop_in.path for drop_in in found]
    if PATH in paths:
        yield from found[paths.index(PATH) + 1 :]
        return
    try:
        imported = is_imported(state.config_text)
    except ConfigurationRefused:
        return  # the root file cannot be read, which whoever is to change it says
    if imported:
        # By a pattern, which is read in the order of names; an import of its own would come last.
        yield from (drop_in for drop_in in found if drop_in.path > PATH)
