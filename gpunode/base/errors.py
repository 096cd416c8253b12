"""What a command ends with where it cannot do its work: an error that has a code, or an interruption."""

from __future__ import annotations

from typing import ClassVar


class CodedError(Exception):
    """Say why a command cannot do its work; `code` is what `gpunode explain` knows it by."""

    code: ClassVar[str]


class Interrupted(SystemExit, KeyboardInterrupt):
    """Unwind a command for a signal.

    Of a KeyboardInterrupt gevent prints a traceback, of a SystemExit nothing; and a KeyboardInterrupt is what others
    know an interruption by, such as subprocess, which leaves a child a moment to end.
    """
