"""A node's GPUs in Slurm, changed as one transaction: judged by slurmd, proven by its start, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.disruption import Disruption
from gpunode.base.shell_file import script_file
from gpunode.components.mig.state import Mig
from gpunode.components.slurm.decide import Desired, decide
from gpunode.components.slurm.state import FOLDER, Untold, texts
from gpunode.facts.cluster import Slurm as SlurmFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.runtime import to_carry_out
from gpunode.operations.script import encoded
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command
from gpunode.settings.slurm import SlurmSettings

_CHANGE = Transaction("slurm", script_file("slurm"))


@node_operation
def devices(settings: SlurmSettings, allowed: str) -> Iterator[Any]:
    """Keep gpunode's files at the node's devices, and slurmd at the files; switched off: the files go.

    + allowed: disruption.allow: below `reset`, devices do not change while steps of jobs run
    """
    yield from settled(_CHANGE)
    state = read_fact(SlurmFact, "the state of Slurm")
    mig = read_fact(MigFact, "the state of MIG") if settings.enabled else Mig("absent")
    wanted: dict[str, str] = {}
    if settings.enabled and state.version is not None:
        try:
            wanted = texts(settings, state, mig)
        except Untold as untold:
            if host.state is not None and host.state.is_executing:
                raise OperationRefused(f"slurm: {untold}; nothing was changed") from untold
            yield StringCommand("true")  # a forecast: the driver, or MIG, comes with an operation before this one
            return
    decision = decide(Desired(settings, Disruption[allowed]), state, mig)
    there = dict(state.texts)
    if decision.refusal is None:
        keeps_all({path: text for path, text in wanted.items() if there.get(path) == text})
    if waits := next((step.waits for step in decision.steps if step.waits), None):
        host.noop(f"restart pending: {waits}")
        host.log(f"restart pending: the node's devices in Slurm are to change; {waits}")
        return
    said = "Slurm knows the GPUs as desired" if settings.enabled else "no files of gpunode's for Slurm"
    change = to_carry_out(decision, said, "the node's devices in Slurm are to change")
    if change is None:
        return
    keeps_all(wanted)
    for path in change.removed:
        keeps(path, None)
    refuse_failed(_CHANGE, change.target)
    touched = sorted({*change.written, *change.removed})
    yield transaction_command(
        _CHANGE,
        change.target,
        etc=FOLDER,
        read="\n".join(f"{path} {digest_of_text(there.get(path))}" for path in touched),
        written="\n".join(f"{path} {encoded(text)}" for path, text in sorted(change.written.items())),
        removed=" ".join(change.removed),
        node=change.name,
        gres=change.gres.replace(",", " "),
        included="yes" if change.included else "",
        nvml="yes" if change.by_nvml else "",
        restart="yes" if change.restart else "",
        controller="yes" if change.controller else "",
        resume="yes" if change.resume else "",
    )
