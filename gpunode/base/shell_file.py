"""Shell files, each read once: a probe's beside the parser of what it prints, an operation's in templates/scripts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
SCRIPTS = "templates/scripts"


@cache
def shell_file(name: str) -> str:
    """Return the text of NAME.sh, its path below the package, without lines of comment: a node need not have them."""
    lines = (_PACKAGE / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def script_file(*names: str) -> str:
    """Return the text of templates/scripts/NAME.sh, one behind the other, on lines of its own."""
    return "".join(f"\n{shell_file(f'{SCRIPTS}/{name}')}\n" for name in names)
