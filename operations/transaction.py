"""Transactions: one change that is begun, proven and ended, or undone, whatever happens to the run that asked for it.

design.md rule 5. After a failed command a generator gets no second word, so the whole change is one script on the node.
It runs as a unit of systemd's (a cut connection does not end it), saves what it is about to change, and writes a
journal, which the next run reads first.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.run_context import RETRIES
from gpunode.base.shell_file import script_file
from gpunode.facts.transaction import FOLDER, TransactionJournal
from gpunode.operations.failure import OperationRefused, read_fact
from gpunode.operations.keeping import KEEPING
from gpunode.operations.node_lock import runner
from gpunode.operations.phase import is_image
from gpunode.operations.script import STANDARD_INPUT, command_with_input, script, script_command
from gpunode.system.transaction import Journal


@dataclass(frozen=True)
class Transaction:
    """Hold what a transaction does.

    name: also the unit's, `gpunode-NAME`; while one runs, a second one waits
    functions: text of POSIX shell functions without arguments; `set -eu` holds in the first two:
    `save` saves what `change` changes to the empty folder $checkpoint, and changes nothing else;
    `change` is the change and its proof; `reject REASON` ends it where the target itself is proven not to work;
    `restore` puts back what is in $checkpoint, and a daemon that was restarted; it may run twice, and long after;
    `afterwards`, which need not be there, is what has time once the change has ended for good: an interruption of it
    undoes nothing

    They have `service_state`, and the functions of placing.sh and keeping.sh in templates/scripts, by which `save`
    keeps the files that
    `change` writes and removes, and `restore` puts them back.
    """

    name: str
    functions: str


_MECHANISM = script_file("transaction")
SERVICE_STATE = script_file("service_state").strip()
_RUN = script_file("transaction_unit") + STANDARD_INPUT + script_file("transaction_run")
_UNDO = script_file("transaction_unit", "transaction_undo")
_GIVE_UP = script_file("transaction_give_up")
_WAIT = script_file("transaction_wait")
# What a transaction that failed says, and its name, where its journal says that nothing is left to put back; one that
# is cut off from the run says nothing.
ENDED = "gpunode: ended: the transaction"


def transaction_text(transaction: Transaction, target: str, variables: dict[str, str]) -> str:
    """Return the script `sh SCRIPT change|undo`; it holds its variables, so that a later run can still undo it."""
    settings = {"folder": FOLDER, "name": transaction.name, "target": target, "image": _image(), **variables}
    return "\n".join(
        [
            *(f"{name}={shlex.quote(value)}" for name, value in settings.items()),
            KEEPING,
            SERVICE_STATE,
            "afterwards() { :; }",
            transaction.functions.strip(),
            _MECHANISM.strip(),
        ]
    )


def transaction_command(transaction: Transaction, target: str, **variables: str) -> StringCommand:
    """Return the command that runs a transaction to its end; the exit status is the script's.

    Script, log and journal stay in /var/lib/gpunode/transactions. `variables` are shell variables of the script.
    """
    # By standard input: it holds a daemon's configuration, and that may hold registry credentials.
    run = script_command(
        _RUN, folder=FOLDER, name=transaction.name, target=target, ended=ENDED, by=runner(), image=_image()
    )
    return command_with_input(run, script(transaction_text(transaction, target, variables)))


def _image() -> str:
    return "yes" if is_image() else ""


def settled(
    transaction: Transaction, gives_up: bool = False, meanwhile: Callable[[], Iterator[Any]] = lambda: iter(())
) -> Iterator[Any]:
    """Bring an earlier transaction of that name to its end: wait for a running one, undo an interrupted one.

    gives_up: where it cannot be undone, go on without that
    meanwhile: what is to be done before either
    Facts that the transaction changes are to be read after this.
    """
    name = transaction.name
    if _journal(name).running:
        by = _journal(name).by or f"gpunode-{name}"
        host.log(f"another run is at work on this node, and is waited for: {by}")
        yield from meanwhile()
        yield script_command(_WAIT, name=name)
    if _journal(name).interrupted:
        host.log(f"the transaction {name} of an earlier run was interrupted; it is undone first")
        yield from meanwhile()
        undo = f'{_UNDO}{_GIVE_UP if gives_up else ""}exit "$code"'
        yield script_command(undo, folder=FOLDER, name=name, by=runner(), image=_image())


def refuse_failed(transaction: Transaction, target: str, version: str | None = None) -> None:
    """Raise OperationRefused where this very target was tried and proven not to work: runs must not flap.

    version: as in Journal.failed_at
    """
    journal = replace(_journal(transaction.name), name=transaction.name)
    if not journal.failed_at(target, version):
        return
    if not RETRIES.of(host):
        raise OperationRefused(journal.refusal)
    host.log(f"{journal.name}: {journal.cause}; it is tried again")


def _journal(name: str) -> Journal:
    return read_fact(TransactionJournal, f"the journal of the transaction {name}", transaction=name)
