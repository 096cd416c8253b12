"""The transaction by which a container runtime's configuration is changed, one for all runtimes (design.md rule 5).

Files are written beside themselves and proven by the program's own check, in the version that runs; then they are put
in place, the daemon is restarted or told to read them where what it runs by differs, and the service and its plugin are
waited for. Where any of that fails, the old files come back, and the daemon with them.

What is a runtime's own stands in a `Program`: containerd's in operations/containerd.py, docker's in
operations/docker.py. CRI-O or podman would be another, beside them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyinfra import host

from gpunode.drain.commands import Drain
from gpunode.runtime import RuntimeChange
from gpunode.unit import unmask
from operations.drain import emptied
from operations.failure import OperationRefused
from operations.keeping import UNREAD, digest_of_text
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

NOTES = "/run/gpunode"


@dataclass(frozen=True)
class Program:
    """Hold what is one runtime's own: its name, its unit, and shell functions.

    + check FILE: the program's own check of a staged file; fails with its words on standard error
    + effective FILE: print `KEY=VALUE` lines of what the program makes of a file; nothing where it cannot tell
    + digest: print the digest of the merged configuration; nothing where the program has none
    + plugin_state: print `ok` where the running daemon serves containers as $expected says, else what is wrong
    """

    name: str
    unit: str
    plugin: str
    functions: str


_SHARED = """
main_process() { systemctl show "$unit" -p MainPID,ActiveEnterTimestamp; }
# By the seconds since the boot: the node's clock may be set meanwhile, by an hour and either way.
now() { read -r up _ < "$proc/uptime"; echo "${up%%.*}"; }
healthy() {
  # By time, not by tries: a client may itself wait for a daemon that is not there.
  end=$(($(now) + 30)); state=
  while [ "$(now)" -lt "$end" ]; do
    if systemctl is-active --quiet "$unit"; then
      state=$(plugin_state 2>/dev/null) || true
      if [ "$state" = ok ]; then
        # One that ends right after it has said that it is ready is none that runs.
        process=$(main_process); sleep 2
        if systemctl is-active --quiet "$unit" && [ "$(main_process)" = "$process" ]; then return 0; fi
        state='ok, and then the service ended'; break
      fi
    fi
    # A machine that goes down takes its daemon with it: that is nobody's fault.
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 0.5
  done
  service=$(systemctl is-active "$unit" || true)
  journalctl -u "$unit" -n 8 --no-pager -o cat >&2 2>/dev/null || true
  return 1
}
note_loaded() {
  if [ -z "$1" ]; then return 0; fi
  mkdir -p "$notes" && printf '%s\\n' "$1" > "$notes/$program.loaded.new" &&
    mv -f "$notes/$program.loaded.new" "$notes/$program.loaded"
}
as_expected() {
  printf '%s\\n' "$expected" | while read -r line; do
    if [ -n "$line" ] && ! grep -qxF "$line" "$1"; then printf '%s\\n' "$line"; fi
  done
}
proven() {
  effective "$1" > "$checkpoint/effective" || reject "$program cannot read the new configuration"
  lacking=$(as_expected "$checkpoint/effective" | tr '\\n' ' ')
  if [ -n "$lacking" ]; then
    reject "$program reads the new configuration, but does not obey it: it lacks $lacking"
  fi
}
written() { printf '%s' "$2" | base64 -d > "$1"; }
"""

# Undone is what was changed, wherever a link leads by then; of what is to go the link itself goes.
_CHECKPOINT = """
while read -r path encoded was; do
  if [ -z "$path" ]; then continue; fi
  real=$path
  [ "$encoded" = - ] || real=$(target_of "$path") || {
    echo "gpunode: $path is a link that leads nowhere; nothing was changed: remove it, and run again" >&2; exit 1; }
  # Here, where a refusal has nothing to undo.
  roots_alone "$real" || exit 1
  keep_file "$path" "$was" "$real" || exit 1
done <<FILES
$files
FILES
main_process > "$checkpoint/process"
"""

_CHANGE = """
if [ -n "$needs" ] && [ ! -x "$needs" ]; then
  echo "gpunode: $needs is missing, and containers would be run by it: install it first; nothing was changed" >&2
  exit 1
fi
while read -r path encoded was; do
  if [ -z "$path" ] || [ "$encoded" = - ]; then continue; fi
  printf '%s' "$encoded" | base64 -d | stage_file "$path" - || {
    echo "gpunode: $(real_file "$path") cannot be written" >&2; exit 1; }
done <<FILES
$files
FILES
if [ -n "$files" ]; then
  written "$checkpoint/staged" "$staged"
  check "$checkpoint/staged" || reject "$program refuses the new configuration"
  proven "$checkpoint/staged"
fi
while read -r path encoded was; do
  if [ -z "$path" ]; then continue; fi
  if [ "$encoded" = - ]; then remove_file "$path"; else place_file "$path"; fi
