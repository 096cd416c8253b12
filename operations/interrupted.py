"""What earlier runs left goes; what they began of a component that is switched off since is a person's to decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.records import Interrupted
from gpunode.facts.system import Exposed
from gpunode.facts.transaction import FOLDER
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.script import script_command
from gpunode.system.exposed import own
from gpunode.system.transaction import BY_HAND

_CLEAR = script_file("placing", "keeping", "clear_leftovers")


@node_operation
def ended() -> Iterator[Any]:
    """Clear leftovers, and tell of each change that is still begun, since no operation of this run was one of its kind.

    Call it behind all others: what they change they bring to its end themselves, and know how. What nobody asks for any
    more is not undone: its owner may have changed it since, and nobody said what that may disturb.
    """
    found = read_fact(Interrupted, "what earlier runs began and did not end")
    for name in found.names:
        host.log(f"caution: an earlier run began a change of {name} and did not end; {BY_HAND.replace('NAME', name)}")
    if found.stale:
        yield script_command(_CLEAR, *found.stale, folder=FOLDER)
    # What is left of a change that is still to be undone may be its way back.
    if found.left and not found.names:
        yield script_command('rm -rf -- "$@"', *found.left)
    if not (found.names or found.stale or found.left):
        host.noop("nothing of an earlier run is left")


@node_operation
def own_files_protected() -> Iterator[Any]:
    """Take from users other than root the write access to gpunode's files."""
    paths = own(read_fact(Exposed, "who may write files that root runs by"))
    if paths:
        yield script_command('chown root:root -- "$@" && chmod go-w -- "$@"', *paths)
    else:
        host.noop("gpunode's files are root's alone")
