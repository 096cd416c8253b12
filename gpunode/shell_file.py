"""Shell files: each stands beside the parser of what it prints, and is read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOM = Path(__file__).parent


@cache
def shell_file(name: str) -> str:
    """Return the text of gpunode/NAME.sh without lines that are comments alone: a node need not be sent them."""
    lines = (ROOM / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
