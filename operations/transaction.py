"""Transactions: one change that is begun, proven and ended, or undone, whatever happens to the run that asked for it.

design.md rule 5. After a failed command a generator gets no second word, so the whole change is one script on the node.
It runs as a unit of systemd's (a cut connection does not end it), saves what it is about to change, and writes a
journal, which the next run reads first.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.transaction import FOLDER, TransactionJournal
from gpunode.transaction import Journal
from operations.explained import explained_command
from operations.failure import OperationRefused, known
from operations.keeping import KEEPING
from operations.script import TEXT, command_with_input, script, script_command


@dataclass(frozen=True)
class Transaction:
    """Hold what a transaction does, as text of POSIX shell functions' bodies; `set -eu` holds in the first three.

    name: also the unit's, `gpunode-NAME`; while one runs, a second one waits
    checkpoint: save what `change` changes to the empty folder $checkpoint; changes nothing else
    change: the change and its proof; `reject REASON` ends it where the target itself is proven not to work
    restore: put back what is in $checkpoint, and a daemon that was restarted; may be run twice, and long after
    afterwards: what has time once the change has ended for good: an interruption of it undoes nothing
    shared: functions for the others

    All of them have the functions of operations/placing.sh and operations/keeping.sh, by which `checkpoint` keeps the
    files that `change` writes and removes, and `restore` puts them back.
    """

    name: str
    checkpoint: str
    change: str
    restore: str
    shared: str = ""
    afterwards: str = ":"


# The journal is written beside itself, flushed and renamed: it is never half a journal. `reject` writes what a settled
# target needs to be blamed for its failure: where not even that can be written, it was the disk.
# What an earlier change saved, and its script, may still be needed (operations/driver.py): they make room only for a
# change that begins, in three renames, not for one that refuses to.
_MECHANISM = """
umask 077
checkpoint=$folder/$name; journal=$folder/$name.json
note() {
  printf '{"schema": 1, "state": "%s", "target": "%s", "reason": "%s"}\\n' "$1" "$target" "${2:-}" > "$journal.new" &&
    sync "$journal.new"
}
record() { note "$@" && mv -f "$journal.new" "$journal"; }
reject() {
  echo "gpunode: $1" >&2
  if head -c 65536 /dev/zero > "$folder/.room" 2>/dev/null; then
    rejected=$(printf '%s' "$1" | tr '\\n' ' ' | tr -cd 'A-Za-z0-9 .,:;_/()-')
  else echo "gpunode: nothing can be written to $folder: the disk is to blame, not what was asked" >&2; fi
  rm -f "$folder/.room"; exit 1
}
undo() {
  echo "gpunode: the transaction $name did not succeed; putting back what was there before" >&2
  if (set +e; restore); then
    if [ -n "$rejected" ]; then
      record failed "$rejected"
      echo "gpunode: remedy: ask for something else in the settings: this is not tried again until they change, or," \\
        "where the cause lay elsewhere and is mended, until $journal is removed" >&2
    else record restored; fi
  else echo "gpunode: that did not succeed either; the next run tries again" >&2; return 1; fi
}
ended() { code=$?; trap - EXIT; trap '' TERM INT HUP; if [ "$code" -ne 0 ]; then set +e; undo; fi; exit "$code"; }
# `undo REASON` blames the target for a fault that showed after the transaction had ended.
rejected=${2:-}
if [ -e "$checkpoint.before" ] && [ -e "$journal.new" ]; then
  recover_checkpoint "$folder" "$name"
  # The script came back, too.
  [ "$1" != undo ] || exec sh "$folder/$name.sh" "$@"
fi
case "$1" in
  undo) rm -rf "$checkpoint.before"; undo; exit;;
esac
rm -rf "$checkpoint.new" "$checkpoint.before"; mkdir -p "$checkpoint.new"
trap 'rm -rf "$folder/$name.new"' EXIT
checkpoint=$folder/$name.new
save
checkpoint=$folder/$name
note began
sync -f "$folder"
stopped=''
trap 'stopped=yes' TERM INT HUP
if [ -e "$checkpoint" ]; then
  # Its script knows how to put it back, and gives its name away next.
  rm -f "$checkpoint/.script"
  [ ! -e "$folder/$name.sh" ] || ln "$folder/$name.sh" "$checkpoint/.script"
  mv -T "$checkpoint" "$checkpoint.before"
