"""The transaction that changes a container runtime's configuration, one for all runtimes (design.md rule 5).

It stages the files and has the program on the node check them, puts them in place, restarts or reloads the daemon where
it runs by another configuration, and waits for the service and its plugin. If any of that fails, it puts the old files
back, and restarts the daemon with them.

A `Program` has what differs between runtimes: see operations/containerd.py, docker.py and crio.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.decision import Change, Decision
from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.judge import RuntimeJudge
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, RuntimeChange
from gpunode.operations.failure import OperationRefused
from gpunode.operations.keeping import UNREAD, digest_of_text
from gpunode.operations.phase import is_executing
from gpunode.operations.script import STANDARD_INPUT, command_with_input, encoded, script, script_command
from gpunode.operations.transaction import Transaction, refuse_failed, transaction_command
from gpunode.system.service import missing_program

# Runs the script on standard input: it holds a daemon's configuration, and that may hold registry credentials.
_SENT = """sent=$(mktemp); trap 'rm -f "$sent"' EXIT; standard_input > "$sent"; sh "$sent" < /dev/null"""


@dataclass(frozen=True)
class Program:
    """What differs between runtimes: the name, the plugin that serves containers, and shell functions.

    + check FILE: the program's own check of a file; fails with its message on standard error, or in $refused
    + effective FILE: print the `KEY=VALUE` lines that the program makes of a file; nothing where it cannot
    + digest: print the digest of the merged configuration; nothing where the program has none
    + plugin_state: print `ok` where the running daemon serves containers with the values of $expected, else the fault
    """

    name: str
    plugin: str
    functions: str


def transaction(program: Program) -> Transaction:
    """Return the transaction of one runtime."""
    return Transaction(program.name, script_file("runtime") + program.functions)


def configured(
    program: Program,
    judge: RuntimeJudge,
    decide: Callable[[], Decision[RuntimeChange]],
    texts: Mapping[str, str | None],
    *,
    drain: Drain | None,
    restarts: Callable[[RuntimeChange], bool] = lambda change: change.act == "restart",
    loaded: str = "",
    **variables: str,
) -> Iterator[Any]:
    """Carry out the decision about the configuration as one transaction; refuse a target that was proven not to work.

    A runtime that an earlier operation of the run installs gets a stand-in for its change.

    + decide: return the decision about the configuration of an installed runtime
    + texts: path -> text of each file as it was read, None where it is missing; a file that changed since stops the run
    + drain: how the node is emptied before a restart
    + restarts: whether a change restarts the daemon
    + loaded: digest of the configuration that the daemon runs by, where it need not be restarted for the same one
    + variables: what the program's own functions need, above all `config`, the path of its file, and `binary`
    """
    name, desired = program.name, judge.desired
    if judge.installed is None:
        if judge.absent is not None or is_executing():
            raise OperationRefused(judge.absent or missing_program(judge.unit, variables["binary"]))
        yield StringCommand("true")
        return
    as_desired = f"{name} has the default runtime {desired.runtimes.default}"
    change = to_carry_out(decide(), as_desired, f"the configuration of {name} changes")
    if change is None:
        return
    own = transaction(program)
    refuse_failed(own, change.target)
    actual = {path: digest_of_text(text) for path, text in texts.items()}
    files = "\n".join(
        f"{file.path} {'-' if file.text is None else encoded(file.text)} {actual.get(file.path, UNREAD)}"
        for file in change.files
    )
    sent = {"program": name, "files": files, "staged": encoded(change.staged or ""), **variables}
    if judge.actual.active and restarts(change):
        if drain is not None:
            yield check_command(program, sent)
            yield from drain(f"{name} is to be restarted")
        else:
            host.log(f"{name} is restarted; the restart disturbs {judge.containers} running containers")
    yield transaction_command(
        own,
        change.target,
        unit=judge.unit,
        plugin=program.plugin,
        notes="/run/gpunode",
        loaded=loaded,
        # Without this program, the new configuration would run no container.
        needs=NVIDIA_RUNTIME if desired.runtimes.nvidia else "",
        expected="\n".join(change.expected),
        act=change.act,
        proc="/proc",
        **sent,
    )


def check_command(program: Program, variables: Mapping[str, str]) -> StringCommand:
    """Return the command that has the program check its new configuration before the node is drained."""
    settings = "\n".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    body = script(f"{settings}\n{program.functions}{script_file('runtime_check')}")
    return command_with_input(script_command(f"{STANDARD_INPUT}{_SENT}"), body)


def packages_of(judge: RuntimeJudge, *programs: str) -> tuple[str | None, tuple[str, ...]]:
    """Return why a runtime's packages are not changed in this run, None where they are; and which programs are missing.

    + programs: those that its packages bring
    """
    return judge.version()[1], () if judge.installed is not None else programs


def to_carry_out(decision: Decision[Change], as_desired: str, waiting: str) -> Change | None:
    """Return the change of a decision that this run carries out; None where there is none, or it waits.

    Raise OperationRefused where no run can make it.

    + as_desired: the message where nothing is to be changed
    + waiting: the message about a change that waits until the settings allow it
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
