"""docker's daemon.json, changed as one transaction: proven by the daemon's own answer, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.docker.decide import Desired, decide_configuration, decide_version
from gpunode.components.runtimes.docker.state import Docker as State
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME
from gpunode.facts.runtimes import Docker
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, changed, forecast, to_carry_out, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program(
    name="docker",
    unit="docker.service",
    plugin="`docker info`",
    functions=script_file("docker"),
)


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Configure docker's runtimes; reload the daemon where that is enough, else restart it.

    A restart that `desired.allowed` forbids while containers run is reported as pending.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/docker/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Docker, "docker's state")
    if state.daemon_version is None:
        yield from forecast(PROGRAM, desired.installs, state.binary)
        return
    decision = decide_configuration(desired, state)
    said = f"docker runs with default runtime {state.default_runtime}" if state.active else "its file is right"
    change = to_carry_out(decision, said, "docker's daemon.json changes")
    if change is None:
        return
    host.log(_told(state, change.act))
    read = {state.config_path: state.config_text}
    yield from changed(
        PROGRAM,
        change,
        read,
        needs=NVIDIA_RUNTIME if desired.daemon.nvidia else "",
        drain=drain if change.act == "restart" else None,
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


def packages_now(desired: Desired) -> tuple[str | None, tuple[str, ...]]:
    """Return why docker's packages are not changed in this run, None where they are; and the program that is lost."""
    state = read_fact(Docker, "docker's state")
    lost = () if state.daemon_version is not None else ("/usr/bin/dockerd", "/usr/sbin/dockerd")
    return decide_version(desired, state)[1], lost
