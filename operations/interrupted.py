"""What earlier runs began and did not end is undone, whatever the settings ask for by now; what they left goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.interrupted import Interrupted
from facts.transaction import FOLDER
from gpunode.interrupted import Interrupted as Reading
from operations.failure import known, node_operation
from operations.keeping import KEEPING
from operations.script import script_command
from operations.transaction import settled_by_name

_CLEAR = f"""
{KEEPING}
for name; do
  case "$(systemctl is-active "gpunode-$name.service")" in active|activating|deactivating|reloading) continue;; esac
  clear_checkpoint "$folder" "$name"
done
"""


@node_operation
def ended() -> Iterator[Any]:
    """Undo each change that is still begun, since no operation of this run was one of its kind, and clear leftovers.

    Call it behind all others: what they change they bring to its end themselves, and know how.
    """
    found = _reading()
    for name in found.names:
        yield from settled_by_name(name)
    if found.names:
        found = _reading()
    if found.stale:
        yield script_command(_CLEAR, *found.stale, folder=FOLDER)
    # What is left of a change that is still to be undone may be its way back.
    if found.left and not found.names:
        yield script_command('rm -rf -- "$@"', *found.left)
    if not (found.names or found.stale or found.left):
        host.noop("nothing of an earlier run is left")


def _reading() -> Reading:
    reading: Reading = known(host.get_fact(Interrupted), "what earlier runs began and did not end")
    return reading


__all__ = ["ended"]
