"""CRI-O's runtimes, changed as one transaction: judged by CRI-O itself, proven by its answer, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.crio.change import NVIDIA, Runtimes, path_of
from gpunode.components.crio.decide import Desired, decide_configuration
from gpunode.facts.crio import Crio
from gpunode.operations.failure import node_operation, require
from gpunode.operations.runtime import Program, changed, ready, to_carry_out

PROGRAM = Program(name="crio", unit="crio.service", plugin="`crio status config`", functions=script_file("crio"))


@node_operation
def configuration(
    default_runtime: str, systemd_cgroup: bool, nvidia: bool, restart_allowed: bool, drain: Drain | None = None
) -> Iterator[Any]:
    """Bring CRI-O's runtimes to what is asked, and restart it only where it runs by something else.

    + default_runtime: nvidia, or another runtime that CRI-O knows
    + systemd_cgroup: cgroup_manager systemd, else cgroupfs
    + nvidia: whether there is a runtime nvidia
    + restart_allowed: if not, a node that runs containers is left as it is, with the restart pending
    """
    yield from ready(PROGRAM)
    state = require(host.get_fact(Crio), "CRI-O's state")
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    decision = decide_configuration(Desired(Runtimes(default_runtime, systemd_cgroup, nvidia), allowed), state)
    said = f"CRI-O runs with default runtime {state.default_runtime}" if state.active else "its file is right"
    desired = to_carry_out(decision, said, "CRI-O's configuration changes")
    if desired is None:
        return
    if desired.act == "restart" and state.containers:
        host.log(f"CRI-O is restarted under {state.containers} running containers, which run on")
    path = path_of(state)
    yield from changed(
        PROGRAM,
        desired,
        {path: dict(state.files or ()).get(path)},
        since=state.default_runtime or "",
        needs=NVIDIA if nvidia else "",
        drain=drain if desired.act == "restart" and state.active else None,
        config=path,
        binary=state.binary or "crio",
        root=state.root,
        drop_ins=state.folder,
        # CRI-O reads every file in that folder, a new one and a lost one, too.
        aside=state.folder.rpartition("/")[0],
    )
