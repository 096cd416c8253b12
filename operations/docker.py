"""docker's daemon.json, changed as one transaction: proven by the daemon's own answer, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.docker.decide import Desired, decide_configuration, decide_version
from gpunode.components.docker.editor import NVIDIA_RUNTIME, Daemon
from gpunode.components.docker.state import Docker as State
from gpunode.facts.docker import Docker
from gpunode.operations.failure import node_operation, require
from gpunode.operations.runtime import Program, changed, missing, ready, to_carry_out

PROGRAM = Program(
    name="docker",
    unit="docker.service",
    plugin="`docker info`",
    functions=script_file("docker"),
)


@node_operation
def configuration(
    default_runtime: str,
    systemd_cgroup: bool,
    nvidia: bool,
    restart_allowed: bool,
    cdi: bool | None = None,
    drain: Drain | None = None,
) -> Iterator[Any]:
    """Bring docker's runtimes to what is asked; reload the daemon where that is enough, else restart it.

    + default_runtime: nvidia or runc
    + systemd_cgroup: systemd's cgroup driver, else cgroupfs
    + nvidia: whether there is a runtime nvidia
    + restart_allowed: if not, containers that a restart would end are left alone, with the restart pending
    + cdi: features.cdi; None leaves it as it is
    """
    yield from ready(PROGRAM)
    state = require(host.get_fact(Docker), "docker's state")
    if state.daemon_version is None:
        if host.state is not None and host.state.is_executing:
            raise missing(PROGRAM, state.binary)
        yield StringCommand("true")  # a forecast: the package comes with an operation before this one
        return
    daemon = Daemon(default_runtime, systemd_cgroup, nvidia, cdi)
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    decision = decide_configuration(Desired(daemon, allowed), state)
    said = f"docker runs with default runtime {state.default_runtime}" if state.active else "its file is right"
    desired = to_carry_out(decision, said, "docker's daemon.json changes")
    if desired is None:
        return
    host.log(_told(state, desired.act))
    read = {state.config_path: state.config_text}
    yield from changed(
        PROGRAM,
        desired,
        read,
        since=state.default_runtime or "",
        needs=NVIDIA_RUNTIME if nvidia else "",
        drain=drain if desired.act == "restart" else None,
        config=state.config_path,
        binary=state.binary or "dockerd",
    )


def _told(state: State, act: str) -> str:
    if act == "reload":
        return "docker reads its file again; no container feels it"
    if act == "nothing":
        return "docker already does what its file is going to say"
    if not state.containers:
        return "docker is restarted; no container runs"
    kept = "live-restore keeps them running" if state.live_restore else "they end, for live-restore is off"
    return f"docker is restarted under {state.containers} running containers: {kept}"


def packages_wait(version: str | None, restart_allowed: bool) -> str | None:
    """Return why docker's packages are not upgraded now, by the node as it is; None where nothing is in their way.

    + version: itself or its branch, None: any; restart_allowed: whether containers may feel a restart
    """
    state = require(host.get_fact(Docker), "docker's state")
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    return decide_version(Desired(Daemon(), allowed=allowed, version=version), state)[1]
