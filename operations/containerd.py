"""containerd's configuration, changed as one transaction: checked before the restart, restored if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.containerd.decide import Desired, decide_configuration, judge_of
from gpunode.components.runtimes.containerd.merged import needs_restart, running_digest
from gpunode.components.runtimes.containerd.source import source_of
from gpunode.facts.containerd import Containerd
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, configured, packages_of, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program("containerd", "its CRI plugin", script_file("containerd"))


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Write containerd's configuration, and restart it only where the configuration that it runs by changes.

    A restart that `desired.allowed` forbids while containers run is reported as pending; nothing is written then.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/containerd/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Containerd, "containerd's state")
    source = source_of(desired.unit, None)
    yield from configured(
        PROGRAM,
        judge_of(desired, state),
        lambda: decide_configuration(desired, state),
        {state.own_drop_in: None, **state.texts},
        drain=drain,
        restarts=partial(needs_restart, state),
        loaded=running_digest(state),
        config=state.config_path,
        binary=state.binary or "containerd",
        ctr=source.ctr,
        socket=source.socket,
    )


def packages_now(desired: Desired) -> tuple[str | None, tuple[str, ...]]:
    """Return why containerd's packages are not changed in this run, None where they are; and its missing program.

    An upgrade restarts the daemon.
    """
    return packages_of(judge_of(desired, read_fact(Containerd, "containerd's state")), "/usr/bin/containerd")
