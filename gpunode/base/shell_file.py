"""Shell files, each read once: a probe's beside the parser of what it prints, an operation's in templates/scripts."""

from __future__ import annotations

from functools import cache

from gpunode import PACKAGE, ROOMS

SCRIPTS = "templates/scripts"
# What every command on a node begins with. su, and sudo without secure_path, leave a user's PATH, which may lack sbin:
# a program that is installed would seem to be missing.
ENVIRONMENT = "export LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def shell_file(name: str) -> str:
    """Return the text of NAME.sh, a path below gpunode/ or of templates/scripts, without its lines of comment."""
    folder = ROOMS if name.startswith(SCRIPTS) else PACKAGE
    lines = (folder / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def script_file(*names: str) -> str:
    """Return the text of templates/scripts/NAME.sh, one behind the other, on lines of its own."""
    return "".join(f"\n{shell_file(f'{SCRIPTS}/{name}')}\n" for name in names)
