"""Become a command that is ended with the process that started it: `python -m … PARENT PROGRAM WORD…`.

Linux sends the signal; where it cannot be asked to, the command goes on by itself, as any child does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Replace this process; return 1 where its parent is gone already."""
    parent, program, *words = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have gone before it was asked.
    if os.getppid() != int(parent):
        return 1
    os.execv(program, [program, *words])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
