"""Change CRI-O's runtimes as one transaction: checked by CRI-O itself, proven by its answer, restored if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.crio.decide import decide_configuration, judge_of, path_of
from gpunode.components.runtimes.judge import Desired
from gpunode.facts.crio import Crio
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, configured, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program("crio", "`crio status config`", script_file("crio"))


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Configure CRI-O's runtimes, and restart it only where it runs by another configuration.

    A restart that `desired.allowed` forbids while containers run is reported as pending; nothing is written then.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/crio/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Crio, "CRI-O's state")
    path = path_of(state)
    yield from configured(
        PROGRAM,
        judge_of(desired, state),
        lambda: decide_configuration(desired, state),
        {path: dict(state.files or ()).get(path)},
        drain=drain,
        config=path,
        binary=state.binary or "crio",
        root=state.root,
        drop_ins=state.folder,
        # CRI-O reads every file in that folder: the new one is staged in the folder above.
        aside=state.folder.rpartition("/")[0],
    )
