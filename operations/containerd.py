"""containerd's runtimes, changed as one transaction: proven before the restart, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.containerd.change import Placement
from gpunode.components.containerd.decide import Desired, decide_configuration, decide_version
from gpunode.components.containerd.drop_in import PATH as DROP_IN
from gpunode.components.containerd.editor import NVIDIA_RUNTIME, Runtimes
from gpunode.components.containerd.merged import restarts, runs_by
from gpunode.facts.containerd import Containerd
from gpunode.operations.failure import node_operation, require
from gpunode.operations.runtime import Program, changed, missing, ready, to_carry_out

PROGRAM = Program(
    name="containerd",
    unit="containerd.service",
    plugin="its CRI plugin",
    functions=script_file("containerd"),
)


@node_operation
def configuration(
    default_runtime: str,
    systemd_cgroup: bool,
    nvidia: bool,
    restart_allowed: bool,
    cdi: bool | None = None,
    placement: Placement = "auto",
    drain: Drain | None = None,
) -> Iterator[Any]:
    """Bring containerd's runtimes to what is asked, and restart it only where what it runs by differs from its files.

    + default_runtime: nvidia or runc
    + systemd_cgroup: SystemdCgroup of runc and nvidia
    + nvidia: whether there is a runtime nvidia
    + restart_allowed: if not, a node that runs containers is left as it is, with the restart pending
    + cdi: enable_cdi; None leaves it as it is
    + placement: root, drop-in, or auto: whichever is safe for the version
    + drain: how the node is emptied before a restart; None where it is not
    """
    yield from ready(PROGRAM)
    state = require(host.get_fact(Containerd), "containerd's state")
    if state.version is None:
        if host.state is not None and host.state.is_executing:
            raise missing(PROGRAM, state.binary)
        yield StringCommand("true")  # a forecast: the package comes with an operation before this one
        return
    runtimes = Runtimes(default=default_runtime, systemd_cgroup=systemd_cgroup, nvidia=nvidia, cdi=cdi)
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    decision = decide_configuration(Desired(runtimes, placement, allowed), state)
    said = f"containerd runs with default runtime {state.default_runtime}"
    desired = to_carry_out(decision, said, "containerd's configuration changes")
    if desired is None:
        return
    felt = restarts(state, desired)
    read = {state.config_path: state.config_text, DROP_IN: None, **{each.path: each.text for each in state.drop_ins}}
    yield from changed(
        PROGRAM,
        desired,
        read,
        since=f"{state.configured_at} {state.unit_written_at}",
        loaded=runs_by(state),
        needs=NVIDIA_RUNTIME if nvidia else "",
        drain=drain if felt else None,
        config=state.config_path,
        binary=state.binary or "containerd",
    )


def packages_wait(version: str | None, restart_allowed: bool) -> str | None:
    """Return why containerd's packages are not upgraded now, by the node as it is; None where nothing is in their way.

    + version: itself or its branch, None: any; restart_allowed: whether containers may feel a restart
    """
    state = require(host.get_fact(Containerd), "containerd's state")
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    return decide_version(Desired(Runtimes(), allowed=allowed, version=version), state)[1]