fi
mv -T "$checkpoint.new" "$checkpoint"
case "$0" in "$folder/$name.sh."*) mv -f "$0" "$folder/$name.sh";; esac
mv -f "$journal.new" "$journal"
# /var may be another file system than what is changed: without this a power cut could leave the change and no journal.
sync -f "$folder"
trap ended EXIT
trap 'exit 143' TERM INT HUP
[ -z "$stopped" ] || exit 143
rm -rf "$checkpoint.before" "$folder/$name.sh."*
change
sync -f "$folder"
record done
trap - EXIT TERM INT HUP
(set +e; afterwards) || true
"""

# A change and its undoing are one unit, of which systemd lets one begin at a time: no second controller and no cut
# connection meets either halfway. The unit writes to a file, never to the connection: a broken pipe would kill it
# between two steps. A shutdown waits for it to put things back, which takes longer than systemd's 90 s where DKMS has
# to build.
_IN_UNIT = """
umask 077
# Its unit opens it anew, which nothing else does: where this says the same again, no unit was begun.
log_is() { stat -c '%i %s %z' "$folder/$name.$1" 2>/dev/null || echo none; }
# It leaves $code, and $ran where the unit was begun.
in_unit() {
  code=0; ran=''; before=$(log_is "$2")
  said=$(LC_ALL=C systemd-run --quiet --wait --collect --unit="gpunode-$name" --property=TimeoutStopSec=900 \\
    --description="gpunode's transaction $name, $1 by $by on $(date -u '+%F %T') UTC" \\
    /bin/sh -c "exec > $folder/$name.$2 2>&1; $3" 2>&1) || code=$?
  [ -z "$said" ] || printf '%s\\n' "$said" >&2
  case "$code $said" in
    0*) ;;
    *already*)
      # Of two runs at once, both of which found nothing at work, systemd lets one begin. The log is that one's.
      other=$(systemctl show "gpunode-$name" -p Description | sed 's/^Description=//')
      echo "gpunode: cause: another run is at work on this node: $other; this one changed nothing" >&2
      echo "gpunode: remedy: run again when it has ended: \\`systemctl status gpunode-$name\\` tells" >&2
      exit "$code";;
  esac
  # Where systemd-run itself failed there is none, or an older one.
  [ "$(log_is "$2")" = "$before" ] || { ran=yes; cat "$folder/$name.$2"; }
}
"""

_RUN = """
mkdir -p "$folder"
new=$folder/$name.sh.$$
# A change that began has renamed it.
trap 'rm -f "$new"' EXIT
TEXT > "$new"
sync "$new"
in_unit begun log "exec /bin/sh $new change"
# systemd-run may call it a success (as it ends itself) where the machine's shutdown stopped the unit: 143 is SIGTERM.
if [ "$code" -eq 0 ]; then
  grep -qF '"state": "done", "target": "'"$target" "$folder/$name.json" 2>/dev/null || code=143
fi
[ "$code" -eq 0 ] || grep -qF '"state": "began"' "$folder/$name.json" 2>/dev/null || echo "$ended $name" >&2
if [ "$code" -eq 143 ]; then
  echo "gpunode: cause: the unit gpunode-$name was stopped from outside: the node goes down, or somebody stopped it" >&2
  echo "gpunode: remedy: run again when the node answers; what was changed is put back, then or by now" >&2
fi
exit "$code"
""".replace("TEXT", TEXT, 1)

# Looked at again within the unit: another run may have undone it by then, and have ended a change of its own.
_UNDO = """
began='"state": "began"'
in_unit undone undo.log "grep -qF '$began' $folder/$name.json || exit 0; exec /bin/sh $folder/$name.sh undo"
if [ "$code" -eq 0 ] && grep -qF "$began" "$folder/$name.json"; then
  echo "gpunode: cause: the unit gpunode-$name was stopped before all was put back" >&2
  echo "gpunode: remedy: run again when the node answers" >&2; code=143
fi
"""

# What a transaction that failed says, and its name, where its journal says that nothing is left to put back; one that
# is cut off from the run says nothing.
ENDED = "gpunode: ended: the transaction"

_WAIT = """
other=$(systemctl show "gpunode-$name" -p Description | sed 's/^Description=//')
tries=0
while [ "$tries" -lt 600 ]; do
  case $(systemctl is-active "gpunode-$name" || true) in active|activating|deactivating|reloading) ;; *) exit 0;; esac
  tries=$((tries + 1)); sleep 0.5
