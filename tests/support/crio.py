"""CRI-O on a node as it is desired, by the files of its own packages and gpunode's."""

from __future__ import annotations

from gpunode.components.runtimes.crio.decide import render
from gpunode.components.runtimes.crio.state import Crio, merged
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes

FOLDER, ROOT = "/etc/crio/crio.conf.d", "/etc/crio/crio.conf"
PATH, EARLIER = f"{FOLDER}/99-nvidia.toml", f"{FOLDER}/10-crio.conf"
# As CRI-O's own packages have it: neither crun nor conmon is on the PATH.
PACKAGED = """[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
"""
OWN = render(None, merged({EARLIER: PACKAGED}, ROOT), Runtimes())
RIGHT = Crio(
    "1.31.0",
    "/usr/bin/crio",
    files=((EARLIER, PACKAGED), (PATH, OWN)),
    active=True,
    enabled=True,
    default_runtime="nvidia",
    cgroup_manager="systemd",
    runtimes=(("crun", "/usr/libexec/crio/crun"), ("nvidia", NVIDIA_RUNTIME)),
)