done <<FILES
$files
FILES
if [ -n "$files" ]; then proven "$config"; fi
systemctl daemon-reload
merged=$(digest)
if [ -n "$loaded" ] && [ "$merged" = "$loaded" ]; then
  echo "gpunode: what $program makes of its files is what it runs by: it is left running" >&2
  note_loaded "$merged"; return 0
fi
case "$act" in
  nothing)
    if [ -n "$merged" ]; then
      echo "gpunode: what $program makes of its files would take a restart, which disruption.allow forbids" >&2; exit 1
    fi;;
  reload)
    touch "$checkpoint/reloaded"
    systemctl reload "$unit" || true;;
  restart)
    # A daemon that was restarted often of late would be refused a start, whatever the cause that has been mended since.
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl restart "$unit" || true;;
esac
healthy || reject "after 30 s $program is $service, $plugin '${state:-not answering}'"
note_loaded "$merged"
"""

# The times of files that were put back would make the daemon look older than they are: it is noted what it runs by,
# where it is still the very process of before.
_RESTORE = """
differs=
while read -r path encoded was; do
  if [ -n "$path" ] && ! is_as_kept "$path"; then differs=yes; fi
done <<FILES
$files
FILES
put_files_back || return 1
expected=
same=$([ "$(main_process)" != "$(cat "$checkpoint/process" 2>/dev/null)" ] || echo yes)
if [ -n "$same" ] && [ ! -e "$checkpoint/reloaded" ] && [ -z "$differs" -o -n "$loaded" -o -z "$(digest)" ]; then
  if [ -n "$differs" ]; then note_loaded "$loaded"; fi
  if systemctl is-active --quiet "$unit"; then echo "gpunode: $program runs on, as before" >&2; fi
  return 0
fi
rm -f "$notes/$program.loaded"
systemctl daemon-reload
systemctl reset-failed "$unit" 2>/dev/null
if [ -n "$same" ] && [ -e "$checkpoint/reloaded" ]; then systemctl reload "$unit"; else systemctl restart "$unit"; fi
if healthy; then note_loaded "$(digest)"; echo "gpunode: $program runs again as before" >&2
else echo "gpunode: $program does not come up with the old files either: it is $service, $plugin '$state'" >&2; fi
"""


def transaction(program: Program) -> Transaction:
    """Return the transaction of one runtime."""
    return Transaction(
        name=program.name,
        shared=f"{_SHARED.strip()}\n{program.functions.strip()}",
        checkpoint=_CHECKPOINT,
        change=_CHANGE,
        restore=_RESTORE,
    )


def ready(program: Program) -> Iterator[Any]:
    """Bring an earlier transaction of this runtime to its end; what it changes is read after this."""
    yield from settled(transaction(program))


def refuse_masked(program: Program, masked: bool) -> None:
    """Raise OperationRefused where the unit may not be started: that is no fault of what is asked."""
    if masked:
        raise OperationRefused(
            f"{program.unit} is masked: somebody forbade that it is started; nothing was changed. Undo that by "
            f"{unmask(program.unit)}, and run again"
        )


def changed(
    program: Program, change: RuntimeChange, read: Mapping[str, str | None], *, since: str = "", loaded: str = "",
    needs: str = "", drain: Drain | None = None, **variables: str,
) -> Iterator[Any]:  # fmt: skip
    """Carry out a change as one transaction; a target that was proven not to work is refused.

    + read: path -> text of each file as it was read, None where it was not there; another one stops the change
    + since: tells one restart without new files from a later one: when the files were last written
    + loaded: digest of the configuration that the daemon runs by, where it need not be restarted for the same one
    + drain: how the node is emptied first; None where it is not, or the daemon is not going to be restarted
    + needs: a program without which the new configuration would run no container
    + variables: what the program's own functions need, above all `config`, the path of its file
    """
    target = target_digest(*(file.text or "" for file in change.files), "" if change.files else since)
    own = transaction(program)
    refuse_failed(own, target)
    files = "\n".join(
        f"{file.path} {'-' if file.text is None else _base64(file.text)} {_as_read(read, file.path)}"
        for file in change.files
    )
    yield from emptied(drain, f"{program.name} is to be restarted")
    yield transaction_command(
        own, target, program=program.name, unit=program.unit, plugin=program.plugin, notes=NOTES, loaded=loaded,
        needs=needs, files=files, staged=_base64(change.staged or ""), expected="\n".join(change.expected),
        act=change.act, proc="/proc", **variables,
    )  # fmt: skip


def pending(reason: str, what: str) -> None:
    """Tell that a change waits until the settings allow it."""
    host.noop(f"restart pending: {reason}")
    host.log(f"restart pending: {what}, but disruption.allow is nothing")


def _as_read(read: Mapping[str, str | None], path: str) -> str:
    return digest_of_text(read[path]) if path in read else UNREAD


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
