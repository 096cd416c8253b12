"""A command that ends with the process that started it: `python -m gpunode.base.parent_watch PARENT PROGRAM WORD…`.

Linux sends it SIGTERM when that process ends in any way, by SIGKILL, too; elsewhere the command goes on by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def bound(words: Sequence[str]) -> list[str]:
    """Return the words of a command that ends with this process; the first is the path of its program."""
    return [sys.executable, "-m", "gpunode.base.parent_watch", str(os.getpid()), *words]


def main(arguments: list[str]) -> int:
    """Replace this process by the command; return 1 where its parent has ended already."""
    parent, program, *words = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have ended before the request.
    if os.getppid() != int(parent):
        return 1
    os.execv(program, [program, *words])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
