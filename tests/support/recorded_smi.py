"""What NVIDIA's own nvidia-smi printed: data/nvidia-smi/*.txt.

Over simulated GPUs where a file tells of two, of the command line or of errors; over a real one where it tells of one.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "unit" / "data" / "nvidia-smi"
_CALL = re.compile(r"^\$ nvidia-smi ?(.*)\n((?:.*\n)*?)\[rc=(\d+)\]$", re.MULTILINE)


def recorded(name: str) -> list[tuple[str, str, int]]:
    """Return (arguments, what was printed, exit code) of every call in a file, in order."""
    text = (_FOLDER / name).read_text(encoding="utf-8", errors="replace")
    return [(match[1], match[2], int(match[3])) for match in _CALL.finditer(text)]


def last(name: str, arguments: str) -> str:
    """Return what the last call with these arguments printed."""
    return [printed for line, printed, _ in recorded(name) if line == arguments][-1]
