"""apt: shell text that its operations share, and more components of the distribution's own archive."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.packages import SOURCE, AptArchive
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.files import write_command
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command
from gpunode.packages.deb import AptArchive as Reading
from gpunode.packages.deb import ArchiveError, more_components

APT_GET = script_file("apt_get")
READ_LISTS = script_file("apt_lists")
FINISH = script_file("apt_finish")
# Refuses a repository's index that is older than the last that was read.
NOT_OLDER = script_file("index_date")
REFRESH = NOT_OLDER + script_file("apt_refresh")
MARK = script_file("apt_mark")
# The packages in $hold, and those in $unhold no more.
HOLD = f"""{APT_GET}{MARK}
unlocked
if [ -n "$hold" ]; then mark hold $hold; fi
if [ -n "$unhold" ]; then mark unhold $unhold; fi
"""


_REMOVE = 'rm -f "$path"'


@node_operation
def components(origin: str, desired: Collection[str]) -> Iterator[Any]:
    """Let apt read components of the distribution's archive that the node's own entries do not enable.

    Our entry goes again where they do. The lists are read by the operation that installs.

    + origin: the Origin of the archive's Release files, such as Debian
    + desired: components beside main
    """
    archive = reading()
    if not archive.components(origin):
        # A fresh machine has no lists yet, and no Release file to tell whose archive it is.
        yield script_command(f"{APT_GET}{READ_LISTS}{REFRESH}refresh ''")
        archive = reading()
    try:
        text = more_components(archive, origin, desired)
    except ArchiveError as error:
        raise OperationRefused(f"the archive of {origin}: {error}; nothing was changed") from error
    keeps(SOURCE, text)
    if text == archive.own:
        enabled = "by an entry of gpunode's" if text else "by the node's own entries"
        host.noop(f"apt reads {', '.join(desired)} of {origin}, {enabled}")
    elif text is None:
        yield script_command(_REMOVE, path=SOURCE)
    else:
        yield write_command(SOURCE, text)


def reading() -> Reading:
    """Return what apt reads; raise OperationRefused where the node does not say."""
    return read_fact(AptArchive, "what apt reads")
