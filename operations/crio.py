"""CRI-O's runtimes, changed as one transaction: judged by CRI-O itself, proven by its answer, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.crio.decide import Desired, decide_configuration, path_of
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME
from gpunode.facts.runtimes import Crio
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, changed, to_carry_out, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program(name="crio", unit="crio.service", plugin="`crio status config`", functions=script_file("crio"))


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Configure CRI-O's runtimes, and restart it only where it runs by another configuration.

    A restart that `desired.allowed` forbids while containers run is reported as pending; nothing is written then.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/crio/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Crio, "CRI-O's state")
    decision = decide_configuration(desired, state)
    said = f"CRI-O runs with default runtime {state.default_runtime}" if state.active else "its file is right"
    change = to_carry_out(decision, said, "CRI-O's configuration changes")
    if change is None:
        return
    if change.act == "restart" and state.containers:
        host.log(f"CRI-O is restarted under {state.containers} running containers, which run on")
    path = path_of(state)
    yield from changed(
        PROGRAM,
        change,
        {path: dict(state.files or ()).get(path)},
        needs=NVIDIA_RUNTIME if desired.runtimes.nvidia else "",
        drain=drain if change.act == "restart" and state.active else None,
        config=path,
        binary=state.binary or "crio",
        root=state.root,
        drop_ins=state.folder,
        # CRI-O reads every file in that folder, a new one and a lost one, too.
        aside=state.folder.rpartition("/")[0],
    )
