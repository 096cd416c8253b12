"""containerd's configuration, changed as one transaction: checked before the restart, restored if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.containerd.decide import Desired, decide_configuration, decide_version
from gpunode.components.runtimes.containerd.merged import needs_restart, running_digest
from gpunode.components.runtimes.containerd.source import source_of
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME
from gpunode.facts.runtimes import Containerd
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, changed, forecast, to_carry_out, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program(
    name="containerd",
    unit="containerd.service",
    plugin="its CRI plugin",
    functions=script_file("containerd"),
)


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Write containerd's configuration, and restart it only where the configuration that it runs by changes.

    A restart that `desired.allowed` forbids while containers run is reported as pending; nothing is written then.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/containerd/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Containerd, "containerd's state")
    if state.version is None:
        yield from forecast(PROGRAM, bool(desired.packages), state.binary)
        return
    as_desired = f"containerd runs with default runtime {state.default_runtime}"
    decision = decide_configuration(desired, state)
    change = to_carry_out(decision, as_desired, "containerd's configuration changes")
    if change is None:
        return
    drop_ins = {state.own_drop_in: None, **{each.path: each.text for each in state.drop_ins}}
    texts, source = {state.config_path: state.config_text, **drop_ins}, source_of(desired.unit, None)
    yield from changed(
        replace(PROGRAM, unit=desired.unit),
        change,
        texts,
        loaded=running_digest(state),
        needs=NVIDIA_RUNTIME if desired.runtimes.nvidia else "",
        drain=drain if needs_restart(state, change) else None,
        config=state.config_path,
        binary=state.binary or "containerd",
        ctr=source.ctr,
        socket=source.socket,
    )


def packages_now(desired: Desired) -> tuple[str | None, tuple[str, ...]]:
    """Return why containerd's packages are not changed in this run, None where they are; and the program that is lost.

    An upgrade restarts the daemon.
    """
    state = read_fact(Containerd, "containerd's state")
    return decide_version(desired, state)[1], () if state.version is not None else ("/usr/bin/containerd",)
