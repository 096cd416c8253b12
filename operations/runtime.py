"""The transaction by which a container runtime's configuration is changed, one for all runtimes (design.md rule 5).

Files are written beside themselves and proven by the program's own check, in the version that runs; then they are put
in place, the daemon is restarted or told to read them where what it runs by differs, and the service and its plugin are
waited for. Where any of that fails, the old files come back, and the daemon with them.

What is a runtime's own stands in a `Program`: containerd's in operations/containerd.py, docker's in
operations/docker.py, CRI-O's in operations/crio.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.decision import Change, Decision
from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.runtime import RuntimeChange
from gpunode.components.runtimes.service import absent_refusal, missing_program
from gpunode.operations.failure import OperationRefused
from gpunode.operations.keeping import UNREAD, digest_of_text
from gpunode.operations.phase import is_executing
from gpunode.operations.script import encoded
from gpunode.operations.transaction import Transaction, refuse_failed, transaction_command


@dataclass(frozen=True)
class Program:
    """Hold what is one runtime's own: its name, its unit, and shell functions.

    + check FILE: the program's own check of a file; fails with its words on standard error, or in $refused
    + effective FILE: print `KEY=VALUE` lines of what the program makes of a file; nothing where it cannot tell
    + digest: print the digest of the merged configuration; nothing where the program has none
    + plugin_state: print `ok` where the running daemon serves containers as $expected says, else what is wrong
    """

    name: str
    unit: str
    plugin: str
    functions: str


def transaction(program: Program) -> Transaction:
    """Return the transaction of one runtime."""
    return Transaction(program.name, script_file("runtime") + program.functions)


def changed(
    program: Program,
    change: RuntimeChange,
    read: Mapping[str, str | None],
    *,
    loaded: str = "",
    needs: str = "",
    drain: Drain | None = None,
    **variables: str,
) -> Iterator[Any]:
    """Carry out a change as one transaction; a target that was proven not to work is refused.

    + read: path -> text of each file as it was read, None where it was not there; another one stops the change
    + loaded: digest of the configuration that the daemon runs by, where it need not be restarted for the same one
    + drain: how the node is emptied first; None where it is not, or the daemon is not going to be restarted
    + needs: a program without which the new configuration would run no container
    + variables: what the program's own functions need, above all `config`, the path of its file
    """
    own = transaction(program)
    refuse_failed(own, change.target)
    actual = {path: digest_of_text(text) for path, text in read.items()}
    files = "\n".join(
        f"{file.path} {'-' if file.text is None else encoded(file.text)} {actual.get(file.path, UNREAD)}"
        for file in change.files
    )
    if drain is not None:
        yield from drain(f"{program.name} is to be restarted")
    yield transaction_command(
        own,
        change.target,
        program=program.name,
        unit=program.unit,
        plugin=program.plugin,
        notes="/run/gpunode",
        loaded=loaded,
        needs=needs,
        files=files,
        staged=encoded(change.staged or ""),
        expected="\n".join(change.expected),
        act=change.act,
        proc="/proc",
        **variables,
    )


def forecast(program: Program, installs: bool, binary: str | None) -> Iterator[StringCommand]:
    """Yield a stand-in for the change of a runtime that an earlier operation installs; refuse one that none installs.

    + binary: the program that its unit runs, where it has one
    """
    reason = absent_refusal(program.name, installs, binary)
    if reason is not None or is_executing():
        raise OperationRefused(reason or missing_program(program.unit, binary or program.name))
    yield StringCommand("true")


def to_carry_out(decision: Decision[Change], as_desired: str, waiting: str) -> Change | None:
    """Return the change of a decision that this run carries out; None where there is none or it waits, which is told.

    Raise OperationRefused where no run can make it.

    + as_desired: what is said where nothing is to be changed
    + waiting: what is said of a change that waits until the settings allow it
    """
    if decision.refusal is not None:
        raise OperationRefused(decision.refusal)
    for step in decision.steps:
        if step.change is None:
            continue
        if step.waits is None:
            return step.change
        host.noop(f"restart pending: {step.waits}")
        host.log(f"restart pending: {waiting}, but disruption.allow is nothing")
        return None
    host.noop(as_desired)
    return None
