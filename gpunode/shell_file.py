"""Shell files: each stands beside the parser of what it prints, or beside its operation, and is read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


@cache
def shell_file(name: str, room: str = "gpunode") -> str:
    """Return the text of ROOM/NAME.sh without lines that are comments alone: a node need not be sent them."""
    lines = (CHECKOUT / room / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
