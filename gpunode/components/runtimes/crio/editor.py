"""Edit gpunode's drop-in of CRI-O, and keep everything else in it.

A pure function on text: other keys and comments stay as they are, and a text with the desired values stays unchanged.
"""

from __future__ import annotations

from gpunode.base.toml_edit import Table, edited, filled, put, table_in
from gpunode.components.runtimes.crio.state import Merged, runtimes_of
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes

_HEAD = "# Written by gpunode; what is added here stays.\n"


def render(text: str | None, others: Merged, desired: Runtimes) -> str:
    """Return the text of the drop-in with the desired values.

    Raise ConfigurationRefused where the file cannot be edited.

    text: the actual drop-in; None or empty for none
    others: the merged configuration of all other files
    """

    def edit(document: Table) -> None:
        runtime = table_in(table_in(document, "crio", hidden=True), "runtime")
        put(runtime, "default_runtime", desired.default)
        put(runtime, "cgroup_manager", desired.manager)
        if not desired.systemd_cgroup:
            # CRI-O does not start with a slice of systemd then.
            put(runtime, "conmon_cgroup", "pod")
        if not desired.nvidia:
            if desired.nvidia is False and "nvidia" in runtimes_of(runtime):
                del runtime["runtimes"]["nvidia"]
                if not runtime["runtimes"]:
                    del runtime["runtimes"]
            return
        runtimes = table_in(runtime, "runtimes", hidden=True)
        # This table replaces the whole table of an earlier file.
        if "nvidia" not in runtimes:
            filled(table_in(runtimes, "nvidia"), others.like())
        nvidia = table_in(runtimes, "nvidia")
        put(nvidia, "runtime_path", NVIDIA_RUNTIME)
        put(nvidia, "runtime_type", "oci")
        if nvidia.get("inherit_default_runtime"):
            put(nvidia, "inherit_default_runtime", False)

    return edited(text or _HEAD, edit)