done
echo "gpunode: the unit gpunode-$name of another run is still at work after 5 minutes ($other); nothing was changed" >&2
echo "gpunode: look at \\`systemctl status gpunode-$name\\` and run again when it has ended" >&2
exit 1
"""


def target_digest(*parts: str) -> str:
    """Return the digest by which the journal knows what was to be reached: 64 hex digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def transaction_text(transaction: Transaction, target: str, variables: dict[str, str]) -> str:
    """Return the script `sh SCRIPT change|undo`; it holds its variables, so that a later run can still undo it."""
    settings = {"folder": FOLDER, "name": transaction.name, "target": target, **variables}
    functions = {
        "save": transaction.checkpoint, "change": transaction.change, "restore": transaction.restore,
        "afterwards": transaction.afterwards,
    }  # fmt: skip
    return "\n".join(
        [
            *(f"{name}={shlex.quote(value)}" for name, value in settings.items()),
            KEEPING,
            transaction.shared.strip(),
            *(f"{name}() {{\n{body.strip()}\n}}" for name, body in functions.items()),
            _MECHANISM.strip(),
        ]
    )


def transaction_command(transaction: Transaction, target: str, **variables: str) -> StringCommand:
    """Return the command that runs a transaction to its end; the exit status is the script's.

    Script, log and journal stay in /var/lib/gpunode/transactions. `variables` are shell variables of the script.
    """
    encoded = base64.b64encode(script(transaction_text(transaction, target, variables)).encode()).decode()
    # By standard input: it holds a daemon's configuration, and that may hold registry credentials.
    run = script_command(
        _IN_UNIT + _RUN, folder=FOLDER, name=transaction.name, target=target, ended=ENDED, by=_runner()
    )
    return explained_command(command_with_input(run, encoded))


def _runner() -> str:
    """Return who runs this, as another run on the same node shall name them: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# What cannot be put back stays missing, and nothing waits for it any more; what was begun can still be looked up.
_GIVE_UP = """
# One that was stopped may still be undone, and one that was never begun.
[ "$code" -eq 0 ] || [ "$code" -eq 143 ] || [ -z "$ran" ] || {
  mv -f "$folder/$name.json" "$folder/$name.given-up.json"
  echo "gpunode: caution: nobody asks for it any more, so that it is given up ($folder/$name.given-up.json)" >&2
  code=0
}
"""


def settled(
    transaction: Transaction, gives_up: bool = False, meanwhile: Callable[[], Iterator[Any]] = lambda: iter(())
) -> Iterator[Any]:
    """Bring an earlier transaction of that name to its end: wait for a running one, undo an interrupted one.

    gives_up: where it cannot be undone, go on without that
    meanwhile: what is to be done before either
    Facts that the transaction changes are to be read after this.
    """
    yield from settled_by_name(transaction.name, gives_up, meanwhile)


def settled_by_name(
    name: str, gives_up: bool = False, meanwhile: Callable[[], Iterator[Any]] = lambda: iter(())
) -> Iterator[Any]:
    """Bring an earlier transaction to its end, as `settled` does: its script on the node is all that it takes."""
    if _journal(name).running:
        by = _journal(name).by or f"gpunode-{name}"
        host.log(f"another run is at work on this node, and is waited for: {by}")
        yield from meanwhile()
        yield script_command(_WAIT, name=name)
    if _journal(name).interrupted:
        host.log(f"the transaction {name} of an earlier run was interrupted; it is undone first")
        yield from meanwhile()
        undo = f'{_IN_UNIT}{_UNDO}{_GIVE_UP if gives_up else ""}exit "$code"'
        yield explained_command(script_command(undo, folder=FOLDER, name=name, by=_runner()))


def refuse_failed(transaction: Transaction, target: str) -> None:
    """Raise OperationRefused where this very target was tried and proven not to work: runs must not flap."""
    journal = _journal(transaction.name)
    if journal.failed_at(target):
        raise OperationRefused(
            f"{transaction.name}: this was tried before and put back: {journal.reason or 'no reason is recorded'}. "
            f"It is not tried again until the settings change; see {FOLDER}/{transaction.name}.log on the node. Where "
            f"the cause lay elsewhere and is mended, remove {FOLDER}/{transaction.name}.json and run again"
        )


def _journal(name: str) -> Journal:
    journal: Journal = known(
        host.get_fact(TransactionJournal, transaction=name), f"the journal of the transaction {name}"
    )
    return journal


__all__ = [
    "ENDED", "Transaction", "refuse_failed", "settled", "settled_by_name", "target_digest", "transaction_command",
    "transaction_text",
]  # fmt: skip
