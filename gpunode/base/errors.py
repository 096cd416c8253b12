"""What a command ends with where it cannot do its work: an error that has a code, or an interruption."""

from __future__ import annotations

from pathlib import Path
from traceback import format_exception_only, walk_tb
from typing import ClassVar

from gpunode.base.messages import Code, command_error

INTERRUPTED = command_error(
    "gpunode.interrupted", "The command was interrupted by Ctrl-C, a lost terminal or a termination.",
    "The message says where nothing was done. Otherwise a change in progress on a node is finished or undone there.",
    remedy="run the command again; it begins with what is not as desired",
)  # fmt: skip


def in_words(error: BaseException) -> str:
    """Return what to print of an exception: its words, or that it is a defect of gpunode, and where.

    Of an error in a user's own file, the form that Python gives it.
    """
    if isinstance(error, MemoryError):
        return "more memory was needed than the process may take"
    # Every kind but these has words for a person.
    if not isinstance(error, ArithmeticError | AssertionError | AttributeError | LookupError | NameError | TypeError):
        return " ".join(str(error).split()) or "it gave no reason"
    is_ours, place = True, ""
    for frame, line in walk_tb(error.__traceback__):
        file, name = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if name.startswith("gpunode.") or "/lib/python" not in file:
            is_ours, place = name.startswith("gpunode."), f" in {Path(file).name}, line {line}"
    if not is_ours:
        return " ".join(format_exception_only(error)[-1].split())
    return f"a defect of gpunode{place} ({error}): please report it"


class CodedError(Exception):
    """Say why a command cannot do its work; `code` is what `gpunode explain` knows it by."""

    code: ClassVar[Code]


class Interrupted(SystemExit, KeyboardInterrupt):
    """Unwind a command for a signal.

    Of a KeyboardInterrupt gevent prints a traceback, of a SystemExit nothing; and a KeyboardInterrupt is what others
    know an interruption by, such as subprocess, which leaves a child a moment to end.
    """
