"""What a transaction keeps of the files that it changes; its shell is in templates/scripts/keeping.sh.

A file that somebody changed between a run's reading and its change stops the change; one that somebody wrote between an
interrupted change and its undoing is kept as FILE.gpunode-lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.transaction import FOLDER
from gpunode.operations.script import script_command

KEEPING = script_file("placing", "keeping").strip()
ABSENT, UNREAD = "none", "unread"
_EMPTY = hashlib.sha256().hexdigest()
_NOTE = f"""
{KEEPING}
[ ! -d "$checkpoint" ] || note_files "$@"
"""


def digest_of_text(text: str | None) -> str:
    """Return what keep_file is told of a file whose text was read; None: it was not there."""
    # What is no UTF-8 was not read as it is.
    if text is not None and "\N{REPLACEMENT CHARACTER}" in text:
        return UNREAD
    return hashlib.sha256(text.encode()).hexdigest() if text else ABSENT


def digest_as_read(digest: str | None) -> str:
    """Return what keep_file is told of a file whose SHA-256 (hex) was read; None: it was not there."""
    return digest if digest and digest != _EMPTY else ABSENT


def noted_command(transaction: str, paths: Iterable[str]) -> StringCommand:
    """Return the command that has a transaction's undoing know that gpunode wrote these files after it.

    Else it would take them for somebody else's, and keep them.
    """
    return script_command(_NOTE, *paths, checkpoint=f"{FOLDER}/{transaction}")
