"""CRI-O on a node as it is desired, by the files of its own packages and gpunode's."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gpunode.components.runtimes.crio.editor import render
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
OTHERWISE = '[crio.runtime]\ndefault_runtime = "crun"\n'
STATES = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    version=st.sampled_from(["1.31.0", "1.31.0", "1.23.5", None]),
    files=st.sampled_from(
        [
            RIGHT.files,
            ((EARLIER, PACKAGED),),
            (),
            ((EARLIER, PACKAGED), (PATH, OWN), (f"{FOLDER}/zz.conf", OTHERWISE)),
            ((EARLIER, "["), (PATH, OWN)),
            ((PATH, "["),),
            None,
        ]
    ),
    default_runtime=st.sampled_from(["nvidia", "crun", None]),
    cgroup_manager=st.sampled_from(["systemd", "cgroupfs"]),
    runtimes=st.sampled_from([RIGHT.runtimes, RIGHT.runtimes[:1], ()]),
    active=st.booleans(),
    enabled=st.booleans(),
    masked=st.sampled_from([False, False, True]),
    containers=st.sampled_from([0, 2]),
    flags=st.sampled_from([(), (), ("--default-runtime",)]),
)
