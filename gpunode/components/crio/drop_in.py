"""The drop-in by which CRI-O knows the runtime nvidia, as nvidia-ctk writes it; whatever else it says stays."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.toml_edit import Table, edited, filled, put, table_in
from gpunode.components.crio.merged import Merged

# nvidia-ctk's name for it: two files would contradict each other, and of two the later name counts.
NAME = "99-nvidia.toml"
NVIDIA = "/usr/bin/nvidia-container-runtime"
_HEAD = "# Written by gpunode; what is added here stays.\n"


@dataclass(frozen=True)
class Runtimes:
    """Hold what is desired: the default runtime, whether systemd's cgroups are used, whether nvidia is there."""

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool = True

    @property
    def manager(self) -> str:
        """Return the name of the cgroup manager."""
        return "systemd" if self.systemd_cgroup else "cgroupfs"


def render(text: str | None, beside: Merged, desired: Runtimes) -> str:
    """Return the text of the drop-in with what is desired; `beside` is what the other files come to.

    Raises ConfigurationRefused where the file cannot be edited.
    """

    def edit(document: Table) -> None:
        runtime = table_in(table_in(document, "crio", hidden=True), "runtime")
        put(runtime, "default_runtime", desired.default)
        put(runtime, "cgroup_manager", desired.manager)
        if not desired.systemd_cgroup:
            # CRI-O starts with no slice of systemd's then.
            put(runtime, "conmon_cgroup", "pod")
        if not desired.nvidia:
            return
        runtimes = table_in(runtime, "runtimes", hidden=True)
        # The table takes the whole place of one in an earlier file.
        if "nvidia" not in runtimes:
            filled(table_in(runtimes, "nvidia"), beside.like())
        nvidia = table_in(runtimes, "nvidia")
        put(nvidia, "runtime_path", NVIDIA)
        put(nvidia, "runtime_type", "oci")
        if nvidia.get("inherit_default_runtime"):
            put(nvidia, "inherit_default_runtime", False)

    return edited(text or _HEAD, edit)
