"""Shell files, each read once: a probe's beside the parser of what it prints, an operation's in templates/scripts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
SCRIPTS = "templates/scripts"


@cache
def shell_file(name: str, room: str = "gpunode") -> str:
    """Return the text of ROOM/NAME.sh without lines that are comments alone: a node need not be sent them."""
    lines = (CHECKOUT / room / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def script_file(*names: str) -> str:
    """Return the text of templates/scripts/NAME.sh, one behind the other, on lines of its own."""
    return "".join(f"\n{shell_file(name, SCRIPTS)}\n" for name in names)
