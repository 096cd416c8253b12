"""Whole files that gpunode owns, written at once or not at all.

pyinfra's `files.put` needs three facts and writes in place; this needs one and renames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.file import File
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.own_files import keeps
from gpunode.operations.script import STANDARD_INPUT, TEXT, command_with_input, script_command


def write_command(path: str, text: str, mode: str = "644") -> StringCommand:
    """Return the command that writes `text` to `path` by way of a temporary file beside it, owned by root.

    The text travels by standard input: it stands in no list of processes and in no log of commands.
    """
    directory, temporary = path.rpartition("/")[0] or "/", QuoteString(f"{path}.gpunode-new")
    command = StringCommand(
        *("mkdir -p", QuoteString(directory)),
        *("&& umask 077 &&", TEXT, ">", temporary),
        *("&& chown root:root", temporary),
        *("&& chmod", QuoteString(mode), temporary),
        *("&& sync", temporary),
        *("&& mv -fT", temporary, QuoteString(path)),
    )
    return command_with_input(command, text)


def is_written(path: str, text: str, mode: str = "644") -> bool:
    """Say whether a file has this text and mode, and is owned by root, as `write_command` leaves it."""
    present, digest = read_fact(File, path, path=path), hashlib.sha256(text.encode()).hexdigest()
    return (present.sha256, present.mode, present.owner, present.group) == (digest, mode, "root", "root")


_REPLACE = script_file("placing") + STANDARD_INPUT + script_file("replace_file")


def replace_command(path: str, text: str, read: str | None) -> StringCommand:
    """Return the command that gives a file of somebody's another text, and leaves it his: mode, owner, link.

    The text travels by standard input.

    + read: the text as it was read, None where there was none: another one stops the change
    """
    return command_with_input(script_command(_REPLACE, path=path, read=digest_of_text(read)), text)


@node_operation
def content(path: str, text: str, mode: str = "644") -> Iterator[Any]:
    """Keep a file at exactly this text and mode, owned by root.

    + path: absolute path; missing folders are made
    + mode: octal digits without a leading zero
    """
    keeps(path, text, mode)
    if is_written(path, text, mode):
        host.noop(f"{path} is as it should be")
        return
    yield write_command(path, text, mode)


@node_operation
def absent(path: str) -> Iterator[Any]:
    """Remove a file that gpunode wrote."""
    keeps(path, None)
    present = read_fact(File, path, path=path)
    if present.sha256 is None:
        host.noop(f"{path} is absent")
        return
    yield StringCommand("rm", "-f", QuoteString(path))
